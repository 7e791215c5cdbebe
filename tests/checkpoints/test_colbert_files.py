"""Models for late interaction in the files of PyLate, Stanford and Hofstätter."""

import dataclasses
import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import bert_jax
from bert_jax.checkpoints.sentence_transformers.reading import read_vectors
from bert_jax.errors import UserError
from bert_jax.files.manifest import MANIFEST
from bert_jax.models.heads.token_vectors import (
    APPEND,
    FIXED,
    PUNCTUATION,
    QueryExpansion,
    TokenVectors,
)
from bert_jax.models.vectors import Dense, Normalize

PROJECTION = np.random.default_rng(0).normal(size=(4, 16)).astype(np.float32)
BIAS = np.float32([1, -2, 3, 0])
IDENTITY = "torch.nn.modules.linear.Identity"


@pytest.fixture
def bare(make_model, tmp_path):
    """The directory of an encoder."""
    return saved(make_model("encoder", add_pooling_layer=False), tmp_path / "model")


def saved(model, directory):
    """The directory of a model, without checksums of its files."""
    model.save(directory)
    (directory / MANIFEST).unlink()
    return directory


def write(directory, name, content):
    (directory / name).parent.mkdir(exist_ok=True)
    (directory / name).write_text(json.dumps(content))


def changed(directory, name, **fields):
    write(directory, name, json.loads((directory / name).read_text()) | fields)


def written_again(model, directory):
    """The model that is read from the files that this one writes."""
    model.save(directory)
    assert (
        json.loads((directory / "config_sentence_transformers.json").read_text())["model_type"]
        == "MultiVectorEncoder"
    )
    return bert_jax.load(directory)


def check_projected(model, text, marker, *, scaled, bias=0.0):
    """The vectors of a document are projected hidden states of the text after its marker."""
    (hidden,) = model.hidden_states([f"{marker}{text}"], combine="mean")
    states = hidden.states @ PROJECTION.T + bias
    if scaled:
        states /= np.linalg.norm(states, axis=1, keepdims=True)
    np.testing.assert_allclose(model.token_vectors([text])[0].vectors, states, atol=1e-5)


def stanford(directory, **settings):
    tensors = load_file(directory / "model.safetensors")
    renamed = {f"bert.{name}": tensor for name, tensor in tensors.items()}
    save_file(renamed | {"linear.weight": PROJECTION}, directory / "model.safetensors")
    changed(directory, "config.json", architectures=["HF_ColBERT"])
    markers = {"query_token_id": "song", "doc_token_id": "sun"}
    write(directory, "artifact.metadata", markers | {"dim": 4, "nbits": 2} | settings)


@pytest.mark.slow
def test_stanford(bare, tmp_path, capsys):
    stanford(bare, query_maxlen=6, doc_maxlen=9)
    model = bert_jax.load(bare)
    assert model.report.complete
    vectors = model.description.stored_vectors
    assert vectors == TokenVectors(
        modules=(Dense(16, 4, bias=False, activation_function=IDENTITY), Normalize()),
        prompts={"query": "song ", "document": "sun "},
        markers=("song", "sun"),
        document_length=9,
        expansion=QueryExpansion(FIXED, 6),
        skipped_words=PUNCTUATION,
        other={"artifact.metadata": {"nbits": 2}},
    )
    check_projected(model, "the cat", "sun ", scaled=True)
    # The marker is behind [CLS], and counts in the limit.
    (query,) = model.token_vectors(["it was warm and long ."], "query")
    assert query.tokens == ["[CLS]", "song", "it", "was", "warm", "[SEP]"]
    again = written_again(model, tmp_path / "again")
    for side in ("query", "document"):
        (before,), (after,) = (each.token_vectors(["a dog ."], side) for each in (model, again))
        assert before.tokens == after.tokens
        np.testing.assert_array_equal(before.vectors, after.vectors)
    assert json.loads((tmp_path / "again" / "artifact.metadata").read_text()) == {"nbits": 2}


def test_settings_of_stanford(bare):
    stanford(bare, attend_to_mask_tokens=True, mask_punctuation=False)
    vectors = read_vectors(bare)
    assert vectors.expansion == QueryExpansion(FIXED, 32, attend=True)
    assert (vectors.document_length, vectors.skipped_words) == (220, ())
    changed(bare, "artifact.metadata", similarity="l2")
    assert read_vectors(bare).unsupported.endswith("similarity 'l2' is not supported")
    (bare / "artifact.metadata").unlink()
    assert read_vectors(bare).prompts == {"query": "[unused0] ", "document": "[unused1] "}


def test_damage_is_named(bare):
    stanford(bare, query_token_id=3)
    with pytest.raises(UserError, match=r"artifact\.metadata: the markers are \(3, 'sun'\); the"):
        read_vectors(bare)
    stanford(bare, doc_maxlen=0)
    with pytest.raises(UserError, match="query_maxlen or doc_maxlen is 0; it must be a whole numb"):
        read_vectors(bare)
    save_file({"linear.weight": BIAS}, bare / "model.safetensors")
    with pytest.raises(UserError, match=r"has no matrix linear\.weight, the projection; copy it"):
        read_vectors(bare)


