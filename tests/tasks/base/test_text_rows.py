"""Texts and pairs as rows of tokens, one row each; many examples in chunks."""

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.examples import Example
from bert_jax.errors import UserError
from bert_jax.tasks.base.labelled_task import encode_in_chunks
from bert_jax.tasks.base.predictor import EncodingCounts, ExampleError
from bert_jax.tasks.base.text_rows import TextEncoder, beginning, too_long
from bert_jax.tokenization import BertSwitches, WordPieceTokenizer, train_byte_level_bpe
from bert_jax.tokenization.sentencepiece_training import train_t5


def test_long_texts_are_cut_and_counted(tokenizer, tiny_config):
    texts = ["sun " * 31, "sun " * 30, "sun", ("sun " * 40, "sea " * 20), "sea " * 99]
    encoded = TextEncoder(tokenizer, tiny_config, 32)(texts)
    rows = [row.tokens for example in encoded for row in example.rows]
    assert [len(tokens) for tokens in rows] == [32, 32, 3, 32, 32]
    assert [rows[3].count(word) for word in ("sun", "sea")] == [15, 14]
    assert rows[0] == ["[CLS]", *["sun"] * 30, "[SEP]"]
    assert [example.counts for example in encoded] == [
        EncodingCounts(cut=cut) for cut in (1, 0, 0, 1, 1)
    ]
    assert EncodingCounts.total(example.counts for example in encoded) == EncodingCounts(5, 3)


def test_refused_texts(tokenizer, tiny_config):
    encode = TextEncoder(tokenizer, tiny_config, 32, refusal=too_long)
    wrong = [None, ("a", 3), ("a", "b", "c")]
    short, long, *errors = encode(["a", "sun " * 99, *wrong])
    assert short.rows[0].tokens == ["[CLS]", "a", "[SEP]"]
    assert str(long).startswith("the text has 101 tokens, the model takes 32")
    assert [str(error) for error in errors] == [
        f"{text!r} is no text; give a string or a pair of strings" for text in wrong
    ]
    one_segment = dataclasses.replace(tiny_config, type_vocab_size=1)
    (error,) = TextEncoder(tokenizer, one_segment, 32)([("sun", "sea")])
    assert str(error).startswith("the text is a pair, but the model has one segment")
    assert isinstance(error, ExampleError)


def test_an_example_of_several_texts_has_as_many_rows_or_an_error(tokenizer, tiny_config):
    groups = [["sun", "a sea"], ExampleError("bad"), ["sun", 3], ["sun " * 99]]
    two, bad, three, long = TextEncoder(tokenizer, tiny_config, 32).groups(groups)
    assert ([len(row) for row in two.rows], two.counts) == ([3, 4], EncodingCounts(2))
    assert (bad, str(three)[:9]) == (groups[1], "3 is no t")
    assert long.counts == EncodingCounts(1, 1)


# Words of one, two and three pieces, unknown and endless ones, Chinese, and what leaves no tokens.
WORDS = [
    *("sun", "the", "dogs", "walker", "x" * 30, "low."),
    *("\u4e2d\u6587", "\u00e9", "\u0301", "\ufeff"),
]
parts = st.sampled_from([*WORDS, "[MASK]", " ", "  ", "\n", "\t", "\u00a0", " " * 90, "y" * 1100])
long_texts = st.lists(parts, max_size=60).map("".join)


@given(text=long_texts, limit=st.integers(3, 9))
def test_a_shortened_text_has_the_same_tokens(tokenizer, tiny_config, text, limit):
    text = text + " " + text + "sun " * 40
    (encoded,) = TextEncoder(tokenizer, tiny_config, limit)([text])
    assert encoded.rows == tokenizer.encode_batch([text], max_length=limit)


