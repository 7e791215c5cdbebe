"""The exceptions that users see, and what is passed on of those of libraries."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# How a face names an option: from its Python name, and a value to give it or None.
OptionName = Callable[[str, str | None], str]


class UserError(Exception):
    """Wrong usage or bad input.

    The message is one line: what was wrong, where (file, line, key), the limit, and how to fix
    it. The command line prints it to stderr and exits with 2, without a traceback.
    """


class OptionError(UserError):
    """An option has a wrong value, or an option is the remedy for bad input.

    The same option is `text_column` in Python, `data.text_column` in a config and `--text-column`
    on the command line. Who raises the error uses the Python name; so does `str(error)`, and the
    other faces write the message with `worded`.

        raise OptionError("top_k", 0, "it must be at least 1")
        raise OptionError(
            "text_column", None, "set {text_column}, or {header=False} if this line is a row",
            problem=f"{place}: there is no column {name!r}",
        )

    Attributes:
        option: the Python name.
        value: of the option.
        rule: what the value must be, or the remedy. Options in it stand in braces, `{name}` or
            `{name=value}`, so it holds no text of the user's.
        problem: used as it is in place of "OPTION is VALUE"; names from data and files stand here.
    """

    def __init__(self, option: str, value: Any, rule: str, problem: str = "") -> None:
        super().__init__(option, value, rule, problem)
        self.option, self.value, self.rule, self.problem = option, value, rule, problem

    def __str__(self) -> str:
        return self.worded(_python_name)

    def worded(self, name: OptionName) -> str:
        """The message with the names that a face has for the options."""
        problem = self.problem or f"{name(self.option, None)} is {self.value!r}"
        return f"{problem}; {_with_names(self.rule, name)}"

    def renamed(self, names: Mapping[str, str]) -> "OptionError":
        """The same error where a caller has other names for some options."""

        def field(option: str, value: str | None) -> str:
            return "{" + _python_name(names.get(option, option), value) + "}"

        rule = _with_names(self.rule, field)
        return OptionError(names.get(self.option, self.option), self.value, rule, self.problem)


class RetryableError(UserError):
    """A store did not answer; the same command can continue, nothing needs to be fixed.

    The command line exits with 75, as after a signal, so that launchers start it again.
    """


class UnreachableError(UserError):
    """A store did not answer, or refused: the path, the credentials or the network."""


class NotFiniteError(UserError):
    """A model's score is not finite: its parameters are damaged, or its training diverges."""


@contextlib.contextmanager
def renamed_options(**names: str) -> Iterator[None]:
    """For a function with other names of options than the functions that it calls.

        with renamed_options(max_length="length"): ...

    Raises:
        OptionError: in place of one with the old names.
    """
    try:
        yield
    except OptionError as error:
        raise error.renamed(names) from error


@contextlib.contextmanager
def as_retryable() -> Iterator[None]:
    """For access to a store that the run has used before, so that a retry may succeed.

    Raises:
        RetryableError: in place of UnreachableError.
    """
    try:
        yield
    except UnreachableError as error:
        raise RetryableError(str(error)) from error


def first_line(error: BaseException) -> str:
    """The first line of a library's error, at most 200 characters; else the name of its class."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def _python_name(option: str, value: str | None) -> str:
    return option if value is None else f"{option}={value}"


def _with_names(rule: str, name: OptionName) -> str:
    """The rule with its fields `{name}` and `{name=value}` written by a face."""
    return re.sub(r"\{([a-z_.]+)(?:=([^{}]*))?\}", lambda field: name(field[1], field[2]), rule)
