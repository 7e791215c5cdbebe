"""Attention rollout over the patches of an image, and its picture."""

import base64
import io
import re

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import bert_jax
from bert_jax import cli
from bert_jax.errors import UserError
from bert_jax.pictures.image_weights import ImageWeights, overlaid
from bert_jax.tasks.attention_rollout import rollout


def test_layers_are_multiplied_each_half_a_residual_connection():
    """Two layers and heads of three tokens, by hand: the first row of A₂ A₁."""
    first = jnp.array([[[1.0, 0, 0], [0, 1, 0], [0, 0, 1]], [[0, 0, 1], [0, 1, 0], [0, 0, 1]]])
    second = jnp.array([[[0.0, 1, 0], [0, 1, 0], [0, 0, 1]], [[0, 1, 0], [0, 1, 0], [0, 0, 1]]])
    weights = jnp.stack([first, second])[:, None]  # two layers, an image, two heads
    # A₂'s first row is (1/2, 1/2, 0). A₁'s rows are (3/4, 0, 1/4), (0, 1, 0), (0, 0, 1).
    assert rollout(weights).tolist() == [[0.375, 0.5, 0.125]]


def test_weights_of_an_image_and_its_page(run, photos, tmp_path):
    image = photos / "validation" / "light" / "1.png"
    model = bert_jax.load(run)
    (result,) = model.attention_rollout([image])
    assert (result.weights.shape, result.weights.dtype) == ((2, 2), np.float32)
    assert 0 < result.weights.sum() < 1  # [CLS] has the rest
    np.testing.assert_array_equal(result.image, np.asarray(Image.open(image)))
    output = tmp_path / "rollout.html"
    command = ["predict", "--model", f"{run}", "--task", "attention_rollout"]
    source = image.parent
    assert cli.main([*command, "--input", f"{source}", "--output", f"{output}"]) == 0
    page = output.read_text()
    assert page.count("<figure>") == 6
    assert "2 × 2 patches; the greatest weight, " in page
    shown = re.findall(r"data:image/png;base64,([\w+/=]+)", page)
    assert len(shown) == 12
    first = Image.open(io.BytesIO(base64.b64decode(shown[0])))
    assert first.size == (8, 8)
    assert "<script" not in page


def test_the_brightest_patch_has_the_greatest_weight():
    weights = np.array([[0.0, 0.1], [0.3, 0.2]])
    picture = overlaid(np.full((8, 8, 3), 128, np.uint8), weights)
    assert picture.shape == (320, 320, 3)
    corners = picture[[0, 0, -1, -1], [0, -1, 0, -1]].astype(int).sum(axis=-1)
    assert corners.argmax() == 2
    element = ImageWeights("<b>.png", np.zeros((8, 8, 1), np.uint8), weights).element()
    assert "&lt;b&gt;.png" in element
    assert "the greatest weight, 0.3, has row 2, column 1" in element


def test_a_model_of_texts_is_refused(base_model, photos):
    with pytest.raises(UserError, match="reads texts, not images; give a model that reads images"):
        bert_jax.load(base_model).attention_rollout([photos / "train" / "dark" / "0.png"])
