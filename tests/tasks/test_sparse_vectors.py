"""Sparse vectors of a model whose weights are known, and the files that describe them."""

import dataclasses
import json

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.checkpoints.sentence_transformers.reading import read_vectors
from bert_jax.errors import NotFiniteError, OptionError, UserError
from bert_jax.inference.predict import predict
from bert_jax.models.heads.sparse_vectors import SparseVectors
from bert_jax.tasks.sparse_vectors import SparseVector, dot_products, say_default

OTHERS = {"song": 3.0, "sun": 2.0, "sea": 2.0, "long": -1.0}
STORED = SparseVectors(
    pooling_strategy="sum",
    activation_function="log1p_relu",
    max_active_dims=2,
    prompts={"query": "the sea : "},
    max_length=5,
    lower_case=True,
)


@pytest.fixture
def song_model(make_model, tokenizer):
    """Its logits are those of `OTHERS` for every token: only the output bias counts."""
    model = make_model("masked_lm")
    params = jax.tree.map(np.zeros_like, model.params)
    for word, logit in OTHERS.items():
        params["mlm_head"]["bias"][tokenizer.token_to_id(word)] = np.sign(logit) * np.expm1(
            abs(logit)
        )
    return dataclasses.replace(model, params=params)


def described(model, **fields):
    description = dataclasses.replace(model.description, stored_vectors=SparseVectors(**fields))
    return dataclasses.replace(model, description=description)


@pytest.mark.slow
def test_weights_by_hand(song_model, tokenizer, capsys):
    say_default.cache_clear()
    first, second = song_model.sparse_vectors(["the cat", "a dog sat"])
    assert first.by_token == pytest.approx({"song": 3, "sun": 2, "sea": 2})
    assert first.tokens == ["song", "sun", "sea"]  # equal weights in the order of the vocabulary
    assert first.ids.tolist() == [tokenizer.token_to_id(word) for word in first.tokens]
    assert second.by_token == first.by_token
    assert capsys.readouterr().err.startswith("the model has no files of a SparseEncoder: weights")
    # [CLS] a dog sat [SEP], by the sum.
    summed = described(song_model, pooling_strategy="sum").sparse_vectors(["a dog sat"])[0]
    assert summed.by_token == pytest.approx({"song": 15, "sun": 10, "sea": 10})
    largest = song_model.sparse_vectors(["a dog"], max_active_dims=1)[0]
    assert largest.tokens == ["song"]
    assert capsys.readouterr().err == ""


def test_the_rank_is_by_the_dot_product_with_the_prompt_of_a_side(make_model):
    model = described(make_model("masked_lm"), prompts={"query": "the sea : "})
    documents = ["it was warm .", "the cat sat down on the mat .", "", "a song was sung ."]
    (query,) = model.sparse_vectors(["the sea : a song"])
    expected = [
        sum(query.by_token.get(token, 0) * weight for token, weight in vector.by_token.items())
        for vector in model.sparse_vectors(documents)
    ]
    matches = model.rank("a song", documents)
    assert [match.index for match in matches] == np.argsort(-np.array(expected)).tolist()
    scores = [match.score for match in matches]
    np.testing.assert_allclose(scores, sorted(expected, reverse=True), rtol=1e-5)


def test_scores_of_vectors_without_words():
    some = SparseVector(["a", "b"], np.int32([4, 1]), np.float32([2, 3]))
    none = SparseVector([], np.int32([]), np.float32([]))
    assert dot_products([some, none], [none, some]).tolist() == [[0, 13], [0, 0]]
    assert dot_products([none], [none]).tolist() == [[0]]


def test_other_models_are_refused(model, song_model):
    with pytest.raises(UserError, match="a model that does, with the head masked_lm"):
        bert_jax.inference.vectors.sparse_vectors(
            dataclasses.replace(
                model, description=dataclasses.replace(model.description, head="encoder")
            ),
            ["a"],
        )
    with pytest.raises(UserError, match="the pooling X is not supported; give another model"):
        described(song_model, unsupported="the pooling X is not supported").sparse_vectors(["a"])
    with pytest.raises(OptionError, match="it is none of the model's prompts, query, document"):
        song_model.sparse_vectors(["a"], prompt="passage")
    damaged = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), song_model.params)
    with pytest.raises(NotFiniteError, match="the weights of words are not finite"):
        dataclasses.replace(song_model, params=damaged).sparse_vectors(["a"])


