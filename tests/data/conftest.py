"""Text and vocabulary that are small enough to check by eye."""

from pathlib import Path

import pytest

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, "the", "cat", "dog", "sat", "ran", "##s", ".", "!"]


@pytest.fixture
def tiny_vocabulary(tmp_path: Path) -> Path:
    """the 5, cat 6, dog 7, sat 8, ran 9, ##s 10, "." 11, "!" 12; any other word is 1."""
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(PIECES) + "\n")
    return path
