"""The page of attention weights: its data, texts that are HTML, notebooks, and what is refused."""

import base64
import json
import re

import numpy as np
import pytest

from bert_jax import cli
from bert_jax.pictures import attention
from bert_jax.pictures.attention import AttentionMap, AttentionOfText, attention_page

HOSTILE = "</script><script>alert(1)</script><!--"


def data_of(html):
    """The elements with the weights, as the script of the page reads them."""
    return [json.loads(each) for each in re.findall(r'data-title="[^"]*">(.*)</script>', html)]


def weights_of(fields, queries, keys):
    """float32 [L, N, T, S] of the fields of a map."""
    steps = np.frombuffer(base64.b64decode(fields["weights"]), "<u2")
    shape = (len(fields["layers"]), fields["heads"], queries, keys)
    return steps.reshape(shape) / np.float32(65535)


def test_the_data_of_a_page():
    weights = np.float32([[[[1.0, 0.0, 0.0], [0.25, 0.75, 0.0]]]])
    of_map = AttentionMap("cross-attention", ["a", "b"], ["x", "y", "z"], weights, [2])
    html = attention_page([AttentionOfText("x y z / a b", [of_map])]).html
    ((fields,),) = data_of(html)
    # 65535, 0, 0, 16384, 49151, 0, little-endian.
    assert fields == {
        "name": "cross-attention",
        "queries": ["a", "b"],
        "keys": ["x", "y", "z"],
        "layers": [2],
        "heads": 1,
        "weights": base64.b64encode(bytes.fromhex("ffff 0000 0000 0040 ffbf 0000")).decode(),
    }
    assert not re.search(r"(src|href)=|url\(|@import|fetch\(", html)


def test_texts_stay_texts():
    tokens = [HOSTILE, "שלום", "&lt;", "\u2028"]
    of_map = AttentionMap("attention", tokens, tokens, np.full((1, 1, 4, 4), 0.25), [1])
    page = attention_page([AttentionOfText(f'"{HOSTILE}', [of_map])])
    ((fields,),) = data_of(page.html)
    assert fields["queries"] == tokens
    # Two scripts: the data, and that of the page.
    assert len(re.findall("<script", page.html)) == 2
    assert "alert(1)</script>" not in page.html
    frame = page._repr_html_()
    assert re.fullmatch(r'<iframe sandbox="allow-scripts" srcdoc="[^"<>]*" [^<>]*></iframe>', frame)


def test_a_text_with_too_many_weights_is_refused_and_a_notebook_shows_it_as_text(
    monkeypatch, model
):
    (maps,) = model.attentions(["the cat"])
    assert maps._repr_html_().startswith("<iframe")
    assert repr(maps) == (
        "AttentionMaps(tokens=['[CLS]', 'the', 'cat', '[SEP]'], weights=float32 [2, 2, 4, 4], "
        "layers=(1, 2))"
    )
    monkeypatch.setattr(attention, "MOST_WEIGHTS", 63)
    assert maps._repr_html_() is None


@pytest.fixture(scope="module")
def predicted(base_model, tmp_path_factory):
    """A command of two texts, and its page."""
    directory = tmp_path_factory.mktemp("pages")
    source = directory / "texts.txt"
    source.write_text(f"the cat sat\nthe dog {HOSTILE}\n")
    command = ["predict", "--model", base_model, "--task", "attentions", "--input", source]
    command = [*map(str, command), "--output"]
    assert cli.main([*command, str(directory / "page.html")]) == 0
    assert cli.main([*command, str(directory / "lines.jsonl")]) == 0
    return command, directory


def test_a_page_has_the_weights_that_json_has(predicted):
    _, directory = predicted
    lines = [json.loads(line) for line in (directory / "lines.jsonl").read_text().splitlines()]
    html = (directory / "page.html").read_text()
    assert html.startswith("<!DOCTYPE html>")
    assert html.endswith("</html>\n")
    for (fields,), line in zip(data_of(html), lines, strict=True):
        assert fields["queries"] == line["tokens"]
        count = len(line["tokens"])
        expected = np.float32(line["attentions"])
        np.testing.assert_allclose(weights_of(fields, count, count), expected, atol=0.51 / 65535)


def test_errors_of_a_page_are_one_line(predicted, refused, monkeypatch):
    command, directory = predicted
    target = str(directory / "other.html")
    assert "html has no other columns" in refused(*command, target, "--keep-columns", "id")
    monkeypatch.setattr(attention, "MOST_WEIGHTS", 63)
    message = refused(*command, target, "--option", "progress=false")
    assert "texts.txt:1: the text has 100 attention weights, a page takes 63;" in message
