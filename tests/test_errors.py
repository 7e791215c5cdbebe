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
    counted,
    require_at_least,
    require_between,
    require_one_of,
)
from bert_jax.process import say, show


def test_an_option_is_named_by_its_key_and_on_the_command_line_by_its_flag():
    error = OptionError(
        "data.text_column",
        None,
        "set {data.text_column}, or {data.header=false} if this line is a row",
        problem="data.text_column.tsv:1: there is no column 'data.quotes'",
    )
    problem = "data.text_column.tsv:1: there is no column 'data.quotes'; "
    assert isinstance(error, UserError)
    assert (error.key, str(error)) == (
        "data.text_column",
        f"{problem}set data.text_column, or data.header=false if this line is a row",
    )
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    parser = Parser(prog="bert-jax predict")
    parser.add_argument("--text-column")
    parser.add_argument("--input-format")
    parser.add_argument("--no-header", dest="header", action="store_false")
    assert outcome(error, parser) == (
        f"{problem}set --text-column, or --no-header if this line is a row",
        2,
    )
    error = OptionError(
        "data.format", "x", "set {data.format=text}, see data.tsv and {data.other=0,2.5}"
    )
    assert outcome(error, parser)[0] == (
        "--input-format is 'x'; set --input-format text, see data.tsv and data.other=0,2.5"
    )
    # A verb with a config has other options under the same names.
    parser.add_argument("--config")
    assert outcome(error, parser)[0] == str(error)
    top = OptionError("header", 0, "it must be at least 1")
    assert outcome(top, parser)[0] == "--no-header is 0; it must be at least 1"


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
    with pytest.raises(OptionError, match=r"^preset is \['a'\]; known are roberta$"):
        require_one_of("preset", ["a"], {"roberta": 1})


def test_numbers_of_things():
    assert [counted(n, "queries") for n in (0, 1, 1000)] == [
        "0 queries",
        "1 query",
        "1,000 queries",
    ]
    assert [counted(1, plural) for plural in ("classes", "documents")] == ["1 class", "1 document"]


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


def test_printed_text_cannot_control_a_terminal(capsys):
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
    assert str(OptionError("x", None, "give x", problem)).endswith(
        "yyya\\x1b[2Jb\\nc\\u2028d; give x"
    )
    message = str(UserError(f"{'y' * 5000}; stop"))
    assert (len(message), message[:2], message[-8:]) == (1503, "yy", "yy; stop")
