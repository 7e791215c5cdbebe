import dataclasses

import pytest

from bert_jax.errors import UserError
from bert_jax.tokenization.encoding import truncated_lengths


@pytest.mark.parametrize(
    ("lengths", "limit", "truncation", "expected"),
    [
        ([3, 4], 7, "longest_first", [3, 4]),
        ([3, 9], 7, "longest_first", [3, 4]),  # only the longer is cut
        ([9, 3], 7, "longest_first", [4, 3]),
        ([9, 9], 7, "longest_first", [3, 4]),  # the odd token goes to the second of equals
        ([9, 8], 7, "longest_first", [4, 3]),  # else to the longer
        ([9, 0], 7, "longest_first", [7, 0]),
        ([9], 7, "longest_first", [7]),
        ([9], 7, "only_first", [7]),
        ([9, 3], 7, "only_first", [4, 3]),
        ([3, 9], 7, "only_second", [3, 4]),
        ([9, 7], 7, "only_first", None),  # nothing would be left of the first
        ([7, 9], 7, "only_second", None),
        ([0, 7], 7, "only_first", [0, 7]),  # nothing to cut
    ],
)
def test_truncated_lengths(lengths, limit, truncation, expected):
    assert truncated_lengths(lengths, limit, truncation) == expected


@pytest.mark.parametrize(
    ("truncation", "expected"),
    [
        ("longest_first", ["[CLS]", "the", "dog", "[SEP]", "the", "play", "##s", "[SEP]"]),
        ("only_first", ["[CLS]", "the", "[SEP]", "the", "play", "##s", ".", "[SEP]"]),
        ("only_second", ["[CLS]", "the", "dog", ",", "dog", "[SEP]", "the", "[SEP]"]),
    ],
)
def test_pairs_are_truncated_as_the_option_says(uncased, truncation, expected):
    (encoding,) = uncased.encode_batch(
        ["the dog, dog"], ["the plays."], max_length=8, truncation=truncation
    )

    assert encoding.tokens == expected
    lists = (encoding.type_ids, encoding.offsets, encoding.word_ids, encoding.special_tokens_mask)
    assert [len(values) for values in lists] == [8, 8, 8, 8]
    assert encoding.type_ids == [0] * (expected.index("[SEP]") + 1) + [1] * (
        7 - expected.index("[SEP]")
    )


def test_texts_are_cut_on_the_side_of_the_files_for_this_call_alone(uncased):
    """The values are from transformers 5.24."""
    left = dataclasses.replace(uncased.description, truncation_side="left")
    tokenizer = uncased.with_description(left)
    texts, pairs = ["the dog, the play"], ["cafe dog."]  # 5 6 7 tokens

    def ids(**options):
        return tokenizer.encode_batch(texts, **options)[0].ids

    assert ids() == [2, 5, 10, 11, 5, 6, 3]
    assert ids(max_length=5) == [2, 11, 5, 6, 3]
    assert ids(pairs=pairs, max_length=8) == [2, 11, 5, 6, 3, 10, 12, 3]
    assert ids(pairs=pairs, max_length=7) == [2, 5, 6, 3, 10, 12, 3]
    assert ids(pairs=pairs, max_length=7, truncation="only_first") == [2, 6, 3, 9, 10, 12, 3]
    assert ids() == [2, 5, 10, 11, 5, 6, 3]
    assert uncased.encode_batch(texts, max_length=5)[0].ids == [2, 5, 10, 11, 3]


def test_an_empty_text_and_an_empty_batch(uncased, cat_tokenizer):
    for tokenizer in (uncased, cat_tokenizer):
        assert tokenizer.encode_batch([""], max_length=3)[0].tokens == ["[CLS]", "[SEP]"]
        assert tokenizer.encode_batch(["the"], [""])[0].type_ids == [0, 0, 0, 1]
        assert tokenizer.encode_batch([]) == []
        assert tokenizer.encode_sentences([]) == []
        assert tokenizer.encode_sentences([""]) == [[]]
        with pytest.raises(UserError, match="text 1, character 0"):
            tokenizer.encode_sentences(["the", "\udc00"])


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((["the"],), {"max_length": 2}, "max_length is 2; .* give at least 3"),
        ((["the"], ["dog"]), {"max_length": 3}, "max_length is 3; .* give at least 4"),
        ((["the"],), {"max_length": 0, "add_special_tokens": False}, "give at least 1"),
        ((["the"], ["dog", "dog"]), {}, "1 texts but 2 pairs"),
        ((["the"],), {"truncation": "longest"}, "truncation is 'longest'; known are longest_"),
        ((["the"],), {"max_length": 9, "truncation": "only_second"}, "there are no pairs"),
        (
            (["the", "the dog"], ["dog", "the dogs."]),
            {"max_length": 7, "truncation": "only_first"},
            r"item 1 has 2 \+ 4 tokens; 'only_first' cannot bring them to 4 beside the special",
        ),
        (("the dog",), {}, "one string; give a list"),
        (({"text": "the dog"},), {}, "one dict; give a list"),
        ((["the", None],), {}, "text 1 is None"),
        ((["the \ud83d"],), {}, r"text 0, character 4: U\+D83D is half of a surrogate pair"),
    ],
)
def test_impossible_requests_are_explained(uncased, arguments, options, message):
    with pytest.raises(UserError, match=message):
        uncased.encode_batch(*arguments, **options)
