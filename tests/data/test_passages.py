"""Documents cut into passages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.examples import Document, Passage
from bert_jax.data.passages import passages
from bert_jax.errors import UserError


def test_passages_keep_their_position():
    document = Document("d", " one  two\nthree four five ", "T")
    assert list(passages(document, words=2)) == [
        Passage("d#0", "one  two", "T", "d", 1),
        Passage("d#1", "three four", "T", "d", 10),
        Passage("d#2", "five", "T", "d", 21),
    ]
    assert all(document.text[each.start :].startswith(each.text) for each in passages(document))
    assert list(passages(Document("d", " "))) == []


def test_a_passage_has_a_hundred_words_by_default():
    lengths = [len(each.text.split()) for each in passages(Document("d", "word " * 250))]
    assert lengths == [100, 100, 50]
    with pytest.raises(UserError, match="^words is 0; it must be at least 1"):
        list(passages(Document("d", "x"), words=0))


@given(st.text(), st.integers(1, 5))
def test_passages_have_all_words_at_their_place(text, words):
    cut = list(passages(Document("d", text), words))
    assert [word for each in cut for word in each.text.split()] == text.split()
    assert all(text[each.start :].startswith(each.text) for each in cut)
    assert all(len(each.text.split()) == words for each in cut[:-1])
