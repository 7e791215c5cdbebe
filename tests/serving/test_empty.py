"""No texts, and empty ones: what text-embeddings-inference and OpenAI answer, 400."""

import pytest

SENTENCES = {"source_sentence": "a dog", "sentences": ["a", ""]}


@pytest.fixture(scope="module")
def client(serve, make_model):
    """Makes vectors, fills masks, and tells labels."""
    models = {"words": make_model("masked_lm"), "labels": make_model("classification")}
    return serve(models)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/embed", {"inputs": []}, "inputs"),
        ("/embed", {"inputs": ""}, "inputs"),
        ("/embed", {"inputs": ["a dog", ""]}, "inputs[1]"),
        ("/embed_all", {"inputs": []}, "inputs"),
        ("/embed_sparse", {"inputs": ""}, "inputs"),
        ("/predict", {"inputs": []}, "inputs"),
        ("/predict", {"inputs": ["", ""]}, "inputs"),
        ("/predict", {"inputs": [["a"], [""]]}, "inputs[1]"),
        ("/rerank", {"query": "a", "texts": []}, "texts"),
        ("/rerank", {"query": "", "texts": ["a", ""]}, "texts[1]"),
        ("/similarity", {"inputs": SENTENCES}, "inputs.sentences[1]"),
        ("/similarity", {"inputs": SENTENCES | {"sentences": []}}, "inputs.sentences"),
        ("/tokenize", {"inputs": []}, "inputs"),
        ("/tokenize", {"inputs": ""}, "inputs"),
        ("/decode", {"ids": []}, "ids"),
        ("/decode", {"ids": [[5], []]}, "ids[1]"),
        ("/pipeline/feature-extraction", {"inputs": ""}, "inputs"),
    ],
)
def test_no_text_is_refused(client, path, body, field):
    answer = client.post(path, json=body)
    told = answer.json()
    assert (answer.status_code, told["error_type"], told["field"]) == (400, "Empty", field)
    assert told["error"].startswith(f"{field} cannot be empty")


@pytest.mark.parametrize("given", ["", [], ["a dog", ""], [[5], []]])
def test_no_text_is_refused_in_the_form_of_openai(client, given):
    answer = client.post("/v1/embeddings", json={"input": given})
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    assert error["param"] in ("input", "input[1]")


def test_one_text_of_a_pair_may_be_empty(client):
    for inputs in (["", "a dog"], [["a", ""]]):
        assert client.post("/predict", json={"inputs": inputs}).status_code == 200


def test_white_space_is_a_text(client):
    assert client.post("/embed", json={"inputs": " "}).status_code == 200
