"""Shards: who encodes their batches, and in which order, does not change a byte of the corpus."""

import functools
import gzip

import pytest

from bert_jax.data.pretraining.corpus import Corpus
from bert_jax.data.pretraining.options import PrepareOptions
from bert_jax.data.pretraining.preparation import prepare as prepare_module
from bert_jax.data.pretraining.preparation.prepare import prepare
from bert_jax.data.pretraining.preparation.shards import (
    EncodingWork,
    encode_batch,
    plan_shards,
    read_shard,
)
from bert_jax.data.pretraining.sources import open_source, source_specs
from bert_jax.errors import UserError
from bert_jax.files import as_path, fetch
from tests.corpora import directory_bytes

LINES = [f"the cat ran {'to the sea ' * (number % 7)}." for number in range(120)]


@pytest.fixture
def options(tmp_path, tiny_vocabulary):
    """Two sources: five files of documents of several lines, one of them empty; JSON lines."""
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(4):
        lines = LINES[number * 30 : number * 30 + 30]
        content = "\n".join(f"{line}\n" if n % 7 == 6 else line for n, line in enumerate(lines))
        (texts / f"{number}.txt.gz").write_bytes(gzip.compress(content.encode()))
    (texts / "empty.txt").touch()
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "{line}"}}\n' for line in LINES))
    specs = source_specs([f"text:{texts}", f"jsonl:{tmp_path}/a.jsonl"])
    return PrepareOptions(
        specs, tokenizer=str(tiny_vocabulary), validation_fraction=0.2, sentences="lines"
    )


def backwards(shards, work):
    """As other machines might: in no order, and some batches twice."""
    batches = [batch for shard in shards for batch in read_shard(shard, work)]
    for batch in [*reversed(batches), *batches[:2]]:
        encode_batch(batch, work)


def make(options, output, **keywords):
    return prepare(options, output, workers=1, progress=False, **keywords)


@pytest.mark.parametrize(
    ("shard_bytes", "batch_characters", "limit"),
    [(500, 50, None), (500, 1 << 20, 7), (1 << 20, 50, 7), (1 << 20, 1 << 20, None)],
)
def test_shards_joined_are_the_corpus(
    options, tmp_path, monkeypatch, shard_bytes, batch_characters, limit
):
    make(options, tmp_path / "local", limit=limit)
    sized = functools.partial(plan_shards, shard_bytes=shard_bytes)
    monkeypatch.setattr(prepare_module, "plan_shards", sized)
    how = {"encode_shards": backwards, "batch_characters": batch_characters, "limit": limit}
    make(options, tmp_path / "others", **how)
    assert directory_bytes(tmp_path / "others") == directory_bytes(tmp_path / "local")
    assert not list(tmp_path.glob("others.*"))


def test_small_files_go_together(options):
    sources = [open_source(spec) for spec in options.sources]
    size = max(sources[0].piece_sizes)
    shards = plan_shards(sources, None, 2 * size)
    assert [[path.name for path in shard.text.paths] for shard in shards] == [
        ["0.txt.gz", "1.txt.gz"],
        ["2.txt.gz", "3.txt.gz", "empty.txt"],
        ["a.jsonl"],
    ]
    assert [shard.source for shard in shards] == [0, 0, 1]
    assert shards[2].position == sources[0].size
    assert len(plan_shards(sources, 7, 2 * size)) == 2
    work = EncodingWork("", options, None, 1 << 20)
    ends = [[batch.position for batch in read_shard(shard, work)][-1] for shard in shards]
    assert ends == [shards[1].position, sources[0].size, sources[0].size + sources[1].size]


def test_each_shard_begins_a_document_and_the_last_one_may_move(
    tmp_path, tiny_vocabulary, monkeypatch
):
    for name, text in (("a", "cat"), ("b", "dog\ndog"), ("c", "sat")):
        (tmp_path / f"{name}.txt").write_text(text)
    monkeypatch.setattr(
        prepare_module, "plan_shards", functools.partial(plan_shards, shard_bytes=1)
    )
    specs = source_specs([f"text:{tmp_path}/[abc].txt"])
    options = PrepareOptions(
        specs, tokenizer=str(tiny_vocabulary), validation_fraction=1e-9, sentences="lines"
    )
    make(options, tmp_path / "corpus")
    splits = Corpus.open(tmp_path / "corpus").splits
    assert splits["train"].tokens.tolist() == [6, 7, 7]
    assert splits["train"].document_offsets.tolist() == [0, 1, 3]
    assert splits["validation"].tokens.tolist() == [8]


def test_what_is_encoded_is_not_encoded_again_and_damage_is_noticed(options, tmp_path, capfd):
    def breaks(shards, work):
        for batch in list(read_shard(shards[0], work))[:3]:
            encode_batch(batch, work)
        raise UserError("the cluster is gone")

    with pytest.raises(UserError, match="the cluster is gone"):
        make(options, tmp_path / "corpus", encode_shards=breaks, batch_characters=50)
    files = sorted((tmp_path / "corpus.partial").rglob("*.npz"))
    assert [path.name for path in files] == [f"000000-00000{n}.npz" for n in range(3)]
    times = [path.stat().st_mtime_ns for path in files]
    content = files[0].read_bytes()
    at = content.index(b"\x93NUMPY", len(content) // 3) + 128  # the first element of an array
    damaged = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
    for change, message in [
        (lambda: files[0].write_bytes(damaged), "Bad CRC-32 for file '.*'; remove it and run"),
        (lambda: (files[0].unlink(), files[0].symlink_to(files[1])), "is a link"),
        (lambda: (files[0].unlink(), files[0].write_bytes(content)), None),
    ]:
        change()
        if message:
            with pytest.raises(UserError, match=f"000000-000000.npz.*{message}"):
                make(options, tmp_path / "corpus", batch_characters=50)
    make(options, tmp_path / "local")
    joined = prepare_module.join_shards

    def unchanged(*arguments):
        assert [path.stat().st_mtime_ns for path in files][1:] == times[1:]
        return joined(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare_module, "join_shards", unchanged)
        prepare(options, tmp_path / "corpus", workers=1, batch_characters=50)
    assert "continuing in " in capfd.readouterr().err
    assert directory_bytes(tmp_path / "corpus") == directory_bytes(tmp_path / "local")


def test_shards_of_a_bucket(options, bucket, tmp_path):
    make(options, tmp_path / "local")
    make(options, f"{bucket}/corpus", encode_shards=backwards)
    copied = directory_bytes(fetch(as_path(f"{bucket}/corpus")))
    copied.pop(".fetched.json")
    assert copied == directory_bytes(tmp_path / "local")
    assert [path.name for path in as_path(bucket).iterdir()] == ["corpus"]
