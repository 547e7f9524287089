"""Losses of blocks over the rounds that were seen."""

from __future__ import annotations

from node.tui.trends import MAX_VALUES, Trends


def test_each_round_has_one_value(swarm, lease):
    """The newest loss of a round replaces the one before."""
    trends = Trends()
    for round_index, loss in [(1, 5.0), (1, 4.5), (2, 4.0), (5, 3.0)]:
        trends.see(swarm([lease(1, 0, round_index=round_index, loss=loss)]))
    assert {0: [4.5, 4.0, 3.0]} == trends.losses()


def test_block_without_a_loss_adds_nothing(swarm, lease):
    """Holes and newcomers leave the curve as it was."""
    trends = Trends()
    trends.see(swarm([lease(1, 0)]))
    trends.see(swarm([lease(2, 1, loss=None)]))
    assert {0: [2.104]} == trends.losses()


def test_curve_has_a_bounded_length(swarm, lease):
    """Old rounds are forgotten."""
    trends = Trends()
    for round_index in range(MAX_VALUES + 9):
        trends.see(swarm([lease(1, 0, round_index=round_index, loss=float(round_index))]))
    assert [float(number) for number in range(9, MAX_VALUES + 9)] == trends.losses()[0]


def test_round_that_goes_back_starts_no_new_value(swarm, lease):
    """When the newest replica leaves, the block has not gone through a round."""
    trends = Trends()
    trends.see(swarm([lease(1, 0, round_index=7, loss=2.0)]))
    trends.see(swarm([lease(2, 0, round_index=6, loss=2.5)]))
    assert {0: [2.5]} == trends.losses()
