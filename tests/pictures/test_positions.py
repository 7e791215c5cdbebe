"""Pictures of position tables: which rows, their similarity, and models without a table."""

import numpy as np
import pytest

from bert_jax import cli
from bert_jax.models.config import EncoderConfig
from bert_jax.pictures.positions import position_table

SIZES = {"vocab_size": 20, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1}


def test_sinusoids_and_learned_rows_without_those_of_no_position():
    config = EncoderConfig(**SIZES, position_kind="sinusoidal", max_position_embeddings=3)
    np.testing.assert_allclose(
        position_table(config),
        [
            [0, 0, 1, 1],
            [0.841471, 0.0099998, 0.5403023, 0.99995],
            [0.9092974, 0.0199987, -0.4161468, 0.9998],
        ],
        atol=1e-6,
    )
    config = EncoderConfig(**SIZES, max_position_embeddings=3, extra_position_rows=2)
    learned = np.arange(20.0).reshape(5, 4)
    assert position_table(config, learned).tolist() == learned[2:].tolist()


def test_the_page_of_a_model(base_model, tmp_path):
    target = tmp_path / "positions.html"
    command = ["draw", "positions", "--model", base_model, "--output", target]
    assert cli.main([*map(str, command)]) == 0
    html = target.read_text()
    assert "<p>32 learned positions of width 16.</p>" in html
    assert html.count("<figure>") == 3
    assert "<script" not in html


def test_a_model_without_a_table_is_refused(base_t5, tmp_path, refused):
    message = refused(
        "draw", "positions", "--model", base_t5, "--output", tmp_path / "positions.html"
    )
    assert "positions of this model are relative: there is no table to draw" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["map"], "a map needs texts; give --input, a file of texts"),
        (["positions", "--method", "pca"], "--method is 'pca'; it is for a map; leave it out"),
    ],
)
def test_wrong_options_are_one_line(arguments, message, tmp_path, refused):
    target = tmp_path / "page.html"
    assert message in refused("draw", *arguments, "--model", "m", "--output", target)
