"""Models with a Router beside sentence-transformers 6: what it writes, read; and back."""

import dataclasses
import json

import numpy as np
import pytest

import bert_jax
from bert_jax.errors import UserError
from bert_jax.inference.loading import convert

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")

WIDTH = 16
TEXTS = ["the cat sat on the mat .", "a dog", "the sea was low " * 5, "it was warm ."]
PROMPTS = {"query": "the sea : ", "passage": "a tree : "}


@pytest.fixture(scope="module")
def encoders(tmp_path_factory, tokenizer):
    """Two model directories of transformers, with one layer and with two."""
    directories = []
    for layers in (1, 2):
        directory = tmp_path_factory.mktemp("encoder")
        torch.manual_seed(layers)
        config = transformers.BertConfig(
            vocab_size=tokenizer.vocab_size,
            hidden_size=WIDTH,
            num_hidden_layers=layers,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=48,
            initializer_range=0.3,
        )
        transformers.BertModel(config).save_pretrained(directory)
        tokenizer.save(directory)
        directories.append(str(directory))
    return directories


def opened(directory):
    return sentence_transformers.SentenceTransformer(str(directory), device="cpu").eval()


def encoder(directory, length, pooling="mean", **options):
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    transformer = Transformer(directory, max_seq_length=length)
    return [transformer, Pooling(WIDTH, pooling, **options)]


def dense(seed):
    from sentence_transformers.base.modules import Dense

    torch.manual_seed(seed)
    return Dense(WIDTH, 12)


def published(directory, *modules, **options):
    model = sentence_transformers.SentenceTransformer(
        modules=[*modules], device="cpu", prompts=PROMPTS, **options
    )
    model.save(str(directory), create_model_card=False)


def two_encoders(encoders):
    """Each with its length, pooling and Dense, and a Normalize behind both."""
    from sentence_transformers.base.modules import Normalize, Router

    first, second = encoders
    queries = [*encoder(first, 8, include_prompt=False), dense(0)]
    documents = [*encoder(second, 14, "cls"), dense(1)]
    return Router.for_query_document(queries, documents), Normalize()


def behind_the_pooling(encoders):
    """One encoder, and a Dense for each kind of texts; queries are the default."""
    from sentence_transformers.base.modules import Router

    return *encoder(encoders[1], 12), Router({"query": [dense(0)], "document": [dense(1)]})


def mapped(encoders):
    """Texts without a kind have a route of their own, and names are mapped."""
    from sentence_transformers.base.modules import Router

    first, second = encoders
    routes = {"q": encoder(first, 8), "d": encoder(second, 14), "any": encoder(first, 20, "cls")}
    mappings = {("query", "text"): "q", ("document", None): "d"}
    return (Router(routes, default_route="any", route_mappings=mappings),)


def assert_same_vectors(model, directory):
    """The vectors of texts without a kind, of queries and of documents."""
    reference = opened(directory)
    np.testing.assert_allclose(model.embed(TEXTS), reference.encode(TEXTS), atol=1e-5)
    queries, documents = reference.encode_query(TEXTS), reference.encode_document(TEXTS)
    np.testing.assert_allclose(model.embed(TEXTS, side="query"), queries, atol=1e-5)
    np.testing.assert_allclose(model.embed(TEXTS, side="document"), documents, atol=1e-5)
    assert np.abs(queries - documents).max() > 0.1
    return reference.similarity(queries, documents).numpy()


@pytest.mark.parametrize("make", [two_encoders, behind_the_pooling, mapped])
def test_a_router_is_read_and_written(encoders, tmp_path, make):
    published(tmp_path / "peer", *make(encoders))
    model = bert_jax.load(tmp_path / "peer")
    scores = assert_same_vectors(model, tmp_path / "peer")
    model.save(tmp_path / "saved")
    assert_same_vectors(model, tmp_path / "saved")
    assert_same_vectors(bert_jax.load(tmp_path / "saved"), tmp_path / "peer")

    def by_id(hits):
        return [hit.score for hit in sorted(hits, key=lambda hit: int(hit.id))]

    index = model.index(TEXTS, path=tmp_path / "index")
    found = bert_jax.Index.load(tmp_path / "index").search(TEXTS, len(TEXTS))
    np.testing.assert_allclose([*map(by_id, found)], scores, atol=1e-5)
    np.testing.assert_allclose(
        index.similarities([(TEXTS[0], text) for text in TEXTS]), scores[0], atol=1e-5
    )
    for matches in (model.search(TEXTS[1], TEXTS, 4), model.rank(TEXTS[1], TEXTS)):
        ordered = sorted(matches, key=lambda match: match.index)
        np.testing.assert_allclose([match.score for match in ordered], scores[1], atol=1e-5)
    # One encoder alone, as an ordinary model.
    alone = bert_jax.load(tmp_path / "peer", route="query")
    alone.save(tmp_path / "queries")
    np.testing.assert_allclose(
        opened(tmp_path / "queries").encode_query(TEXTS),
        model.embed(TEXTS, side="query"),
        atol=1e-5,
    )


