"""Answers with a holder killed or frozen on the way, which must be the undisturbed ones."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Literal

from benchmarks.chain.config import FaultSetting
from benchmarks.chain.measure import StartSwarm, Tick
from benchmarks.chain.report import FaultFigures
from benchmarks.chain.timing import Answer, TimedSession, time_answer
from bt_p2p.chain.generate import Chunk, GenerateOptions
from bt_p2p.chain.sampling import Sampling
from bt_p2p.errors import BtError
from bt_p2p.protocol.manifest import RunManifest

if TYPE_CHECKING:
    from benchmarks.chain.swarm import ChainSwarm

_ANSWER_TIMEOUT_S = 300.0
_SEED = 1

Fault = Literal["kill -9", "SIGSTOP"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One disturbed answer."""

    is_identical: bool = False
    is_replaced: bool = False
    longest_gap_s: float = 0.0
    error: str = ""


def run_objective(
    setting: FaultSetting,
    objective: str,
    prompt: bytes,
    folder: Path,
    tick: Tick,
    start_swarm: StartSwarm,
) -> list[FaultFigures]:
    """All faults of holders of one objective."""
    manifest = RunManifest.build(
        {
            "name": "chain-faults",
            "model": setting.model,
            "objective": {**setting.objective, "name": objective},
        }
    )
    options = GenerateOptions(
        max_new_bytes=setting.new_bytes, sampling=Sampling(temperature=0.8), seed=_SEED
    )
    own = folder / f"faults-{objective}"
    own.mkdir(parents=True)
    chance = random.Random(_SEED)  # noqa: S311 - repeatable, not secret
    counts: dict[Fault, int] = {"kill -9": setting.kills, "SIGSTOP": setting.freezes}
    figures = []
    with start_swarm(manifest, own, replicas=2) as swarm:
        swarm.set_link(setting.link)
        usual = [
            swarm.run(time_answer(swarm.session(), prompt, options), timeout_s=_ANSWER_TIMEOUT_S)
            for _ in range(2)
        ]
        for fault, count in counts.items():
            trials = []
            for index in range(count):
                trials.append(_try(swarm, fault, prompt, options, usual[0], chance))
                tick(f"{objective}: {fault} {index + 1}")
            if trials:
                figures.append(make_fault_figures(objective, fault, trials, usual))
    return figures


def make_fault_figures(
    objective: str, fault: Fault, trials: list[Trial], usual: list[Answer]
) -> FaultFigures:
    """Count, and take the median and the worst."""
    gaps_s = [trial.longest_gap_s for trial in trials]
    return FaultFigures(
        objective=objective,
        fault=fault,
        num_answers=len(trials),
        num_identical=sum(trial.is_identical for trial in trials),
        num_replaced=sum(trial.is_replaced for trial in trials),
        errors=tuple(trial.error for trial in trials if trial.error),
        median_gap_s=median(gaps_s),
        longest_gap_s=max(gaps_s),
        usual_gap_s=max(max(answer.gaps_s) for answer in usual),
    )


def _try(
    swarm: ChainSwarm,
    fault: Fault,
    prompt: bytes,
    options: GenerateOptions,
    usual: Answer,
    chance: random.Random,
) -> Trial:
    """One answer; the holder is back at the end."""
    victims: list[str] = []

    def disturb(used: list[str]) -> None:
        victims.append(chance.choice(used))
        if fault == "kill -9":
            swarm.kill(victims[0])
        else:
            swarm.freeze(victims[0])

    trial = Trial()
    while not victims and not trial.error:  # an answer may be over before the moment comes
        asking = disturbed_answer(
            swarm.session(),
            prompt,
            options,
            after_bytes=chance.randrange(1, options.max_new_bytes),
            delay_s=chance.uniform(0.0, median(usual.gaps_s)),
            disturb=disturb,
        )
        try:
            answer = swarm.run(asking, timeout_s=_ANSWER_TIMEOUT_S)
        except (BtError, TimeoutError) as exc:
            trial = Trial(error=repr(exc))
        else:
            last_ids = [hop.peer_id for hop in answer.hops[-1]]
            trial = Trial(
                is_identical=answer.data == usual.data,
                is_replaced=bool(victims) and victims[0] not in last_ids,
                longest_gap_s=max(answer.gaps_s),
            )
    for victim in victims:
        swarm.revive(victim)
    return trial


async def disturbed_answer(
    session: TimedSession,
    prompt: bytes,
    options: GenerateOptions,
    *,
    after_bytes: int,
    delay_s: float,
    disturb: Callable[[list[str]], None],
) -> Answer:
    """One answer, disturbed once unless it is over before.

    Args:
        session: not used before.
        prompt: as for `generate`.
        options: as for `generate`.
        after_bytes: when so many bytes have come,
        delay_s: and this has passed, somebody is disturbed.
        disturb: is given the peers that have answered so far.
    """
    used: dict[str, None] = {}
    waiting: list[asyncio.TimerHandle] = []
    num_bytes = 0

    def watch(chunk: Chunk) -> None:
        nonlocal num_bytes
        num_bytes += len(chunk.data)
        used.update(dict.fromkeys(hop.peer_id for hop in chunk.hops))
        if num_bytes >= after_bytes and not waiting:
            loop = asyncio.get_running_loop()
            waiting.append(loop.call_later(delay_s, lambda: disturb(list(used))))

    try:
        return await time_answer(session, prompt, options, watch=watch)
    finally:
        for handle in waiting:
            handle.cancel()
