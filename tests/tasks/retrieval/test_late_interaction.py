"""Training of late interaction: options, presets, and the vectors that prediction makes, too."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.config import complete_config
from bert_jax.config.presets import keys_of_preset
from bert_jax.errors import OptionError
from bert_jax.experiment import Experiment
from bert_jax.metrics.similarity import NO_TOKENS
from bert_jax.models.dual_encoder import RankedVectors
from bert_jax.models.encoder_with_head import apply_model
from bert_jax.models.heads.token_vectors import (
    APPEND,
    FIXED,
    MEAN_MAXSIM,
    PUNCTUATION,
    SIMILARITIES,
    QueryExpansion,
    TokenVectors,
)
from bert_jax.models.vectors import Dense, Normalize
from bert_jax.tasks.token_vectors import TokenVectorsOfText

IDENTITY = "torch.nn.modules.linear.Identity"


@pytest.fixture
def task_of(base_model, write_rows, make_queries):
    """Makes the task of a config with these keys of `data`."""

    def make(preset="", **data):
        keys = {"task": "late_interaction", "init_from": str(base_model), "preset": preset}
        file = str(write_rows("train.jsonl", make_queries(8)))
        keys |= {"model": {"pad_vocab_to_multiple_of": 1}, "train": {"global_batch_size": 8}}
        keys["data"] = {"train": file, "validation": (file,), **data}
        return Experiment.from_config(complete_config(keys, where="a test")).task

    return make


def test_presets(task_of):
    vectors = task_of("hofstaetter", query_length=20, length=24).description.stored_vectors
    assert vectors == TokenVectors(
        modules=(Dense(16, 768, activation_function=IDENTITY),),
        prompts={"query": "", "document": ""},
        query_length=20,
        document_length=24,
        expansion=QueryExpansion(APPEND, 8, attend=True),
    )
    short = {"query_length": 12, "length": 24}
    with pytest.raises(OptionError, match=r"'\[unused0\]' is no token of the vocabulary; add it "):
        task_of("colbert", **short)
    # The markers of a small vocabulary.
    task = task_of("colbert", query_prompt="song ", document_prompt="sun ", **short)
    assert task.description.stored_vectors == TokenVectors(
        modules=(Dense(16, 128, bias=False, activation_function=IDENTITY), Normalize()),
        prompts={"query": "song ", "document": "sun "},
        query_length=12,
        document_length=24,
        expansion=QueryExpansion(FIXED, 12),
        skipped_words=PUNCTUATION,
        markers=("song ", "sun "),
    )
    batch = next(task.train_batches(0, 1, host=0, hosts=1))
    assert batch["query/input_ids"].shape == (8, 12)
    pieces = list(map(task.tokenizer.id_to_token, batch["query/input_ids"][0]))
    assert pieces[:6] == ["[CLS]", "song", "it", "was", "a", pieces[5]]
    assert pieces[6:] == ["[SEP]", *["[MASK]"] * 5]
    assert batch["query/attention_mask"][0].tolist() == [1] * 7 + [0] * 5
    assert batch["query/vector_mask"][0].tolist() == [1] * 12
    with pytest.raises(OptionError, match="query_length is 99; the model takes queries of at most"):
        task_of(query_length=99)
    assert keys_of_preset("colbert", "late_interaction")["data.length"] == 220
    assert keys_of_preset("pylate", "late_interaction")["data.query_prompt"] == "[Q] "
    assert keys_of_preset("colbert", "retrieval") == {}


def test_defaults_and_options(task_of):
    vectors = task_of().description.stored_vectors
    layer = Dense(16, 128, bias=False, activation_function=IDENTITY)
    assert vectors == TokenVectors(
        modules=(layer, Normalize()), query_length=32, document_length=180
    )
    vectors = task_of(
        projection=0, normalize=False, similarity=MEAN_MAXSIM, skip_punctuation=True, length=9
    ).description.stored_vectors
    assert vectors == TokenVectors(
        query_length=32, document_length=9, skipped_words=PUNCTUATION, similarity=MEAN_MAXSIM
    )


def test_the_expansion_of_queries(task_of):
    def expansion(**data):
        return task_of(**{"query_length": 12, **data}).description.stored_vectors.expansion

    assert expansion() is expansion(expansion="none") is None
    assert expansion(expansion="append") == QueryExpansion(APPEND, 8)
    assert expansion(expansion="append", expansion_length=3).length == 3
    attending = {"expansion": "fixed", "query_length": 9, "expansion_attend": True}
    assert expansion(**attending) == QueryExpansion(FIXED, 9, attend=True)
    for data, message in {
        "attend": ({"expansion_attend": True}, "expansion_attend is True; no tokens are added to"),
        "length": ({"expansion_length": 4}, "length is 4; set data.expansion=append, which adds"),
        "filled": ({"expansion": "fixed", "expansion_length": 4}, "length is 4; set data.expansio"),
        "bias": ({"projection_bias": True}, "projection_bias is True; it is of a new layer: set"),
    }.values():
        with pytest.raises(OptionError, match=message):
            task_of(**data)


@pytest.mark.slow
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_scores_of_a_batch_are_those_of_a_prediction(task_of, similarity):
    interaction = task_of(similarity=similarity).interaction
    draw = np.random.default_rng(0)
    query, document = (
        draw.normal(size=(*shape, 4)).astype(np.float32) for shape in ((2, 3), (2, 2, 5))
    )
    masks = np.float32([[1, 1, 1], [1, 0, 0]]), (draw.random((2, 2, 5)) < 0.6).astype(np.float32)
    masks[1][1, 1] = 0  # a row of padding
    vectors = RankedVectors((query, masks[0]), (document, masks[1]))
    scores = interaction.scores(*vectors)
    texts = [
        [TokenVectorsOfText([], one[mask > 0]) for one, mask in zip(each, kept, strict=True)]
        for each, kept in ((query, masks[0]), (document.reshape(4, 5, 4), masks[1].reshape(4, 5)))
    ]
    np.testing.assert_allclose(scores, interaction.similarities(*texts), rtol=1e-6)
    assert scores[0, 3] <= NO_TOKENS / 3
    own = interaction.own_scores(vectors)
    np.testing.assert_allclose(own, [scores[0, :2], scores[1, 2:]], rtol=1e-6)


def test_scores_that_are_cosines(task_of, write_rows):
    mean = {"similarity": MEAN_MAXSIM}
    for data, expected in ((mean, True), ({}, False), ({**mean, "normalize": False}, False)):
        assert task_of(**data).interaction.are_cosines == expected
    row = {"query": "it", "positive": "a", "negative": "b", "scores": [9.5, 0.0]}
    keys = {"loss": "margin_mse", "train": str(write_rows("teacher.jsonl", [row]))}
    assert task_of(**keys).rows
    with pytest.raises(OptionError, match="cosines by 2 at most; set data.similarity=maxsim, or "):
        assert task_of(**keys, **mean).rows


@pytest.mark.slow
def test_a_training_computes_what_a_model_predicts(task_of, tmp_path, base_model):
    task = task_of("hofstaetter", query_length=12, length=24, projection=6)
    source = bert_jax.load(base_model, "embedding")
    params, report = task.load_params(base_model, source.description, task.module, seed=3)
    assert report.new == ("text_vectors",)
    batch = next(task.train_batches(0, 1, host=0, hosts=1))
    outputs = jax.jit(functools.partial(apply_model, task.module))(params, task.inputs(batch))
    trained = {**params["bert"], "text_vectors": params["text_vectors"]}
    dataclasses.replace(source, params=trained, description=task.description).save(
        tmp_path / "model"
    )
    model = bert_jax.load(tmp_path / "model")
    example = task.splits.train[0].input
    row = int(np.flatnonzero(batch["query_numbers"] == 0)[0])
    of_query, of_documents = (tuple(np.asarray(array)[row] for array in side) for side in outputs)
    predicted = model.token_vectors([example.query], "query")
    predicted += model.token_vectors(example.documents)
    computed = [of_query, *zip(*of_documents, strict=True)]
    for ours, (vectors, counts) in zip(predicted, computed, strict=True):
        np.testing.assert_allclose(ours.vectors, vectors[counts > 0], atol=1e-5)


@pytest.mark.slow
def test_training(train, write_rows, make_queries):
    rows, others = make_queries(160), make_queries(40, seed=1, negatives=4)
    result, workdir = train(
        "late_interaction",
        data__train=write_rows("train.jsonl", rows),
        data__validation=(write_rows("validation.jsonl", others),),
        data__expansion="fixed",
        data__query_length=12,
        train__epochs=6.0,
    )
    assert result["ndcg@10"] > 0.9
    model = bert_jax.load(workdir / "model")
    assert model.report.complete
    ranked = model.rank("it was a cat", ["the sea was low .", "the cat was low ."])
    assert [hit.index for hit in ranked] == [1, 0]
