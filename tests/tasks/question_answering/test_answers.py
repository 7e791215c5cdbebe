"""Answers by models whose scores are known, and against a plain call of the module."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.data.examples import Question
from bert_jax.errors import UserError
from bert_jax.inference.engine import predict_examples
from bert_jax.tasks.base.predictor import ExampleError
from bert_jax.tasks.question_answering.predict import (
    Answer,
    AnswerOptions,
    AnswerPredictOptions,
    SpanPredictor,
    to_record,
)

PASSAGE = "The cat sat on the mat. It was warm."


def answer(model, question, passage, *arguments, **options):
    return model.answer(question, passage, *arguments, **options)


def spans(model, questions, **options):
    predictor = SpanPredictor(model, AnswerPredictOptions(**options))
    return predict_examples(predictor, questions)


@pytest.fixture(scope="module")
def qa_model(make_model):
    return make_model("question_answering", max_position_embeddings=32)


@pytest.fixture(scope="module")
def finder(qa_model, tokenizer):
    """Makes models that score every token by its word: 10, 6 and 3 for `words`, else 0."""

    def make(*words, **other):
        params = jax.tree.map(np.zeros_like, qa_model.params)
        params = jax.tree_util.tree_map_with_path(
            lambda path, leaf: np.ones_like(leaf) if path[-1].key == "scale" else leaf, params
        )
        # With all weights 0, nothing but LayerNorm happens to an embedding. These are pairs of
        # opposite numbers, so their mean is 0; the first pair leaves the scorer what it wants.
        table = params["bert"]["embeddings"]["word_embeddings"]["embedding"]
        table[:, 2:] = np.tile([1.0, -1.0], 7)
        for word, score in zip(words, (10.0, 6.0, 3.0), strict=False):
            share = score / 10
            table[tokenizer.token_to_id(word), :2] = [share, -share]
            # Of length 4, like all others.
            rest = math.sqrt((16 - 2 * share**2) / 14)
            table[tokenizer.token_to_id(word), 2:] = np.tile([rest, -rest], 7)
        others = [row for row in range(len(table)) if not table[row, :2].any()]
        table[others, 2:] *= math.sqrt(16 / 14)
        params["qa_outputs"]["kernel"][0] = 10.0
        description = dataclasses.replace(qa_model.description, other=other)
        return dataclasses.replace(qa_model, params=params, description=description)

    return make


def test_an_answer_by_hand(finder):
    actual = answer(finder("cat"), "Who sat?", PASSAGE)
    assert (actual.text, actual.start, actual.end) == ("cat", 4, 7)
    assert actual.no_answer_score is None
    assert PASSAGE[actual.start : actual.end] == actual.text


def test_several_answers(finder):
    model = finder("mat", "warm")
    assert len(answer(model, "What?", PASSAGE, top_k=21)) == 21  # n_best is 20
    actual = answer(model, "What?", PASSAGE, top_k=4)
    # Of the same score, 10: those that begin or end with "mat"; the shorter come first.
    assert [candidate.text for candidate in actual] == [
        "mat",  # 10 + 10
        "mat. It was warm",  # 10 + 6
        "warm",  # 6 + 6
        "The cat sat on the mat",  # 0 + 10
    ]
    # The probabilities are those among the 20 best.
    total = np.exp(20) + np.exp(16) + np.exp(12) + 9 * np.exp(10) + 8 * np.exp(6)
    np.testing.assert_allclose(
        [candidate.score for candidate in actual], np.exp([20, 16, 12, 10]) / total, rtol=1e-3
    )


@pytest.mark.slow
@pytest.mark.parametrize("length", [pytest.param(32, marks=pytest.mark.slow), 16])
def test_an_answer_late_in_a_long_passage(finder, length):
    model = finder("shell")
    words = "the cat sat on the mat . it was warm . " * 300
    passage = f"{words}one found a shell and ran . {words}"
    options = AnswerOptions(max_length=length)
    actual = answer(model, "What was found?", passage, options=options)
    assert actual.text == "shell"
    assert actual.start == passage.index("shell")
    assert len(passage) > 20_000


def test_no_answer(finder):
    model = finder("[CLS]", "cat")
    assert answer(model, "Who?", PASSAGE).text == "cat"
    # [CLS] has 10 + 10, "cat" 6 + 6: the odds are 8.
    assert answer(model, "Who?", PASSAGE, null_threshold=8.1).text == "cat"
    actual = answer(model, "Who?", PASSAGE, null_threshold=7.9)
    assert (actual.text, actual.start, actual.end) == ("", 0, 0)
    assert actual.score == actual.no_answer_score > 0.99
    first, second = answer(model, "Who?", PASSAGE, top_k=2, null_threshold=8.1)
    # The threshold decides, though "" is the more probable.
    assert (first.text, second.text) == ("cat", "")
    assert first.no_answer_score == second.score > first.score


def test_the_threshold_of_the_model(finder):
    for threshold, expected in ((7.9, ""), (8.1, "cat"), (9, "cat"), (0, "")):
        model = finder("[CLS]", "cat", null_score_diff_threshold=threshold)
        assert answer(model, "Who?", PASSAGE).text == expected
        assert answer(model, "Who?", PASSAGE, null_threshold=math.inf).text == "cat"
    for damaged in ("8", True, [8.0]):
        with pytest.raises(UserError, match="config.json: null_score_diff_threshold is "):
            answer(finder("cat", null_score_diff_threshold=damaged), "Who?", PASSAGE)


def test_one_or_many(finder):
    model = finder("cat", "dog")
    both = answer(model, ["Who?", "What?"], ["the dog ran", "the cat sat"])
    assert [best.text for best in both] == ["dog", "cat"]
    assert [best.text for best in answer(model, "Who?", ["a dog", "a cat"])] == ["dog", "cat"]
    assert [best.text for best in answer(model, ["Who?", "What?"], "a dog")] == ["dog", "dog"]
    assert [[best.text for best in top] for top in answer(model, ["Who?"], ["a dog"], top_k=2)] == [
        ["dog", "a dog"]
    ]
    assert answer(model, [], []) == []


def test_nothing_to_read(finder, capsys):
    model = finder("cat")
    actual = answer(model, ["Who?", "", "Who?"], [" ", "the cat", "the cat"])
    assert [best.text for best in actual] == ["", "cat", "cat"]
    assert actual[0] == Answer("", 0, 0, 1.0)
    assert capsys.readouterr().err == ("2 of 3 questions were empty, or about an empty passage\n")


def test_long_questions_are_cut_and_counted(finder, capsys):
    actual = answer(finder("cat"), "the sun " * 100, "the cat sat", options=AnswerOptions())
    assert actual.text == "cat"
    assert capsys.readouterr().err == "1 of 1 questions were longer than 14 tokens: cut\n"


def questions(pairs):
    return [Question(*pair) for pair in pairs]


@pytest.mark.slow
def test_scores_are_those_of_the_module(qa_model, tokenizer):
    (pair,) = tokenizer.encode_batch(["Who sat?"], [PASSAGE])
    output = qa_model.module.apply(
        {"params": qa_model.params}, jnp.array([pair.ids]), jnp.array([pair.type_ids])
    )
    start, end = (np.array(scores[0], np.float64) for scores in output)
    # Among longer ones, so that there is padding.
    queries = [("Who sat?", PASSAGE), ("What was warm?", f"{PASSAGE} {PASSAGE}")]
    actual, _ = spans(qa_model, questions(queries))
    begin = pair.type_ids.index(1)
    best = max(
        itertools.combinations_with_replacement(range(begin, len(pair) - 1), 2),
        key=lambda span: start[span[0]] + end[span[1]],
    )
    assert actual.best[0].start == pair.offsets[best[0]][0]
    assert actual.best[0].end == pair.offsets[best[1]][1]
    assert actual.best[0].score == pytest.approx(start[best[0]] + end[best[1]], abs=1e-5)
    assert actual.null.score == pytest.approx(start[0] + end[0], abs=1e-5)


def test_records(finder):
    model = finder("[CLS]", "cat", null_score_diff_threshold=9.5)
    best = answer(model, "Who?", "a cat")
    record = to_record([best])
    assert list(record) == ["answer", "start", "end", "score", "no_answer_score"]
    assert (record["answer"], record["start"], record["end"]) == ("cat", 2, 5)
    assert record["score"] == pytest.approx(best.score, rel=1e-6)
    record = to_record([dataclasses.replace(best, no_answer_score=None)])
    assert list(record) == ["answer", "start", "end", "score"]
    record = to_record(answer(model, "Who?", "a cat", top_k=3))
    assert [entry["answer"] for entry in record["n_best"]] == ["cat", "", "a cat"]
    assert record["answer"] == "cat"


def test_questions_that_are_refused(finder):
    model = finder("cat")
    with pytest.raises(UserError, match="top_k is 0; it must be at least 1"):
        answer(model, "Who?", PASSAGE, top_k=0)
    with pytest.raises(UserError, match="2 questions but 1 passages; give one passage for each"):
        answer(model, ["Who?", "What?"], ["the cat"])
    with pytest.raises(ExampleError, match="5 is no text; give strings") as caught:
        answer(model, ["Who?", "Who?"], ["a cat", 5])
    assert caught.value.index == 1
    asked = {"question": "Who?", "context": "a cat"}
    for given, name in (((asked, "a cat"), "questions"), (("Who?", asked), "passages")):
        with pytest.raises(UserError, match=f"the {name} are one dict, {{'question': 'Who"):
            answer(model, *given)
    with pytest.raises(UserError, match="'a cat'} has no passage beside it; give answer"):
        model.answer(asked)
    with pytest.raises(UserError, match="max_length is 33; this model takes 3 to 32"):
        answer(model, "Who?", PASSAGE, options=AnswerOptions(max_length=33))
    with pytest.raises(UserError, match="window_step is 0; it must be at least 1"):
        answer(model, "Who?", PASSAGE, options=AnswerOptions(window_step=0))
    with pytest.raises(UserError, match="answer_length is 0; it must be at least 1"):
        answer(model, "Who?", PASSAGE, options=AnswerOptions(answer_length=0))
    encoder = dataclasses.replace(model.description, head="encoder")
    with pytest.raises(UserError, match="this BertModel does not answer questions; give the dire"):
        answer(dataclasses.replace(model, description=encoder), "Who?", PASSAGE)
    config = dataclasses.replace(model.config, type_vocab_size=1)
    one_type = dataclasses.replace(model.description, config=config)
    with pytest.raises(UserError, match="questions need .* but this one has type_vocab_size 1"):
        answer(dataclasses.replace(model, description=one_type), "Who?", PASSAGE)
