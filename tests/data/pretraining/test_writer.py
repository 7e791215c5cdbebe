"""Files that only grow, and a journal that says how far to believe them."""

import numpy as np
import pytest

from bert_jax.data.pretraining.preparation.encoding import EncodedSplit
from bert_jax.data.pretraining.preparation.writer import CorpusWriter, Journal
from bert_jax.errors import UserError

UINT16 = np.dtype("<u2")


def encoded(tokens, lengths, documents):
    return EncodedSplit(np.array(tokens, UINT16), np.array(lengths), np.array(documents))


NOTHING = EncodedSplit(np.zeros(0, UINT16), np.zeros(0, np.int64), np.zeros((0, 5), np.int64))
FIRST = {
    # Document 0 of two sentences, then the first sentence of document 2.
    "train": encoded([10, 11, 12, 13, 14, 15], [2, 1, 3], [[0, 2, 3, 0, 0], [2, 1, 3, 1, 0]]),
    "validation": NOTHING,
}
SECOND = {"train": encoded([16], [1], [[2, 1, 1, 0, 1]]), "validation": NOTHING}


def writer(path, progress=None):
    return CorpusWriter(path, UINT16, progress or Journal.begin("work", sources=1))


def arrays(path, split):
    return [
        np.fromfile(path / f"{split}.{kind}.bin", dtype).tolist()
        for kind, dtype in [("tokens", UINT16), ("sentences", "<i8"), ("documents", "<i8")]
    ]


def contents(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


MOVED = {
    "train": [[10, 11, 12], [0, 2, 3], [0, 2]],
    "validation": [[13, 14, 15, 16], [0, 3, 4], [0, 2]],
}


def test_a_document_continues_in_the_next_batch(tmp_path):
    with writer(tmp_path) as files:
        files.append(0, FIRST)
        files.append(0, SECOND)
        files.finish()
    assert arrays(tmp_path, "train") == [
        [10, 11, 12, 13, 14, 15, 16],
        [0, 2, 3, 6, 7],
        [0, 2, 4],
    ]
    assert arrays(tmp_path, "validation") == [[], [0], [0]]
    total = files.progress.splits["train"].total()
    assert (total.documents, total.sentences, total.tokens) == (2, 4, 7)
    assert (total.unknown_tokens, total.cut_sentences) == (1, 1)


def test_what_stands_behind_the_journal_is_cut_off(tmp_path):
    with writer(tmp_path) as files:
        files.append(0, FIRST)
        files.write_journal()
        files.append(0, SECOND)
    with writer(tmp_path, Journal.read(tmp_path)) as files:
        assert files.progress.batches == 1
        files.append(0, SECOND)
        files.finish()
    assert arrays(tmp_path, "train")[0] == [10, 11, 12, 13, 14, 15, 16]
    assert arrays(tmp_path, "train")[2] == [0, 2, 4]


@pytest.mark.parametrize("journal_is_written", [False, True])
def test_a_move_that_was_interrupted_is_made_once(tmp_path, journal_is_written):
    with writer(tmp_path) as files:
        files.append(0, FIRST)
        files.append(0, SECOND)
        files.write_journal()
        before = contents(tmp_path)
        files.move_last_document("train", "validation")
        after = contents(tmp_path)
    # The state in the middle of the move: the target has grown, the origin is not cut yet.
    for name in before:
        is_old = name.startswith("train") or (name == "journal.json" and not journal_is_written)
        (tmp_path / name).write_bytes((before if is_old else after)[name])
    with writer(tmp_path, Journal.read(tmp_path)) as files:
        if files.progress.splits["validation"].total().documents == 0:
            files.move_last_document("train", "validation")
        files.finish()
    assert {split: arrays(tmp_path, split) for split in MOVED} == MOVED
    counts = files.progress.splits["validation"].total()
    assert (counts.documents, counts.unknown_tokens, counts.cut_sentences) == (1, 1, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_bytes(b""), "is damaged; remove .* and start again"),
        (lambda path: path.write_bytes(bytes(24)), "is damaged"),
        (lambda path: path.unlink(), "is damaged"),
        (lambda path: (path.parent / "b").hardlink_to(path), "is one of several names of a file"),
        (
            lambda path: (path.rename(path.parent / "b"), path.symlink_to("b")),
            "is a link, not a file of",
        ),
    ],
)
def test_files_other_than_the_journal_says_are_refused(tmp_path, change, message):
    with writer(tmp_path) as files:
        files.append(0, FIRST)
        files.write_journal()
    path = tmp_path / "train.sentences.bin"
    assert path.stat().st_size == 24
    change(path)
    with (
        pytest.raises(UserError, match=rf"train.sentences.bin {message}"),
        writer(tmp_path, Journal.read(tmp_path)),
    ):
        pass


def test_a_damaged_journal_is_none(tmp_path):
    assert Journal.read(tmp_path) is None
    (tmp_path / "journal.json").write_text('{"fingerprint": "work", "batches": 3, "spl')
    assert Journal.read(tmp_path) is None
    Journal.begin("work", 1).write(tmp_path)
    assert Journal.read(tmp_path) == Journal.begin("work", 1)
    text = (tmp_path / "journal.json").read_text()
    (tmp_path / "journal.json").write_text(text.replace('"batches": 0', '"batches": 1'))
    assert Journal.read(tmp_path) is None
