"""Maps of vectors: PCA by known numbers, places and colours, hostile texts, what is refused."""

import re
import sys

import numpy as np
import pytest
from sklearn.decomposition import PCA

from bert_jax import cli
from bert_jax.errors import UserError
from bert_jax.pictures import vector_map
from bert_jax.pictures.page import COLOURS
from bert_jax.pictures.vector_map import map_page, plane

HOSTILE = "</title><script>alert(1)</script>"


def test_pca_of_known_vectors():
    points, kept = plane(np.float32([[3, 1, 0], [-3, 1, 0], [0, 2, 0], [0, 0, 0]]))
    np.testing.assert_allclose(points, [[3, 0], [-3, 0], [0, 1], [0, -1]], atol=1e-6)
    assert kept == "PCA: two directions with 90.0%, 10.0% of the variance"
    vectors = np.random.default_rng(0).normal(size=(20, 5))
    expected = PCA(2).fit_transform(vectors)
    np.testing.assert_allclose(np.abs(plane(vectors)[0]), np.abs(expected), atol=1e-9)


@pytest.mark.slow
def test_umap_keeps_groups_together():
    pytest.importorskip("umap")
    group = np.repeat(np.arange(3), 20)
    noise = np.random.default_rng(0).normal(size=(60, 12))
    points, kept = plane(
        (20 * np.eye(3)[group].repeat(4, axis=1) + noise).astype(np.float32), "umap"
    )
    assert kept == "UMAP of 15 neighbours"
    distances = np.square(points[:, None] - points).sum(-1) + np.diag(np.full(60, np.inf))
    assert (group[distances.argmin(axis=1)] == group).all()


def test_the_page_has_a_point_for_each_text():
    vectors = np.float32([[3, 1], [-3, 1], [0, 2], [0, 0]])
    texts = [HOSTILE, "שלום", "c" * 300, "d"]
    html = map_page(vectors, ["a", HOSTILE, "a", ""], texts).html
    assert html.count("<circle") == 4
    first = f'<circle cx="98.00" cy="35.00" r="0.7" style="fill: {COLOURS[0]}"><title>a: &lt;/title'
    assert first in html
    assert f"<title>a: {'c' * 200}…</title>" in html
    assert re.search(r"without label</bdi></span></td><td>1</td>", html)
    assert "<script" not in html


def test_equal_vectors_are_one_point():
    html = map_page(np.ones((3, 4), np.float32), ["", "", ""], ["a", "b", "c"]).html
    assert html.count('cx="50.00" cy="35.00"') == 3


def test_the_map_of_a_labelled_file(base_model, tmp_path):
    source, target = tmp_path / "texts.tsv", tmp_path / "map.html"
    source.write_text("text\tkind\nthe cat\tanimal\na dog\tanimal\nthe sea\tthing\n")
    command = ["draw", "map", "--model", base_model, "--input", source, "--output", target]
    command += ["--option", "label_column=kind"]
    assert cli.main([*map(str, command)]) == 0
    html = target.read_text()
    assert "<title>thing: the sea</title>" in html
    assert "<bdi>animal</bdi></span></td><td>2</td>" in html


def test_what_makes_no_map_is_refused(monkeypatch):
    vectors = np.eye(3, dtype=np.float32)
    with pytest.raises(UserError, match="2 texts make no map; give three or more"):
        plane(vectors[:2])
    with pytest.raises(UserError, match="known are pca, umap"):
        plane(vectors, "tsne")
    monkeypatch.setitem(sys.modules, "umap", None)
    remedy = r"UMAP is not installed; install it, pip install bert_jax\[pictures\], or choose"
    with pytest.raises(UserError, match=remedy):
        plane(vectors, "umap")
    monkeypatch.setattr(vector_map, "MOST_VECTORS", 2)
    with pytest.raises(UserError, match="3 vectors are too many, a map takes 2; give fewer texts"):
        map_page(vectors, [""] * 3, [""] * 3)