@given(
    first=long_texts,
    second=long_texts,
    repeated=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    limit=st.integers(4, 9),
)
def test_a_shortened_pair_has_the_same_tokens(
    tokenizer, tiny_config, first, second, repeated, limit
):
    pair = (first + "sun " * repeated[0], second + "sea " * repeated[1])
    (encoded,) = TextEncoder(tokenizer, tiny_config, limit)([pair])
    whole = tokenizer.encode_batch([pair[0]], [pair[1]])[0]
    assert encoded.rows == tokenizer.encode_batch([pair[0]], [pair[1]], max_length=limit)
    assert encoded.counts.cut == (len(whole) > limit)


def test_the_beginning_of_a_long_text(tokenizer):
    assert beginning(tokenizer, "sun " * 4, 1) == "sun sun sun sun "  # short enough
    assert beginning(tokenizer, "sun " * 5, 1) == "sun sun sun sun"
    assert beginning(tokenizer, "sun\n" * 1000, 10) == "sun\n" * 39 + "sun"
    assert beginning(tokenizer, "\u4e2d" * 1000, 10) == "\u4e2d" * 159
    # White space has no tokens: more of it is read, until there are enough.
    assert beginning(tokenizer, " " * 2000 + "sun " * 2000, 10) == " " * 2000 + "sun " * 139 + "sun"
    # No boundary between two words: the whole text.
    assert beginning(tokenizer, "y" * 3000, 10) == "y" * 3000


def test_a_tokenizer_with_other_rules_gets_the_whole_text(tokenizer, pieces):
    plain = WordPieceTokenizer.from_vocabulary(pieces, BertSwitches(True, None, False))
    assert len(beginning(plain, "sun " * 1000, 10)) < 200
    assert beginning(plain, "\u4e2d" * 1000, 10) == "\u4e2d" * 1000  # one word
    plain.switches = None
    assert beginning(plain, "sun " * 1000, 10) == "sun " * 1000


LINES = ["the sun and the sea", "it is low, it's 12 \u4e2d \u00fcber."] * 20


@pytest.mark.parametrize(
    "tokenizer",
    [train_byte_level_bpe(LINES, vocab_size=280), train_t5(LINES, vocab_size=128)],
    ids=["byte-level", "unigram"],
)
def test_long_texts_of_tokenizers_that_split_at_spaces(tokenizer):
    text = "the sun, \u00fcber  the sea\n it's 12 \u4e2d. " * 200
    shortened = beginning(tokenizer, text, 20)
    assert text.startswith(shortened)
    assert len(shortened) < 400
    (part,), (whole,) = (
        tokenizer.encode_batch([each], add_special_tokens=False) for each in (shortened, text)
    )
    assert part.ids == whole.ids[: len(part)]
    assert part.offsets == whole.offsets[: len(part)]
    assert len(part) > 20
    assert beginning(tokenizer, "sun" * 1000, 10) == "sun" * 1000


@pytest.mark.parametrize("count", [0, 1, 2000, 2001])
def test_every_item_once_and_in_order(count):
    examples = map(Example, range(count))
    encoded = encode_in_chunks(lambda items: [[-item] for item in items], examples)
    assert list(encoded) == [[-item] for item in range(count)]


def test_an_example_that_cannot_be_encoded_is_named_by_its_line(tokenizer, tiny_config):
    encode = TextEncoder(tokenizer, dataclasses.replace(tiny_config, type_vocab_size=1), 8)
    examples = [Example("a cat", location="a.tsv:2"), Example(("a", "b"), location="a.tsv:3")]
    encoded = encode_in_chunks(encode, examples)
    assert next(encoded).rows[0].tokens == ["[CLS]", "a", "cat", "[SEP]"]
    with pytest.raises(UserError, match="^a.tsv:3: the text is a pair, but the model has one"):
        next(encoded)


def test_no_more_is_read_and_encoded_than_is_requested():
    sizes = []
    examples = map(Example, range(10_000))

    def encode(chunk):
        sizes.append(len(chunk))
        return chunk

    encoded = encode_in_chunks(encode, examples)
    assert sizes == []
    assert list(itertools.islice(encoded, 2000)) == list(range(2000))
    assert (sizes, next(examples)) == ([2000], Example(2000))
    assert len(list(encoded)) == 7999
