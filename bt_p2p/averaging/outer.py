"""The outer optimizer: what a round changed goes on for a while.

A round's average moved the weights from where the round began. Nesterov momentum over these moves
lets the next round begin a little further on (by default the outer learning rate is 1):

    move = average - start;   velocity <- momentum * velocity + move
    next start = start + lr * (move + momentum * velocity)

Reference: DiLoCo, arXiv 2311.08105, algorithm 1, whose outer gradient is -move.

Each replica does this for itself. Replicas that have been through the same rounds begin the next one
with the same weights; a newcomer begins with the average, and differs by less and less.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


class OuterMomentum:
    """The velocity of one replica."""

    def __init__(self, momentum: float, *, lr: float = 1.0) -> None:
        """Stand still; a momentum of 0 with an lr of 1 leaves averages as they are."""
        self._momentum = momentum
        self._lr = lr
        self._start: dict[str, Tensor] | None = None
        self._velocity: dict[str, Tensor] = {}

    def begin(self, weights: Mapping[str, Tensor]) -> None:
        """A round begins with these weights, which are kept and must not change afterwards."""
        if self._momentum or self._lr != 1:
            self._start = dict(weights)

    def step(self, average: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The weights of the next round's start, from the average that ends this round."""
        if self._start is None:
            return average
        start, self._start = self._start, None
        following = {}
        for name, before in start.items():
            move = average[name] - before
            velocity = self._velocity.get(name)
            velocity = move if velocity is None else self._momentum * velocity + move
            self._velocity[name] = velocity
            following[name] = before + self._lr * (move + self._momentum * velocity)
        return following

    def reset(self) -> None:
        """A round without an average: the moves before it say nothing about the next one."""
        self._start = None
        self._velocity = {}
