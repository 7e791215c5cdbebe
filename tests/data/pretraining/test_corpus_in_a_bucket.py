"""A corpus in a bucket: text, output, and training data."""

import dataclasses
import gzip

import numpy as np
import pytest

from bert_jax.checkpoints.hub import resolve
from bert_jax.data.pretraining.corpus import MANIFEST_NAME, Corpus
from bert_jax.data.pretraining.options import PrepareOptions
from bert_jax.data.pretraining.preparation import prepare as prepare_module
from bert_jax.data.pretraining.preparation.prepare import prepare
from bert_jax.data.pretraining.sources import open_source, source_specs
from bert_jax.errors import UserError
from bert_jax.files import as_path, upload, user_cache, write_atomically
from bert_jax.tokenization import load_tokenizer

TEXT = "".join(f"the cat ran {'to the sea ' * (n % 5)}.\n" for n in range(300))


@pytest.fixture
def options(bucket, pieces):
    """Text and vocabulary in a bucket."""
    write_atomically(as_path(f"{bucket}/text/a.txt"), TEXT.encode())
    write_atomically(as_path(f"{bucket}/text/b.txt.gz"), gzip.compress(TEXT[:900].encode()))
    write_atomically(as_path(f"{bucket}/vocab.txt"), "\n".join(pieces).encode())
    specs = source_specs(f"text:{bucket}/text", {"format": "lines"})
    return PrepareOptions(
        specs, tokenizer=f"{bucket}/vocab.txt", validation_fraction=0.1, sentences="lines"
    )


def make(options, output, **keywords):
    return prepare(options, output, workers=1, progress=False, **keywords)


def data_files(path):
    """The bytes of all files but the manifest, which names the sources."""
    files = (file for file in path.rglob("*") if file.is_file() and file.name != MANIFEST_NAME)
    return {
        file.relative_to(path).as_posix(): file.read_bytes()
        for file in files
        if not file.name.startswith(".")
    }


@pytest.mark.slow
def test_the_corpus_is_that_of_local_text(options, bucket, tmp_path, pieces):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text(TEXT)
    (tmp_path / "text" / "b.txt.gz").write_bytes(gzip.compress(TEXT[:900].encode()))
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    local = dataclasses.replace(
        options,
        sources=source_specs(f"text:{tmp_path}/text", {"format": "lines"}),
        tokenizer=str(tmp_path / "vocab.txt"),
    )
    make(local, tmp_path / "local")

    remote = as_path(f"{bucket}/corpus")
    manifest = make(options, remote)
    corpus = Corpus.open(str(remote))
    assert corpus.path.is_relative_to(user_cache())
    assert data_files(corpus.path) == data_files(tmp_path / "local")
    assert isinstance(corpus.splits["train"].tokens, np.memmap)
    assert not list((user_cache() / "prepared").rglob("*.bin"))
    # The second time it is finished already.
    assert make(options, remote).files == manifest.files
    with pytest.raises(UserError, match="holds a corpus of other text, options or tokenizer"):
        make(dataclasses.replace(options, validation_fraction=0.2), remote)


def test_text_is_streamed_with_its_position(options):
    (spec,) = options.sources
    source = open_source(spec)
    assert [path.name for path in source.paths] == ["a.txt", "b.txt.gz"]
    assert len(list(source.blocks())) == 300 + len(TEXT[:900].splitlines())
    assert source.position == source.size > len(TEXT)
    with pytest.raises(UserError, match="nothing matches no file"):
        open_source(dataclasses.replace(spec, source=f"{spec.source}/nothing"))


@pytest.mark.slow
def test_an_upload_that_is_interrupted_goes_on_but_other_files_stay(options, bucket, monkeypatch):
    remote = as_path(f"{bucket}/corpus")
    write_atomically(as_path(f"{bucket}/other/thesis.txt"), b"")
    with pytest.raises(UserError, match="exists and is not a corpus"):
        make(options, f"{bucket}/other")

    def breaks(source, target, names):
        upload(source, target, names[:3])
        raise UserError("the line is dead")

    with monkeypatch.context() as patch:
        patch.setattr(prepare_module, "upload", breaks)
        with pytest.raises(UserError, match="the line is dead"):
            make(options, remote)
    with pytest.raises(UserError, match=r"not a finished corpus: it has no manifest\.json"):
        Corpus.open(remote)
    manifest = make(options, remote)
    assert Corpus.open(remote).manifest.files == manifest.files


@pytest.mark.slow
def test_a_damaged_copy_is_detected_and_replaced(options, bucket):
    remote = as_path(f"{bucket}/corpus")
    make(options, remote)
    copy = Corpus.open(remote).path
    damaged = bytearray((copy / "train.tokens.bin").read_bytes())
    damaged[0] ^= 1
    (copy / "train.tokens.bin").write_bytes(damaged)
    with pytest.raises(UserError, match="its checksum differs .*from a bucket"):
        Corpus.open(remote)
    (copy / "train.tokens.bin").unlink()
    Corpus.open(remote)


def test_a_tokenizer_and_a_model_directory_are_copied(options, bucket):
    assert load_tokenizer(f"{bucket}/vocab.txt").vocab_size == 40
    for name in ("config.json", "model.safetensors", "vocab.txt", "optimizer.pt"):
        write_atomically(as_path(f"{bucket}/model/{name}"), name.encode())
    directory = resolve(f"{bucket}/model")
    assert sorted(data_files(directory)) == ["config.json", "model.safetensors", "vocab.txt"]
    with pytest.raises(UserError, match="leave the revision out"):
        resolve(f"{bucket}/model", "main")
    with pytest.raises(UserError, match="does not exist"):
        resolve(f"{bucket}/nothing")
