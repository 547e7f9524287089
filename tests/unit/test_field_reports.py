"""docs/reference/field-reports.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "field-reports.md"
NAMED = re.compile(r"`(?P<file>[\w/]+\.py)?(?:::(?P<test>\w+))?`")


def named_tests() -> list[tuple[str, str | None]]:
    """File and test of each mention; a mention without a file is of the file before it."""
    found, file = [], ""
    for match in NAMED.finditer(PAGE.read_text(encoding="utf-8")):
        file = match["file"] or file
        if match["file"] or match["test"]:
            found.append((file, match["test"]))
    return found


def test_every_test_that_the_page_names_is_there():
    """A renamed test takes its row with it."""
    named = named_tests()
    assert len(named) > 80
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not (ROOT / "tests" / file).is_file()
        or (test and f"def {test}(" not in (ROOT / "tests" / file).read_text(encoding="utf-8"))
    ]
    assert [] == missing


def test_every_row_says_what_is_done_and_what_shows_it():
    """No row without either."""
    rows = [line.split("|")[1:-1] for line in PAGE.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if len(row) == 3 and row[0].strip() not in {"Trouble", "---"}]
    assert len(rows) > 30
    for trouble, behaviour, shown in rows:
        assert behaviour.strip(), trouble
        assert shown.strip(), trouble
