"""`bt-node generate`: text on stdout as it arrives, everything else on stderr."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import typer

from bt_p2p.chain.generate import Chunk, GenerateOptions, check_options, generate
from bt_p2p.chain.holders import Hop
from bt_p2p.chain.modes import GenerateMode, Precision
from bt_p2p.chain.sampling import Sampling
from bt_p2p.chain.session import ChainSession
from bt_p2p.chain.text import TextDecoder
from bt_p2p.clock import SystemClock
from bt_p2p.errors import ChainError, ConfigError, NoRouteError
from bt_p2p.protocol.identity import short_peer_id
from node import exit_codes
from node.draft import DraftBlock
from node.log_setup import set_up_logging
from node.model_source import open_model
from node.state_dir import StateDir

_LOOK_PERIOD_S = 2.0
_MAX_PROMPT_BYTES = 10_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateRequest:
    """What the user asked for."""

    prompt: str | None
    initial_peers: tuple[str, ...]
    run: str | None
    local: Path | None
    mode: GenerateMode
    max_new_bytes: int
    chunk: int | None
    temperature: float
    top_p: float
    seed: int | None
    truncate: bool
    precision: Precision
    wait_s: float
    verbose: bool
    as_json: bool
    state_path: Path
    debug: bool


def generate_text(request: GenerateRequest) -> int:
    """Generate and print; returns the exit code.

    Raises:
        ConfigError: the prompt or an option is wrong.
        ChainError: a block has no holder; what was printed before stays.
    """
    set_up_logging(is_debugging=request.debug)
    prompt = read_prompt(request.prompt)

    seed = request.seed if request.seed is not None else secrets.randbits(31)
    options = GenerateOptions(
        mode=request.mode,
        max_new_bytes=request.max_new_bytes,
        chunk_bytes=request.chunk,
        sampling=Sampling(temperature=request.temperature, top_p=request.top_p),
        seed=seed,
    )
    state = StateDir(request.state_path)
    with open_model(request.local, request.initial_peers, state, run=request.run) as found:
        context = found.manifest.model.context
        if request.truncate:
            prompt = prompt[-context:]
        check_options(options, prompt, found.manifest)
        session = ChainSession(
            found.manifest, found.client, found.look_up, precision=request.precision
        )
        draft_block = DraftBlock(found.manifest, found.client, found.look_up, SystemClock())
        printer = _Printer(prompt, is_text=not request.as_json)
        future = found.loop.start(
            _feed(printer, session, draft_block, prompt, options, wait_s=request.wait_s)
        )
        code, problem = exit_codes.OK, None
        try:
            future.result()
        except KeyboardInterrupt:
            future.cancel()
            code = exit_codes.INTERRUPTED
        except ChainError as exc:
            if not printer.data:
                raise
            code, problem = exit_codes.FAILED, exc
        printer.finish()
        if request.as_json:
            sys.stdout.write(json.dumps(printer.document(found.manifest.run_id, seed)) + "\n")
        if request.verbose:
            printer.explain(session.num_traversals, seed)
            if options.mode == "draft":
                typer.echo(f"  guesses from {draft_block.source}", err=True)
        if problem is not None:
            typer.echo(f"bt-node: error: the answer ends here: {problem}", err=True)
        return code


def read_prompt(prompt: str | None) -> bytes:
    """The prompt's bytes; from stdin if it is `-`, or not given and stdin is not a terminal.

    Raises:
        ConfigError: empty, or absurdly long.
    """
    if prompt == "-" or (prompt is None and not sys.stdin.isatty()):
        data = sys.stdin.buffer.read(_MAX_PROMPT_BYTES + 1)
    else:
        data = (prompt or "").encode("utf-8", errors="surrogateescape")
    if len(data) > _MAX_PROMPT_BYTES:
        raise ConfigError(f"the prompt is over {_MAX_PROMPT_BYTES:,} bytes; give its end only")
    if not data:
        raise ConfigError('the prompt is empty; give some text: bt-node generate "Once upon"')
    return data


class _Printer:
    """Prints whole characters as bytes arrive, and keeps the evidence."""

    def __init__(self, prompt: bytes, *, is_text: bool) -> None:
        self._prompt = prompt
        self._is_text = is_text
        self._decoder = TextDecoder()
        self._started_s = time.perf_counter()
        self._first_byte_s: float | None = None
        self._elapsed_s = 0.0
        self._hops: list[tuple[Hop, ...]] = []
        self._failed: list[str] = []
        self.data = b""

    def add(self, chunk: Chunk) -> None:
        """Show new bytes."""
        if self._first_byte_s is None:
            self._first_byte_s = time.perf_counter() - self._started_s
            self._write(self._prompt.decode("utf-8", errors="replace"))
        self.data += chunk.data
        self._hops.append(chunk.hops)
        self._failed += chunk.failed_peers
        self._write(self._decoder.feed(chunk.data))

    def finish(self) -> None:
        """Show what a cut-off character becomes, and end the line."""
        self._write(self._decoder.finish() + "\n")
        self._elapsed_s = time.perf_counter() - self._started_s

    def document(self, run_id: str, seed: int) -> dict[str, object]:
        """Everything for --json."""
        return {
            "run_id": run_id,
            "prompt": self._prompt.decode("utf-8", errors="replace"),
            "text": self.data.decode("utf-8", errors="replace"),
            "new_bytes": len(self.data),
            "seed": seed,
            "traversals": len(self._hops),
            "seconds": round(self._elapsed_s, 4),
            "seconds_to_first_byte": self._first_byte_s and round(self._first_byte_s, 4),
            "holders": sorted({hop.peer_id for hops in self._hops for hop in hops}),
            "failed_peers": self._failed,
            "hops": [[_hop_document(hop) for hop in hops] for hops in self._hops],
        }

    def explain(self, num_traversals: int, seed: int) -> None:
        """Holders, traversals and milliseconds on stderr."""
        rate = len(self.data) / self._elapsed_s if self._elapsed_s else 0.0
        typer.echo(
            f"{len(self.data)} bytes in {num_traversals} traversals, {self._elapsed_s:.2f} s "
            f"({rate:.1f} bytes/s), first after {1000 * (self._first_byte_s or 0):.0f} ms, "
            f"seed {seed}",
            err=True,
        )
        by_block: dict[int, list[Hop]] = {}
        for hop in (hop for hops in self._hops for hop in hops):
            by_block.setdefault(hop.block, []).append(hop)
        for block, hops in sorted(by_block.items()):
            peers = ", ".join(sorted({short_peer_id(hop.peer_id) for hop in hops}))
            typer.echo(
                f"  block {block} by {peers}, round {hops[-1].round_index}: median "
                f"{median(hop.total_ms for hop in hops):.1f} ms, of which computing "
                f"{median(hop.compute_ms for hop in hops):.1f} ms",
                err=True,
            )
        for failure in self._failed:
            typer.echo(f"  asked in vain: {failure}", err=True)

    def _write(self, text: str) -> None:
        if self._is_text:
            encoding = sys.stdout.encoding or "utf-8"
            sys.stdout.write(text.encode(encoding, errors="replace").decode(encoding))
            sys.stdout.flush()


def _hop_document(hop: Hop) -> dict[str, object]:
    return {
        "block": hop.block,
        "peer_id": hop.peer_id,
        "round": hop.round_index,
        "total_ms": round(hop.total_ms, 3),
        "compute_ms": round(hop.compute_ms, 3),
    }


async def _feed(
    printer: _Printer,
    session: ChainSession,
    draft_block: DraftBlock,
    prompt: bytes,
    options: GenerateOptions,
    *,
    wait_s: float,
) -> None:
    """Print what comes; wait for a missing block as long as the user allows."""
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            drafter = await draft_block.drafter() if options.mode == "draft" else None
            async for chunk in generate(session, prompt, options, drafter):
                printer.add(chunk)
        except NoRouteError:
            if printer.data or time.monotonic() >= deadline_s:
                raise
            await asyncio.sleep(_LOOK_PERIOD_S)
        else:
            return
