"""Fine-tuning of modern encoders step by step as PyTorch; real texts: `families_beside_pytorch`."""

import random

import numpy as np
import pytest

from bert_jax.tokenization import train_byte_level_bpe
from tests.tasks.families_beside_pytorch import compare

pytestmark = pytest.mark.slow

pytest.importorskip("torch")
pytest.importorskip("transformers")

NOUNS = {"animal": ("cat", "dog", "bird"), "thing": ("mat", "tree", "sea")}


def write(directory, task, seed):
    """Texts of 27 words, longer than the windows; their labels are in the words."""
    draw, lines = random.Random(seed), []
    for _ in range(64):
        label = draw.choice(sorted(NOUNS))
        words = [word for _ in range(9) for word in ("the", draw.choice(NOUNS[label]), "was")]
        if task == "classification":
            lines.append(f"{label} {' '.join(words)}")
        else:
            animals = NOUNS["animal"]
            lines += [f"{word} {'B-A' if word in animals else 'O'}" for word in words] + [""]
    path = directory / f"{seed}.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("family", "task"),
    [
        ("mpnet", "tagging"),
        ("modernbert", "classification"),
        ("nomic_bert", "tagging"),
        ("gte", "classification"),
        ("longformer", "classification"),
        ("longformer", "tagging"),
    ],
)
def test_losses_and_labels_are_those_of_pytorch(family, task, tmp_path):
    files = (write(tmp_path, task, 0), write(tmp_path, task, 1))
    tokenizer = train_byte_level_bpe([files[0].read_text()], vocab_size=300)
    keys = {"train__steps": 60, "train__global_batch_size": 8, "optimizer__learning_rate": 3e-3}
    ours, theirs = compare(family, task, files, tmp_path, tokenizer, **keys)
    np.testing.assert_allclose(ours.losses, theirs.losses, rtol=0, atol=1e-4)
    assert theirs.losses[-5:].mean() < 0.5 * theirs.losses[0]
    assert ours.accuracy == pytest.approx(theirs.accuracy) == pytest.approx(1, abs=0.02)
