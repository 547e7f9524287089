"""tools.event_reference: the page on events is what their classes say."""

from __future__ import annotations

from node.events.event import EVENT_CLASSES, PeerSeen
from tools.event_reference import PAGE, reference


def test_the_page_is_up_to_date() -> None:
    """Whoever changes an event writes it anew."""
    assert reference() == PAGE.read_text(encoding="utf-8"), "write it anew: make reference"


def test_every_field_says_what_it_is() -> None:
    """In its description, and so on the page."""
    silent = [
        f"{each.__name__}.{name}"
        for each in (*EVENT_CLASSES, PeerSeen)
        for name, field in each.model_fields.items()
        if not field.description and name != "kind"
    ]
    assert [] == silent
