"""Shards: joined, they are the corpus that workers of one machine make, to the byte."""

import gzip
import os

import pytest

from bert_jax.data.pretraining.preparation import prepare as prepare_module
from bert_jax.data.pretraining.preparation.prepare import PrepareOptions, prepare
from bert_jax.data.pretraining.preparation.workers import encode_shard, plan_shards
from bert_jax.data.pretraining.sources import open_source, source_specs
from bert_jax.errors import UserError

LINES = [f"the cat ran {'to the sea ' * (number % 7)}." for number in range(120)]


def directory_bytes(path):
    return {f.relative_to(path).as_posix(): f.read_bytes() for f in path.rglob("*") if f.is_file()}


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
    """As other machines might: in no order, and some shards twice."""
    for shard in [*reversed(shards), *shards[:2]]:
        encode_shard(shard, work)


def make(options, output, **keywords):
    return prepare(options, output, workers=1, progress=False, **keywords)


@pytest.mark.parametrize("shard_bytes", [500, 3000, 1 << 20])
@pytest.mark.parametrize("batch_characters", [50, 1 << 20])
def test_shards_joined_are_the_corpus(
    options, tmp_path, monkeypatch, shard_bytes, batch_characters
):
    make(options, tmp_path / "local")
    monkeypatch.setattr(
        prepare_module, "plan_shards", lambda *given: plan_shards(*given, shard_bytes)
    )
    make(
        options,
        tmp_path / "sharded",
        encode_shards=backwards,
        batch_characters=batch_characters,
    )
    assert directory_bytes(tmp_path / "sharded") == directory_bytes(tmp_path / "local")
    assert not list(tmp_path.glob("sharded.*"))


def test_only_the_first_documents_of_a_source(options, tmp_path, monkeypatch):
    make(options, tmp_path / "local", limit=7)
    monkeypatch.setattr(prepare_module, "plan_shards", lambda *given: plan_shards(*given, 200))
    make(options, tmp_path / "sharded", limit=7, encode_shards=backwards, batch_characters=50)
    assert directory_bytes(tmp_path / "sharded") == directory_bytes(tmp_path / "local")


def test_small_files_go_together_and_large_ones_are_shared(options):
    sources = [open_source(spec) for spec in options.sources]
    (text, lines) = sources
    assert len(text.piece_sizes) == 5
    size = max(text.piece_sizes)
    shards = plan_shards(sources, None, 2 * size)
    names = [[path.name for path in shard.text.paths] for shard in shards if shard.source == 0]
    assert names == [["0.txt.gz", "1.txt.gz"], ["2.txt.gz", "3.txt.gz", "empty.txt"]]
    shared = [shard for shard in shards if shard.source == 1]
    assert [shard.turn for shard in shared] == list(range(-(-lines.size // (2 * size))))
    assert {shard.position for shard in shared} == {text.size}
    assert len({shard.name for shard in shards}) == len(shards)


def test_what_is_encoded_is_not_encoded_again(options, tmp_path, monkeypatch):
    monkeypatch.setattr(prepare_module, "plan_shards", lambda *given: plan_shards(*given, 300))

    def breaks(shards, work):
        for shard in shards[:3]:
            encode_shard(shard, work)
        raise UserError("the cluster is gone")

    with pytest.raises(UserError, match="the cluster is gone"):
        make(options, tmp_path / "corpus", encode_shards=breaks)
    (left,) = tmp_path.glob("corpus.shards-*")
    changed = {path.name: path.stat().st_mtime_ns for path in left.glob("*.npz")}
    assert len(changed) == 3

    def goes_on(shards, work):
        for shard in shards:
            encode_shard(shard, work)
        now = {path.name: path.stat().st_mtime_ns for path in left.glob("*.npz")}
        assert {name: now[name] for name in changed} == changed
        assert len(now) == len(shards)

    damaged = min(left.glob("*.npz"))
    content = damaged.read_bytes()
    place = content.index(b"\x93NUMPY", len(content) // 3) + 128  # the first element of an array
    with damaged.open("r+b") as file:
        file.seek(place)
        file.write(bytes([content[place] ^ 1]))
    message = f"{damaged.name}: cannot be read: Bad CRC-32 for file '.*'; remove it and run again"
    with pytest.raises(UserError, match=message):
        make(options, tmp_path / "corpus", encode_shards=lambda shards, work: None)
    damaged.write_bytes(content)
    os.utime(damaged, ns=(changed[damaged.name], changed[damaged.name]))
    make(options, tmp_path / "corpus", encode_shards=goes_on)
    make(options, tmp_path / "local")
    assert directory_bytes(tmp_path / "corpus") == directory_bytes(tmp_path / "local")


def test_no_text_at_all_is_refused(options, tmp_path, tiny_vocabulary):
    (tmp_path / "nothing.txt").touch()
    nothing = PrepareOptions(
        source_specs(f"text:{tmp_path}/nothing.txt"), tokenizer=str(tiny_vocabulary)
    )
    with pytest.raises(UserError, match="no token in the text"):
        make(nothing, tmp_path / "corpus", encode_shards=backwards)


def test_shards_of_a_bucket(options, bucket, tmp_path):
    make(options, tmp_path / "local")
    make(options, f"{bucket}/corpus", encode_shards=backwards)
    from bert_jax.files import as_path, fetch

    found = directory_bytes(fetch(as_path(f"{bucket}/corpus")))
    found.pop(".fetched.json")
    assert found == directory_bytes(tmp_path / "local")
    assert [path.name for path in as_path(bucket).iterdir()] == ["corpus"]
