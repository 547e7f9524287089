"""A broken part is told once, and a stall is not a broken part."""

from __future__ import annotations

from node.health_watch import HealthWatch


class Bench:
    """Two parts that answer what the test says."""

    def __init__(self) -> None:
        self.answers = ["", ""]
        self.told: list[str] = []
        self.watch = HealthWatch(
            [lambda: self.answers[0], lambda: self.answers[1]], self.told.append
        )


def test_one_answer_missed_is_forgiven() -> None:
    """A loaded machine is late now and then."""
    bench = Bench()
    for answer in ("late", "", "late", ""):
        bench.answers[1] = answer
        bench.watch.look()

    assert [] == bench.told


def test_two_in_a_row_are_told_once() -> None:
    """With the reason found last."""
    bench = Bench()
    bench.answers = ["", "late"]
    bench.watch.look()
    bench.answers = ["gone", "late"]
    for _ in range(3):
        bench.watch.look()

    assert ["gone"] == bench.told


def test_what_ends_after_the_watch_is_not_told() -> None:
    """A node that leaves ends its parts."""
    bench = Bench()
    bench.answers = ["gone", ""]
    bench.watch.look()
    bench.watch.stop()
    bench.watch.look()

    assert [] == bench.told
