"""The fields of a completion request, and the documents that answer it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import from_json

from bt_p2p.chain.generate import MAX_SEED
from bt_p2p.chain.modes import GenerateMode
from node.serve.answer import DrawnByte, FinishReason
from node.serve.api_error import ApiError

MAX_STOPS = 4
MAX_STOP_SIZE_BYTES = 256
MAX_LIKELIEST = 5

_HARMLESS = frozenset({"metadata", "safety_identifier", "service_tier", "store", "user"})
"""Accepted and not looked at: no value of them changes the text."""
_ONLY: dict[str, object] = {
    "n": 1,
    "best_of": 1,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "logit_bias": {},
    "suffix": "",
}
"""Fields of OpenAI's that are not supported, and the one value of each that changes nothing."""


class StreamOptions(BaseModel):
    """How to stream; what it does not know changes no text."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    include_usage: bool = False


class CompletionRequest(BaseModel):
    """What a client asks; defaults are OpenAI's. A token is one byte."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    model: str
    prompt: Annotated[str, Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] = 16
    temperature: Annotated[float, Field(ge=0, le=10)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    seed: Annotated[int, Field(ge=0, lt=MAX_SEED)] | None = None
    stop: Annotated[tuple[str, ...], Field(max_length=MAX_STOPS)] = ()
    stream: bool = False
    stream_options: StreamOptions | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_LIKELIEST)] | None = None
    echo: bool = False
    mode: GenerateMode | None = None
    """Not OpenAI's: `ar` or `sweep`."""

    @field_validator("prompt", mode="before")
    @classmethod
    def _one_prompt(cls, value: object) -> object:
        if isinstance(value, str):
            return value
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
            return value[0]
        raise ValueError("must be a text, or a list of exactly one text; token ids are not known")

    @field_validator("stop", mode="before")
    @classmethod
    def _stop_list(cls, value: object) -> object:
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ValueError("must be a text or a list of texts")
        if not all(0 < len(text.encode()) <= MAX_STOP_SIZE_BYTES for text in texts):
            raise ValueError(f"must have 1 to {MAX_STOP_SIZE_BYTES} bytes each")
        return tuple(texts)

    @model_validator(mode="after")
    def _fits_together(self) -> CompletionRequest:
        if self.stream_options is not None and not self.stream:
            raise _unfit("stream_options", "is only for requests with stream: true")
        if self.echo and self.logprobs is not None:
            raise _unfit("echo", "cannot be combined with logprobs: the prompt has none")
        return self

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return self.stream_options is not None and self.stream_options.include_usage


def parse_request(body: bytes) -> CompletionRequest:
    """Read a body.

    Raises:
        ApiError: not JSON, or a field is wrong, missing, unknown or not supported; names it.
    """
    try:
        found = from_json(body, allow_inf_nan=False)
    except ValueError as exc:
        raise ApiError(400, f"the body is not valid JSON: {exc}") from exc
    if not isinstance(found, dict):
        raise ApiError(400, "the body must be a JSON object")
    fields = {name: value for name, value in found.items() if value is not None}
    for name, value in _ONLY.items():
        if name in fields and fields.pop(name) != value:
            raise _unfit(name, f"is not supported; leave it out, or give {value!r}")
    try:
        return CompletionRequest.model_validate(
            {name: value for name, value in fields.items() if name not in _HARMLESS}
        )
    except ValidationError as exc:
        raise _first_problem(exc) from exc


def _first_problem(error: ValidationError) -> ApiError:
    finding = error.errors(include_url=False, include_input=False)[0]
    field = str(finding["loc"][0])[:80]
    if finding["type"] == "missing":
        return _unfit(field, "is missing")
    if finding["type"] == "extra_forbidden":
        return _unfit(field, "is not supported")
    return _unfit(field, finding["msg"].removeprefix("Value error, "))


def _unfit(field: str, reason: str) -> ApiError:
    return ApiError(400, f"{field!r} {reason}", param=field)


class Documents:
    """The documents of one completion: whole, or in chunks."""

    def __init__(self, *, completion_id: str, created_s: int, model: str) -> None:
        """Keep what all of them begin with."""
        self._head: dict[str, object] = {
            "id": completion_id,
            "object": "text_completion",
            "created": created_s,
            "model": model,
        }

    def with_choice(
        self, text: str, *, drawn: Sequence[DrawnByte] | None, finish_reason: FinishReason | None
    ) -> dict[str, object]:
        """A document with a text, or a part of it.

        Args:
            text: whole characters.
            drawn: its bytes, if their log-probabilities are wanted.
            finish_reason: None as long as more comes.
        """
        choice = {
            "index": 0,
            "text": text,
            "logprobs": None if drawn is None else _logprobs(drawn),
            "finish_reason": finish_reason,
        }
        return {**self._head, "choices": [choice]}

    def without_choice(self) -> dict[str, object]:
        """The chunk that carries nothing but the usage."""
        return {**self._head, "choices": []}


def usage_document(*, prompt_bytes: int, completion_bytes: int) -> dict[str, int]:
    """Tokens, which are bytes."""
    return {
        "prompt_tokens": prompt_bytes,
        "completion_tokens": completion_bytes,
        "total_tokens": prompt_bytes + completion_bytes,
    }


def _logprobs(drawn: Sequence[DrawnByte]) -> dict[str, object]:
    return {
        "tokens": [_token(byte.value) for byte in drawn],
        "token_logprobs": [byte.log_prob for byte in drawn],
        "top_logprobs": [
            {_token(value): log_prob for value, log_prob in byte.likeliest.items()}
            for byte in drawn
        ],
        "text_offset": [byte.text_offset for byte in drawn],
    }


def _token(value: int) -> str:
    """A byte as text, as OpenAI writes tokens that are no whole characters."""
    return chr(value) if value < 0x80 else f"bytes:\\x{value:02x}"
