"""Plain text to words."""

import pytest
from tokenizers import pre_tokenizers

from bert_jax.data.windows.words import joined, split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \t\n", []),
        ("Angela Merkel's trip.", ["Angela", "Merkel", "'", "s", "trip", "."]),
        ("U.S. 3.5% $5", ["U", ".", "S", ".", "3", ".", "5", "%", "$", "5"]),
        ("„Bonn“, São Paulo…", ["„", "Bonn", "“", ",", "São", "Paulo", "…"]),
        ("हिन्दी में", ["हिन्दी", "में"]),  # vowel signs are no letters to Python
        ("北京 is big", ["北", "京", "is", "big"]),
        ("서울에서 東京", ["서울에서", "東", "京"]),
        ("non\u00a0breaking", ["non", "breaking"]),
        ("😀!x", ["😀", "!", "x"]),
    ],
)
def test_words_by_eye(text, words):
    found = split_words(text)
    assert [word.text for word in found] == words
    assert [text[word.start : word.end] for word in found] == words


@pytest.mark.parametrize(
    "text", ['Mr. O\'Neil-Smith (born 1950) said: "No!" – «oui» ¿qué? a_b @home #tag x²']
)
def test_the_rule_is_that_of_bert_s_tokenizer(text):
    theirs = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(text)
    assert [(word.text, (word.start, word.end)) for word in split_words(text)] == theirs


def test_given_words_stand_between_blanks():
    assert [tuple(word) for word in joined(["EU", "", "rejects"])] == [
        ("EU", 0, 2),
        ("", 3, 3),
        ("rejects", 4, 11),
    ]
    assert joined(()) == []
