"""Vectors over HTTP equal those of the Python method; limits and errors in the clients' forms."""

import asyncio
import base64
import dataclasses
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

from bert_jax.data.outputs import to_json
from bert_jax.errors import OptionError
from bert_jax.models.heads.text_vectors import TextVectors
from bert_jax.serving import handling
from bert_jax.serving.service import Service

TEXTS = ["the cat sat on a mat", "a dog", "the sea was long"]


def test_embed_gives_unit_vectors_of_the_method(client, encoder):
    expected = encoder.embed(TEXTS, normalize=True)
    answer = client.post("/embed", json={"inputs": TEXTS})
    assert answer.status_code == 200
    np.testing.assert_allclose(answer.json(), expected, atol=1e-6)
    answer = client.post("/embed", json={"inputs": TEXTS[0], "normalize": False})
    np.testing.assert_allclose(answer.json(), encoder.embed(TEXTS[:1]), atol=1e-6)


@pytest.mark.slow
def test_a_vector_does_not_depend_on_what_else_is_computed(serve, encoder):
    texts = [
        " ".join(["the cat sat on a mat and ran to the sea"] * 3)[: 3 * n] for n in range(1, 41)
    ]
    expected = encoder.embed(texts, normalize=True)
    client = serve({"tiny": encoder})

    def ask(first):
        return client.post("/embed", json={"inputs": texts[first::8]}).json()

    with ThreadPoolExecutor(8) as pool:
        for first, made in enumerate(pool.map(ask, range(8))):
            np.testing.assert_allclose(made, expected[first::8], atol=1e-6)


def test_openai_answers_floats_and_base64(client, encoder):
    expected = encoder.embed(TEXTS)
    answer = client.post("/v1/embeddings", json={"input": TEXTS, "model": "tiny"}).json()
    np.testing.assert_allclose([each["embedding"] for each in answer["data"]], expected, atol=1e-6)
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 0
    body = {"input": TEXTS[1], "encoding_format": "base64", "dimensions": 4}
    (made,) = client.post("/v1/embeddings", json=body).json()["data"]
    vector = np.frombuffer(base64.b64decode(made["embedding"]), "<f4")
    four = expected[1][:4]
    np.testing.assert_allclose(vector, four / np.linalg.norm(four), atol=1e-6)


def test_token_ids_are_those_of_a_text(client, encoder):
    texts = ["a dog", "the ☃ sat", "mats , cats [MASK]", "the cat " * 30]
    ids = [pieces.ids for pieces in encoder.tokenizer.to_pieces(texts)]
    known = encoder.tokenizer.special_ids
    assert known.unk in ids[1]
    assert known.mask in ids[2]
    answer = client.post("/v1/embeddings", json={"input": ids})
    made = [each["embedding"] for each in answer.json()["data"]]
    np.testing.assert_allclose(made, encoder.embed(texts), atol=1e-6)
    assert answer.headers["X-Texts-Cut"] == "1"
    made = client.post("/v1/embeddings", json={"input": ids[0]}).json()["data"][0]["embedding"]
    np.testing.assert_allclose(made, encoder.embed(texts[:1])[0], atol=1e-6)
    continues = np.flatnonzero(encoder.tokenizer.continuations())[:1].tolist()
    alone, after = client.post("/v1/embeddings", json={"input": [continues, ids[0]]}).json()["data"]
    assert alone["embedding"] != after["embedding"]
    for wrong, message in (
        ([known.cls, *ids[0]], r"list 0 has [CLS], id"),
        ([*ids[0], known.pad], r"list 0 has [PAD], id"),
        ([10**6], "list 0 has an id out of range"),
    ):
        answer = client.post("/v1/embeddings", json={"input": wrong})
        assert (answer.status_code, answer.json()["error"]["param"]) == (422, "input")
        assert message in answer.json()["error"]["message"]


def test_a_cut_is_said_and_refused_on_request(client):
    long = "the cat " * 30
    answer = client.post("/embed", json={"inputs": ["a dog", long]})
    assert (answer.status_code, answer.headers["X-Texts-Cut"]) == (200, "1")
    answer = client.post("/embed", json={"inputs": ["a dog", long], "truncate": None})
    assert (answer.status_code, answer.headers["X-Texts-Cut"]) == (200, "1")
    answer = client.post("/embed", json={"inputs": ["a dog", long], "truncate": False})
    assert answer.status_code == 413
    assert answer.json()["field"] == "inputs[1]"
    assert answer.json()["error_type"] == "Validation"


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"inputs": 5}, 422, "inputs"),
        ({"inputs": ["a", 5]}, 422, "inputs[1]"),
        ({"inputs": ["the cat " * 20], "truncate": False}, 413, "inputs[0]"),
        ({"inputs": "the cat " * 20, "truncate": False}, 413, "inputs"),
        ({}, 422, "inputs"),
        ({"inputs": "a", "truncat": False}, 422, "truncat"),
        ({"inputs": ["a"] * 9}, 413, "inputs"),
        ({"inputs": ["the cat " * 20] * 4}, 413, "inputs"),
        ({"inputs": "a", "model": "huge"}, 404, "model"),
        ({"inputs": "a", "dimensions": 10**30}, 422, "dimensions"),
        ({"inputs": "a", "prompt_name": "poem"}, 422, "prompt_name"),
        ({"inputs": "a" * 3000}, 413, None),
    ],
)
def test_a_wrong_field_is_named(client, body, status, field):
    answer = client.post("/embed", json=body)
    assert (answer.status_code, answer.json().get("field")) == (status, field)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"inputs": ["a"] * 9}),
        ("/tokenize", {"inputs": ["the cat " * 30] * 2}),
        ("/decode", {"ids": [[5]] * 9}),
        ("/decode", {"ids": [5] * 101}),
        ("/hidden_states", {"records": [{}] * 9}),
    ],
)
def test_what_is_read_in_a_thread_is_limited_before(client, path, body):
    answer = client.post(path, json=body)
    assert (answer.status_code, answer.json()["field"]) == (413, next(iter(body)))


