"""Vectors of tokens: which tokens are added and which count, and scores of late interaction."""

import dataclasses
import json

import numpy as np
import pytest

import bert_jax
from bert_jax.errors import OptionError, UserError
from bert_jax.inference.predict import predict
from bert_jax.metrics.similarity import NO_TOKENS, maxsim
from bert_jax.models.heads.token_vectors import (
    APPEND,
    FIXED,
    MEAN_MAXSIM,
    MIN,
    QueryExpansion,
    TokenVectors,
)
from bert_jax.models.vectors import DOCUMENT, QUERY, Normalize
from bert_jax.tasks.token_vectors import TokenRows

PAD, CLS, SEP, MASK, DOT, THE = 0, 2, 3, 4, 5, 6
CAT, DOG = 10, 11
ROWS = {
    "input_ids": np.array([[CLS, THE, CAT, SEP, PAD], [CLS, DOG, SEP, PAD, PAD], [PAD] * 5]),
    "token_type_ids": np.zeros((3, 5), np.int32),
    "attention_mask": np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0], [0] * 5]),
}


@pytest.mark.parametrize(
    ("expansion", "ids", "attended", "counts"),
    [
        (None,
         ROWS["input_ids"], ROWS["attention_mask"], [[1, 0, 1, 1, 0], [1, 1, 1, 0, 0], [0] * 5]),
        (QueryExpansion(MIN, 4),
         [[CLS, THE, CAT, SEP, PAD], [CLS, DOG, SEP, MASK, PAD], [PAD] * 5],
         [[1, 1, 1, 1, 0], [1, 1, 1, 0, 0], [0] * 5],
         [[1, 0, 1, 1, 0], [1, 1, 1, 1, 0], [0] * 5]),
        (QueryExpansion(FIXED, 6, attend=True, token="dog"),
         [[CLS, THE, CAT, SEP, DOG, DOG], [CLS, DOG, SEP, DOG, DOG, DOG], [PAD] * 6],
         [[1, 1, 1, 1, 1, 1], [1] * 6, [0] * 6],
         [[1, 0, 1, 1, 1, 1], [1] * 6, [0] * 6]),
        (QueryExpansion(APPEND, 2, attend=True),
         [[CLS, THE, CAT, SEP, MASK, MASK, PAD], [CLS, DOG, SEP, MASK, MASK, PAD, PAD], [PAD] * 7],
         [[1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0, 0], [0] * 7],
         [[1, 0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0, 0], [0] * 7]),
    ],
)  # fmt: skip
def test_added_tokens_and_tokens_that_do_not_count(tokenizer, expansion, ids, attended, counts):
    vectors = TokenVectors(
        expansion=expansion, skipped_words=("the", "<x>"), skipped_sides=(QUERY,)
    )
    arrays = TokenRows(vectors, tokenizer, QUERY).arrays(ROWS)
    np.testing.assert_array_equal(arrays["input_ids"], ids)
    np.testing.assert_array_equal(arrays["attention_mask"], attended)
    np.testing.assert_array_equal(arrays["vector_mask"], counts)
    assert arrays["token_type_ids"].shape == arrays["input_ids"].shape
    of_documents = TokenRows(vectors, tokenizer, DOCUMENT).arrays(ROWS)
    np.testing.assert_array_equal(of_documents["vector_mask"], ROWS["attention_mask"])


def test_scores_by_hand():
    query = np.float32([[1, 0], [0, 2]])
    documents = [
        np.float32([[3, 1], [1, -4]]),
        np.zeros((0, 2), np.float32),
        np.float32([[-1, -1]]),
    ]
    # 3 from the first vector and 2 from the first; -1 and -2 from the only one.
    assert maxsim([query, -query], documents).tolist() == [[5, NO_TOKENS, -3], [7, NO_TOKENS, 3]]
    assert maxsim([query], documents, mean=True).tolist() == [[2.5, NO_TOKENS / 2, -1.5]]
    assert maxsim([query], documents[1:2]).tolist() == [[NO_TOKENS]]


