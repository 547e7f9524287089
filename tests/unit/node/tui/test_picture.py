"""A drawing as a file."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from node.tui.canvas import Canvas
from node.tui.panels import dashboard
from node.tui.picture import svg_picture

SVG = "{http://www.w3.org/2000/svg}"


def test_picture_shows_the_dashboard_and_needs_nothing_else(healthy, node, now_s):
    """Well-formed, with the text in it, and without anything to load from elsewhere."""
    screen = dashboard(healthy, node(), now_s=now_s, canvas=Canvas(width=96, height=36))
    svg = svg_picture(screen, width=96, height=36, title="bt-node status")
    texts = [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    shown = "".join(texts).replace("\xa0", " ")
    assert "bt-node status" in shown
    assert "block 1" in shown
    assert "9 averaged, 2 alone, " in shown
    assert not re.search(r"url\((?!#)|@import|@font-face|href", svg)
    assert ["http://www.w3.org/2000/svg"] == re.findall(r"https?://[^\"']+", svg)
