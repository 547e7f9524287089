"""The run manifest: everything peers of one run must agree on, and the id made from it.

The run id is the name plus 130 bits of the sha256 of the canonical bytes, so a manifest fetched
from any stranger proves itself.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from bt_p2p.errors import ConfigError, WireFormatError
from bt_p2p.protocol.identity import holds_key
from bt_p2p.protocol.limits import MAX_MANIFEST_SIZE_BYTES, PROTOCOL_VERSION

VOCAB_SIZE = 256
"""Bytes. The mask token of a sweep is id 256 in the input and never predicted."""
MASK_TOKEN = VOCAB_SIZE

_HASH_CHARS = 26
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
_RUN_ID = re.compile(rf"({_NAME.pattern})-([a-z2-7]{{{_HASH_CHARS}}})")


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ModelSpec(_Spec):
    """Shape of the transformer and its cut into blocks."""

    d_model: Annotated[int, Field(ge=8, le=16384)] = 128
    """Width of the residual stream."""
    num_heads: Annotated[int, Field(ge=1, le=128)] = 4
    """Attention heads; d_model / num_heads must be even, for rotary positions."""
    num_blocks: Annotated[int, Field(ge=1, le=256)] = 3
    """Blocks, the units of training (B)."""
    layers_per_block: Annotated[int, Field(ge=1, le=64)] = 4
    """Transformer layers in each block."""
    context: Annotated[int, Field(ge=8, le=65536)] = 128
    """Bytes a block sees at once (T)."""
    mlp_ratio: Annotated[int, Field(ge=1, le=8)] = 4
    """Hidden width of the feed-forward layers over d_model."""

    @model_validator(mode="after")
    def _head_size_is_even(self) -> ModelSpec:
        if self.d_model % (2 * self.num_heads):
            raise ValueError(
                f"d_model {self.d_model} must be a multiple of 2 * num_heads ({2 * self.num_heads})"
            )
        return self


class ObjectiveSpec(_Spec):
    """The local objective every block trains on."""

    name: Literal["plain", "cascade", "diffusion", "end_to_end"] = "plain"
    """Which objective (docs/papers.md)."""
    sweep_fraction: Annotated[float, Field(ge=0, le=1)] = 0.25
    """Share of training sequences that end in a masked suffix, which trains `sweep`."""
    sweep_max_bytes: Annotated[int, Field(ge=1, le=4096)] = 32
    """Longest masked suffix; also the longest chunk of one sweep."""
    upstream_dropout: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of training sequences that see no features of the block before (`cascade`)."""
    upstream_refresh_rounds: Annotated[int, Field(ge=1, le=100_000)] = 2
    """Rounds after which the copy of an earlier block is fetched anew (`cascade`)."""
    sigma_min: Annotated[float, Field(gt=0)] = 1.0
    """Lowest noise level (`diffusion`)."""
    sigma_max: Annotated[float, Field(gt=0)] = 10.0
    """Highest noise level (`diffusion`)."""
    sigma_log_mean: float = 0.0
    """Mean of ln(sigma) of the log-normal noise distribution (`diffusion`)."""
    sigma_log_std: Annotated[float, Field(gt=0)] = 1.2
    """Standard deviation of ln(sigma) (`diffusion`)."""
    codebook_dim: Annotated[int, Field(ge=4, le=4096)] = 64
    """Width of the fixed unit-norm byte codebook (`diffusion`)."""

    @model_validator(mode="after")
    def _sigmas_are_ordered(self) -> ObjectiveSpec:
        if self.sigma_min >= self.sigma_max:
            raise ValueError(f"sigma_min {self.sigma_min} must be below sigma_max {self.sigma_max}")
        return self


class CorpusSpec(_Spec):
    """Which text, and the hash that proves a peer has the same one."""

    kind: Literal["embedded", "text", "hf"] = "embedded"
    """`embedded`: prose inside CPython; `text`: a file or folder; `hf`: a Hugging Face data set."""
    name: Annotated[str, Field(max_length=200)] = ""
    """Data set name for `hf`; only a description for the others."""
    size_bytes: Annotated[int, Field(ge=0)] = 0
    """Bytes of text before the held-out part is taken away."""
    sha256: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""
    """Hash of that text."""
    holdout_every: Annotated[int, Field(ge=2, le=1000)] = 20
    """Each n-th segment of 16 KiB is held out for evaluation and never trained on."""


class RoundSpec(_Spec):
    """Pace of the averaging rounds."""

    round_s: Annotated[float, Field(ge=1, le=86400)] = 30.0
    """Seconds between averages; rounds end at multiples of this in DHT time."""
    decay_rounds: Annotated[int, Field(ge=1, le=10_000_000)] = 1000
    """Rounds over which the learning rate falls to a tenth of its peak."""
    outer_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Nesterov momentum over what rounds change; 0 is plain averaging."""
    compression: Literal["none", "float16"] = "none"
    """How weights are sent while averaging."""


class OptimizerSpec(_Spec):
    """What every peer runs on its own block."""

    name: Literal["muon", "adamw"] = "muon"
    """`muon`: Muon on the matrices inside the layers, AdamW on the rest; `adamw`: AdamW on all."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 4e-3
    """Peak learning rate of AdamW."""
    muon_learning_rate: Annotated[float, Field(gt=0, le=1)] = 1e-2
    """Peak learning rate of Muon, whose updates are scaled to the size of AdamW's."""
    muon_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.95
    warmup_steps: Annotated[int, Field(ge=0, le=1_000_000)] = 50
    """Local steps over which a fresh optimizer warms up."""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.95
    weight_decay: Annotated[float, Field(ge=0, le=10)] = 0.1
    """On matrices only."""
    clip_norm: Annotated[float, Field(gt=0)] = 1.0
    """Largest gradient norm."""
    batch_size: Annotated[int, Field(ge=1, le=4096)] = 32
    """Sequences in one local step."""


