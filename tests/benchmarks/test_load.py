"""The load on a server: every request is counted by what became of it."""

import itertools
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks.load import put_load
from benchmarks.serving import growth


@pytest.fixture
def plain_server():
    """Starts a server whose answers have statuses in turn; 0 closes the connection. Its bodies."""
    servers = []

    def start(*statuses):
        turn, bodies = itertools.cycle(statuses), []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                status = next(turn)
                if not status:
                    self.close_connection = True
                    return
                self.send_response(status)
                if status == 429:
                    self.send_header("Retry-After", "2")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments):
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}/embed", bodies

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_texts_are_sent_in_turn(plain_server):
    url, bodies = plain_server(200)
    outcome = put_load(url, [["a"], ["b", "c"]], clients=1, seconds=0.2)
    assert bodies[:3] == [{"inputs": ["a"]}, {"inputs": ["b", "c"]}, {"inputs": ["a"]}]
    assert outcome.answered == len(bodies) == len(outcome.latencies)
    figures = outcome.figures()
    assert (figures["errors"], figures["lost"]) == (0, 0)
    assert figures["requests/s"] == pytest.approx(outcome.answered / outcome.seconds)
    assert 0 < figures["p50 ms"] <= figures["p99 ms"]


def test_refused_wrong_and_lost_requests_are_counted(plain_server):
    url, bodies = plain_server(200, 429, 500, 0)
    outcome = put_load(url, [["a"]], clients=1, seconds=0.3)
    rounds = len(bodies) // 4
    assert rounds > 0
    for count in (outcome.answered, outcome.statuses[429], outcome.errors, outcome.lost):
        assert rounds <= count <= rounds + 1
    assert outcome.told_when == outcome.statuses[429]
    assert len(bodies) == outcome.statuses.total() + outcome.lost


def test_memory_grows_from_the_first_quarter_to_the_last():
    assert growth([1.0, *[100.0] * 10, *[103.0] * 19, *[110.0] * 10]) == pytest.approx(10.0)
