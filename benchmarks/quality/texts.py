"""Training text and the texts for scores."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bt_p2p.corpus.corpus import describe_text, load_corpus
from bt_p2p.corpus.text import read_text
from bt_p2p.errors import ConfigError
from bt_p2p.protocol.manifest import CorpusSpec

TRAIN_FILE = "wiki_train.txt"
VALID = "valid"
TEST = "test"
WIKITEXT = "wikitext103"
SCORED_FILES = {VALID: "wiki_valid.txt", TEST: "wiki_test.txt", WIKITEXT: "wikitext103_test.txt"}
"""File of each text that is scored; the last may be missing."""
OPTIONAL_TEXTS = frozenset({WIKITEXT})


@dataclass(frozen=True, kw_only=True, slots=True)
class Texts:
    """All texts in memory."""

    train: NDArray[np.uint8]
    scored: dict[str, NDArray[np.uint8]]
    """By short name: valid and test, and wikitext103 where it is there."""
    names: dict[str, str]
    """What each is, by short name, the training text as `train`."""
    corpus: CorpusSpec
    """Of the training text."""
    is_embedded: bool

    @property
    def note(self) -> str:
        """What a reader has to know of them."""
        if self.is_embedded:
            return (
                "There was no folder of texts, so this is the embedded corpus: prose inside "
                "CPython, whose held-out part is cut in two for validation and test."
            )
        return ""


def load_texts(folder: Path | None, *, cache_dir: Path) -> Texts:
    """Read all texts; of a folder, or the embedded corpus if it is None.

    Args:
        folder: has wiki_train.txt and the texts for scores.
        cache_dir: keeps the embedded corpus, which takes seconds to build.

    Raises:
        ConfigError: a text is missing, empty or unreadable.
    """
    if folder is None:
        return _embedded(cache_dir)
    train = read_text(_file(folder, TRAIN_FILE))
    scored = {
        name: _array(read_text(_file(folder, file)))
        for name, file in SCORED_FILES.items()
        if name not in OPTIONAL_TEXTS or (folder / file).is_file()
    }
    return Texts(
        train=_array(train),
        scored=scored,
        names={"train": TRAIN_FILE} | {name: SCORED_FILES[name] for name in scored},
        corpus=describe_text("text", TRAIN_FILE, train),
        is_embedded=False,
    )


def text_hash(text: NDArray[np.uint8]) -> str:
    """Hex sha256 of a text."""
    return hashlib.sha256(text.tobytes()).hexdigest()


def _embedded(cache_dir: Path) -> Texts:
    corpus = load_corpus(CorpusSpec(kind="embedded"), data=None, cache_dir=cache_dir)
    middle = corpus.heldout.size // 2
    return Texts(
        train=corpus.train,
        scored={VALID: corpus.heldout[:middle], TEST: corpus.heldout[middle:]},
        names={
            "train": "embedded corpus",
            VALID: "embedded corpus, first half of what is held out",
            TEST: "embedded corpus, second half of what is held out",
        },
        corpus=corpus.spec,
        is_embedded=True,
    )


def _file(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise ConfigError(f"the folder {folder} has no {name}; --data needs it there")
    return path


def _array(text: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(text, dtype=np.uint8)
