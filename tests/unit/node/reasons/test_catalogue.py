"""The catalogue has every code, once, in words that fit where they are shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bt_p2p import errors
from node.reasons.catalogue import CATALOGUE
from node.reasons.code import ReasonCode
from node.reasons.outcome import code_of

DOCS = Path(__file__).parents[4] / "docs"


def test_every_code_is_in_the_catalogue_in_order() -> None:
    """So that `why` can explain each, and people find it."""
    assert list(ReasonCode) == list(CATALOGUE) == sorted(ReasonCode)


@pytest.mark.parametrize("code", ReasonCode)
def test_an_entry_is_fit_to_be_shown(code: ReasonCode) -> None:
    """Short title and advice without a full stop, meaning in sentences."""
    entry = CATALOGUE[code]
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code)
    assert len(entry.title) <= 48
    assert entry.meaning[0].isupper()
    assert entry.meaning.endswith(".")
    assert not entry.next_action.endswith(".")
    assert "\n" not in entry.meaning + entry.next_action


def test_the_troubleshooting_page_has_every_code_in_order() -> None:
    """Each with what else there is to say about it."""
    text = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| \[`([a-z-]+)`\]\(reference/reasons\.md#\1\) \|", text, re.MULTILINE)
    assert [code.value for code in ReasonCode] == found


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.GroupNotFormedError("alone"), ReasonCode.PARTNER_LATE),
        (errors.AverageRefusedError("worse"), ReasonCode.AVERAGE_REFUSED),
        (errors.OwnWeightsError("NaN"), ReasonCode.OWN_WEIGHTS_NOT_FINITE),
        (errors.RoundTimeoutError("late"), ReasonCode.AVERAGE_LATE),
        (errors.RoundFailedError("lost"), ReasonCode.AVERAGE_BROKEN),
    ],
)
def test_a_round_without_an_average_has_a_code(
    error: errors.AveragingError, expected: ReasonCode
) -> None:
    """By the type of the error, not by its words."""
    assert expected == code_of(error)
