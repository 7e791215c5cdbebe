"""A real process: the clients that exist, a full queue, and its end."""

import http.client
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

import bert_jax
from tests.conftest import REPOSITORY
from tests.runs import completed

pytestmark = pytest.mark.slow

TEXTS = ["the cat sat on a mat", "a dog", "the sea was long"]
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def directory(make_model, tmp_path_factory):
    """A model that fills masks, which also makes vectors."""
    path = tmp_path_factory.mktemp("served") / "tiny"
    make_model("masked_lm").save(path)
    return path


@pytest.fixture(scope="module")
def server(directory):
    """A server that takes few examples: its address, process, output, and the output's reader."""
    index = directory.with_name("index")
    bert_jax.load(directory).index(TEXTS, path=index)
    limits = ("--batch-size", "2", "--max-waiting", "8", "--max-texts", "8", "--timeout", "60")
    command = [sys.executable, "-m", "bert_jax", "serve", "--model", str(directory), "--port", "0"]
    command += ["--index", str(index)]
    process = subprocess.Popen(
        [*command, "--no-warm-up", *limits],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    lines = iter(process.stderr.readline, "")
    address = next(line.split()[-1] for line in lines if line.startswith("serving on "))
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(lines), daemon=True)
    reader.start()
    httpx.post(f"{address}/embed", json={"inputs": TEXTS}, timeout=600)  # compiles
    yield address, process, said, reader
    process.kill()
    process.wait()


def test_the_client_of_openai_gets_the_vectors_of_the_method(server, directory):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{server[0]}/v1", api_key="none")
    made = client.embeddings.create(model="tiny", input=TEXTS)
    expected = bert_jax.load(directory).embed(TEXTS)
    np.testing.assert_allclose([each.embedding for each in made.data], expected, atol=1e-6)
    with pytest.raises(openai.NotFoundError, match="known are tiny"):
        client.embeddings.create(model="huge", input=TEXTS)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_requests_of_the_documentation_are_answered(server):
    page = (REPOSITORY / "docs" / "serving.md").read_text()
    commands = re.findall(r"^\$ (curl .*)$", page, re.MULTILINE)
    assert len(commands) >= 4
    for command in commands:
        words = shlex.split(command.replace("localhost:8000", server[0]))
        done = completed([*words, "--fail-with-body"])
        assert done.returncode == 0, (command, done.stdout)
        assert json.loads(done.stdout)


def test_the_client_of_hugging_face_gets_vectors_words_and_similarities(server, directory):
    hub = pytest.importorskip("huggingface_hub")
    client, model = hub.InferenceClient(model=server[0]), bert_jax.load(directory)
    (word, *_) = client.fill_mask("the [MASK] sat", top_k=3)
    assert word.token_str == model.fill_mask("the [MASK] sat")[0].token
    scores = client.sentence_similarity(TEXTS[0], TEXTS[1:])
    np.testing.assert_allclose(scores, model.similarity(TEXTS[:1], TEXTS[1:])[0], atol=1e-6)
    client = hub.InferenceClient(model=f"{server[0]}/pipeline/feature-extraction")
    made = client.feature_extraction(TEXTS[0])
    np.testing.assert_allclose(made, model.embed(TEXTS[:1]), atol=1e-6)


def test_a_full_queue_is_429_and_recovers(server):
    def ask(number):
        body = {"inputs": [*TEXTS, *TEXTS]}
        return httpx.post(f"{server[0]}/embed", json=body, timeout=600)

    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(ask, range(200)))
    assert {answer.status_code for answer in answers} == {200, 429}
    assert all(
        int(answer.headers["Retry-After"]) >= 1 for answer in answers if answer.status_code == 429
    )
    assert ask(0).status_code == 200


def test_a_signal_while_it_compiles_ends_it_as_well(directory):
    command = [sys.executable, "-m", "bert_jax", "serve", "--model", str(directory), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while "compiling" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGTERM)
    said = process.stderr.read()
    assert process.wait() == 0
    assert "serving" not in said
    assert "interrupted" not in said


def test_a_signal_under_load_loses_no_request(server):
    address, process, said, reader = server
    body = json.dumps({"inputs": TEXTS[:1]})
    statuses = []

    def ask(connection):
        """Sends requests on one connection, until the server says that it is the last."""
        is_last = False
        while not is_last:
            connection.request("POST", "/embed", body, JSON)
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)
            is_last = answer.getheader("Connection") == "close"

    host = address.removeprefix("http://")
    idle, *busy = (http.client.HTTPConnection(host, timeout=600) for _ in range(9))
    idle.connect()
    with ThreadPoolExecutor(8) as pool:
        asked = pool.map(ask, busy)
        while len(statuses) < 50:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        ask(idle)  # its client has not seen yet that the server stops
        list(asked)  # raises what a request has raised
    assert set(statuses) == {200}
    assert process.wait() == 0
    reader.join()
    assert said[-1] == "stopped; all accepted requests are answered\n"
    assert not [line for line in said if any(text in line for text in TEXTS)]
