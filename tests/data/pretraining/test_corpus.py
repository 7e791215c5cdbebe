"""Opening a corpus: literal arrays, and every kind of damage."""

import hashlib
import json

import numpy as np
import pytest

from bert_jax.data.pretraining.corpus import Corpus, token_dtype
from bert_jax.data.pretraining.options import PrepareOptions
from bert_jax.data.pretraining.preparation.prepare import prepare
from bert_jax.data.pretraining.sources import source_specs
from bert_jax.errors import UserError
from bert_jax.tokenization import load_tokenizer


@pytest.fixture
def path(tmp_path, tiny_vocabulary):
    (tmp_path / "a.txt").write_text("the cat sat.\nthe dogs ran!\n\nzebra dogs\n")
    (tmp_path / "b.txt").write_text("cat\n")
    sources = [{"source": f"text:{tmp_path}/a.txt", "weight": 2.0}, f"text:{tmp_path}/b.txt"]
    options = PrepareOptions(
        source_specs(sources),
        tokenizer=str(tiny_vocabulary),
        validation_fraction=0.0,
        sentences="lines",
    )
    prepare(options, tmp_path / "corpus", workers=1, progress=False)
    return tmp_path / "corpus"


@pytest.fixture(params=["train.tokens.bin", "validation.documents.bin", "tokenizer/vocab.txt"])
def file(request, path):
    return path / request.param


def rewrite_manifest(path, **changes):
    manifest = json.loads((path / "manifest.json").read_text()) | changes
    del manifest["checksum"]
    digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (path / "manifest.json").write_text(json.dumps(manifest | {"checksum": digest}))


def test_the_arrays_by_eye(path):
    corpus = Corpus.open(path)
    train, validation = corpus.splits["train"], corpus.splits["validation"]
    assert train.tokens.tolist() == [5, 6, 8, 11, 5, 7, 10, 9, 12, 1, 7, 10, 6]
    assert train.sentence_offsets.tolist() == [0, 4, 9, 12, 13]
    assert train.document_offsets.tolist() == [0, 2, 3, 4]
    assert train.source_documents.tolist() == [0, 2, 3]
    assert train.source_weights.tolist() == [2.0, 1.0]
    assert validation.tokens.tolist() == []
    assert validation.sentence_offsets.tolist() == [0]
    assert validation.document_offsets.tolist() == [0]
    assert validation.source_documents.tolist() == [0, 0, 0]
    assert (train.tokens.dtype, validation.tokens.dtype) == (np.uint16, np.uint16)
    for split in (train, validation):
        offsets = (split.sentence_offsets, split.document_offsets, split.source_documents)
        assert {array.dtype for array in offsets} == {np.dtype(np.int64)}
    assert isinstance(train.tokens, np.memmap)


def test_the_manifest_counts_and_names_every_file(path):
    manifest = Corpus.open(path).manifest
    train = manifest.splits["train"]
    assert (train.documents, train.sentences, train.tokens) == (3, 4, 13)
    assert (train.unknown_tokens, train.cut_sentences) == (1, 0)
    assert [source.splits["train"].documents for source in manifest.sources] == [2, 1]
    assert [source.splits["train"].unknown_tokens for source in manifest.sources] == [1, 0]
    assert manifest.settings["sentences"] == "lines"
    on_disk = {f.relative_to(path).as_posix() for f in path.rglob("*") if f.is_file()}
    assert on_disk == {*manifest.files, "manifest.json"}
    assert manifest.files["train.tokens.bin"].bytes == 26


def test_the_tokenizer_comes_with_the_corpus(path, tiny_vocabulary, tmp_path):
    corpus = Corpus.open(path)
    assert corpus.tokenizer().encode_sentences(["The cats sat!"]) == [[5, 6, 10, 8, 12]]
    corpus.check_tokenizer(load_tokenizer(tiny_vocabulary))
    other = tmp_path / "other.txt"
    other.write_text(tiny_vocabulary.read_text() + "bird\n")
    with pytest.raises(UserError, match=r"made with another tokenizer \(.*, 13 ids\) .* 14 ids"):
        corpus.check_tokenizer(load_tokenizer(other))


def test_a_damaged_file_is_detected_its_size_also_without_checksums(file, path):
    content = file.read_bytes()
    file.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(UserError, match=f"^{file}: damaged: its checksum"):
        Corpus.open(path)
    Corpus.open(path, verify=False)
    file.write_bytes(content + b"x")
    with pytest.raises(UserError, match=f"^{file}: damaged: .* bytes, but .* in the manifest"):
        Corpus.open(path, verify=False)
    file.unlink()
    with pytest.raises(UserError, match=f"^{file}: this file of the corpus is missing"):
        Corpus.open(path, verify=False)


def test_an_unfinished_corpus_another_version_or_a_damaged_manifest(path, tmp_path):
    with pytest.raises(UserError, match="not a finished corpus: it does not exist"):
        Corpus.open(tmp_path / "nowhere")
    rewrite_manifest(path, format_version=2)
    with pytest.raises(UserError, match="format version 2, but this bert_jax reads version 1"):
        Corpus.open(path)
    rewrite_manifest(path, format_version=1, splits={})
    with pytest.raises(UserError, match=r"manifest.json: damaged"):
        Corpus.open(path)
    (path / "manifest.json").write_text('{"format_ver')
    with pytest.raises(UserError, match=r"manifest.json:1: not JSON: .*; prepare"):
        Corpus.open(path)
    (path / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"has no manifest.json; run bert-jax prepare \(again\)"):
        Corpus.open(path)


def test_a_changed_value_in_the_manifest_is_detected(path):
    manifest = path / "manifest.json"
    text = manifest.read_text()
    for old, new in (
        ('"unknown_tokens": 1', '"unknown_tokens": 0'),
        ('"weight": 2.0', '"weight": 3.0'),
        ('"sentences": "lines"', '"sentences": "lineS"'),
        ('"fingerprint": "', '"fingerprint": "0'),
        ('"checksum": "', '"checksum": "0'),
        ('"checksum": ', '"checksun": '),
    ):
        assert old in text
        manifest.write_text(text.replace(old, new, 1))
        with pytest.raises(UserError, match=r"manifest.json: damaged.*; prepare the corpus again"):
            Corpus.open(path)
    manifest.write_text(json.dumps(json.loads(text)))  # the same values
    Corpus.open(path)


def test_a_forged_manifest_reads_no_objects_and_no_other_file(path):
    fields = json.loads((path / "manifest.json").read_text())
    files = fields["files"]
    for changes, message in (
        ({"dtype": "object"}, "the dtype of the ids is 'object'"),
        ({"files": files | {"../a": files["train.tokens.bin"]}}, "manifest.json names '../a', wh"),
        ({"sources": []}, "files of the split train and manifest.json are not of one corpus"),
    ):
        rewrite_manifest(path, **(fields | changes))
        with pytest.raises(UserError, match=message):
            Corpus.open(path)


def test_ids_take_two_bytes_up_to_65536_pieces():
    assert token_dtype(65_536) == np.dtype("<u2")
    assert token_dtype(65_537) == np.dtype("<u4")
