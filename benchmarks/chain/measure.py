"""All answers of a config -> figures. The ways answer in turn, so that ratios are fair."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from torch import Tensor

from benchmarks.chain.config import Link, Setting, Way
from benchmarks.chain.report import Crowd, Figures, Smallest
from benchmarks.chain.timing import Answer, time_answer
from bt_p2p.chain.drafter import BlockDrafter, Drafter
from bt_p2p.chain.generate import GenerateOptions
from bt_p2p.chain.modes import GenerateMode
from bt_p2p.chain.sampling import Sampling
from bt_p2p.model.block import initial_block
from bt_p2p.model.wire import encode_tensors

if TYPE_CHECKING:
    from benchmarks.chain.swarm import ChainSwarm

_ANSWER_TIMEOUT_S = 900.0
_WARM_UP_BYTES = 8
_NUM_SMALLEST = 20
_OBJECTIVES: dict[Way, str] = {"baseline": "cascade"}
"""Whose blocks need each other; those of the other ways are `plain`."""
_MODES: dict[Way, GenerateMode] = {"draft": "draft", "sweep": "sweep"}

Weights = Sequence[Mapping[str, Tensor]]
Tick = Callable[[str], None]
"""Told what was answered just now."""
StartSwarm = Callable[..., AbstractContextManager["ChainSwarm"]]
"""`swarm.chain_swarm`, or one in memory that starts no programs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Of one setting."""

    figures: list[Figures]
    crowds: list[Crowd]
    smallest: list[Smallest]
    num_bypasses: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Timed:
    """An answer and the CPU time it took."""

    answer: Answer
    cpu_s: dict[str, float]


class SettingRun:
    """The holders of one setting, and what is asked of them."""

    def __init__(
        self,
        setting: Setting,
        weights: Weights | None,
        prompts: Sequence[bytes],
        start_swarm: StartSwarm,
    ) -> None:
        """Start nothing yet; one prompt for each repeat."""
        self._start_swarm = start_swarm
        self._setting = setting
        self._weights = weights
        self._prompts = prompts
        self._link = setting.links[0]
        self._swarms: dict[tuple[str, bool], ChainSwarm] = {}
        """By objective, and whether they are dialled without a relay."""
        self._guessing = initial_block(setting.manifest("plain"), 0)
        if weights is not None:
            self._guessing.load_weights(weights[0])

    def run(self, folder: Path, tick: Tick, say: Tick) -> Measured:
        """Start holders, ask for all answers, and end the holders; says all figures at once."""
        setting = self._setting
        figures: list[Figures] = []
        smallest: list[Smallest] = []
        with ExitStack() as stack:
            for is_loopback in {link.is_loopback for link in setting.links}:
                for objective in sorted({_OBJECTIVES.get(way, "plain") for way in setting.ways}):
                    started = stack.enter_context(self._start(objective, folder, is_loopback))
                    self._swarms[objective, is_loopback] = started
            for link in setting.links:
                self._set_link(link)
                smallest.append(self._ask_smallest(link))
                for way in setting.ways:
                    self._ask(way, self._prompts[0], _WARM_UP_BYTES)
                for length in setting.lengths:
                    found = self._measure(link, length, tick)
                    for one in found:
                        say(one.title)
                    figures += found
            crowds = self._measure_crowds(tick)
            num_bypasses = sum(swarm.num_bypasses() for swarm in self._swarms.values())
        return Measured(
            figures=figures, crowds=crowds, smallest=smallest, num_bypasses=num_bypasses
        )

    def _start(
        self, objective: str, folder: Path, is_loopback: bool
    ) -> AbstractContextManager[ChainSwarm]:
        own = folder / f"{self._setting.name}-{objective}-{'direct' if is_loopback else 'relayed'}"
        own.mkdir(parents=True)
        paths = None
        if self._weights is not None and objective == "plain":
            paths = [own / f"{block}.safetensors" for block in range(len(self._weights))]
            for path, tensors in zip(paths, self._weights, strict=True):
                path.write_bytes(encode_tensors(tensors))
        manifest = self._setting.manifest(objective)
        return self._start_swarm(manifest, own, weights=paths, is_relayed=not is_loopback)

    def _measure(self, link: Link, length: int, tick: Tick) -> list[Figures]:
        found: dict[Way, list[Timed]] = {way: [] for way in self._setting.ways}
        for prompt in self._prompts:
            for way, timed in found.items():
                timed.append(self._ask(way, prompt, length))
                tick(f"{self._setting.name}, {link.title}: {way} {length} bytes")
        like_ar = [one.answer.data for one in found.get("ar", [])]
        blocks = self._setting.manifest("plain").model.num_blocks
        return [
            make_figures(self._setting.name, blocks, link, way, timed, like_ar)
            for way, timed in found.items()
        ]

    def _measure_crowds(self, tick: Tick) -> list[Crowd]:
        setting, crowds = self._setting, []
        for link in setting.links if setting.sessions else ():
            self._set_link(link)
            for count in setting.sessions:
                groups = []
                for _ in self._prompts:
                    groups.append(self._ask_together(count))
                    tick(f"{setting.name}, {link.title}: {count} sessions at once")
                crowds.append(make_crowd(setting.name, link, groups))
        return crowds

    def _set_link(self, link: Link) -> None:
        self._link = link
        for (_, is_loopback), swarm in self._swarms.items():
            if not is_loopback:
                swarm.set_link(link)

    def _swarm(self, objective: str) -> ChainSwarm:
        """Whose holders are behind the link that was set last."""
        return self._swarms[objective, self._link.is_loopback]

    def _ask_smallest(self, link: Link) -> Smallest:
        swarm = self._swarm(_OBJECTIVES.get(self._setting.ways[0], "plain"))
        swarm.ask()  # the link was another one just before
        times_ms = [swarm.ask() for _ in range(_NUM_SMALLEST)]
        return Smallest(
            setting=self._setting.name,
            link=link,
            median_ms=median(times_ms),
            lowest_ms=min(times_ms),
        )

    def _ask(self, way: Way, prompt: bytes, length: int) -> Timed:
        swarm = self._swarm(_OBJECTIVES.get(way, "plain"))
        options = self._options(way, length)
        before = swarm.cpu_s()
        session = swarm.session(self._setting.precision)
        asking = time_answer(session, prompt, options, self._drafter(way))
        answer = swarm.run(asking, timeout_s=_ANSWER_TIMEOUT_S)
        after = swarm.cpu_s()
        return Timed(answer=answer, cpu_s={name: after[name] - before[name] for name in after})

    def _ask_together(self, count: int) -> list[Answer]:
        swarm = self._swarm("plain")
        options = self._options("ar", self._setting.lengths[0])

        async def ask() -> list[Answer]:
            prompts = [self._prompts[index % len(self._prompts)] for index in range(count)]
            asking = (time_answer(swarm.session(), prompt, options) for prompt in prompts)
            return await asyncio.gather(*asking)

        return swarm.run(ask(), timeout_s=_ANSWER_TIMEOUT_S)

    def _options(self, way: Way, length: int) -> GenerateOptions:
        chunk_bytes = min(self._setting.sweep_bytes, length) if way == "sweep" else None
        return GenerateOptions(
            mode=_MODES.get(way, "ar"),
            max_new_bytes=length,
            chunk_bytes=chunk_bytes,
            sampling=Sampling(temperature=0.0),
        )

    def _drafter(self, way: Way) -> Drafter | None:
        return BlockDrafter(self._guessing) if way == "draft" else None


def make_figures(
    setting: str,
    num_blocks: int,
    link: Link,
    way: Way,
    timed: Sequence[Timed],
    like_ar: Sequence[bytes],
) -> Figures:
    """Medians over answers, and within an answer over its traversals.

    The first traversal of an answer carries the prompt; it counts in what the whole answer took,
    and not in what one traversal takes, unless it is the only one.
    """
    answers = [one.answer for one in timed]

    def typical(values: Callable[[Answer], Sequence[float]]) -> float:
        return median(median(values(each)[1:] or values(each)) for each in answers)

    traversal_ms = typical(lambda answer: answer.traversal_ms)
    compute_ms = typical(lambda answer: answer.compute_ms)
    num_traversals = sum(len(answer.hops) for answer in answers)
    names = timed[0].cpu_s
    return Figures(
        setting=setting,
        num_blocks=num_blocks,
        link=link,
        way=way,
        new_bytes=len(answers[0].data),
        num_answers=len(answers),
        bytes_per_s=median(answer.bytes_per_s for answer in answers),
        first_byte_ms=1000 * median(answer.chunk_s[0] for answer in answers),
        forwarded_share=sum(answer.num_forwarded for answer in answers) / num_traversals,
        traversals=median(len(answer.hops) for answer in answers),
        bytes_per_traversal=sum(len(answer.data) for answer in answers) / num_traversals,
        step_ms=1000 * typical(lambda answer: answer.gaps_s),
        traversal_ms=traversal_ms,
        compute_ms=compute_ms,
        hop_overhead_ms=typical(lambda answer: answer.hop_overhead_ms),
        trips=(traversal_ms - compute_ms) / link.one_way_ms if link.one_way_ms else None,
        cpu_ms={
            name: 1000 * sum(one.cpu_s[name] for one in timed) / num_traversals for name in names
        },
        is_as_ar=[answer.data for answer in answers] == list(like_ar) if way == "draft" else None,
    )


def make_crowd(setting: str, link: Link, groups: Sequence[Sequence[Answer]]) -> Crowd:
    """Medians over repeats of answers that were under way together."""
    return Crowd(
        setting=setting,
        link=link,
        num_sessions=len(groups[0]),
        bytes_per_s=median(
            sum(len(answer.data) for answer in group) / max(answer.wall_s for answer in group)
            for group in groups
        ),
        slowest_share=median(
            min(answer.bytes_per_s for answer in group)
            / max(answer.bytes_per_s for answer in group)
            for group in groups
        ),
        longest_gap_s=max(max(answer.gaps_s) for group in groups for answer in group),
    )
