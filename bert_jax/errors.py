"""The exceptions that users see, and helpers that shorten library errors."""

import contextlib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from numbers import Real
from typing import Any

# JAX counts and indexes with int32, and computes with float32.
INT32_MAX = 2**31 - 1
FLOAT32_MAX, FLOAT32_MIN = 3.4e38, 1.2e-38  # the smallest that is not denormal

# Terminal control characters, line breaks, changes of the writing direction, and halves of a
# character, which cannot be printed: names in files may contain them.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# The number of characters at the beginning and at the end (the remedy) of a long message.
_HEAD, _TAIL = 1000, 500
# An option in the rule of an `OptionError`.
OPTION = re.compile(r"\{([\w.]+(=[\w.,-]+)?)\}")


class UserError(Exception):
    """Wrong usage or bad input.

    The message is one line: what was wrong, where (file, line, key), the limit, and how to fix
    it. The command line prints it to stderr and exits with 2, without a traceback. Control
    characters of names and values in it are escaped, and the middle of a very long one is left out.
    """

    def __str__(self) -> str:
        return one_line(super().__str__())


class OptionError(UserError):
    """An option has a wrong value, or an option is the remedy for bad input.

    An option is named by its key in a config (`data.text_column`); one that no config has, by its
    argument in Python, or by its flag where only the command line has it.

        raise OptionError("top_k", 0, "it must be at least 1")
        raise OptionError(
            "data.text_column", None, "set {data.text_column}, or {data.header=false} for a row",
            problem=f"{path}:{number}: there is no column {name!r}",
        )

    Attributes:
        key: the option.
        value: value of the option; None where the message has no use for it.
        rule: requirement on the value, or the remedy. An option in braces is renamed with `key`.
        problem: replaces "KEY is VALUE"; it may contain names from data and files.
    """

    def __init__(self, key: str, value: Any, rule: str, problem: str = "") -> None:
        super().__init__(key, value, rule, problem)
        self.key, self.value, self.rule, self.problem = key, value, rule, problem

    def __str__(self) -> str:
        rule = OPTION.sub(r"\1", self.rule)
        return one_line(f"{self.problem or f'{self.key} is {self.value!r}'}; {rule}")

    def renamed(self, name: Callable[[str], str]) -> "OptionError":
        """The same error with the names that users write instead of a config's keys.

        Args:
            name: key, or "KEY=VALUE" in braces in the rule → name.
        """
        rule = OPTION.sub(lambda option: name(option[1]), self.rule)
        return OptionError(name(self.key), self.value, rule, self.problem)

    def at(self, location: object) -> "OptionError":
        """The same error with the location of the value, such as a file."""
        problem = self.problem or f"{self.key} is {self.value!r}"
        return OptionError(self.key, self.value, self.rule, f"{location}: {problem}")


def require_at_least(key: str, value: Any, least: int, most: int = INT32_MAX) -> None:
    """Checks a whole number; None is an option that is not set.

    Raises:
        OptionError: it is not a whole number, smaller than `least` or larger than `most`.
    """
    if value is None:
        return
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise OptionError(key, value, f"it must be a whole number, at least {least}")
    if value < least:
        raise OptionError(key, value, f"it must be at least {least}")
    if value > most:
        raise OptionError(key, value, f"it must be at most {most:,}")


def require_between(
    key: str,
    value: Any,
    low: float = -FLOAT32_MAX,
    high: float = FLOAT32_MAX,
    *,
    without_low: bool = False,
    without_high: bool = False,
) -> None:
    """Checks a number; None is an option that is not set.

    Args:
        key: the option, see `OptionError`.
        value: value of the option.
        low: the lowest value; above 0, the lowest is the smallest number of float32.
        high: the highest value; by default, every number of float32 is allowed.
        without_low: whether the value must be above `low`.
        without_high: whether the value must be below `high`.

    Raises:
        OptionError: it is not a number, not finite, or out of the range.
    """
    if value is None:
        return
    is_number = isinstance(value, Real) and not isinstance(value, bool) and value == value
    least = FLOAT32_MIN if without_low and low == 0 else low
    is_excluded = (without_low and value == low) or (without_high and value == high)
    if is_number and least <= value <= high and not is_excluded:
        return
    limits = []
    if low > -FLOAT32_MAX:
        limits.append(f"{'above' if without_low else 'at least'} {low:,}")
    if high < FLOAT32_MAX:
        limits.append(f"{'below' if without_high else 'at most'} {high:,}")
    elif is_number and abs(value) > FLOAT32_MAX:
        limits.append("finite in float32")
    kind = "" if is_number else "a number, " if limits else "a number"
    raise OptionError(key, value, f"it must be {kind}{' and '.join(limits)}")


def require_one_of(key: str, value: Any, known: Collection[str | None]) -> None:
    """Checks a name; None or "" among the known ones is an option that is not set.

    Raises:
        OptionError: it is not known.
    """
    if value not in tuple(known):  # a value from a file may be unhashable
        raise OptionError(key, value, f"known are {', '.join(filter(None, known))}")


class RetryableError(UserError):
    """A store did not answer; the same command can be repeated, nothing needs to be fixed.

    The command line exits with 75, as after a signal, so that launchers start it again.
    """


class UnreachableError(UserError):
    """A store did not answer, or refused access: check path, credentials and network."""


class NotFiniteError(UserError):
    """A model's score is not finite: its parameters are damaged, or its training diverges."""


@contextlib.contextmanager
def as_retryable() -> Iterator[None]:
    """For access to a store that the run has already used, so that a retry may succeed.

    Raises:
        RetryableError: instead of UnreachableError.
    """
    try:
        yield
    except UnreachableError as error:
        raise RetryableError(str(error)) from error


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first names, and how many more there are: "a, b and 7 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def counted(count: int, plural: str) -> str:
    """A number of things: "1 row", "1,000 rows"."""
    singular = {"queries": "query", "classes": "class"}.get(plural, plural.removesuffix("s"))
    return f"{count:,} {singular if count == 1 else plural}"


def first_line(error: BaseException) -> str:
    """The first line of a library's error, at most 200 characters; else the name of its class."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def escaped(text: str) -> str:
    """Text without line breaks, terminal control characters, or what cannot be printed."""
    return _CONTROL.sub(lambda character: repr(character[0])[1:-1], text)


def one_line(text: str) -> str:
    """Text of a message: `escaped`, and without the middle if it is very long."""
    text = escaped(text)
    too_long = len(text) > _HEAD + _TAIL
    return f"{text[:_HEAD]} … {text[-_TAIL:]}" if too_long else text
