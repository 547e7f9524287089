"""The picture: what a terminal would show, as an SVG file that needs nothing else."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType
from rich.terminal_theme import MONOKAI

_FORMAT = """\
<svg class="terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix, .{unique_id}-title {{
  font-family: "DejaVu Sans Mono", Menlo, Consolas, "Liberation Mono", monospace;
  font-size: {char_height}px;
  line-height: {line_height}px;
}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""rich's own, without the fonts that it loads from the net."""


def svg_picture(renderable: RenderableType, *, width: int, height: int, title: str) -> str:
    """A drawing as an SVG document.

    Args:
        renderable: what to draw.
        width: columns.
        height: lines.
        title: of the window.
    """
    console = Console(
        file=io.StringIO(),
        record=True,
        force_terminal=True,
        color_system="truecolor",
        width=width,
        height=height,
        legacy_windows=False,
        _environ={},
    )
    console.print(renderable)
    svg = console.export_svg(title=title, theme=MONOKAI, code_format=_FORMAT, unique_id="picture")
    return "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n"
