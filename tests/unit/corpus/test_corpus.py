"""bt_p2p.corpus.corpus."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from bt_p2p.corpus import corpus as corpus_module
from bt_p2p.corpus.corpus import (
    SEGMENT_SIZE_BYTES,
    Corpus,
    describe_text,
    load_corpus,
    require_context,
    split_text,
)
from bt_p2p.errors import ConfigError
from bt_p2p.protocol.manifest import CorpusSpec


@pytest.fixture
def text_file(tmp_path):
    """A file of 1000 different enough bytes."""
    path = tmp_path / "text.txt"
    path.write_bytes(bytes(i % 251 for i in range(1000)))
    return path


def numbered(num_bytes: int) -> np.ndarray:
    """Bytes that tell their segment."""
    return (np.arange(num_bytes) // SEGMENT_SIZE_BYTES).astype(np.uint8)


def test_description_is_size_and_hash():
    """What a founder writes into the manifest."""
    spec = describe_text("text", "my notes", b"abc")
    expected = ("text", "my notes", 3, hashlib.sha256(b"abc").hexdigest())
    assert expected == (spec.kind, spec.name, spec.size_bytes, spec.sha256)


@pytest.mark.parametrize(("every", "segments"), [(2, 5), (4, 8), (4, 11)])
def test_each_nth_segment_is_held_out(every, segments):
    """The last of every n, whole; a broken last segment is treated alike."""
    text = numbered(segments * SEGMENT_SIZE_BYTES - 7)
    train, heldout = split_text(text, every)
    expected = [index for index in range(segments) if index % every == every - 1]
    assert expected == sorted(set(heldout.tolist()))
    assert text.size == train.size + heldout.size
    assert set(train.tolist()).isdisjoint(heldout.tolist())
    assert sorted(train.tolist()) == train.tolist()


@pytest.mark.parametrize("num_bytes", [1, 99, 1000, 3 * SEGMENT_SIZE_BYTES])
def test_short_texts_hold_out_their_end(num_bytes):
    """The last 1 / holdout_every, so evaluation works on any text."""
    text = np.arange(num_bytes).astype(np.uint8)
    train, heldout = split_text(text, 20)
    assert num_bytes // 20 == heldout.size
    assert text.tolist() == np.concatenate([train, heldout]).tolist()


def test_a_corpus_knows_its_own_description(text_file):
    """A founder loads with an empty hash and gets the full one."""
    corpus = load_corpus(
        CorpusSpec(kind="text", name="n", holdout_every=10), data=text_file, cache_dir=None
    )
    digest = hashlib.sha256(text_file.read_bytes()).hexdigest()
    expected = CorpusSpec(kind="text", name="n", size_bytes=1000, sha256=digest, holdout_every=10)
    assert expected == corpus.spec
    assert (900, 100) == (corpus.train.size, corpus.heldout.size)
    assert np.uint8 == corpus.train.dtype
    again = load_corpus(corpus.spec, data=text_file, cache_dir=None)
    assert corpus.train.tolist() == again.train.tolist()


def test_loaded_bytes_are_read_only(text_file):
    """Nobody changes the text under a running trainer."""
    corpus = load_corpus(CorpusSpec(kind="text"), data=text_file, cache_dir=None)
    assert not corpus.train.flags.writeable
    assert not corpus.heldout.flags.writeable


def test_another_text_is_refused_with_both_hashes(text_file):
    """Training on other text would poison the average."""
    spec = describe_text("text", "", b"another text")
    found = hashlib.sha256(text_file.read_bytes()).hexdigest()
    with pytest.raises(ConfigError, match=f"{spec.sha256}.*{found}.*byte for byte"):
        load_corpus(spec, data=text_file, cache_dir=None)


def test_embedded_text_of_another_python_is_only_a_warning(tmp_path, monkeypatch, caplog):
    """It is nearly the same text; the corpus describes what it really is."""
    monkeypatch.setattr(corpus_module, "embedded_text", lambda cache_dir: b"prose " * 100)
    spec = describe_text("embedded", "", b"other prose")
    corpus = load_corpus(spec, data=None, cache_dir=tmp_path)
    assert 600 == corpus.spec.size_bytes
    (record,) = caplog.records
    assert "WARNING" == record.levelname
    assert spec.sha256 in record.getMessage()
    assert corpus.spec.sha256 in record.getMessage()


def test_text_without_a_path_is_refused():
    """The manifest only describes it."""
    with pytest.raises(ConfigError, match="say where your copy of it is"):
        load_corpus(CorpusSpec(kind="text", name="notes"), data=None, cache_dir=None)


def test_hugging_face_prefers_the_local_copy(tmp_path, monkeypatch):
    """The name in the manifest otherwise."""
    asked = []

    def fake(name, *, cache_dir):
        asked.append((name, cache_dir))
        return b"text" * 100

    monkeypatch.setattr(corpus_module, "huggingface_text", fake)
    spec = CorpusSpec(kind="hf", name="wiki:raw")
    load_corpus(spec, data=None, cache_dir=tmp_path)
    load_corpus(spec, data=tmp_path, cache_dir=None)
    assert [("wiki:raw", tmp_path), (str(tmp_path), None)] == asked


@pytest.mark.parametrize("context", [8, 100, 1000])
def test_the_stated_need_is_exact(context):
    """One byte less is refused with the number that is enough."""

    def corpus_of(num_bytes: int) -> Corpus:
        train, heldout = split_text(np.zeros(num_bytes, dtype=np.uint8), 20)
        return Corpus(train=train, heldout=heldout, spec=CorpusSpec(holdout_every=20))

    needed = next(
        size
        for size in range(1, 3000)
        if corpus_of(size).train.size > context and corpus_of(size).heldout.size >= 2
    )
    require_context(corpus_of(needed), context)
    message = f"data has {needed - 1} bytes, need at least {needed} "
    with pytest.raises(ConfigError, match=message):
        require_context(corpus_of(needed - 1), context)
