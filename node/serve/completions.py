"""POST /v1/completions: one generation, whole or streamed, cancelled when its client goes away."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from bt_p2p.chain.generate import (
    Chunk,
    GenerateOptions,
    check_options,
    generate,
)
from bt_p2p.chain.modes import GenerateMode
from bt_p2p.chain.sampling import Sampling
from bt_p2p.clock import SystemClock
from bt_p2p.errors import BtError
from node.serve.answer import Answer, FinishReason, Piece
from node.serve.api_error import ApiError, as_api_error
from node.serve.connection import read_json_body, while_connected
from node.serve.event_stream import EventStream
from node.serve.schema import CompletionRequest, Documents, parse_request, usage_document
from node.serve.served_run import ServedRun

_RETRY_AFTER_S = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionLimits:
    """What requests may take, and what they get if they do not say."""

    max_concurrent: int = 8
    """Requests that generate at the same time; more are refused, not queued."""
    max_tokens: int = 4096
    """Most bytes one request may ask for."""
    mode: GenerateMode = "ar"
    """For requests that name none."""


class Completions:
    """The ASGI application behind one route."""

    def __init__(self, run: ServedRun, limits: CompletionLimits) -> None:
        """Serve a run."""
        self._run = run
        self._limits = limits
        self._num_running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Raises:
            ApiError: it cannot be answered, and nothing was sent yet.
        """
        with contextlib.suppress(ClientDisconnect):
            asked = parse_request(await read_json_body(Request(scope, receive)))
            prompt = asked.prompt.encode()
            options = self._options(asked, prompt)
            with self._slot():
                work = _Completion(self._run, asked, prompt, options).respond(scope, receive, send)
                await while_connected(receive, work)

    def _options(self, asked: CompletionRequest, prompt: bytes) -> GenerateOptions:
        manifest = self._run.manifest
        if asked.model != manifest.run_id:
            raise ApiError(
                404,
                f"the model {asked.model[:80]!r} is not served here; this is {manifest.run_id}",
                param="model",
                code="model_not_found",
            )
        if asked.max_tokens > self._limits.max_tokens:
            raise ApiError(
                400,
                f"'max_tokens' {asked.max_tokens} is over the {self._limits.max_tokens} of this "
                f"server",
                param="max_tokens",
            )
        if len(prompt) > manifest.model.context:
            raise ApiError(
                400,
                f"the prompt has {len(prompt)} bytes, over the context of "
                f"{manifest.model.context}; send its end only",
                param="prompt",
                code="context_length_exceeded",
            )
        options = GenerateOptions(
            mode=asked.mode or self._limits.mode,
            max_new_bytes=asked.max_tokens,
            sampling=Sampling(temperature=asked.temperature, top_p=asked.top_p),
            seed=secrets.randbits(31) if asked.seed is None else asked.seed,
        )
        try:
            check_options(options, prompt, manifest)
        except BtError as exc:
            raise as_api_error(exc) from exc
        return options

    @contextlib.contextmanager
    def _slot(self) -> Iterator[None]:
        if self._num_running >= self._limits.max_concurrent:
            raise ApiError(
                429,
                f"this server answers {self._limits.max_concurrent} requests at once; try again",
                code="rate_limit_exceeded",
                headers={"Retry-After": str(_RETRY_AFTER_S)},
            )
        self._num_running += 1
        try:
            yield
        finally:
            self._num_running -= 1


class _Completion:
    """One generation."""

    def __init__(
        self, run: ServedRun, asked: CompletionRequest, prompt: bytes, options: GenerateOptions
    ) -> None:
        """Nobody is asked before `respond`."""
        self._run = run
        self._asked = asked
        self._prompt = prompt
        self._options = options
        self._answer = Answer([stop.encode() for stop in asked.stop], num_likeliest=asked.logprobs)
        self._documents = Documents(
            completion_id=f"cmpl-{secrets.token_hex(12)}",
            created_s=int(SystemClock().now_s()),
            model=run.manifest.run_id,
        )

    async def respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Generate and send.

        Raises:
            ApiError: the swarm cannot answer, and nothing was sent yet.
        """
        async with contextlib.aclosing(self._pieces()) as pieces:
            # until the first traversal is back, an error has a status of its own
            first = await anext(pieces)
            if self._asked.stream:
                await self._stream(first, pieces, EventStream(send))
            else:
                parts = [first, *[piece async for piece in pieces], self._answer.finish()]
                await JSONResponse(self._whole(parts))(scope, receive, send)

    async def _pieces(self) -> AsyncGenerator[Piece, None]:
        """What each traversal completes; `self._answer` keeps the rest."""
        session = self._run.open_session()
        drafter = None
        if self._options.mode == "draft":
            drafter = await self._run.draft_block.drafter()
        # it is an async generator, whose end must not be left to the garbage collector
        chunks = cast(
            "AsyncGenerator[Chunk, None]",
            generate(session, self._prompt, self._options, drafter),
        )
        async with contextlib.aclosing(chunks):
            try:
                async for chunk in chunks:
                    yield self._answer.add(chunk.data, chunk.log_probs_PV)
                    if self._answer.is_stopped:
                        return
            except BtError as exc:
                raise as_api_error(exc) from exc

    def _whole(self, parts: Sequence[Piece]) -> dict[str, object]:
        whole = Piece(
            text=(self._asked.prompt if self._asked.echo else "")
            + "".join(part.text for part in parts),
            drawn=tuple(byte for part in parts for byte in part.drawn),
        )
        document = self._document(whole, finish_reason=self._answer.finish_reason)
        return {**document, "usage": self._usage()}

    async def _stream(
        self, first: Piece, rest: AsyncGenerator[Piece, None], events: EventStream
    ) -> None:
        # with usage wanted, OpenAI's other chunks say that theirs is null
        more = {"usage": None} if self._asked.include_usage else {}
        await events.start()
        try:
            if self._asked.echo:
                await events.event({**self._document(Piece(text=self._asked.prompt)), **more})
            piece: Piece | None = first
            while piece is not None:
                if piece.text:
                    await events.event({**self._document(piece), **more})
                piece = await anext(rest, None)
            last = self._document(self._answer.finish(), finish_reason=self._answer.finish_reason)
            await events.event({**last, **more})
            if self._asked.include_usage:
                await events.event({**self._documents.without_choice(), "usage": self._usage()})
            await events.done()
        except ApiError as exc:  # too late for a status; what was sent before stays
            await events.event(exc.document())
        await events.end()

    def _document(
        self, piece: Piece, *, finish_reason: FinishReason | None = None
    ) -> dict[str, object]:
        drawn = None if self._asked.logprobs is None else piece.drawn
        return self._documents.with_choice(piece.text, drawn=drawn, finish_reason=finish_reason)

    def _usage(self) -> dict[str, int]:
        return usage_document(
            prompt_bytes=len(self._prompt), completion_bytes=self._answer.num_bytes
        )
