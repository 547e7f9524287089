"""Results -> JSON, Markdown and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from pydantic import BaseModel, ConfigDict

from benchmarks.attacks.config import AttackConfig, Kind, Protection, Scenario
from benchmarks.replicas.report import SetUp, set_up_words, table
from bt_p2p.errors import ConfigError

_TITLES: dict[Kind, str] = {
    "nan": "NaN",
    "sign_flip": "sign flip",
    "noise": "noise of ten times the norm",
    "replay": "replay of old weights",
    "label_flip": "training on flipped labels",
    "lying_reducer": "flips the share it reduces",
    "hidden": "one spread off the honest mean",
}
_PROTECTIONS: dict[Protection, str] = {
    "none": "unprotected",
    "merge": "clipping alone",
    "trimmed": "trimmed mean alone",
    "gate": "gate alone",
    "full": "protected",
}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class ScenarioResult(_Part):
    """One scenario and seed. Cross entropies are honest nats per byte, None where not finite."""

    scenario: Scenario
    seed: int
    final_nats: float | None
    """Mean over the honest replicas of what each serves, on the test text."""
    worst_nats: float | None
    """Of the honest replica that is worst off."""
    curve: tuple[float | None, ...]
    """Of replica 0 after each round, on the validation text."""
    averages: int
    """Adopted, of all honest replicas."""
    refused: int
    """Averages that an honest replica refused."""
    failed: int
    """Rounds of an honest replica that failed by an attacker's fault."""
    attackers_refused: int
    """Pairs of an honest replica and an attacker that it refused at last."""
    last_first_refusal: int | None
    """Round after which all of these pairs were refused."""
    wrongly_refused: int
    """Honest replicas that an honest one refused, summed over rounds."""
    merge_ms: float
    """CPU time of a replica and round for the merge of its share."""
    judge_ms: float
    """CPU time of a replica and round for all looks at an average."""
    cpu_s: float


class AttackReport(_Part):
    """The whole of attacks.json."""

    set_up: SetUp
    config: AttackConfig
    results: tuple[ScenarioResult, ...]


class _Found:
    """Results by scenario, means over seeds."""

    def __init__(self, report: AttackReport) -> None:
        self._results: dict[Scenario, list[ScenarioResult]] = {}
        for result in report.results:
            self._results.setdefault(result.scenario, []).append(result)

    def nats(self, scenario: Scenario) -> float | None:
        """None where a seed is not finite, or the scenario was not run."""
        found = [result.final_nats for result in self._results.get(scenario, [])]
        finite = [nats for nats in found if nats is not None]
        return fmean(finite) if finite and len(finite) == len(found) else None

    def __getitem__(self, scenario: Scenario) -> list[ScenarioResult]:
        return self._results.get(scenario, [])


