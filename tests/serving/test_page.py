"""The page's files, their headers, and the numbers of its pictures; see also test_browser.py."""

import base64
import json
import re
from importlib import resources

import numpy as np
import pytest

from bert_jax.pictures import attention

PACKAGE = resources.files("bert_jax")
SOURCES = [
    *(PACKAGE / "serving" / "page").iterdir(),
    *(PACKAGE / "pictures" / name for name in ("attention.js", "elements.js")),
]
HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
TEXTS = ["the cat sat on a mat", "a dog", "the sea was long"]


def test_get_is_the_page_and_post_is_hugging_faces_form(client):
    page = client.get("/", headers=HTML)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.text.startswith("<!DOCTYPE html>")
    assert client.get("/").content == page.content  # curl: */*
    assert client.get("/", headers={"Accept": "application/json"}).status_code == 406
    assert client.post("/", json={"inputs": "a dog"}, headers=HTML).json()[0]
    assert client.put("/").status_code == 405


def test_every_file_has_its_type_and_the_headers_of_a_page(client):
    types = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    names = [file.name for file in SOURCES if file.name != "index.html"]
    for name in [*names, "page.css", "attention.css"]:
        answer = client.get(f"/page/{name}")
        assert answer.status_code == 200, name
        assert answer.headers["content-type"].partition(";")[0] == types[name.rpartition(".")[2]]
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-content-type-options"] == "nosniff"
        known = {"If-None-Match": answer.headers["etag"]}
        assert client.get(f"/page/{name}", headers=known).status_code == 304
    for name in ("nothing.js", "index.html", "..%2Fapp.py", "%2e%2e/app.py"):
        assert client.get(f"/page/{name}").status_code == 404, name


def test_the_files_refer_to_each_other_and_to_nothing_else():
    names = {file.name for file in SOURCES} | {"page.css", "attention.css"}
    for file in SOURCES:
        text = file.read_text(encoding="utf-8")
        referred = re.findall(r'(?:src|href)="page/([^"]*)"|from "\./([^"]*)"', text)
        assert {one or other for one, other in referred} <= names, file.name
        urls = set(re.findall(r"https?://[^\"' ]*", text))
        assert urls <= {"http://www.w3.org/2000/svg"}, file.name  # a name space


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: file.name)
def test_nothing_becomes_markup_or_code(file):
    text = file.read_text(encoding="utf-8")
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(|srcdoc"
    assert not re.search(forbidden, text)
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=", text)


def test_the_page_is_open_and_its_requests_are_not(serve, encoder):
    client = serve({"tiny": encoder}, app_options={"api_key": "secret"})
    assert client.get("/").status_code == client.get("/page/main.js").status_code == 200
    assert client.post("/", json={"inputs": "a"}).status_code == 401
    assert client.post("/page/similarities", json={"texts": ["a"]}).status_code == 401


def test_information_says_what_each_model_can(serve, model, encoder):
    info = serve({"tiny": encoder, "mlm": model}).get("/info").json()
    tiny, mlm = info["models"]
    assert info["index"] is False
    assert {"embed", "attentions"} <= set(tiny["tasks"])
    assert "fill_mask" not in tiny["tasks"]
    assert "fill_mask" in mlm["tasks"]
    assert mlm["mask_token"] == "[MASK]"


def test_similarities_are_those_of_the_method(client, encoder):
    answer = client.post("/page/similarities", json={"texts": TEXTS}).json()
    assert answer["similarity"] == "cosine"
    np.testing.assert_allclose(answer["scores"], encoder.similarity(TEXTS), atol=1e-6)


def test_attentions_are_those_of_the_method(client, encoder):
    body = {"text": TEXTS[0], "layers": [-1]}
    (of_text,) = client.post("/page/attentions", json=body).json()["maps"]
    (expected,) = encoder.attentions(TEXTS[:1], layers=[2])
    assert (of_text["queries"], of_text["layers"]) == (expected.tokens, [2])
    steps = np.frombuffer(base64.b64decode(of_text["weights"]), "<u2")
    weights = steps.reshape(expected.weights.shape) / 65535
    np.testing.assert_allclose(weights, expected.weights, atol=9e-6)
    (of_pair,) = client.post("/page/attentions", json={"text": "a dog", "pair": "a"}).json()["maps"]
    assert of_pair["keys"].count("[SEP]") == 2


@pytest.mark.parametrize(
    ("body", "field"),
    [({"text": "a", "layers": [9]}, "layers"), ({"text": "a", "layers": [None]}, "layers[0]")],
)
def test_a_wrong_layer_is_named(client, body, field):
    answer = client.post("/page/attentions", json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, field)


def test_more_weights_than_a_picture_takes_are_refused(client, monkeypatch):
    monkeypatch.setattr(attention, "MOST_WEIGHTS", 10)
    answer = client.post("/page/attentions", json={"text": "a dog"})
    assert (answer.status_code, answer.json()["field"]) == (422, "text")
    assert json.loads(answer.content)["error"].startswith("the text has 64 attention weights")
