"""Documents by their relevance to a query: a cross-encoder, vectors, and other libraries."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

import bert_jax
from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription, read_config
from bert_jax.data.examples import Candidates
from bert_jax.errors import UserError
from bert_jax.families.bert import REQUIRED_IN_RELATIVES
from bert_jax.families.family import find_family
from bert_jax.inference import ranking
from bert_jax.inference.loading import convert
from bert_jax.inference.ranking import score_chunks
from bert_jax.models.execution import Execution
from bert_jax.models.heads.text_vectors import TextVectors
from bert_jax.parity.compare import compare
from bert_jax.tasks.base.predictor import ExampleError
from bert_jax.tasks.ranking.predict import RankingPredictOptions
from tests.random_params import random_params

QUERY = "the cat sat ."
DOCUMENTS = [
    "it was warm .",
    "the cat sat down on the mat .",
    ("the dog", "ran to the tree ."),
    "a song was sung .",
]
JOINED = [*DOCUMENTS[:2], "the dog ran to the tree .", DOCUMENTS[3]]


@pytest.fixture(scope="module")
def cross_encoder(make_model):
    return make_model("classification", num_labels=1)


@pytest.fixture(scope="module")
def encoder(make_model):
    vectors = TextVectors(poolings=("cls",), similarity="dot", prompts={"query": "it was "})
    model = make_model("encoder")
    described = dataclasses.replace(model.description, stored_vectors=vectors)
    return dataclasses.replace(model, description=described)


def test_a_cross_encoder_reads_the_query_with_each_document(cross_encoder):
    matches = cross_encoder.rank(QUERY, DOCUMENTS)
    expected = np.array(cross_encoder.classify([(QUERY, text) for text in JOINED]))
    assert [match.index for match in matches] == np.argsort(-expected).tolist()
    assert [match.text for match in matches] == [JOINED[match.index] for match in matches]
    actual = [match.score for match in matches]
    np.testing.assert_allclose(actual, np.sort(expected)[::-1], rtol=1e-5)
    assert cross_encoder.rank(QUERY, DOCUMENTS, top_k=2) == matches[:2]
    assert cross_encoder.rank(QUERY, []) == []


@pytest.mark.parametrize("is_main", [True, False])
def test_only_the_main_host_speaks(encoder, monkeypatch, capsys, is_main):
    monkeypatch.setattr(ranking, "is_main_host", lambda: is_main)
    ranking.say_by_vectors.cache_clear()
    assert len(encoder.rank(QUERY, [*DOCUMENTS, "the cat " * 400])) == 5
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == (2 if is_main else 0)  # by vectors; a text was cut


@pytest.mark.slow
def test_an_encoder_compares_vectors_with_its_prompts_and_its_similarity(encoder):
    matches = encoder.rank(QUERY, DOCUMENTS)
    query = encoder.embed([QUERY], prompt="query")[0]
    expected = encoder.embed(DOCUMENTS) @ query
    assert [match.index for match in matches] == np.argsort(-expected).tolist()
    for match in matches:
        assert match.score == pytest.approx(expected[match.index], rel=1e-5)


def test_long_queries_and_documents_are_reported(encoder, capsys):
    ranking.say_by_vectors()  # once in a process
    capsys.readouterr()
    encoder.rank("cat " * 9, DOCUMENTS, max_length=8)
    assert capsys.readouterr().err.splitlines() == [
        "1 of 1 texts were longer than 8 tokens: cut",
        "2 of 4 texts were longer than 8 tokens: cut",
    ]


def test_equal_scores_keep_the_order(cross_encoder):
    matches = cross_encoder.rank(QUERY, ["the sea", "a dog", "the sea", "the sea"])
    assert [match.index for match in matches if match.text == "the sea"] == [0, 2, 3]


def test_scores_in_half_precision_have_the_digits_of_float32(cross_encoder, tmp_path):
    """Rounded to the 8 bits of bfloat16, different documents would have equal scores."""
    cross_encoder.save(tmp_path / "model")
    model = bert_jax.load(tmp_path / "model", precision="bfloat16")
    words = ("cat", "dog", "bird", "mat", "tree", "song", "sun", "sea")
    documents = [f"{first} {second}" for first in words for second in words]
    raw = np.array(model.classify([(QUERY, text) for text in documents], raw_scores=True))
    assert len(set(raw.tolist())) > 60
    assert (raw != raw.astype(jnp.bfloat16)).mean() > 0.9


@pytest.mark.parametrize("kind", ["cross_encoder", "encoder"])
def test_many_queries(kind, request, monkeypatch):
    """Chunks in order; the errors of a list name the query."""
    monkeypatch.setattr("bert_jax.inference.ranking._DOCUMENTS", 3)
    model = request.getfixturevalue(kind)
    queries = [Candidates(text, tuple(DOCUMENTS[n:])) for n, text in enumerate(("a", "it", "sun"))]
    done, options = [], RankingPredictOptions(batch_size=2)
    chunks = [*score_chunks(model, queries, options, advance=done.append)]
    scores = [prediction for chunk in chunks for _, prediction in chunk.pairs]
    assert sum(done) == 3
    for example, actual in zip(queries, scores, strict=True):
        by_index = sorted(model.rank(example.query, example.documents), key=lambda m: m.index)
        np.testing.assert_allclose(actual, [match.score for match in by_index], rtol=1e-5)
    with pytest.raises(ExampleError, match="example 3: the query has no documents; give one"):
        [*score_chunks(model, [*queries, Candidates("a", ())], options)]


def test_refused_ranking(cross_encoder, encoder, make_model):
    for model in (cross_encoder, encoder):
        with pytest.raises(UserError, match="the documents are one string, 'the cat'"):
            model.rank(QUERY, "the cat")
        with pytest.raises(UserError, match="7 is no text; give strings"):
            model.rank(QUERY, ["the cat", 7])
        with pytest.raises(UserError, match="top_k is 0; it must be at least 1"):
            model.rank(QUERY, DOCUMENTS, top_k=0)
    section = {"modules.json": ["sentence_transformers.base.modules.dense.Dense"]}
    other = {"sentence_transformers": section}
    for model in (cross_encoder, encoder):
        described = dataclasses.replace(model.description, other=other)
        with pytest.raises(UserError, match="modules.json: the module .*Dense is not supported"):
            dataclasses.replace(model, description=described).rank(QUERY, DOCUMENTS)
    with pytest.raises(UserError, match="scores 3 labels, .*; give a model with one output"):
        make_model("classification", num_labels=3).rank(QUERY, DOCUMENTS)
    message = (
        "this BertForQuestionAnswering was not trained to .*; give a cross-encoder, or a model"
    )
    with pytest.raises(UserError, match=message):
        make_model("question_answering").rank(QUERY, DOCUMENTS)


# Hofstätter's BERT_CAT.


@pytest.fixture
def bert_cat(tiny_config, tokenizer, tmp_path):
    """A small one, as its class in the model card writes it, with the sizes in config.json."""

    def make(**other):
        family = find_family("BERT_Cat")
        fields = {name: getattr(tiny_config, name) for name in REQUIRED_IN_RELATIVES}
        config = family.config({**family.defaults, **fields})
        other = {"bert_model": "distilbert-base-uncased", "trainable": True, **other}
        description = ModelDescription(config, "classification", family=family, other=other)
        params = random_params(description.make_module(Execution()))
        model_directory.save(tmp_path / "cat", description, params, tokenizer)
        return tmp_path / "cat"

    return make


@pytest.mark.slow
def test_bert_cat_is_a_linear_function_of_cls(bert_cat, tmp_path):
    directory = bert_cat()
    model = bert_jax.load(directory)
    tensors = load_file(directory / "model.safetensors")
    layer = {name for name in tensors if "layer.1" in name}
    assert "bert_model.transformer.layer.1.attention.q_lin.weight" in layer
    assert {name for name in tensors if not name.startswith("bert_model.transformer.layer.")} == {
        *(f"bert_model.embeddings.{name}_embeddings.weight" for name in ("word", "position")),
        *(f"bert_model.embeddings.LayerNorm.{name}" for name in ("weight", "bias")),
        *("_classification_layer.weight", "_classification_layer.bias"),
    }
    pairs = [(QUERY, text) for text in JOINED]
    vectors = np.stack([states.states[0, 0] for states in model.hidden_states(pairs)])
    weight, bias = (tensors[f"_classification_layer.{name}"] for name in ("weight", "bias"))
    expected = (vectors @ weight.T + bias)[:, 0]
    np.testing.assert_allclose(model.classify(pairs), expected, rtol=1e-5, atol=1e-6)
    by_index = sorted(model.rank(QUERY, DOCUMENTS), key=lambda match: match.index)
    np.testing.assert_allclose([match.score for match in by_index], expected, rtol=1e-5, atol=1e-6)
    model.save(tmp_path / "saved")
    for file in ("model.safetensors", "config.json"):
        assert (tmp_path / "saved" / file).read_bytes() == (directory / file).read_bytes()
    fields = json.loads((directory / "config.json").read_text())
    assert (fields["model_type"], fields["architectures"]) == ("BERT_Cat", ["BERT_Cat"])


def test_sizes_of_the_published_bert_cat(tmp_path):
    """Its config.json names the model that it was made of."""
    fields = {"architectures": ["BERT_Cat"], "bert_model": "distilbert-base-uncased"}
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**fields, "model_type": "BERT_Cat", "trainable": True}))
    config = read_config(file).config
    assert (config.num_hidden_layers, config.hidden_size, config.vocab_size) == (6, 768, 30522)
    assert (config.num_labels, config.type_vocab_size, config.intermediate_size) == (1, 0, 3072)
    file.write_text(json.dumps({"model_type": "BERT_Cat", "bert_model": "bert-base-uncased"}))
    with pytest.raises(UserError, match="bert_model is 'bert-base-uncased'; only 'distilbert"):
        read_config(file)


@pytest.mark.slow
def test_bert_dot_is_an_encoder_whose_files_say_how_it_compares(make_model, tmp_path):
    """Hofstätter's BERT_DOT has the files of an encoder alone: [CLS], and the dot product."""
    make_model("encoder").save(tmp_path / "plain")
    plain = bert_jax.load(tmp_path / "plain")
    model = convert(tmp_path / "plain", tmp_path / "dot", pooling="cls", similarity="dot")
    (query, *documents) = plain.embed([QUERY, *JOINED], pooling="cls")
    for match in bert_jax.load(tmp_path / "dot").rank(QUERY, JOINED):
        assert match.score == pytest.approx(query @ documents[match.index], rel=1e-5)
    assert model.description.vectors.poolings == ("cls",)
    for problem, options in (
        ("similarity is 'sine'; known are cosine, dot", {"similarity": "sine"}),
        ("task is 'classification'; leave it out", {"similarity": "dot", "task": "classification"}),
        ("pooling is 'cls'; Google's files have no pooling", {"pooling": "cls", "to": "google"}),
        (
            "similarity is 'dot'; Google's files have no similarity: leave it out",
            {"similarity": "dot", "to": "google"},
        ),
    ):
        with pytest.raises(UserError, match=problem):
            convert(tmp_path / "plain", tmp_path / "x", **options)