def render_attacks(report: AttackReport) -> str:
    """The whole of attacks.md."""
    config = report.config
    found = _Found(report)
    base = found.nats(Scenario(replicas=config.replicas, protection="none"))
    parts = [
        "# Hostile replicas",
        f"{config.replicas} replicas of one block, {config.rounds} rounds of {config.round_steps} "
        f"local steps, averages with outer momentum as bt-node makes them. Nats per byte on "
        f"{config.final_bytes:,} bytes of the test text, mean over the honest replicas; in brackets "
        f"the difference to no attackers. Unprotected is the plain mean, adopted whatever it is. "
        f"Attackers claim as many samples as others.",
        _main_table(config, found, base),
        _pair_table(config, found),
        "## How attackers are found, and what it costs\n\n"
        "Protected, most attackers. Refused: pairs of an honest replica and an attacker it refuses; "
        "after round: when all these pairs are. Dropped: averages refused by an honest replica, and "
        "rounds lost to malformed weights. CPU time is of one replica and round; local steps are not "
        "in it.",
        _found_table(config, found),
        "![Cross entropy against rounds](attacks.svg)",
        set_up_words(report.set_up, "attacks.json"),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _main_table(config: AttackConfig, found: _Found, base: float | None) -> str:
    header = [
        "Attack",
        "",
        *(f"{number / config.replicas:.0%}" for number in (0, *config.attackers)),
    ]
    rows = []
    honest = [
        found.nats(Scenario(replicas=config.replicas - number, protection="none"))
        for number in config.attackers
    ]
    rows.append(
        ["(as many fewer replicas)", "", _nats(base, None), *(_nats(n, base) for n in honest)]
    )
    for protection in config.protections:
        rows += [
            [
                _TITLES[kind],
                _PROTECTIONS[protection],
                _nats(
                    found.nats(Scenario(replicas=config.replicas, protection=protection)),
                    None if protection == "none" else base,
                ),
                *(
                    _nats(
                        found.nats(
                            Scenario(
                                kind=kind,
                                num_attackers=number,
                                replicas=config.replicas,
                                protection=protection,
                            )
                        ),
                        base,
                    )
                    for number in config.attackers
                ),
            ]
            for kind in config.kinds
        ]
    return table(header, rows)


def _pair_table(config: AttackConfig, found: _Found) -> str:
    if not config.pair_kinds:
        return ""
    alone = found.nats(Scenario(replicas=1, protection="none"))
    two = [
        found.nats(Scenario(replicas=2, protection=protection)) for protection in ("none", "full")
    ]
    rows = [["none", _nats(two[0], None), _nats(two[1], None)]]
    rows += [
        [
            _TITLES[kind],
            *(
                _nats(
                    found.nats(
                        Scenario(kind=kind, num_attackers=1, replicas=2, protection=protection)
                    ),
                    alone,
                )
                for protection in ("none", "full")
            ),
        ]
        for kind in config.pair_kinds
    ]
    return (
        f"## A group of two, one of them hostile\n\nWhoever trains alone reaches {_nats(alone, None)}; "
        f"in brackets the difference to it.\n\n"
        + table(["Attack", "unprotected", "protected"], rows)
    )


def _found_table(config: AttackConfig, found: _Found) -> str:
    header = ["Attack", "refused", "after round", "honest refused", "averages", "dropped"]
    header += ["merge, ms", "judge, ms"]
    number = max(config.attackers, default=0)
    scenarios = {"none": Scenario(replicas=config.replicas, protection="full")} | {
        _TITLES[kind]: Scenario(
            kind=kind, num_attackers=number, replicas=config.replicas, protection="full"
        )
        for kind in config.kinds
    }
    if config.pair_kinds:
        scenarios["none, group of two"] = Scenario(replicas=2, protection="full")
    rows = []
    for title, scenario in scenarios.items():
        for result in found[scenario][:1]:
            pairs = scenario.num_attackers * (scenario.replicas - scenario.num_attackers)
            rows.append(
                [
                    title,
                    f"{result.attackers_refused} of {pairs}",
                    str(result.last_first_refusal or "-"),
                    str(result.wrongly_refused),
                    str(result.averages),
                    str(result.refused + result.failed),
                    f"{result.merge_ms:.1f}",
                    f"{result.judge_ms:.1f}",
                ]
            )
    return table(header, rows)


def _nats(nats: float | None, base: float | None) -> str:
    if nats is None:
        return "not finite"
    return f"{nats:.3f}" if base is None else f"{nats:.3f} ({nats - base:+.3f})"


def draw_plot(report: AttackReport, path: Path) -> None:
    """Draw the curves of the first seed, a panel for each number of attackers.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as exc:
        raise ConfigError("plots need matplotlib; run: pip install 'bt-p2p[bench]'") from exc
    config = report.config
    found = {result.scenario: result for result in reversed(report.results)}
    with mpl.rc_context({"svg.hashsalt": "bt-p2p", "font.size": 9}):
        figure = Figure(figsize=(5 * len(config.attackers), 4), layout="constrained")
        [panels] = figure.subplots(1, len(config.attackers), sharey=True, squeeze=False)
        for panel, number in zip(panels, config.attackers, strict=True):
            honest = Scenario(replicas=config.replicas, protection="none")
            _draw(panel, found.get(honest), "no attackers", "black", "-")
            for index, kind in enumerate(config.kinds):
                for is_protected in (False, True):
                    scenario = Scenario(
                        kind=kind,
                        num_attackers=number,
                        replicas=config.replicas,
                        protection="full" if is_protected else "none",
                    )
                    label = _TITLES[kind] if is_protected else None
                    style = "-" if is_protected else ":"
                    _draw(panel, found.get(scenario), label, f"C{index}", style)
            panel.set_title(f"{number / config.replicas:.0%} attackers")
            panel.set_xlabel("rounds")
            panel.grid(color="#dddddd", lw=0.6)
        panels[0].set_ylabel("nats per byte, validation (dotted: unprotected)")
        panels[0].set_ylim(*_limits(report.results))
        panels[-1].legend(frameon=False, fontsize=7)
        figure.savefig(path, metadata={"Date": None}, facecolor="white")


def _draw(
    panel: object, result: ScenarioResult | None, label: str | None, colour: str, style: str
) -> None:
    if result is None:
        return
    points = [(number + 1, nats) for number, nats in enumerate(result.curve) if nats is not None]
    panel.plot(  # type: ignore[attr-defined]
        [number for number, _ in points],
        [nats for _, nats in points],
        style,
        label=label,
        color=colour,
        lw=1.2,
    )


def _limits(results: Sequence[ScenarioResult]) -> tuple[float, float]:
    """From the best value to a little above the first honest ones; attacks may be anywhere."""
    honest = [nats for nats in results[0].curve if nats is not None]
    lowest = min(nats for result in results for nats in result.curve if nats is not None)
    return lowest - 0.1, max(honest) + 0.5
