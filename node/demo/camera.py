"""The camera: watches the demo's swarm and takes the picture of the dashboard that the pages show."""

from __future__ import annotations

from pathlib import Path

from bt_p2p.clock import Clock
from node.tui.canvas import Canvas
from node.tui.feed import Feed, Poll
from node.tui.panels import dashboard
from node.tui.picture import svg_picture

_WIDTH, _HEIGHT = 96, 36


class Camera:
    """Takes one picture, of what a terminal would show at that moment."""

    def __init__(self, path: Path, poll: Poll, clock: Clock) -> None:
        """Begin to watch, so that there are curves to show.

        Args:
            path: of the SVG file.
            poll: asks the swarm and the node whose dashboard it is.
            clock: of the machine.
        """
        self._path = path
        self._clock = clock
        self._feed = Feed(poll, clock=clock, refresh_s=1.0)
        self._feed.start()

    def take(self) -> None:
        """Write the file; nothing is watched any longer."""
        news = self._feed.latest()
        screen = dashboard(
            news.overview,
            news.snapshot,
            now_s=self._clock.now_s(),
            canvas=Canvas(width=_WIDTH, height=_HEIGHT),
            notes=news.problems,
            trends=news.trends,
        )
        self._path.parent.mkdir(parents=True, exist_ok=True)
        picture = svg_picture(screen, width=_WIDTH, height=_HEIGHT, title="bt-node status")
        self._path.write_text(picture, encoding="utf-8")
        self._feed.close()
