"""Texts through a model: one row and one answer each."""

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.inference.streams import BatchOptions
from bert_jax.tasks.base.text_rows import TextEncoder, beginning, text_answers
from bert_jax.tokenization import BertSwitches, WordPieceTokenizer


def test_inputs_beside_the_tokens(model):
    found = text_answers(
        model,
        ["sun", "the sea"],
        jax.jit(lambda batch: batch["number"] * 2),
        lambda encoding, number: (encoding.tokens[1], int(number)),
        BatchOptions(),
        inputs=lambda batch: {"number": np.array([asked.number for asked, _ in batch.rows]) + 10},
    )
    assert list(found) == [("sun", 20), ("the", 22)]


def test_long_texts_are_cut_and_counted_once(model, capsys):
    texts = ["sun " * 31, "sun " * 30, "sun", ("sun " * 40, "sea " * 20), "sea " * 99]
    count = jax.jit(lambda batch: batch["attention_mask"].sum(axis=1))

    def ask(texts, **options):
        batches = BatchOptions(batch_size=1, window=2, **options)
        return list(text_answers(model, texts, count, lambda found, _: found.tokens, batches))

    found = ask(texts)
    assert [len(tokens) for tokens in found] == [32, 32, 3, 32, 32]
    assert [found[3].count(word) for word in ("sun", "sea")] == [15, 14]
    assert found[0] == ["[CLS]", *["sun"] * 30, "[SEP]"]
    assert capsys.readouterr().err == "3 of 5 texts were longer than 32 tokens: cut\n"

    ask(["sun " * 30])
    assert capsys.readouterr().err == ""
    assert len(ask(["sun " * 30], max_length=5)[0]) == 5
    assert capsys.readouterr().err == ""  # it was asked for


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
