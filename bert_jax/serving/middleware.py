"""What happens around every request: access log and metrics, hosts, the API key, the end."""

import hmac
import re
import time
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bert_jax.process import say
from bert_jax.serving.errors import RequestError
from bert_jax.serving.handling import error_response
from bert_jax.serving.page_files import is_page
from bert_jax.serving.service import Service


class Access:
    """Counts each request, and logs method, route, status and time: no text, no query, no key."""

    def __init__(self, app: ASGIApp, service: Service, *, log: bool) -> None:
        self._app, self._service, self._log = app, service, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.monotonic(), 500

        async def send_and_see(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Content-Type-Options"] = "nosniff"
                if self._service.is_stopping:  # the connection is not used again
                    headers["Connection"] = "close"
            await send(message)

        try:
            await self._app(scope, receive, send_and_see)
        finally:
            seconds = time.monotonic() - begun
            # The path as it is declared: one that a client made up is not kept.
            route = getattr(scope.get("route"), "path", "unknown")
            self._service.metrics.requests.labels(route, str(status)).inc()
            self._service.metrics.seconds.labels(route).observe(seconds)
            if self._log:
                say(f"{scope['method']} {route} {status} {1000 * seconds:.1f} ms")


class AllowedHosts:
    """Refuses requests to other names than these; "*.NAME" is all below a name, "*" all.

    Probes and Prometheus, which ask for a pod by its IP address, get `/health` and `/metrics`.
    """

    def __init__(self, app: ASGIApp, names: Sequence[str]) -> None:
        self._app, self._names = app, [name.lower() for name in names]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in ("/health", "/metrics"):
            given = Headers(scope=scope).get("host", "")
            host = re.sub(r":\d*$", "", given).lower()
            if not any(
                host == name or (name.startswith("*") and host.endswith(name[1:]))
                for name in self._names
            ):
                rule = "use one of its names, or start it with --allowed-host"
                error = RequestError(400, f"Host {given!r:.80} is not this server; {rule}")
                await error_response(error, scope["path"])(scope, receive, send)
                return
        await self._app(scope, receive, send)


class ApiKey:
    """Refuses requests without the key, `Authorization: Bearer KEY`."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app, self._expected = app, f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _is_open(scope):
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                message = "the API key is missing or wrong; send Authorization: Bearer KEY"
                error = RequestError(401, message, headers={"WWW-Authenticate": "Bearer"})
                await error_response(error, scope["path"])(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_open(scope: Scope) -> bool:
    """Probes have no key, and the page asks for it."""
    path: str = scope["path"]
    return path == "/health" or (scope["method"] in ("GET", "HEAD") and is_page(path))