@pytest.mark.parametrize("length", [2, 33])
def test_a_length_that_a_model_does_not_take_is_refused(serve, encoder, length):
    with pytest.raises(OptionError, match=f"max_length is {length}; this model takes 3 to 32"):
        serve({"tiny": encoder}, max_length=length)


def test_what_is_no_json_is_refused(client):
    headers = {"Content-Type": "application/json"}
    for content in (b"", b"{", b"\xff\xfe", b"[" * 1000, b'{"inputs": "\\ud800"}'):
        assert client.post("/embed", content=content, headers=headers).status_code in (400, 422)
    assert client.post("/embed", content=b"{}").status_code == 415
    assert client.get("/embed").status_code == 405
    assert client.get("/nothing").json()["error_type"] == "Validation"


def test_a_body_that_does_not_arrive_is_given_up(serve, encoder):
    sent = []

    async def ask():
        headers = [(b"content-type", b"application/json"), (b"host", b"a")]
        scope = {"type": "http", "method": "POST", "path": "/embed", "headers": headers}

        async def send(message):
            sent.append(message)

        await client.app({**scope, "query_string": b""}, asyncio.Event().wait, send)

    client = serve({"tiny": encoder}, timeout=0.01)
    asyncio.run(ask())
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]


def test_an_error_of_openai_has_its_form(client):
    answer = client.post("/v1/embeddings", json={"input": ["a"], "dimensions": 99})
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (
        422,
        "invalid_request_error",
        "dimensions",
    )
    for answer in (client.get("/v1/models/huge"), client.post("/v1/chat/completions", json={})):
        assert answer.status_code == 404
        assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("side", ["Right", "right"])
def test_the_side_that_is_cut_is_written_in_two_ways(client, side):
    body = {"inputs": "a dog", "truncation_direction": side}
    for path in ("/embed", "/pipeline/feature-extraction"):
        assert client.post(path, json=body).status_code == 200
    body["truncation_direction"] = "Left"
    for path in ("/embed", "/pipeline/feature-extraction"):
        answer = client.post(path, json=body)
        assert (answer.status_code, answer.json()["field"]) == (422, "truncation_direction")


def test_a_computation_that_fails_is_424(serve, encoder):
    params = jax.tree.map(lambda array: array * np.nan, encoder.params)
    client = serve({"tiny": dataclasses.replace(encoder, params=params)})
    answer = client.post("/embed", json={"inputs": "a dog"})
    assert (answer.status_code, answer.json()["error_type"]) == (424, "Backend")
    assert "are not finite" in answer.json()["error"]
    error = client.post("/v1/embeddings", json={"input": "a dog"}).json()["error"]
    assert error["type"] == "server_error"


def test_a_fault_is_logged_with_its_place_and_without_text(serve, encoder, monkeypatch, capsys):
    client = serve({"tiny": encoder})
    monkeypatch.setattr(Service, "predict", None)
    answer = client.post("/embed", json={"inputs": "a secret"})
    assert (answer.status_code, answer.json()["error"]) == (500, "internal error")
    (line,) = capsys.readouterr().err.splitlines()
    place = r".*embeddings_inference\.py:\d+"
    assert re.fullmatch(rf"/embed: TypeError, {place}; please report it", line)


def test_arrays_are_written_in_a_thread(serve, encoder, monkeypatch):
    threads = []

    def recorded(content):
        threads.append(threading.current_thread().name)
        return to_json(content)

    monkeypatch.setattr(handling, "to_json", recorded)
    client = serve({"tiny": encoder})
    answer = client.post("/embed", json={"inputs": "a dog"})
    (vector,) = answer.json()
    assert answer.text == to_json([np.float32(vector)])  # the shortest decimals
    assert threads[0].startswith("bert-jax-encode")


def test_information_has_the_limit_and_the_tasks_of_requests(serve, encoder):
    description = dataclasses.replace(encoder.description, stored_vectors=TextVectors(max_length=9))
    client = serve({"tiny": dataclasses.replace(encoder, description=description)})
    info = client.get("/info").json()
    (model,) = info["models"]
    assert info["max_input_length"] == model["max_length"] == 9
    assert "embed" in model["tasks"]
    assert "token_vectors" not in model["tasks"]


def test_information_and_metrics(client):
    assert client.get("/health").status_code == 200
    info = client.get("/info").json()
    assert (info["model_id"], info["max_input_length"]) == ("tiny", 32)
    (model,) = client.get("/v1/models").json()["data"]
    assert model["id"] == "tiny"
    assert client.get("/v1/models/tiny").json() == model
    text = client.get("/metrics").text
    assert 'bert_jax_requests_total{route="/embed",status="200"}' in text
    assert "bert_jax_waiting_examples 0.0" in text