@pytest.mark.slow
def test_what_is_written_is_read_and_predicted(song_model, tmp_path):
    described(song_model, **vars(STORED)).save(tmp_path / "model")
    again = bert_jax.load(tmp_path / "model")
    assert dataclasses.replace(again.description.stored_vectors, other={}) == STORED
    (tmp_path / "in.txt").write_text("The CAT sat on the mat\n")
    predict(again, None, tmp_path / "in.txt", tmp_path / "out.jsonl")
    # The limit is 5 tokens.
    expected = {"song": 5 * np.log(4), "sun": 5 * np.log(3)}
    (line,) = (tmp_path / "out.jsonl").read_text().splitlines()
    assert json.loads(line)["weights"] == pytest.approx(expected)
    with pytest.raises(OptionError, match="the model makes other vectors, with the method sparse_"):
        again.embed(["a"])
    # A model for another task leaves the files behind.
    bert_jax.load(tmp_path / "model", "classification").save(tmp_path / "model")
    assert read_vectors(tmp_path / "model") is None


def test_files_of_other_versions_are_read(song_model, tmp_path):
    described(song_model, **vars(STORED)).save(tmp_path)
    pooling, encoder = (
        tmp_path / "1_SpladePooling/config.json",
        tmp_path / "sentence_bert_config.json",
    )
    of_version_5 = json.loads(pooling.read_text()) | {"word_embedding_dimension": 40}
    pooling.write_text(json.dumps(of_version_5))
    assert dataclasses.replace(read_vectors(tmp_path), other={}) == STORED
    pooling.write_text(json.dumps(of_version_5 | {"embedding_dimension": None}))
    modules = (tmp_path / "modules.json").read_text()
    modules = modules.replace("sparse_encoder.models.MLMTransformer", "base.modules.Transformer")
    (tmp_path / "modules.json").write_text(modules)
    of_version_6 = {
        "transformer_task": "fill-mask",
        "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
        "module_output_name": "token_embeddings",
    }
    encoder.write_text(json.dumps(json.loads(encoder.read_text()) | of_version_6))
    assert dataclasses.replace(read_vectors(tmp_path), other={}) == STORED


@pytest.mark.parametrize(
    ("file", "change", "problem"),
    [
        ("1_SpladePooling/config.json", {"pooling_strategy": "mean"}, "pooling_strategy 'mean'"),
        ("1_SpladePooling/config.json", {"activation_function": "gelu"}, "activation_function 'ge"),
        ("1_SpladePooling/config.json", {"my_note": 1}, "my_note 1"),
        ("config_sentence_transformers.json", {"similarity_fn_name": "cosine"}, "similarity_fn_na"),
        ("sentence_bert_config.json", {"module_output_name": "logits"}, "modality_config None for"),
    ],
)
def test_what_is_not_computed_is_refused(song_model, tmp_path, file, change, problem):
    described(song_model).save(tmp_path)
    content = json.loads((tmp_path / file).read_text())
    (tmp_path / file).write_text(json.dumps(content | change))
    vectors = read_vectors(tmp_path)
    assert vectors.unsupported.startswith(f"{tmp_path / file}: {problem}")
    assert isinstance(vectors, SparseVectors)


def test_other_modules_are_refused(song_model, tmp_path):
    described(song_model).save(tmp_path)
    modules = json.loads((tmp_path / "modules.json").read_text())
    (tmp_path / "modules.json").write_text(json.dumps([*modules, modules[1]]))
    assert "the list of modules sentence_transformers." in read_vectors(tmp_path).unsupported
    modules[0]["type"] = modules[0]["type"].replace("MLMTransformer", "Transformer")
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    assert "transformer_task 'feature-extraction' is not" in read_vectors(tmp_path).unsupported
