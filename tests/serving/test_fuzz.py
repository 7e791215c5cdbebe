"""A real process under malformed requests: 4xx, memory that does not grow, and it goes on.

The bodies are made by schemathesis from the OpenAPI document, and by `malformed`; others are too
large, or do not end.
"""

import contextlib
import itertools
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import hypothesis
import pytest

from tests.serving.malformed import GOOD, malformed

pytestmark = pytest.mark.slow

JSON = {"Content-Type": "application/json"}
REQUESTS = 1000
MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def directory(make_model, tmp_path_factory):
    """A model that fills masks."""
    path = tmp_path_factory.mktemp("served") / "tiny"
    make_model("masked_lm").save(path)
    return path


@contextlib.contextmanager
def running(directory, *more):
    """The address and the process of a server, which ends without a fault."""
    options = ("--batch-size", "1", "--port", "0", "--no-access-log", "--max-bytes", "1000000")
    process = subprocess.Popen(
        [sys.executable, "-m", "bert_jax", "serve", "--model", str(directory), *options, *more],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    lines = iter(process.stderr.readline, "")
    address = next(line.split()[-1] for line in lines if line.startswith("serving on "))
    yield address, process
    assert httpx.get(f"{address}/health").status_code == 200
    process.terminate()
    assert "report" not in process.stderr.read()
    assert process.wait() == 0


@pytest.fixture(scope="module")
def server(directory):
    with running(directory) as made:
        yield made


def resident(process):
    """The bytes of memory that a process has."""
    (kilobytes,) = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
    return 1024 * int(kilobytes)


def test_malformed_bodies(server):
    address, process = server
    every = [(path, body) for path, good in GOOD.items() for body in malformed(good)]

    def statuses(requests):
        def ask(request):
            return client.post(request[0], content=request[1], headers=JSON).status_code

        with httpx.Client(base_url=address, timeout=600) as client, ThreadPoolExecutor(8) as pool:
            return Counter(pool.map(ask, requests))

    statuses(every[::10])
    before = resident(process)
    made = statuses(itertools.islice(itertools.cycle(every), REQUESTS))
    assert all(status == 200 or 400 <= status < 500 for status in made), made
    assert made[200] < REQUESTS // 10
    assert resident(process) < before + 20 * MEBIBYTE


def test_bodies_that_are_too_large_or_do_not_end(server):
    address, process = server
    host, port = address.removeprefix("http://").split(":")
    before = resident(process)
    head = f"POST /embed HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n".encode()
    with socket.create_connection((host, int(port))) as stated:
        stated.sendall(head + b"Content-Length: 100000000\r\n\r\n")
        assert stated.recv(100).startswith(b"HTTP/1.1 413")
    chunk = b"10000\r\n" + b"[" * 65_536 + b"\r\n"
    with socket.create_connection((host, int(port))) as endless:
        endless.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(100 * MEBIBYTE // len(chunk)):  # what is too much is not kept
            endless.sendall(chunk)
        assert endless.recv(100).startswith(b"HTTP/1.1 413")
    with socket.create_connection((host, int(port))) as gone:  # says more than it sends
        gone.sendall(head + b"Content-Length: 100\r\n\r\n{")
    assert resident(process) < before + 20 * MEBIBYTE


def test_slow_senders_are_given_up_while_others_are_served(directory):
    head = b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    whole = head + b"Content-Length: 1000\r\n\r\n" + b" " * 1000
    # What is sent at once, and whether the rest follows byte by byte.
    ways = [(0, False), (0, True), (len(head) + 5, False)]
    ways += [(len(whole) - 1000, True), (len(whole) - 500, False)]
    with running(directory, "--timeout", "5", "--warm-up", "embed") as (address, process):
        host, port = address.removeprefix("http://").split(":")
        url, good = f"{address}/embed", {"inputs": "the cat"}
        assert httpx.post(url, json=good, timeout=60).status_code == 200
        before, answered = resident(process), 0
        with contextlib.ExitStack() as stack:
            waiting = {}
            for at_once, goes_on in ways * 20:
                client = stack.enter_context(socket.create_connection((host, int(port))))
                client.sendall(whole[:at_once])
                client.setblocking(False)
                waiting[client] = iter(whole[at_once:-1]) if goes_on else iter(())
            last = Counter()
            while waiting:
                assert httpx.post(url, json=good, timeout=60).status_code == 200
                answered += 1
                time.sleep(0.1)
                for client, rest in list(waiting.items()):
                    try:
                        for byte in itertools.islice(rest, 1):
                            client.send(bytes([byte]))
                        last[client.recv(1000)[:12]] += 1
                    except BlockingIOError:
                        continue
                    except ConnectionError:
                        last[b""] += 1
                    del waiting[client]
            assert set(last) == {b"", b"HTTP/1.1 408"}
            assert last[b"HTTP/1.1 408"] == 40  # those whose headers were complete
            assert resident(process) < before + 20 * MEBIBYTE
        assert answered > 10


def test_what_the_openapi_document_allows(server):
    schemathesis = pytest.importorskip("schemathesis")
    from schemathesis.checks import not_a_server_error

    schema = schemathesis.openapi.from_url(f"{server[0]}/openapi.json")
    for operation in schema.get_all_operations():

        @hypothesis.given(case=operation.ok().as_strategy())
        @hypothesis.settings(max_examples=10, derandomize=True, database=None)
        def check(case):
            case.call_and_validate(checks=[not_a_server_error])

        check()