def test_the_old_form(encoders, tmp_path):
    """An Asym, before version 5: the same content in config.json."""
    published(tmp_path, *behind_the_pooling(encoders))
    folder = tmp_path / "2_Router"
    fields = json.loads((folder / "router_config.json").read_text())
    names = {name: f"14025{number}_Dense" for number, name in enumerate(fields["types"])}
    for name, old in names.items():
        (folder / name).rename(folder / old)
    old_fields = {
        "types": dict.fromkeys(names.values(), "sentence_transformers.models.Dense"),
        "structure": {key: [names[name]] for key, (name,) in fields["structure"].items()},
        "parameters": {"allow_empty_key": True},
    }
    (folder / "router_config.json").unlink()
    (folder / "config.json").write_text(json.dumps(old_fields))
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[2]["type"] = "sentence_transformers.models.Asym"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    assert_same_vectors(bert_jax.load(tmp_path), tmp_path)


def test_two_models_become_one(encoders, tmp_path):
    for name, directory in zip(("queries", "documents"), encoders, strict=True):
        published(tmp_path / name, *encoder(directory, 16))
    convert(tmp_path / "documents", tmp_path / "both", query_model=tmp_path / "queries")
    reference = opened(tmp_path / "both")
    for name, encode in (
        ("queries", reference.encode_query),
        ("documents", reference.encode_document),
    ):
        alone = opened(tmp_path / name)
        side = {"queries": alone.encode_query, "documents": alone.encode_document}[name]
        np.testing.assert_array_equal(encode(TEXTS), side(TEXTS))


def test_sparse_vectors_of_two_encoders(encoders, tmp_path, tokenizer):
    """An inference-free SPLADE has another module for queries: its documents can be read."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import (
        Router,
        SparseStaticEmbedding,
        SpladePooling,
        Transformer,
    )

    routes = []
    for layers in (1, 2):
        config = transformers.AutoConfig.from_pretrained(encoders[layers - 1])
        torch.manual_seed(layers)
        transformers.BertForMaskedLM(config).save_pretrained(tmp_path / f"mlm{layers}")
        tokenizer.save(tmp_path / f"mlm{layers}")
        transformer = Transformer(str(tmp_path / f"mlm{layers}"), transformer_task="fill-mask")
        routes.append([transformer, SpladePooling("max")])
    static = [SparseStaticEmbedding(tokenizer=routes[1][0].tokenizer)]
    for name, queries in (("two", routes[0]), ("static", static)):
        router = Router.for_query_document(queries, routes[1])
        SparseEncoder(modules=[router], device="cpu").save(
            str(tmp_path / name), create_model_card=False
        )
    reference = SparseEncoder(str(tmp_path / "two"), device="cpu")
    expected = reference.similarity(
        reference.encode_query(TEXTS[:2]), reference.encode_document(TEXTS)
    )
    model = bert_jax.load(tmp_path / "two")
    for text, scores in zip(TEXTS[:2], expected.numpy(), strict=True):
        ranked = sorted(model.rank(text, TEXTS), key=lambda match: match.index)
        np.testing.assert_allclose([match.score for match in ranked], scores, rtol=1e-4)
    problem = r"begins for texts 'query' with the module \S+SparseStaticEmbedding, which is not s"
    with pytest.raises(UserError, match=problem):
        bert_jax.load(tmp_path / "static")
    documents = bert_jax.load(tmp_path / "static", route="document")
    assert dataclasses.replace(documents.description.stored_vectors, other={}) == (
        dataclasses.replace(model.description.stored_vectors, other={})
    )
