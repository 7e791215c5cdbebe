"""The process: a socket, uvicorn, and a graceful shutdown."""

import asyncio
import contextlib
import errno
import socket
import time
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette

from bert_jax.errors import OptionError
from bert_jax.process import say
from bert_jax.serving.service import Service
from bert_jax.sharding.stopping import StopSignals

# Seconds in which clients see that their idle connections are not used again.
_DRAIN_SECONDS = 1.0
_BACKLOG = 2048
# Of `uvicorn.Server.on_tick`.
_TICKS_PER_SECOND = 10
# What the system refuses of a port; anything else is wrong with the host.
_PORT_ERRORS = (errno.EADDRINUSE, errno.EACCES)


def bind(host: str, port: int) -> socket.socket:
    """A socket with an address, which takes no connection yet; port 0: a free one.

    Raises:
        OptionError: the port is taken or forbidden, or the host is no address of this machine.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        if error.errno in _PORT_ERRORS:
            rule = f"{host} refuses it, {error.strerror}; give another"
            raise OptionError("port", port, rule) from error
        rule = f"give an address of this machine: {error.strerror}"
        raise OptionError("host", host, rule) from error
    return listener


def run(app: Starlette, service: Service, listener: socket.socket, stop: StopSignals) -> None:
    """Serves until a signal; then answers what it has accepted, in the time-out, and ends."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        backlog=_BACKLOG,
        timeout_graceful_shutdown=int(service.limits.timeout) + 1,
    )
    server = _Server(config, service, stop)
    server.run([listener])
    service.close()
    if server.unanswered:
        say(f"stopped; requests that are not answered, as their time ran out: {server.unanswered}")
    else:
        say("stopped; all accepted requests are answered")


class _Server(uvicorn.Server):
    """A server that a `StopSignals` ends."""

    def __init__(self, config: uvicorn.Config, service: Service, stop: StopSignals) -> None:
        super().__init__(config)
        self._service, self._stop = service, stop
        self.unanswered = 0
        # Connections without a request: the last one that was answered, and when it was seen.
        self._idle: dict[Any, tuple[Any, float]] = {}

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # `StopSignals` does

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        host, port = sockets[0].getsockname()[:2]
        say(f"serving on http://{f'[{host}]' if ':' in host else host}:{port}")

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_PER_SECOND == 0:
            self._close_stalled()
        return await super().on_tick(counter) or self._stop.requested

    def _close_stalled(self) -> None:
        """Closes connections whose next request does not begin in the time-out.

        Their clients send headers slowly, or go on with a body that was refused. Connections
        without a byte after an answer are closed earlier, by uvicorn.
        """
        now = time.monotonic()
        idle: dict[Any, tuple[Any, float]] = {}
        for connection in list(self.server_state.connections):
            cycle = getattr(connection, "cycle", None)
            if cycle is None or cycle.response_complete:
                seen = self._idle.get(connection)
                idle[connection] = seen if seen and seen[0] is cycle else (cycle, now)
                if now - idle[connection][1] > self._service.limits.timeout:
                    connection.transport.close()
        self._idle = idle

    async def shutdown(self, sockets: Any = None) -> None:
        """Ends connections only after a moment: a request may be on its way on an idle one."""
        for server in self.servers:
            server.close()
        self._service.is_stopping = True
        await asyncio.sleep(_DRAIN_SECONDS)
        await super().shutdown(sockets)
        self.unanswered = len(self.server_state.tasks)  # they were cancelled
