"""From a request of HTTP to an endpoint and back: body, form, time-out, disconnected clients."""

import asyncio
import contextlib
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from bert_jax.data.outputs import to_json
from bert_jax.errors import UserError
from bert_jax.process import say
from bert_jax.serving.endpoints import CUT_HEADER, Endpoint, Reply
from bert_jax.serving.errors import (
    RequestError,
    error_content,
    from_user_error,
    from_validation_error,
    too_large,
)
from bert_jax.serving.service import Service

Handler = Callable[[Request], Awaitable[Response]]

_JSON = "application/json"
# What a proxy logs for a client that closed its connection; nobody reads it.
_CLIENT_DISCONNECTED = 499


def handler(service: Service, endpoint: Endpoint) -> Handler:
    """The function of Starlette that answers an endpoint."""

    async def handle(request: Request) -> Response:
        try:
            body = endpoint.form.model_validate_json(await _body(request, service))
            async with asyncio.timeout(service.limits.timeout):
                answer = endpoint.answer(service, body, request.path_params)
                reply = await _unless_disconnected(request, answer)
                content = await service.in_thread(lambda: to_json(reply.content).encode())
        except ClientDisconnect:
            return Response(status_code=_CLIENT_DISCONNECTED)
        except ValidationError as error:
            return error_response(from_validation_error(error), endpoint.path)
        except RequestError as error:
            return error_response(error, endpoint.path)
        except UserError as error:  # in a file of the model, such as the names of its labels
            return error_response(from_user_error(error, "model"), endpoint.path)
        except TimeoutError:
            message = f"no answer within {service.limits.timeout:g} s; retry later"
            return error_response(RequestError(504, message), endpoint.path)
        except Exception as error:  # a bug: the server goes on, and the text is not logged
            *_, (file, line, *_) = traceback.extract_tb(error.__traceback__)
            say(f"{endpoint.path}: {type(error).__name__}, {file}:{line}; please report it")
            return error_response(RequestError(500, "internal error"), endpoint.path)
        headers = {CUT_HEADER: str(reply.cut)} if reply.cut else {}
        return Response(content, headers=headers, media_type=_JSON)

    return handle


def error_response(error: RequestError, path: str) -> JSONResponse:
    """An error in the form that clients of a path expect."""
    return JSONResponse(error_content(error, path), error.status, error.headers)


async def _body(request: Request, service: Service) -> bytes:
    """The body.

    Raises:
        RequestError: 408: it does not arrive in time; 413: it is too large; 415: it is no JSON by
            its type, which a page of another site could send without being asked.
        ClientDisconnect: the client has disconnected.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _JSON:
        raise RequestError(415, f"the body is {kind or 'of no type'}; send {_JSON}")
    most = service.limits.max_bytes
    problem = too_large(f"the body has more than {most:,} bytes; send fewer texts")
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and len(length) < 20 and int(length) > most:
        raise problem
    body = bytearray()
    try:
        async with asyncio.timeout(service.limits.timeout):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise problem
    except TimeoutError as error:
        message = f"the body did not arrive within {service.limits.timeout:g} s"
        raise RequestError(408, message, headers={"Connection": "close"}) from error
    return bytes(body)


async def _unless_disconnected(request: Request, answer: Any) -> Reply:
    """The answer; cancelled if the client closes its connection.

    Raises:
        ClientDisconnect: it did.
    """
    answering: asyncio.Future[Reply] = asyncio.ensure_future(answer)
    disconnected = asyncio.ensure_future(_disconnected(request))
    try:
        both: set[asyncio.Future[Any]] = {answering, disconnected}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise ClientDisconnect
        return answering.result()
    finally:
        for each in (answering, disconnected):
            each.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await disconnected


async def _disconnected(request: Request) -> None:
    """Ends when the client closes its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
