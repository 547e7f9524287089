"""The swarm page without a browser: what strangers announce, what is old, what is documented."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from bootstrap.page.app import make_swarm_app
from bootstrap.page.board import STALE_AGE_S, SwarmBoard
from bootstrap.page.chart import MAX_LOSS, make_chart
from bootstrap.page.history import MAX_POINTS, LossHistory, block_loss, block_round
from bootstrap.page.html import make_template, page_text
from bt_p2p.errors import SwarmError
from bt_p2p.testing.clock import ManualClock
from bt_p2p.testing.directory import InMemoryDirectory, SharedRecords
from bt_p2p.testing.tiny import tiny_identity, tiny_lease, tiny_manifest, tiny_overview

MANIFEST = tiny_manifest(num_blocks=3)
PAGES = Path(__file__).parents[3] / "docs" / "reference"
ADDRESS = f"/ip4/127.0.0.1/tcp/31337/p2p/{tiny_identity(9).peer_id}"


class Site:
    """A board over records in memory, and a client of its pages."""

    def __init__(self, *manifests, num_peers: int = 2) -> None:
        self.clock = ManualClock()
        self.records = SharedRecords(self.clock)
        directory = InMemoryDirectory(self.records, tiny_identity(0))
        directory.publish(MANIFEST)
        for index in range(num_peers):
            identity = tiny_identity(index)
            lease = tiny_lease(MANIFEST, identity, index, now_s=self.clock.now_s(), round_index=4)
            changes = {"loss": 1.5 + index, "bytes_per_s": 1000.0, "addresses": ["/ip4/192.0.2.77"]}
            InMemoryDirectory(self.records, identity).announce(lease.model_copy(update=changes))
        self.board = SwarmBoard(
            directory, manifests, self.clock, peer_id=tiny_identity(9).peer_id,
            addresses=lambda: [ADDRESS],
        )  # fmt: skip
        self.http = TestClient(make_swarm_app(self.board, self.clock))

    def document(self) -> dict:
        return self.http.get("/api/v1/swarm").json()


def test_the_page_shows_coverage_losses_peers_and_the_line_to_paste() -> None:
    """Two blocks with one holder each, and one with none."""
    site = Site(MANIFEST)
    site.board.look()
    page = site.http.get("/").text
    assert "Nobody holds block 2:" in page
    assert "One holder only of blocks 0, 1:" in page
    assert f"bt-node join --run {MANIFEST.run_id} --initial-peers {ADDRESS}" in page
    assert 2 == page.count("<polyline")
    for index in range(2):
        assert tiny_identity(index).peer_id[-6:] in page
    assert "192.0.2.77" not in page + site.http.get("/api/v1/swarm").text


def test_the_document_is_described() -> None:
    """Every key of every part of it, and no other."""
    site = Site(MANIFEST)
    site.board.look()
    text = (PAGES / "http-api.md").read_text(encoding="utf-8")

    def described(heading: str) -> set[str]:
        section = re.split(rf"^#+ {re.escape(heading)}\n", text, flags=re.MULTILINE)[1]
        section = re.split(r"^#+ ", section, flags=re.MULTILINE)[0]
        return set(re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE))

    document = site.document()
    (run,) = document["runs"]
    parts = {
        "The document": document,
        "A run": run,
        "A command": run["join"][0],
        "A block": run["blocks"][0],
        "A peer": run["peers"][0],
        "A curve": run["losses"][0],
        "`/healthz` of a bootstrap peer": site.http.get("/healthz").json(),
    }
    assert {name: set(part) for name, part in parts.items()} == {
        name: described(name) for name in parts
    }


def test_figures_are_those_of_the_page() -> None:
    """Names and types, and a value for each block."""
    site = Site(MANIFEST)
    site.board.look()
    page = (PAGES / "metrics.md").read_text(encoding="utf-8").split("\n## A node\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", page, flags=re.MULTILINE)
    text = site.http.get("/metrics").text
    assert rows == re.findall(r"^# TYPE (\w+) (\w+)$", text, flags=re.MULTILINE)
    run = MANIFEST.run_id
    assert f'bt_block_loss_nats_per_byte{{block="1",run="{run}"}} 2.5' in text
    assert f'bt_swarm_blocks_without_holder{{run="{run}"}} 1.0' in text
    assert 'bt_block_round{block="2"' not in text


def test_what_is_old_is_told_to_be_old() -> None:
    """On the page, in the document and by the health; before the first look there is nothing."""
    site = Site(MANIFEST)
    assert "has not been read yet" in site.http.get("/").text
    assert 503 == site.http.get("/healthz").status_code
    site.board.look()
    site.clock.advance(2)
    assert 'class="notice"' not in site.http.get("/").text
    assert 200 == site.http.get("/healthz").status_code
    site.records.is_down = True
    site.clock.advance(STALE_AGE_S)
    with pytest.raises(SwarmError):
        site.board.look()
    assert "the swarm was last read 22 s ago" in site.http.get("/").text
    assert (503, "stale") == (
        site.http.get("/healthz").status_code, site.http.get("/healthz").json()["status"],
    )  # fmt: skip
    document = site.document()
    assert (True, 1) == (document["is_stale"], len(document["runs"]))


def test_without_manifests_it_shows_the_runs_it_finds() -> None:
    """As many as are stored; and a swarm without any is told of."""
    site = Site()
    site.board.look()
    assert [MANIFEST.run_id] == [run["run_id"] for run in site.document()["runs"]]
    site.clock.advance(10_000)
    site.board.look()
    assert "No run is known here" in site.http.get("/").text


class Tags(HTMLParser):
    """What a browser would make of a page.

    Attributes:
        names: of all elements.
        attributes: of all elements, with their values.
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.names.append(tag)
        self.attributes += attrs


