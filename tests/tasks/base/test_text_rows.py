"""Texts and pairs as rows of tokens, one row each."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.tasks.base.predictor import ExampleError
from bert_jax.tasks.base.text_rows import TextEncoder, beginning
from bert_jax.tokenization import BertSwitches, WordPieceTokenizer


def test_long_texts_are_cut_and_counted(tokenizer, tiny_config, capsys):
    texts = ["sun " * 31, "sun " * 30, "sun", ("sun " * 40, "sea " * 20), "sea " * 99]
    encode = TextEncoder(tokenizer, tiny_config, 32)
    rows = [row.tokens for (row,) in encode(texts)]
    assert [len(tokens) for tokens in rows] == [32, 32, 3, 32, 32]
    assert [rows[3].count(word) for word in ("sun", "sea")] == [15, 14]
    assert rows[0] == ["[CLS]", *["sun"] * 30, "[SEP]"]
    encode.report()
    assert capsys.readouterr().err == "3 of 5 texts were longer than 32 tokens: cut\n"


def test_what_is_refused(tokenizer, tiny_config):
    encode = TextEncoder(tokenizer, tiny_config, 32, refuse_long=True)
    encode(["a", "b"])
    with pytest.raises(ExampleError, match="the text has 101 tokens, the model takes 32") as error:
        encode(["a", "sun " * 99])
    assert error.value.index == 3
    for text in (None, ("a", 3), ("a", "b", "c")):
        with pytest.raises(ExampleError, match="text 1 is .*; give a string or a pair of strings"):
            encode.check(text, 1)
    one_segment = dataclasses.replace(tiny_config, type_vocab_size=1)
    with pytest.raises(ExampleError, match="the text is a pair, but the model has one segment"):
        TextEncoder(tokenizer, one_segment, 32).check(("sun", "sea"), 0)


# Words of one, two and three pieces, unknown and endless ones, Chinese, and what leaves no tokens.
WORDS = [
    "sun",
    "the",
    "dogs",
    "walker",
    "x" * 30,
    "low.",
    "\u4e2d\u6587",
    "\u00e9",
    "\u0301",
    "\ufeff",
]
parts = st.sampled_from([*WORDS, "[MASK]", " ", "  ", "\n", "\t", "\u00a0", " " * 90, "y" * 1100])
long_texts = st.lists(parts, max_size=60).map("".join)


@given(text=long_texts, limit=st.integers(3, 9))
def test_what_is_enough_of_a_text_has_the_same_tokens(tokenizer, tiny_config, text, limit):
    text = text + " " + text + "sun " * 40
    ((found,),) = TextEncoder(tokenizer, tiny_config, limit)([text])
    assert [found] == tokenizer.encode_batch([text], max_length=limit)


@given(
    first=long_texts,
    second=long_texts,
    repeated=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    limit=st.integers(4, 9),
)
def test_what_is_enough_of_a_pair_has_the_same_tokens(
    tokenizer, tiny_config, first, second, repeated, limit
):
    pair = (first + "sun " * repeated[0], second + "sea " * repeated[1])
    encode = TextEncoder(tokenizer, tiny_config, limit)
    ((found,),) = encode([pair])
    whole = tokenizer.encode_batch([pair[0]], [pair[1]])[0]
    assert [found] == tokenizer.encode_batch([pair[0]], [pair[1]], max_length=limit)
    assert encode.cut == (len(whole) > limit)


def test_the_beginning_of_a_long_text(tokenizer):
    assert beginning(tokenizer, "sun " * 4, 1) == "sun sun sun sun "  # short enough
    assert beginning(tokenizer, "sun " * 5, 1) == "sun sun sun sun"
    assert beginning(tokenizer, "sun\n" * 1000, 10) == "sun\n" * 39 + "sun"
    assert beginning(tokenizer, "\u4e2d" * 1000, 10) == "\u4e2d" * 159
    # White space has no tokens: more of it is read, until there are enough.
    assert beginning(tokenizer, " " * 2000 + "sun " * 2000, 10) == " " * 2000 + "sun " * 139 + "sun"
    # No place between two words: the whole.
    assert beginning(tokenizer, "y" * 3000, 10) == "y" * 3000


def test_a_tokenizer_with_rules_of_its_own_gets_the_whole(tokenizer, pieces):
    plain = WordPieceTokenizer.from_vocabulary(pieces, BertSwitches(True, None, False))
    assert len(beginning(plain, "sun " * 1000, 10)) < 200
    assert beginning(plain, "\u4e2d" * 1000, 10) == "\u4e2d" * 1000  # one word
    plain.switches = None
    assert beginning(plain, "sun " * 1000, 10) == "sun " * 1000
