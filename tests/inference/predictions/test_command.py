"""Errors in the words of the command line."""

import pytest

from bert_jax.cli.predict import with_options


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "a.tsv:1: there is no column 'b'; set data.text_column (and pair_column, label_column)",
            "a.tsv:1: there is no column 'b'; set --text-column (and --pair-column, "
            "--label-column)",
        ),
        ("if this line is a row, set data.header=false", "if this line is a row, set --no-header"),
        ("data.format: 'xml' is unknown", "--input-format: 'xml' is unknown"),
        ("set data.format=jsonl", "set --input-format=jsonl"),
        ("max_length is 99; at most 32", "--max-length is 99; at most 32"),
        ("it has 33 tokens, give max_length to cut", "it has 33 tokens, give --max-length to cut"),
        # What the user wrote stays as it is.
        ("there is no 'text_column', only \"top_k\"", "there is no 'text_column', only \"top_k\""),
        ("dir/top_k/text_column.tsv:1: torn", "dir/top_k/text_column.tsv:1: torn"),
        ("text_column.tsv:1: torn", "text_column.tsv:1: torn"),
        ("the model's max_length is 'x'", "the model's --max-length is 'x'"),
        ("the header has 2; layers and separator", "the header has 2; layers and separator"),
        ("my_text_column and text_columns", "my_text_column and text_columns"),
    ],
)
def test_names_of_options(message, expected):
    assert with_options(message) == expected