# Other libraries.


@pytest.mark.slow
def test_scores_of_bert_cat_in_pytorch(bert_cat):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    directory = bert_cat()
    tensors = {k: torch.tensor(v) for k, v in load_file(directory / "model.safetensors").items()}
    fields = json.loads((directory / "config.json").read_text())
    names = ("vocab_size", "dim", "n_layers", "n_heads", "hidden_dim", "max_position_embeddings")
    config = transformers.DistilBertConfig(**{name: fields[name] for name in names})
    peer = transformers.DistilBertModel(config).eval()
    prefix = "bert_model."
    own = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
    peer.load_state_dict(own)
    with pytest.raises(UserError, match="transformers 5.* has no BERT_Cat to compare it with"):
        compare(directory)
    layer = torch.nn.Linear(config.dim, 1)
    layer.load_state_dict(
        {name: tensors[f"_classification_layer.{name}"] for name in ("weight", "bias")}
    )
    model = bert_jax.load(directory)
    for match in model.rank(QUERY, DOCUMENTS):
        (row,) = model.tokenizer.encode_batch([QUERY], [match.text])
        with torch.no_grad():
            vectors = peer(input_ids=torch.tensor([row.ids])).last_hidden_state
            assert match.score == pytest.approx(layer(vectors[:, 0]).item(), abs=1e-5)


@pytest.mark.slow
def test_the_ranking_of_sentence_transformers(cross_encoder, encoder, tmp_path):
    peers = pytest.importorskip("sentence_transformers")
    cross_encoder.save(tmp_path / "cross")
    expected = peers.CrossEncoder(str(tmp_path / "cross")).rank(QUERY, JOINED)
    actual = cross_encoder.rank(QUERY, DOCUMENTS)
    assert [match.index for match in actual] == [match["corpus_id"] for match in expected]
    for match, other in zip(actual, expected, strict=True):
        assert match.score == pytest.approx(other["score"], abs=1e-5)
    encoder.save(tmp_path / "encoder")
    peer = peers.SentenceTransformer(str(tmp_path / "encoder"))
    scores = peer.similarity(peer.encode_query([QUERY]), peer.encode_document(JOINED))[0]
    for match in encoder.rank(QUERY, JOINED):
        assert match.score == pytest.approx(scores[match.index].item(), rel=1e-5)
