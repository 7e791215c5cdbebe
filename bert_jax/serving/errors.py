"""Errors of requests, and the forms in which clients expect them."""

import http
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from bert_jax.errors import OptionError, UserError, one_line


class RequestError(Exception):
    """A request that is not answered.

    Attributes:
        status: status of HTTP.
        message: the problem and its remedy, one line.
        field: the field of the request that is wrong; "": none.
        headers: further headers of the answer.
        kind: what text-embeddings-inference calls the error; "": as all of this status.
    """

    def __init__(
        self,
        status: int,
        message: str,
        field: str = "",
        headers: Mapping[str, str] | None = None,
        kind: str = "",
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status, self.message, self.field = status, one_line(message), field
        self.headers = dict(headers or {})


def too_large(message: str, field: str = "") -> RequestError:
    """A request, or a text, that is above a limit."""
    return RequestError(http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message, field)


def unprocessable(message: str, field: str) -> RequestError:
    """A field with a wrong value."""
    return RequestError(http.HTTPStatus.UNPROCESSABLE_ENTITY, message, field)


def check_not_empty(texts: Sequence[Any], field: str, places: Sequence[str] | None = None) -> None:
    """Refuses no texts, and an empty one, as text-embeddings-inference and OpenAI do.

    Args:
        texts: texts, pairs of texts, or token ids of texts; a pair may have one empty text.
        field: the field of the request that has them.
        places: the place of each in the request; None: `field` is their list.

    Raises:
        RequestError: 400.
    """
    name = "" if texts else field
    for index, text in enumerate(texts):
        if not (any(text) if isinstance(text, tuple) else text):
            name = places[index] if places else f"{field}[{index}]"
            break
    if name:
        raise RequestError(400, f"{name} cannot be empty; give text", name, kind="Empty")


FieldName = Callable[[str], str]
"""An option of the package → the field of a request that has it."""


def from_user_error(error: UserError, field: str, name: FieldName = str) -> RequestError:
    """An error of the package: its option, or the field that is being read, is wrong."""
    if isinstance(error, OptionError):
        error = error.renamed(lambda key: name(key.removeprefix("data.")))
        field = error.key
    return unprocessable(str(error), field)


# Pydantic's names of the types of a field that may have several.
_TYPE = re.compile(r"(str|int|float|bool|(list|dict)\[.*)$")


def from_validation_error(error: ValidationError, parent: str = "") -> RequestError:
    """A problem of a body, or of its field `parent`, that does not have its form."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    # A field of several types has a problem with each; the deepest is with the one that was meant.
    deepest = max(problems, key=lambda problem: len(problem["loc"]))
    if deepest["type"] == "json_invalid":
        return RequestError(http.HTTPStatus.BAD_REQUEST, f"the body is no JSON: {deepest['msg']}")
    field = parent
    for part in deepest["loc"]:
        if isinstance(part, int):
            field += f"[{part}]"
        elif not _TYPE.match(part):
            field += f".{part}" if field else part
    return unprocessable(f"{field}: {deepest['msg']}" if field else deepest["msg"], field)


# What text-embeddings-inference calls the errors with these statuses.
_TYPES = {
    401: "Unauthorized",
    424: "Backend",
    429: "Overloaded",
    500: "Backend",
    503: "Unhealthy",
    504: "Overloaded",
}


def _embeddings_inference_error(error: RequestError) -> dict[str, Any]:
    """The form of text-embeddings-inference, whose `error` Hugging Face's clients show, too."""
    field = {"field": error.field} if error.field else {}
    return {
        "error": error.message,
        "error_type": error.kind or _TYPES.get(error.status, "Validation"),
        **field,
    }


def _openai_error(error: RequestError) -> dict[str, Any]:
    """The form of OpenAI."""
    kinds = {401: "authentication_error", 424: "server_error", 429: "rate_limit_error"}
    by_class = "invalid_request_error" if error.status < 500 else "server_error"
    kind = kinds.get(error.status, by_class)
    param = error.field or None
    return {"error": {"message": error.message, "type": kind, "param": param, "code": None}}


def error_content(error: RequestError, path: str) -> dict[str, Any]:
    """An error as the JSON that clients of a path expect, also of one that does not exist."""
    form = _openai_error if path.startswith("/v1/") else _embeddings_inference_error
    return form(error)
