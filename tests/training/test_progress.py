"""What is counted while a run goes on."""

import numpy as np
import pytest

from bert_jax.families.family import find_family
from bert_jax.models.config import EncoderConfig
from bert_jax.training.progress import (
    ProgressBar,
    Throughput,
    computed_tokens,
    padding_fraction,
)

TEXT = EncoderConfig()


def test_the_padding_fraction():
    mask = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], np.int32)
    rows = {"input_ids": mask, "attention_mask": mask}
    assert padding_fraction(rows, TEXT) == 0.5
    assert padding_fraction({**rows, "attention_mask": mask[:, None].astype(bool)}, TEXT) == 0.5
    assert padding_fraction({"input_ids": mask}, TEXT) == 0.0
    packed = np.array([[1, 1, 2, 3], [1, 2, 2, 0]], np.int32)
    assert padding_fraction({"input_ids": packed, "segment_ids": packed}, TEXT) == 1 / 8


def test_every_kind_of_row_is_counted():
    """4 of 8 tokens of the queries are padding, 1 of 12 of the passages; labels are no rows."""
    queries = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], np.int32)
    passages = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0]], np.int32)
    batch = {"labels": np.zeros(2)}
    batch |= {f"query/{name}": queries for name in ("input_ids", "attention_mask")}
    batch |= {f"passage/{name}": passages for name in ("input_ids", "attention_mask")}
    assert computed_tokens(batch, TEXT) == 8 + 12
    assert padding_fraction(batch, TEXT) == (4 + 1) / 20


def test_tokens_of_images():
    """[CLS] and 2 × 3 patches of each; none is padding."""
    config = find_family("vit").new_config("tiny", image_size=(10, 13), patch_size=(5, 4))
    batch = {"pixel_values": np.zeros((8, 10, 13, 3)), "labels": np.zeros(8)}
    assert computed_tokens(batch, config) == 8 * 7
    assert padding_fraction(batch, config) == 0


def test_a_bar_shows_that_a_step_is_compiled(capsys):
    bar = ProgressBar(start=0, stop=2, enabled=True)
    capsys.readouterr()
    with bar.compiling():
        assert capsys.readouterr().err.startswith("\rcompiling:   0%|")
    bar.advance()
    bar.advance()
    bar.close()
    assert "training: 100%|" in capsys.readouterr().err


def test_tokens_of_batches_of_different_lengths_with_and_without_padding():
    speed = Throughput()
    speed.step(tokens=100, padding=0.5)
    speed.step(tokens=300, padding=0.0)
    actual = speed.read()
    # 350 of 400 tokens are no padding, however long they took.
    assert actual["tokens_per_second"] > 0
    assert actual["real_tokens_per_second"] / actual["tokens_per_second"] == pytest.approx(0.875)
    assert speed.read() == {"tokens_per_second": 0, "real_tokens_per_second": 0}
