"""The page, made from the document by a template that escapes all that it is given."""

from __future__ import annotations

from typing import Any

import jinja2

from bootstrap.page import chart
from node.tui.format import format_count, format_duration, format_loss, format_peer, format_rate

_FILES = "files"


def make_template() -> jinja2.Template:
    """The template of the page, from the installed package."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bootstrap.page", _FILES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": format_count,
        "duration": format_duration,
        "loss": format_loss,
        "peer": format_peer,
        "rate": format_rate,
    }
    return environment.get_template("page.html")


def page_text(template: jinja2.Template, document: dict[str, Any]) -> str:
    """The page that shows a document."""
    charts = {
        run["run_id"]: chart.make_chart([(each["block"], each["points"]) for each in run["losses"]])
        for run in document["runs"]
    }
    return template.render(
        swarm=document,
        charts=charts,
        width=chart.WIDTH,
        height=chart.HEIGHT,
        colours=chart.NUM_COLOURS,
    )
