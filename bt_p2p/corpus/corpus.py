"""A manifest's description of its text -> checked text, cut into training and held-out bytes."""

from __future__ import annotations

import hashlib
import itertools
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bt_p2p.corpus.embedded import embedded_text
from bt_p2p.corpus.huggingface import huggingface_text
from bt_p2p.corpus.text import read_text
from bt_p2p.errors import ConfigError
from bt_p2p.protocol.manifest import CorpusSpec

logger = logging.getLogger(__name__)

SEGMENT_SIZE_BYTES = 16 * 1024
"""Text is held out in pieces of this size."""
_MIN_HELDOUT_BYTES = 2
"""One byte to read and one to predict."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Corpus:
    """Text of a run, ready for training and evaluation."""

    train: NDArray[np.uint8]
    """Bytes to train on; read-only."""
    heldout: NDArray[np.uint8]
    """Bytes that nobody trains on; read-only."""
    spec: CorpusSpec
    """What this text is: its own size and hash, also where the manifest's differ."""


def load_corpus(spec: CorpusSpec, *, data: Path | None, cache_dir: Path | None) -> Corpus:
    """Read the text a manifest describes, check its hash and split it.

    Args:
        spec: description; an empty hash accepts any text.
        data: the file or folder for kind `text`; for `hf` a local copy of the data set.
        cache_dir: for texts that are slow to get; None keeps nothing.

    Raises:
        ConfigError: no such text, or not the one the manifest describes. Only for kind
            `embedded` another hash is normal (another Python version) and logged as a WARNING.
    """
    text = _read(spec, data=data, cache_dir=cache_dir)
    found = describe_text(spec.kind, spec.name, text)
    found = found.model_copy(update={"holdout_every": spec.holdout_every})
    if spec.sha256 and spec.sha256 != found.sha256:
        facts = (
            f"the manifest's corpus has {spec.size_bytes} bytes and sha256 {spec.sha256}, "
            f"this one {found.size_bytes} bytes and {found.sha256}"
        )
        if spec.kind != "embedded":
            raise ConfigError(f"{facts}; get the same text as the run's founder, byte for byte")
        logger.warning("%s; normal when the founder runs another Python version", facts)
    train, heldout = split_text(np.frombuffer(text, dtype=np.uint8), spec.holdout_every)
    return Corpus(train=train, heldout=heldout, spec=found)


def describe_text(kind: Literal["embedded", "text", "hf"], name: str, text: bytes) -> CorpusSpec:
    """The description of a text that proves a peer has the same one."""
    return CorpusSpec(
        kind=kind, name=name, size_bytes=len(text), sha256=hashlib.sha256(text).hexdigest()
    )


def split_text(
    text: NDArray[np.uint8], holdout_every: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Training and held-out bytes of a text.

    The last of every `holdout_every` segments of 16 KiB is held out. A text with fewer segments
    holds out its last 1 / holdout_every instead.
    """
    num_segments = -(-text.size // SEGMENT_SIZE_BYTES)
    if num_segments < holdout_every:
        cut = text.size - text.size // holdout_every
        return text[:cut], text[cut:]
    segment = np.arange(text.size) // SEGMENT_SIZE_BYTES
    is_heldout = segment % holdout_every == holdout_every - 1
    train, heldout = text[~is_heldout], text[is_heldout]
    train.flags.writeable = False
    heldout.flags.writeable = False
    return train, heldout


def require_context(corpus: Corpus, context: int) -> None:
    """Refuse a text too short to train and evaluate on.

    Raises:
        ConfigError: says how many bytes there are and how many are needed.
    """
    if corpus.train.size > context and corpus.heldout.size >= _MIN_HELDOUT_BYTES:
        return
    every = corpus.spec.holdout_every
    needed = next(
        size
        for size in itertools.count(max(context + 1, _MIN_HELDOUT_BYTES * every))
        if size - size // every > context
    )
    raise ConfigError(
        f"data has {corpus.train.size + corpus.heldout.size} bytes, need at least {needed} for a "
        f"context of {context}; give more text or found the run with a shorter context"
    )


def _read(spec: CorpusSpec, *, data: Path | None, cache_dir: Path | None) -> bytes:
    match spec.kind:
        case "embedded":
            return embedded_text(cache_dir)
        case "text":
            if data is None:
                raise ConfigError(
                    f"the run trains on the text {spec.name!r}; say where your copy of it is"
                )
            return read_text(data)
        case "hf":
            name = spec.name if data is None else str(data)
            return huggingface_text(name, cache_dir=cache_dir)
