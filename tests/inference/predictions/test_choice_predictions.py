"""Choices of a file."""

import json

import pytest

from bert_jax.errors import UserError
from bert_jax.models.config import Head


@pytest.fixture
def model(make_model):
    return make_model(Head.MULTIPLE_CHOICE)


def read(text):
    return [json.loads(line) for line in text.splitlines()]


def test_json_lines(answered, model):
    rows = [
        {"id": 7, "prompt": "the cat", "choices": ["sat", "ran", "was low"], "label": "no such"},
        {"id": 8, "prompt": "", "choices": ["sat", ""], "answer": 5},
    ]
    found = read(answered(model, "".join(json.dumps(row) + "\n" for row in rows)))
    assert list(found[0]) == ["id", "label", "index", "choice", "score", "probabilities"]
    assert (found[0]["label"], found[1]["answer"]) == ("no such", 5)
    for record, row in zip(found, rows, strict=True):
        expected = model.choose(row["prompt"], row["choices"])
        assert record["index"] == expected.index
        assert record["choice"] == row["choices"][record["index"]]
        assert record["probabilities"] == pytest.approx(list(expected.probabilities), rel=1e-5)


def test_the_table_of_swag(answered, model):
    content = (
        "video-id,fold-ind,sent1,sent2,ending0,ending1,label\n"
        "v1,12,the cat sat .,it,was low,ran,1\n"
        "v2,13,the sun,it,went up,went down,\n"
    )
    found = read(answered(model, content, "test.csv"))
    assert [(record["video-id"], record["fold-ind"]) for record in found] == [
        ("v1", "12"),
        ("v2", "13"),
    ]
    assert "sent1" not in found[0]
    assert "ending0" not in found[0]
    expected = model.choose("the cat sat .", ["it was low", "it ran"])
    assert found[0]["choice"] == expected.choice
    assert found[0]["label"] == "1"


def test_questions_of_arc(answered, model):
    choices = [{"text": "sun", "label": "A"}, {"text": "sea", "label": "B"}]
    row = {"id": "x", "question": {"stem": "it was", "choices": choices}, "answerKey": "Z"}
    (record,) = read(answered(model, json.dumps(row)))
    assert record["id"] == "x"
    assert record["answerKey"] == "Z"
    assert record["choice"] in ("sun", "sea")


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ('{"prompt": "a", "choices": ["b"]}', "in.jsonl", "in.jsonl:1: 1 choices, but there must"),
        ('{"prompt": "a", "choices": [1, 2]}', "in.jsonl", "in.jsonl:1: the choice 0 is not a st"),
        ('{"text": "a"}', "in.jsonl", "in.jsonl:1: these are no choices as in swag, cosmos, arc,"),
        ("sent1,sent2,ending0,ending1\na,b\n", "in.csv", "in.csv:2: 2 fields, but the header has"),
    ],
)
def test_errors_leave_nothing(answered, left, model, content, name, message):
    with pytest.raises(UserError, match=message):
        answered(model, content, name)
    assert left() == {name}