class RunManifest(_Spec):
    """One run: one model trained by one swarm."""

    protocol_version: Literal[1] = PROTOCOL_VERSION
    name: Annotated[str, Field(pattern=f"^{_NAME.pattern}$")] = "run"
    """Lower-case letters, digits and dashes; part of the run id."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seeds the initial weights, the codebook and the order of the data."""
    model: ModelSpec = ModelSpec()
    objective: ObjectiveSpec = ObjectiveSpec()
    corpus: CorpusSpec = CorpusSpec()
    rounds: RoundSpec = RoundSpec()
    optimizer: OptimizerSpec = OptimizerSpec()
    owner: Annotated[str, Field(max_length=64)] = ""
    """Peer id of who lets peers hold blocks (`membership`); empty lets everybody."""

    @field_validator("owner")
    @classmethod
    def _owner_has_a_key(cls, owner: str) -> str:
        if owner and not holds_key(owner):
            raise ValueError("must be an Ed25519 peer id (12D3KooW...), or empty")
        return owner

    @model_validator(mode="after")
    def _parts_fit(self) -> RunManifest:
        if self.objective.name == "end_to_end" and self.model.num_blocks != 1:
            raise ValueError(
                f"objective end_to_end trains all layers as one block, so num_blocks must be 1, "
                f"not {self.model.num_blocks}"
            )
        if self.objective.sweep_max_bytes >= self.model.context:
            raise ValueError(
                f"sweep_max_bytes {self.objective.sweep_max_bytes} must be below the context "
                f"of {self.model.context}"
            )
        return self

    def canonical_bytes(self) -> bytes:
        """The one byte string that stands for this manifest: sorted, compact JSON in UTF-8.

        An empty owner is left out, as runs founded before there were owners have none.
        """
        text = json.dumps(
            self.model_dump(mode="json", exclude=None if self.owner else {"owner"}),
            sort_keys=True,
            separators=(",", ":"),
            ensure_ascii=False,
            allow_nan=False,
        )
        return text.encode()

    @property
    def fingerprint(self) -> str:
        """Hex sha256 of the canonical bytes."""
        return hashlib.sha256(self.canonical_bytes()).hexdigest()

    @property
    def run_id(self) -> str:
        """The name and 130 bits of the fingerprint: what users type and peers compare."""
        digest = hashlib.sha256(self.canonical_bytes()).digest()
        return f"{self.name}-{base64.b32encode(digest).decode().lower()[:_HASH_CHARS]}"

    @classmethod
    def from_untrusted_bytes(cls, data: bytes, *, run_id: str) -> RunManifest:
        """Read a manifest a stranger sent, and prove that it is the one asked for.

        Raises:
            WireFormatError: too large, malformed, not canonical, or of another run id.
        """
        if len(data) > MAX_MANIFEST_SIZE_BYTES:
            raise WireFormatError(
                f"manifest of {len(data)} bytes is over the cap of {MAX_MANIFEST_SIZE_BYTES}"
            )
        try:
            manifest = cls.model_validate_json(data)
        except ValidationError as exc:
            raise WireFormatError(f"manifest is malformed: {first_problem(exc)}") from exc
        if manifest.canonical_bytes() != data or manifest.run_id != run_id:
            raise WireFormatError(
                f"manifest does not match its id: asked for {run_id}, "
                f"its content gives {manifest.run_id}"
            )
        return manifest

    @classmethod
    def build(cls, values: dict[str, object]) -> RunManifest:
        """Make a manifest from the user's values.

        Raises:
            ConfigError: names the first wrong field, its value and why.
        """
        try:
            manifest = cls.model_validate(values)
        except ValidationError as exc:
            raise ConfigError(f"the manifest is not valid: {first_problem(exc)}") from exc
        size_bytes = len(manifest.canonical_bytes())
        if size_bytes > MAX_MANIFEST_SIZE_BYTES:
            raise ConfigError(
                f"the manifest takes {size_bytes} bytes, over the cap of "
                f"{MAX_MANIFEST_SIZE_BYTES}; shorten its names"
            )
        return manifest


def is_run_id(text: str) -> bool:
    """Whether the text has the form of a full run id."""
    return _RUN_ID.fullmatch(text) is not None


def first_problem(error: ValidationError) -> str:
    """The first finding of a pydantic error as one line: field, reason, value."""
    finding = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in finding["loc"])[:80] or "manifest"
    if not where.isprintable():  # a stranger may name unknown fields as he likes
        where = ascii(where)
    reason = finding["msg"].removeprefix("Value error, ")
    value = finding.get("input")
    shown = "" if isinstance(value, dict | BaseModel) else f" (got {value!r:.80})"
    return f"{where}: {reason}{shown}"