def test_strings_of_strangers_stay_text() -> None:
    """Whatever is in the document, wherever the template puts it, no element comes of it."""

    def spoil(value: object, text: str) -> object:
        match value:
            case dict():
                return {key: spoil(each, text) for key, each in value.items()}
            case list():
                return [spoil(each, text) for each in value]
            case str():
                return text
            case _:
                return value

    site = Site(MANIFEST)
    site.board.look()
    document = site.document()
    pages = []
    for text in (
        "harmless",
        "\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }}",
    ):
        tags = Tags()
        tags.feed(page_text(make_template(), spoil(document, text)))
        pages.append(tags)
    harmless, hostile = pages
    assert harmless.names == hostile.names
    assert [name for name, _ in harmless.attributes] == [name for name, _ in hostile.attributes]
    assert [] == [name for name, _ in hostile.attributes if name == "style" or name[:2] == "on"]


def test_the_page_loads_nothing_from_elsewhere() -> None:
    """No scheme and no host in any file of it, beside the name of SVG."""
    site = Site(MANIFEST)
    site.board.look()
    for path in ("/", "/page.js", "/page.css", "/icon.svg"):
        answer = site.http.get(path)
        assert 200 == answer.status_code
        text = answer.text.replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert [] == re.findall(r"https?:|//[a-z]|url\(|@import", text.replace("// ", ""))


def test_one_liar_moves_neither_the_round_nor_the_loss_of_a_block() -> None:
    """Of three holders."""
    leases = [
        tiny_lease(MANIFEST, tiny_identity(index), 0, round_index=round_index).model_copy(
            update={"loss": loss}
        )
        for index, (round_index, loss) in enumerate([(7, 1.5), (7, 1.25), (2**39, 1e6)])
    ]
    (block, *_) = tiny_overview(MANIFEST, leases).blocks
    assert (7, 1.5) == (block_round(block), block_loss(block))


def test_the_history_has_a_cap_and_goes_from_the_first_round_to_the_last() -> None:
    """Old rounds are kept thinly; who goes back in rounds starts again there."""
    history = LossHistory(3)

    def see(round_index: int, loss: float) -> None:
        lease = tiny_lease(MANIFEST, tiny_identity(0), 0, round_index=round_index)
        history.see(tiny_overview(MANIFEST, [lease.model_copy(update={"loss": loss})]))

    for round_index in range(3 * MAX_POINTS):
        see(round_index, 2.0)
        assert len(history.points(0)) <= MAX_POINTS
    points = history.points(0)
    assert (0, 3 * MAX_POINTS - 1) == (points[0][0], points[-1][0])
    see(3 * MAX_POINTS - 1, 1.0)
    assert (3 * MAX_POINTS - 1, 1.0) == history.points(0)[-1]
    see(10, 1.5)
    assert (10, 1.5) == history.points(0)[-1]


@pytest.mark.parametrize(
    "points",
    [[(0, 2.0)], [(5, 1.0), (6, 1.0)], [(0, 5.5), (1, 1e6), (2**39, 0.0)], [(3, 1e-9), (4, 2e-9)]],
)
def test_curves_stay_inside_of_the_chart(points: list[tuple[int, float]]) -> None:
    """One point, a flat line, a liar's million, next to nothing."""
    chart = make_chart([(0, points), (1, [])])
    assert chart is not None
    (curve,) = chart.curves
    for pair in curve.points.split():
        x, y = map(float, pair.split(","))
        assert 0 <= x <= 720
        assert 0 <= y <= 240
    assert 2 <= len(chart.losses) <= 6
    assert all(float(tick.label) <= MAX_LOSS + 2 for tick in chart.losses)


def test_no_chart_without_losses() -> None:
    """The page says so instead."""
    assert make_chart([(0, []), (1, [])]) is None
