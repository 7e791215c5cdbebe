"""The other routes of text-embeddings-inference, Hugging Face's task form, keys and sites."""

import numpy as np
import pytest

from bert_jax.cli.serve import allowed_hosts

TEXTS = ["the cat sat on a mat", "a dog", "the sea was long"]
QUESTION = {"question": "the cat", "context": "the dog sat on a mat . the cat ran to the sea"}


@pytest.fixture(scope="module")
def models(make_model, model, encoder):
    return {
        "tiny": encoder,
        "mlm": model,
        "classes": make_model("classification", num_labels=3),
        "tags": make_model("tagging", num_labels=3),
        "answers": make_model("question_answering"),
    }


@pytest.fixture(scope="module")
def ask(serve, models):
    """Posts JSON, and returns the JSON of a good answer."""
    client = serve(models)

    def post(path, **body):
        answer = client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return post


def test_vectors_of_tokens_and_similarities(ask, encoder):
    states = ask("/embed_all", inputs=TEXTS)
    for made, expected in zip(states, encoder.hidden_states(TEXTS), strict=True):
        np.testing.assert_allclose(made, expected.states, atol=1e-5)
    inputs = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
    expected = encoder.similarity(TEXTS[:1], TEXTS[1:])[0]
    np.testing.assert_allclose(ask("/similarity", inputs=inputs), expected, atol=1e-6)
    np.testing.assert_allclose(ask("/", inputs=inputs), expected, atol=1e-6)
    ranks = ask("/rerank", query=TEXTS[0], texts=TEXTS[1:], return_text=True)
    best = encoder.rank(TEXTS[0], TEXTS[1:])
    assert [(each["index"], each["text"]) for each in ranks] == [(m.index, m.text) for m in best]
    assert [each["score"] for each in ranks] == pytest.approx([m.score for m in best], abs=1e-6)
    assert ask("/rank", query=TEXTS[0], documents=TEXTS[1:], top_k=1) == {"matches": ranks[:1]}


def test_tokens_go_there_and_back(ask):
    ((first, *_),) = (tokens,) = ask("/tokenize", inputs="a dog")
    assert first == {
        "id": first["id"],
        "text": "[CLS]",
        "special": True,
        "start": None,
        "stop": None,
    }
    assert [each["start"] for each in tokens[1:-1]] == [0, 2]
    assert ask("/decode", ids=[each["id"] for each in tokens]) == ["a dog"]


def test_a_list_of_two_strings_is_one_pair(ask, models):
    (expected,) = models["classes"].classify([("a dog", "the cat")])
    made = ask("/predict", inputs=["a dog", "the cat"])
    assert made[0]["label"] == expected.label
    assert {each["label"]: each["score"] for each in made} == pytest.approx(
        expected.probabilities, abs=1e-6
    )
    assert len(ask("/predict", inputs=[["a dog"], ["a dog", "the cat"]])) == 2


def test_hugging_faces_tasks(ask, models):
    filled = ask("/models/mlm", inputs="the [MASK] sat", parameters={"top_k": 2})
    expected = models["mlm"].fill_mask("the [MASK] sat", top_k=2)
    assert [each["token_str"] for each in filled] == [word.token for word in expected]
    filled = ask("/models/mlm", inputs="the [MASK] sat", parameters={"targets": ["dog", "cat"]})
    expected = models["mlm"].fill_mask("the [MASK] sat", targets=["dog", "cat"])
    assert [each["token_str"] for each in filled] == [word.token for word in expected]
    ((best, *_),) = ask("/pipeline/text-classification", inputs="a dog")
    assert best["label"] == models["classes"].classify(["a dog"])[0].label
    parameters = {"aggregation_strategy": "none", "ignore_labels": []}
    words = ask("/pipeline/token-classification", inputs="a dog", parameters=parameters)
    assert [each["word"] for each in words] == ["a", "dog"]
    answer = models["answers"].answer(QUESTION["question"], QUESTION["context"])
    assert ask("/", inputs=QUESTION)["answer"] == answer.text
    vector = models["tiny"].embed(["a dog"])
    np.testing.assert_allclose(ask("/", inputs="a dog"), vector, atol=1e-6)


def test_a_parameter_that_is_not_known_is_named(serve, models):
    client = serve({"mlm": models["mlm"]})
    body = {"inputs": "the [MASK] sat", "parameters": {"tokens": 2}}
    answer = client.post("/", json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, "parameters.tokens")
    body = {"inputs": "the [MASK] sat", "parameters": {"targets": ["the cat"]}}
    answer = client.post("/", json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, "parameters.targets")


def test_a_key_is_asked_for(serve, encoder):
    client = serve({"tiny": encoder}, app_options={"api_key": "secret"})
    assert client.get("/health").status_code == 200
    assert client.get("/info").status_code == 401
    assert client.get("/info", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert client.get("/info", headers={"Authorization": "Bearer secret"}).status_code == 200
    assert "error" in client.post("/v1/embeddings", json={}).json()


def test_a_name_that_is_not_of_this_server_is_refused(serve, encoder):
    hosts = allowed_hosts("127.0.0.1", ["models.example.org"])
    client = serve({"tiny": encoder}, app_options={"allowed_hosts": hosts})
    for host in ("localhost", "127.0.0.1:8000", "[::1]:8000", "models.example.org"):
        assert client.get("/info", headers={"Host": host}).status_code == 200
    for host in ("evil.example.org", "localhost.example.org", "a b", ""):
        answer = client.get("/info", headers={"Host": host})
        assert (answer.status_code, answer.json()["error_type"]) == (400, "Validation")
    for path in ("/health", "/metrics"):  # of a pod, by its IP address
        assert client.get(path, headers={"Host": "10.0.0.7:8000"}).status_code == 200
    assert allowed_hosts("0.0.0.0", []) == ["*"]
    assert allowed_hosts("::", ["a"])[-2:] == ["[::]", "a"]


def test_pages_of_a_named_site_may_ask(serve, encoder):
    origin = {"Origin": "https://example.org"}
    allowed = "access-control-allow-origin"
    client = serve({"tiny": encoder})
    assert allowed not in client.get("/health", headers=origin).headers
    client = serve({"tiny": encoder}, app_options={"cors_origins": ["https://example.org"]})
    assert client.get("/health", headers=origin).headers[allowed] == "https://example.org"


def test_the_openapi_document_has_every_form(client):
    document = client.get("/openapi.json").json()
    assert {"/v1/embeddings", "/embed", "/tag", "/", "/search"} <= set(document["paths"])
    schemas = document["components"]["schemas"]
    assert schemas["EmbedRequest"]["properties"]["inputs"]
    for path in document["paths"].values():
        for operation in path.values():
            body = operation.get("requestBody")
            if body:
                name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
                assert name in schemas
