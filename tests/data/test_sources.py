"""Specs, the table of kinds, and blocks."""

import pytest
from ml_collections import ConfigDict

from bert_jax.data.pretraining.sources import (
    Block,
    BlockBuilder,
    SourceSpec,
    document_blocks,
    open_source,
    source_specs,
)
from bert_jax.errors import UserError


def test_one_string_is_one_source_with_the_defaults():
    assert source_specs("text:a.txt", {"errors": "replace"}) == (
        SourceSpec("text:a.txt", errors="replace"),
    )


def test_a_mixture_of_mappings_strings_and_config_dicts():
    entries = [
        "text:a",
        {"source": "jsonl:b", "field": "body"},
        ConfigDict({"source": "text:c", "weight": 3}),
    ]
    specs = source_specs(entries, {"field": "content"})
    assert specs == (
        SourceSpec("text:a", field="content"),
        SourceSpec("jsonl:b", field="body"),
        SourceSpec("text:c", field="content", weight=3),
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "data.source is not set"),
        ([], "data.source is not set"),
        (None, "data.source is not set"),
        ([{"weight": 2.0}], "names no source"),
        ([{"source": "text:a", "wieght": 2.0}], "'wieght'; the nearest known is 'weight'"),
        ([{"source": "text:a", "weight": 0}], "weight 0 of 'text:a' is not a number above 0"),
        ([{"source": "text:a", "weight": "2"}], "weight '2' of 'text:a' is not a number above 0"),
        ([{"source": "text:a", "weight": float("nan")}], "weight nan"),
        ([{"source": "text:a", "format": "word"}], "data.format: 'word' of source 'text:a'"),
        ([{"source": "text:a", "errors": "ignore"}], "known are strict, replace"),
        ([{"source": "jsonl:a", "field": ""}], "data.field: '' of 'jsonl:a' names no field"),
    ],
)  # fmt: skip
def test_wrong_specs_say_what_is_wrong(source, message):
    with pytest.raises(UserError) as error:
        source_specs(source)
    assert message in str(error.value)


@pytest.mark.parametrize("source", ["books.txt", "web:http://x", "text"])
def test_an_unknown_kind_lists_the_known_ones(source):
    with pytest.raises(UserError, match=r"\(text:, jsonl:, tfds:, python-docs:\)"):
        open_source(SourceSpec(source))


def test_blocks_end_before_the_line_that_does_not_fit():
    builder = BlockBuilder(limit=10)
    assert builder.add("abcd") is None
    assert builder.add("  ") is None
    assert builder.add(" efgh ") is None
    assert builder.add("i") == Block(True, "abcd\nefgh")
    assert builder.add("a line that is longer than a block") == Block(False, "i")
    assert builder.end_document() == Block(False, "a line that is longer than a block")
    assert builder.end_document() is None
    assert builder.add("next") is None
    assert builder.end_document() == Block(True, "next")


def test_paragraphs_are_lines_or_joined_up_to_a_blank_line():
    text = "When in the course\r\nof human events\n\n \nit becomes\n"
    assert list(document_blocks(text, "lines")) == [
        Block(True, "When in the course\nof human events\nit becomes")
    ]
    assert list(document_blocks(text, "blank")) == [
        Block(True, "When in the course of human events\nit becomes")
    ]
    assert list(document_blocks(" \n\n", "blank")) == []
