"""How alike the pairs of a file are."""

import json
import re

import numpy as np
import pytest

from bert_jax.errors import UserError

CONTENT = "sentence1\tsentence2\tscore\nthe cat\tthe dog\t3.5\na\ta\t5\n\tlow\t0\n"


def test_pairs(answered, model):
    found = answered(model, CONTENT, "in.tsv", task="similarity")
    records = [json.loads(line) for line in found.splitlines()]
    assert [record["score"] for record in records] == ["3.5", "5", "0"]
    vectors = model.embed(["the cat", "the dog", "", "low"], normalize=True)
    assert records[0]["similarity"] == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-6)
    assert records[1]["similarity"] == pytest.approx(1)
    assert records[2]["similarity"] == pytest.approx(float(vectors[2] @ vectors[3]), abs=1e-6)


def test_numbers_have_the_digits_of_a_float32(answered, model):
    for line in answered(model, CONTENT, "in.tsv", task="similarity").splitlines():
        (digits,) = re.findall(r'"similarity": (.*)}', line)
        assert digits == str(float(str(np.float32(digits))))
        assert len(digits.lstrip("-0.")) <= 9


def test_the_pooling(answered, model):
    found = answered(model, CONTENT, "in.tsv", task="similarity", pooling="cls")
    first, second = model.embed(["the cat", "the dog"], "cls", normalize=True)
    record = json.loads(found.splitlines()[0])
    assert record["similarity"] == pytest.approx(float(np.dot(first, second)), abs=1e-6)


def test_one_text_is_no_pair(answered, model, left):
    with pytest.raises(UserError, match="in.txt:1: there is no second text"):
        answered(model, "the cat\n", "in.txt", task="similarity")
    assert left() == {"in.txt"}