STORED = TokenVectors(
    modules=(Normalize(),),
    prompts={"query": "the dog ", "document": "a "},
    query_length=6,
    document_length=7,
    expansion=QueryExpansion(FIXED, 8),
    skipped_words=(".",),
    similarity=MEAN_MAXSIM,
)


@pytest.fixture
def late(make_model):
    """A model for late interaction without a projection."""
    model = make_model("encoder", add_pooling_layer=False)
    description = dataclasses.replace(model.description, stored_vectors=STORED)
    return dataclasses.replace(model, description=description)


@pytest.mark.slow
def test_vectors_are_normalised_hidden_states(late):
    texts = ["the cat sat . the dog", "it was", ""]
    states = late.hidden_states([f"a {text}" for text in texts], combine="mean", max_length=7)
    for made in (late.token_vectors(texts), late.token_vectors(texts * 20, batch_size=4)[:3]):
        for state, result in zip(states, made, strict=True):
            kept = [token != "." for token in state.tokens]
            expected = state.states[kept]
            expected /= np.linalg.norm(expected, axis=1, keepdims=True)
            np.testing.assert_allclose(result.vectors, expected, atol=1e-6)
            assert result.tokens == [token for token in state.tokens if token != "."]
    (query,) = late.token_vectors(["sea"], "query")
    assert query.tokens == ["[CLS]", "the", "dog", "sea", "[SEP]", *["[MASK]"] * 3]
    (long,) = late.token_vectors(["sea sun cat bird boy"], "query")  # cut to 8 tokens
    assert long.tokens == ["[CLS]", "the", "dog", "sea", "sun", "cat", "bird", "[SEP]"]
    # No token attends to those that are added, and they attend to the others.
    whole = late.hidden_states(["the dog sea"], combine="mean")[0].states
    whole /= np.linalg.norm(whole, axis=1, keepdims=True)
    np.testing.assert_allclose(query.vectors[:5], whole, atol=1e-6)


@pytest.mark.slow
def test_saved_ranked_and_predicted(late, tmp_path):
    late.save(tmp_path / "model")
    again = bert_jax.load(tmp_path / "model")
    stored = dataclasses.replace(again.description.stored_vectors, other={})
    assert stored == STORED
    documents = ["the cat sat", "a dog .", "warm sea"]
    (query,) = late.token_vectors(["a bird"], "query")
    vectors = [result.vectors for result in late.token_vectors(documents)]
    expected = [
        np.mean([max(row @ one for one in each) for row in query.vectors]) for each in vectors
    ]
    ranked = again.rank("a bird", documents)
    assert [hit.index for hit in ranked] == np.argsort(expected)[::-1].tolist()
    assert [hit.score for hit in ranked] == pytest.approx(sorted(expected, reverse=True))
    (tmp_path / "in.txt").write_text("a bird\n")
    predict(again, "token_vectors", tmp_path / "in.txt", tmp_path / "out.jsonl", {"side": "query"})
    (line,) = (tmp_path / "out.jsonl").read_text().splitlines()
    assert json.loads(line)["tokens"] == query.tokens
    np.testing.assert_allclose(json.loads(line)["vectors"], query.vectors, atol=1e-6)


def test_what_is_refused(late, model):
    with pytest.raises(OptionError, match="other vectors, with the method token_vectors"):
        late.embed(["a"])
    with pytest.raises(OptionError, match="queries of this model have exactly 8 tokens: leave"):
        late.token_vectors(["a"], "query", max_length=6)
    with pytest.raises(OptionError, match="side is 'passage'"):
        late.token_vectors(["a"], "passage")
    expansion = QueryExpansion(FIXED, 1000)
    long = dataclasses.replace(late.description.stored_vectors, expansion=expansion)
    described = dataclasses.replace(late.description, stored_vectors=long)
    with pytest.raises(UserError, match="32 positions, and by its files queries have 1000 tokens"):
        dataclasses.replace(late, description=described).token_vectors(["a"], "query")
    with pytest.raises(UserError, match="name no vectors of tokens; give a model for late inter"):
        model.token_vectors(["a"])
