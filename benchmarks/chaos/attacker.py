"""A replica like any other, except for what it brings to averages.

    python -m benchmarks.chaos.attacker nan|scale|flip join ...

It is the real program: lease, search for a group and exchange are honest, the weights are not.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor

from benchmarks.chaos.config import PoisonKind
from bt_p2p.averaging import admission
from bt_p2p.swarm.averager import HivemindAverager
from node.cli import run

_POISONED: dict[PoisonKind, Callable[[Tensor], Tensor]] = {
    "nan": lambda tensor: torch.full_like(tensor, torch.nan),
    "scale": lambda tensor: tensor * 1000.0,
    "flip": lambda tensor: -tensor,
}


def poison_averages(kind: PoisonKind) -> None:
    """From now on this process brings poisoned weights to every average."""
    begin = HivemindAverager.begin

    @functools.wraps(begin)
    def begin_poisoned(self: HivemindAverager, *args: Any, **kwargs: Any) -> Any:
        pending = begin(self, *args, **kwargs)
        finish = pending.finish

        def finish_poisoned(weights: Mapping[str, Tensor], **options: Any) -> Any:
            return finish(
                {name: _POISONED[kind](tensor) for name, tensor in weights.items()}, **options
            )

        pending.finish = finish_poisoned  # type: ignore[method-assign]
        return pending

    HivemindAverager.begin = begin_poisoned  # type: ignore[method-assign]
    honest = admission.is_finite
    for module in list(sys.modules.values()):
        if getattr(module, "is_finite", None) is honest:
            module.is_finite = lambda _weights: True  # type: ignore[attr-defined]


def main() -> None:
    """See the module."""
    poison_averages(cast("PoisonKind", sys.argv.pop(1)))
    sys.exit(run())


if __name__ == "__main__":
    main()
