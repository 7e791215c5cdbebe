"""Errors about options, in the words of each face."""

import pickle

import pytest

from bert_jax.errors import OptionError, UserError, renamed_options


def as_flag(option, value):
    flag = "--" + option.replace("_", "-")
    return flag if value is None else f"{flag} {value}"


def test_option_error_is_worded_by_each_face():
    error = OptionError("top_k", 0, "it must be at least 1")
    assert isinstance(error, UserError)
    assert str(error) == "top_k is 0; it must be at least 1"
    assert error.worded(as_flag) == "--top-k is 0; it must be at least 1"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_options_in_the_remedy_are_worded_and_users_text_is_kept():
    error = OptionError(
        "text_column",
        None,
        "set {text_column}, or {header=False} if this line is a row",
        problem="text_column.tsv:1: there is no column '{top_k}'",
    )
    assert str(error) == (
        "text_column.tsv:1: there is no column '{top_k}'; set text_column, or header=False if this "
        "line is a row"
    )
    assert error.worded(as_flag) == (
        "text_column.tsv:1: there is no column '{top_k}'; set --text-column, or --header False if "
        "this line is a row"
    )


def test_a_caller_renames_options():
    with pytest.raises(OptionError) as caught, renamed_options(max_length="length", format="kind"):
        raise OptionError("max_length", 99, "lower {max_length}, or set {format=text} and {other}")
    assert str(caught.value) == "length is 99; lower length, or set kind=text and other"
    assert caught.value.option == "length"
    # A key of a config may have the new name.
    with pytest.raises(OptionError) as caught, renamed_options(vocab_size="tokenizer.vocab_size"):
        raise OptionError("vocab_size", 9, "give another {vocab_size}, as {vocab_size=30}")
    assert str(caught.value) == (
        "tokenizer.vocab_size is 9; give another tokenizer.vocab_size, as tokenizer.vocab_size=30"
    )
