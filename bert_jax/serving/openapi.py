"""The OpenAPI document, made of the endpoints and the forms of their requests."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic.json_schema import models_json_schema

from bert_jax.serving.endpoints import Endpoint

_ERRORS = {
    "400": "The body is no JSON, or has no text.",
    "401": "The API key is missing or wrong.",
    "404": "There is no such model.",
    "408": "The body did not arrive in time.",
    "413": "The request, a text, or the answer is above a limit.",
    "415": "The body is not of the type application/json.",
    "422": "A field is wrong.",
    "424": "The computation failed: the model is damaged, or memory does not suffice.",
    "429": "Too many texts wait; see Retry-After.",
    "500": "The server has a fault.",
    "503": "The server is stopping.",
    "504": "There was no answer in time.",
}
_BEARER = "bearer"


def document(
    endpoints: Sequence[Endpoint], gets: Mapping[str, str], *, needs_key: bool
) -> dict[str, Any]:
    """The document as values of JSON.

    Args:
        endpoints: what is answered on POST.
        gets: what is answered on GET: path → summary.
        needs_key: whether requests must carry the API key.
    """
    forms = list(dict.fromkeys(each.form for each in endpoints))
    _, definitions = models_json_schema(
        [(form, "validation") for form in forms], ref_template="#/components/schemas/{model}"
    )
    paths: dict[str, Any] = {
        path: {"get": _operation(what, parameters=_parameters(path))} for path, what in gets.items()
    }
    for each in endpoints:
        reference = {"$ref": f"#/components/schemas/{each.form.__name__}"}
        operation = _operation(each.summary, tags=[each.group])
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": reference}},
        }
        operation["parameters"] = _parameters(each.path)
        operation["responses"] |= {code: {"description": text} for code, text in _ERRORS.items()}
        paths[each.path] = {"post": operation}
    components: dict[str, Any] = {"schemas": definitions.get("$defs", {})}
    security: dict[str, Any] = {}
    if needs_key:
        components["securitySchemes"] = {_BEARER: {"type": "http", "scheme": "bearer"}}
        security = {"security": [{_BEARER: []}]}
    return {
        "openapi": "3.1.0",
        "info": {"title": "bert_jax", "version": "1"},
        "paths": paths,
        "components": components,
        **security,
    }


def _parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", path)
    ]


def _operation(summary: str, **more: Any) -> dict[str, Any]:
    responses = {"200": {"description": "The answer."}}
    return {"summary": summary, "responses": responses, **more}
