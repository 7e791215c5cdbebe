"""Errors about options, as each interface words them."""

import pickle

import numpy as np
import pytest

from bert_jax.checkpoints.parameters import LoadReport
from bert_jax.cli.common import Parser, outcome
from bert_jax.errors import (
    OptionError,
    RetryableError,
    UserError,
    renamed_options,
    require_at_least,
    require_between,
    require_one_of,
)
from bert_jax.process import say, show


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


def test_numbers_and_names_are_checked():
    require_at_least("top_k", 1, 1)
    require_at_least("limit", None, 1)
    require_one_of("empty", "", ("", "keep"))
    with pytest.raises(OptionError, match="^top_k is 0; it must be at least 1$"):
        require_at_least("top_k", 0, 1)
    for value, message in (
        (True, "^top_k is True; it must be a whole number, at least 1$"),
        (2.0, "^top_k is 2.0; it must be a whole number, at least 1$"),
        (float("nan"), "^top_k is nan; it must be a whole number, at least 1$"),
        (2**31, "^top_k is 2147483648; it must be at most 2,147,483,647$"),
    ):
        with pytest.raises(OptionError, match=message):
            require_at_least("top_k", value, 1)
    with pytest.raises(OptionError, match="^empty is 'drop'; known are keep, error$"):
        require_one_of("empty", "drop", ("", "keep", "error"))


def test_the_range_of_a_number():
    require_between("rate", None, 0, 1)
    for value in (0, 0.5, 1, np.float32(0.25)):
        require_between("rate", value, 0, 1)
    for value in (-3.4e38, 3.4e38):
        require_between("rate", value)
    positive = {"low": 0, "without_low": True}
    require_between("rate", 1.2e-38, **positive)
    for value, limits, rule in (
        (-0.1, {"low": 0, "high": 1}, "at least 0 and at most 1"),
        (1, {"low": 0, "high": 1, "without_high": True}, "at least 0 and below 1"),
        (0, positive, "above 0"),
        (1e-39, positive, "above 0"),  # 0 in float32, with the denormal numbers of a processor
        (1e39, positive, "above 0 and finite in float32"),
        (float("-inf"), {}, "finite in float32"),
        (float("nan"), {"low": 0}, "a number, at least 0"),
        ("0.5", {"low": 0}, "a number, at least 0"),
        (True, {"low": 0}, "a number, at least 0"),
    ):
        with pytest.raises(OptionError) as error:
            require_between("rate", value, **limits)
        assert str(error.value) == f"rate is {value!r}; it must be {rule}"


def test_the_exit_code_says_whether_the_same_command_may_succeed():
    parser = Parser(prog="bert-jax")
    assert outcome(UserError("wrong"), parser) == ("wrong", 2)
    assert outcome(RetryableError("not reached"), parser) == ("not reached", 75)
    assert outcome(KeyboardInterrupt(), parser)[1] == 75
    with pytest.raises(ZeroDivisionError):
        outcome(ZeroDivisionError(), parser)


def test_what_is_printed_cannot_control_a_terminal(capsys):
    name = "a\x1b]0;b\x07\r\x9b2J\u202ec\ud800"
    kept = "a\\x1b]0;b\\x07\\r\\x9b2J\\u202ec\\ud800"
    say(f"unexpected: {name}\n!", 7)
    show(f"1\n{name}")
    printed = capsys.readouterr()
    assert printed.err == f"unexpected: {kept}\\n!\n7\n"
    assert str(LoadReport((), (), (name,))) == f"0 tensors loaded; unexpected keys: {kept}"
    assert printed.out == f"1\n{kept}\n"


def test_a_message_is_one_line_of_limited_length():
    name = "a\x1b[2Jb\nc\u2028d"
    assert str(UserError(f"no tensor {name}; stop")) == "no tensor a\\x1b[2Jb\\nc\\u2028d; stop"
    problem = f"x is {'y' * 5000}{name}"
    assert str(OptionError("x", None, "give {x}", problem)).endswith(
        "yyya\\x1b[2Jb\\nc\\u2028d; give x"
    )
    message = str(UserError(f"{'y' * 5000}; stop"))
    assert (len(message), message[:2], message[-8:]) == (1503, "yy", "yy; stop")
