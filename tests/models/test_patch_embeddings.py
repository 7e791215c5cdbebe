"""Images as tokens: patches and positions by hand, and what a model of images refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.errors import OptionError, UserError
from bert_jax.families.family import find_family
from bert_jax.models.encoder import Encoder, init_params
from bert_jax.models.execution import Execution
from bert_jax.models.heads.image_classification import ImageClassificationModel
from bert_jax.models.image_options import ImageOptions
from bert_jax.models.patch_embeddings import (
    PatchEmbeddings,
    cubic_interpolation,
    interpolated_positions,
)
from tests.random_params import random_params

SIZES = {
    "hidden_size": 2,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "intermediate_size": 3,
    "image_size": (4, 2),
    "patch_size": 2,
    "num_channels": 1,
}


def config_of(name="vit", **fields):
    return find_family(name).new_config("tiny", **SIZES | fields)


def test_patches_by_hand():
    """D 2: the sum of the four pixels of a patch, and its pixel at the lower left; no [CLS]."""
    kernel = np.zeros((2, 1, 2, 2), np.float32)
    kernel[0], kernel[1, 0, 1, 0] = 1, 1
    params = {
        "patches": {"kernel": kernel, "bias": np.float32([0, 0.5])},
        "cls_token": np.float32([[[7, 8]]]),
        "distillation_token": np.float32([[[9, 10]]]),
        "position_embeddings": np.float32([[[0.1, 0], [0.2, 0], [0.3, 0], [0.4, 0]]]),
    }
    # Pixels beyond the last whole patch, here a row and a column, are not read.
    image = np.float32([[1, 2, 99], [3, 4, 99], [5, 6, 99], [7, 8, 99], [99, 99, 99]])
    module = PatchEmbeddings(config_of("deit"), Execution())
    indices = jnp.zeros((1, 4), jnp.int32)
    tokens = module.apply({"params": params}, image[None, ..., None], indices, deterministic=True)
    expected = [[7.1, 8], [9.2, 10], [10.3, 3.5], [26.4, 7.5]]
    np.testing.assert_allclose(tokens[0], expected, rtol=1e-6)


def test_cubic_interpolation_by_hand():
    """Half-way between samples the weights are -3/32, 19/32, 19/32, -3/32; ends are repeated."""
    outer, inner = -3 / 32, 19 / 32
    assert cubic_interpolation(4, 2).tolist() == [
        [outer + inner, inner, outer, 0],
        [0, outer, inner, inner + outer],
    ]
    assert cubic_interpolation(3, 3).tolist() == np.eye(3).tolist()
    np.testing.assert_allclose(cubic_interpolation(5, 13).sum(axis=1), 1, rtol=1e-6)


def test_positions_of_a_larger_image_keep_those_of_leading_tokens():
    images = ImageOptions(image_size=4, patch_size=2, has_distillation_token=True)
    rows = np.float32([[1, 1], [2, 2], [3, 30], [4, 30], [3, 40], [4, 40]])[None]
    same = interpolated_positions(rows, images, (5, 4))
    assert same is rows
    larger = interpolated_positions(jnp.asarray(rows), images, (8, 4))
    assert larger.shape == (1, 2 + 4 * 2, 2)
    assert larger[0, :2].tolist() == [[1, 1], [2, 2]]
    # Along the width nothing changes, along the height 30 and 40 are interpolated.
    assert larger[0, 2:, 0].tolist() == [3, 4] * 4
    np.testing.assert_allclose(larger[0, 2::2, 1], cubic_interpolation(2, 4) @ [30, 40], rtol=1e-6)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"image_size": (4, 2, 1)}, r"image_size is \(4, 2, 1\); give height and width"),
        ({"image_size": 1}, "patch_size is 2; an image has 1: give a smaller patch"),
        ({"patch_size": 0}, "patch_size is 0"),
        ({"num_channels": True}, "num_channels is True"),
        ({"pooler_act": "tan"}, "pooler_act is 'tan'"),
        ({"vocab_size": 3}, "vit models have no vocab_size"),
    ],
)
def test_fields_out_of_range(fields, message):
    with pytest.raises(OptionError, match=message):
        config_of(**fields)


PIXELS = np.zeros((1, 4, 2, 1), np.float32)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_ids": np.zeros((1, 3), np.int32)}, "leave out input_ids, and do not pack rows"),
        ({"pixel_values": PIXELS, "segment_ids": 1}, "one length: leave out segment_ids"),
        ({"pixel_values": PIXELS, "packed_rows": 1}, "leave out packed_rows, and do not pack"),
        ({"pixel_values": PIXELS[0]}, r"of shape \(4, 2, 1\); this model reads images \[batch"),
        ({"pixel_values": PIXELS.swapaxes(1, 3)}, r"shape \(1, 1, 2, 4\).*height, width, 1\]"),
        ({"pixel_values": PIXELS[:, :1]}, "an image of 1 × 2 pixels has no patch of 2 × 2"),
        ({}, "pixel_values are missing; this model reads images"),
    ],
)
def test_inputs_that_are_no_images(inputs, message):
    module = Encoder(config_of(), add_pooling_layer=False)
    with pytest.raises(UserError, match=message):
        module.init(jax.random.key(0), **inputs)


def test_dropout_depends_on_the_row_of_the_whole_batch_only():
    module = ImageClassificationModel(config_of(hidden_dropout_prob=0.5, num_labels=3))
    params = random_params(module)
    images = np.random.default_rng(0).normal(size=(4, 4, 2, 1)).astype(np.float32)

    @jax.jit
    def logits(images, rows):
        return module.apply(
            {"params": params},
            pixel_values=images,
            row_indices=rows,
            deterministic=False,
            rngs={"dropout": jax.random.key(0)},
        )

    whole = logits(images, np.arange(4))
    assert whole.shape == (4, 3)
    halves = [logits(images[rows], rows) for rows in (np.array([0, 1]), np.array([2, 3]))]
    np.testing.assert_allclose(np.concatenate(halves), whole, rtol=1e-5)
    assert np.abs(logits(images[:2], np.array([2, 3])) - whole[:2]).max() > 1e-3


def test_shapes_of_new_parameters():
    params = init_params(Encoder(config_of("deit", num_channels=3)), jax.random.key(0))
    shapes = jax.tree.map(np.shape, params["embeddings"])
    assert shapes == {
        "patches": {"kernel": (2, 3, 2, 2), "bias": (2,)},
        "cls_token": (1, 1, 2),
        "distillation_token": (1, 1, 2),
        "position_embeddings": (1, 4, 2),
    }
    assert params["pooler"]["dense"]["kernel"].shape == (2, 2)
