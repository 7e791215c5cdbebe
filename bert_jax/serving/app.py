"""The application: all routes of a service, and what happens around them."""

import functools
from collections.abc import Sequence
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bert_jax.serving import information
from bert_jax.serving.endpoints import CUT_HEADER, Endpoint
from bert_jax.serving.errors import RequestError
from bert_jax.serving.handling import error_response, handler
from bert_jax.serving.middleware import Access, Checked, check_host, check_key
from bert_jax.serving.openapi import document
from bert_jax.serving.page_files import page_routes
from bert_jax.serving.routes import (
    embeddings_inference,
    hugging_face,
    openai,
    page,
    scores,
    search,
    tasks,
)
from bert_jax.serving.service import Service

ENDPOINTS: tuple[Endpoint, ...] = (
    *openai.ENDPOINTS,
    *embeddings_inference.ENDPOINTS,
    *scores.ENDPOINTS,
    *hugging_face.ENDPOINTS,
    *tasks.ENDPOINTS,
    *search.ENDPOINTS,
    *page.ENDPOINTS,
)


def make_app(
    service: Service,
    *,
    api_key: str | None = None,
    cors_origins: Sequence[str] = (),
    allowed_hosts: Sequence[str] = ("*",),
    access_log: bool = True,
) -> Starlette:
    """The application of a service.

    Args:
        service: the service.
        api_key: what requests must carry, other than for `/health` and the page; None: none.
        cors_origins: sites whose pages may send requests; "*": all.
        allowed_hosts: names of this server, see `check_host`. A page of another site cannot
            make its own name mean this server (DNS rebinding).
        access_log: whether each request is a line on stderr.
    """

    async def health(request: Request) -> Response:
        if service.is_stopping:
            raise RequestError(503, "the server is stopping")
        return Response()

    async def metrics(request: Request) -> Response:
        return Response(service.metrics.exposition(), media_type=CONTENT_TYPE_LATEST)

    # It never changes, and tries every task with every model.
    known = functools.cache(lambda: information.info(service))

    async def info(request: Request) -> Response:
        return JSONResponse(known())

    async def models(request: Request) -> Response:
        return JSONResponse(information.models(service))

    async def model(request: Request) -> Response:
        return JSONResponse(information.model(service.models.named(request.path_params["model"])))

    gets = {
        "/health": (health, "Whether the server takes requests"),
        "/metrics": (metrics, "Metrics in the form of Prometheus"),
        "/info": (info, "The models, and the limits of requests"),
        "/v1/models": (models, "The models, in OpenAI's form"),
        "/v1/models/{model}": (model, "A model, in OpenAI's form"),
    }
    summaries = {path: summary for path, (_, summary) in gets.items()}
    openapi = JSONResponse(document(ENDPOINTS, summaries, needs_key=bool(api_key)))
    routes = [
        Route("/openapi.json", lambda request: openapi),
        *(Route(path, answer) for path, (answer, _) in gets.items()),
        *page_routes(),
        *(Route(each.path, handler(service, each), methods=["POST"]) for each in ENDPOINTS),
    ]
    middleware = [
        Middleware(Access, service, log=access_log),
        Middleware(Checked, functools.partial(check_host, names=allowed_hosts)),
    ]
    if cors_origins:
        middleware.append(
            Middleware(
                CORSMiddleware,
                allow_origins=list(cors_origins),
                allow_methods=["GET", "POST"],
                allow_headers=["Authorization", "Content-Type"],
                expose_headers=[CUT_HEADER, "Retry-After"],
            )
        )
    if api_key:
        middleware.append(Middleware(Checked, functools.partial(check_key, key=api_key)))
    handlers: dict[Any, Any] = dict.fromkeys((RequestError, HTTPException), _refused)
    return Starlette(routes=routes, middleware=middleware, exception_handlers=handlers)


async def _refused(request: Request, error: RequestError | HTTPException) -> Response:
    """The answer to a request that is refused; Starlette refuses unknown paths and methods."""
    if isinstance(error, HTTPException):
        error = RequestError(error.status_code, error.detail, headers=error.headers)
    return error_response(error, request.url.path)
