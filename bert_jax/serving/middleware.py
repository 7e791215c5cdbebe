"""What happens around every request: access log and metrics, hosts, the API key, the end."""

import hmac
import re
import time
from collections.abc import Callable, Sequence

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


class Checked:
    """Refuses the requests for which a check returns an error."""

    def __init__(self, app: ASGIApp, check: Callable[[Scope], RequestError | None]) -> None:
        self._app, self._check = app, check

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._check(scope) if scope["type"] == "http" else None
        app = self._app if error is None else error_response(error, scope["path"])
        await app(scope, receive, send)


def check_host(scope: Scope, names: Sequence[str]) -> RequestError | None:
    """Refuses requests to other names than these; "*.NAME" is all below a name, "*" all.

    Probes and Prometheus, which ask for a pod by its IP address, get `/health` and `/metrics`.
    """
    given = Headers(scope=scope).get("host", "")
    host = re.sub(r":\d*$", "", given).lower()
    is_own = any(
        host == name or (name.startswith("*") and host.endswith(name[1:]))
        for name in map(str.lower, names)
    )
    if is_own or scope["path"] in ("/health", "/metrics"):
        return None
    rule = "use one of its names, or start it with --allowed-host"
    return RequestError(400, f"Host {given!r:.80} is not this server; {rule}")


def check_key(scope: Scope, key: str) -> RequestError | None:
    """Refuses requests without the key, `Authorization: Bearer KEY`."""
    given = dict(scope["headers"]).get(b"authorization", b"")
    if _is_open(scope) or hmac.compare_digest(given, f"Bearer {key}".encode()):
        return None
    message = "the API key is missing or wrong; send Authorization: Bearer KEY"
    return RequestError(401, message, headers={"WWW-Authenticate": "Bearer"})


def _is_open(scope: Scope) -> bool:
    """Probes have no key, and the page asks for it."""
    path: str = scope["path"]
    return path == "/health" or (scope["method"] in ("GET", "HEAD") and is_page(path))
