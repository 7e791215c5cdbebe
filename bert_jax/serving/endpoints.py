"""An endpoint: its path, the form of its request, and the function that answers it."""

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from bert_jax.serving.service import Service

CUT_HEADER = "X-Texts-Cut"
"""The header with the number of texts that were longer than the limit; absent if there are none."""


class RequestForm(BaseModel):
    """The body of a request: a key that is not known is an error, and so is another type."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())


@dataclasses.dataclass(frozen=True)
class Reply:
    """An answer.

    Attributes:
        content: values and arrays that `data.outputs.to_json` writes, in a thread; there, too, a
            generator makes its items.
        cut: see `Predicted`.
    """

    content: Any
    cut: int = 0


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """A path that is answered on POST.

    Attributes:
        path: the path; a part in braces is a key of the function's third argument.
        form: the form of the body.
        answer: the service, the body and the parts of the path → the answer.
        summary: what it does, for the OpenAPI document.
        group: its heading there.
    """

    path: str
    form: type[RequestForm]
    answer: Callable[[Service, Any, Mapping[str, str]], Awaitable[Reply]]
    summary: str
    group: str
