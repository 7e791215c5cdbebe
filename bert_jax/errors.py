"""The exceptions that users see, and what is passed on of those of libraries."""

import contextlib
from collections.abc import Iterator


class UserError(Exception):
    """Wrong usage or bad input.

    The message is one line: what was wrong, where (file, line, key), the limit, and how to mend
    it. The command line prints it to stderr and exits with 2, without a traceback.
    """


class RetryableError(UserError):
    """What was begun may be gone on with, and nothing needs mending: a store did not answer.

    The command line exits with 75, as after a signal, so that launchers start it again.
    """


class UnreachableError(UserError):
    """A store did not answer, or refused: the path, the credentials or the network."""


class NotFiniteError(UserError):
    """A model's score is no number: its parameters are damaged, or its training diverges."""


@contextlib.contextmanager
def as_retryable() -> Iterator[None]:
    """For what a run does with a store that it has used before: it will be there again.

    Raises:
        RetryableError: in place of UnreachableError.
    """
    try:
        yield
    except UnreachableError as error:
        raise RetryableError(str(error)) from error


def first_line(error: BaseException) -> str:
    """What an error of a library says first, for a line of ours; its kind, if it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