@pytest.mark.slow
def test_hofstaetter(make_model, tmp_path):
    from bert_jax.families.colbert import FAMILY

    model = make_model("encoder", add_pooling_layer=False, type_vocab_size=0, has_pooler=False)
    described = dataclasses.replace(model.description, family=FAMILY)
    saved(dataclasses.replace(model, description=described), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    renamed = {f"bert_model.{name}": tensor for name, tensor in tensors.items()}
    own = {"compressor.weight": PROJECTION, "compressor.bias": BIAS}
    save_file(renamed | own, tmp_path / "model.safetensors")
    assert FAMILY.config(FAMILY.defaults).num_hidden_layers == 6
    fields = {"bert_model": "distilbert-base-uncased", "compression_dim": 4, "dropout": 0.5}
    changed(tmp_path, "config.json", **fields)
    model = bert_jax.load(tmp_path)
    assert model.report.complete
    assert model.config.hidden_dropout_prob == 0  # the dropout in the file is none of the encoder
    assert model.description.stored_vectors == TokenVectors(
        modules=(Dense(16, 4, activation_function=IDENTITY),),
        query_length=30,
        document_length=200,
        expansion=QueryExpansion(APPEND, 8, attend=True),
    )
    check_projected(model, "the cat .", "", scaled=False, bias=BIAS)
    (query,) = model.token_vectors(["a dog"], "query")
    assert query.tokens == ["[CLS]", "a", "dog", "[SEP]", *["[MASK]"] * 8]


PYLATE = {
    "model_type": "ColBERT",
    "similarity_fn_name": "MaxSim",
    "query_prefix": "song ",
    "document_prefix": "sun ",
    "query_length": 7,
    "document_length": 9,
    "attend_to_expansion_tokens": True,
    "skiplist_words": ["."],
    "__version__": {"pylate": "1.6.0"},
}


def pylate(directory, **fields):
    kinds = (
        ("", "sentence_transformers.models.Transformer"),
        ("1_Dense", "pylate.models.Dense.Dense"),
    )
    entries = [
        {"idx": i, "name": str(i), "path": path, "type": kind}
        for i, (path, kind) in enumerate(kinds)
    ]
    write(directory, "modules.json", entries)
    dense = {"in_features": 16, "out_features": 4, "bias": False, "activation_function": IDENTITY}
    write(directory, "1_Dense/config.json", dense)
    save_file({"linear.weight": PROJECTION}, directory / "1_Dense" / "model.safetensors")
    write(directory, "config_sentence_transformers.json", PYLATE | fields)


def test_pylate(bare, tmp_path):
    pylate(bare)
    model = bert_jax.load(bare)
    vectors = model.description.stored_vectors
    assert dataclasses.replace(vectors, other={}) == TokenVectors(
        modules=(Dense(16, 4, bias=False, activation_function=IDENTITY), Normalize()),
        prompts={"query": "song ", "document": "sun "},
        markers=("song ", "sun "),
        document_length=9,
        expansion=QueryExpansion(FIXED, 7, attend=True),
        skipped_words=(".",),
    )
    check_projected(model, "the cat", "sun ", scaled=True)
    again = written_again(model, tmp_path / "again")
    (before,), (after,) = (each.token_vectors(["a dog"], "query") for each in (model, again))
    assert after.tokens == ["[CLS]", "song", "a", "dog", "[SEP]", "[MASK]", "[MASK]"]
    np.testing.assert_array_equal(before.vectors, after.vectors)
    carried = json.loads((tmp_path / "again" / "config_sentence_transformers.json").read_text())
    assert carried["__version__"] == PYLATE["__version__"]
    assert "query_prefix" not in carried
    # Prefixes that are no tokens stay text, as in sentence-transformers.
    pylate(bare, query_prefix="the sea ", document_prefix="[D] ")
    tokens = bert_jax.load(bare).token_vectors(["dog"], "query")[0].tokens
    assert tokens == ["[CLS]", "the", "sea", "dog", "[SEP]", "[MASK]", "[MASK]"]
    pylate(bare, do_query_expansion=False, skiplist_words=None)
    vectors = read_vectors(bare)
    assert (vectors.expansion, vectors.query_length) == (None, 7)
    assert vectors.skipped_words == PUNCTUATION


@pytest.mark.parametrize(
    ("file", "change", "problem"),
    [
        ("2_MultiVectorMask/config.json", {"keep_only_token_ids": [3]}, "keep_only_token_ids [3]"),
        ("2_MultiVectorMask/config.json", {"note": 1}, "note 1"),
        ("1_Dense/config.json", {"module_input_name": "sentence_embedding"}, "module_input_name"),
        ("3_Normalize/config.json", {"module_input_name": None}, "module_input_name 'sentence_emb"),
        ("sentence_bert_config.json", {"query_expansion": {"strategy": "max", "length": 4}},
         "query_expansion {'strategy': 'max', 'length': 4} (query_expansion.strategy is 'max'"),
        ("sentence_bert_config.json", {"query_expansion": {"strategy": "min", "length": 0}},
         "query_expansion {'strategy': 'min', 'length': 0} (query_expansion.length is 0"),
        ("sentence_bert_config.json",
         {"query_expansion": {"strategy": "min", "length": 4, "attend": "no"}},
         "query_expansion {'strategy': 'min', 'length': 4, 'attend': 'no'} (query_expansion.a"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task 'fill"),
    ],
)  # fmt: skip
def test_what_is_not_computed_is_refused(bare, tmp_path, file, change, problem):
    pylate(bare)
    saved(bert_jax.load(bare), tmp_path / "again")
    assert not read_vectors(tmp_path / "again").unsupported
    changed(tmp_path / "again", file, **change)
    vectors = read_vectors(tmp_path / "again")
    assert isinstance(vectors, TokenVectors)
    assert vectors.unsupported.startswith(f"{tmp_path / 'again' / file}: {problem}")
