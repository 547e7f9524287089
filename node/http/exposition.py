"""Figures as Prometheus reads them, made anew from a view each time they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

Collect = Callable[[], Iterable[Metric]]
"""Makes all families of figures."""


class Exposition:
    """GET /metrics."""

    def __init__(self, collect: Collect) -> None:
        """Expose what a function makes."""
        # not the global registry: what other libraries count there is not documented
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Families(collect))

    async def respond(self, _request: Request) -> Response:
        """The figures of now."""
        return Response(
            generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4}
        )


class _Families(Collector):
    def __init__(self, collect: Collect) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        """What the registry asks."""
        return self._collect()
