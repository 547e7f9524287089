"""tools.reasons_page: the page of reason codes is what the catalogue says."""

from __future__ import annotations

from tools.reasons_page import PAGE, page


def test_the_page_is_up_to_date() -> None:
    """Whoever changes the catalogue writes it anew."""
    assert page() == PAGE.read_text(encoding="utf-8"), "write it anew: make reference"
