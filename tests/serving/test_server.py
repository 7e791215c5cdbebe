"""The socket of a server, and what it says at its end."""

import asyncio
import socket
from types import SimpleNamespace

import pytest

from bert_jax.errors import OptionError
from bert_jax.serving import server
from bert_jax.serving.limits import ServerLimits


def test_a_host_or_a_port_that_cannot_be_used_is_named():
    with server.bind("127.0.0.1", 0) as listener:
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(OptionError, match=f"port is {port}; 127.0.0.1 refuses it, Address"):
            server.bind("127.0.0.1", port)
    with pytest.raises(OptionError, match="host is '192.0.2.1'; give an address of this machine"):
        server.bind("192.0.2.1", 0)


def test_a_request_that_is_not_answered_in_time_is_said(monkeypatch, capsys):
    async def app(scope, receive, send):
        stop.requested = True
        await asyncio.Event().wait()

    monkeypatch.setattr(server, "_DRAIN_SECONDS", 0)
    stop = SimpleNamespace(requested=False)
    service = SimpleNamespace(limits=ServerLimits(timeout=0.01), close=lambda: None)
    listener = server.bind("127.0.0.1", 0)
    listener.listen()
    with socket.create_connection(listener.getsockname()) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        server.run(app, service, listener, stop)
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "stopped; requests that are not answered, as their time ran out: 1"
