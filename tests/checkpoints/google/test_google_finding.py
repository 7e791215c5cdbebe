"""Locating Google's files by all paths that a user may name."""

import shutil

import pytest

from bert_jax.checkpoints.google_files import GoogleFiles, find
from bert_jax.errors import UserError


def test_every_path_of_a_model(released, tmp_path):
    files = GoogleFiles(released, released / "bert_model.ckpt")
    assert find(released) == files
    assert find(released / "bert_model.ckpt") == files
    for ending in ("index", "meta", "data-00000-of-00001"):
        assert find(released / f"bert_model.ckpt.{ending}") == files
    assert find(tmp_path) is None
    assert find(tmp_path / "nowhere") is None
    (released / "config.json").write_text("{}")  # Hugging Face's
    assert find(released) is None
    assert find(released / "bert_model.ckpt") is not None


def test_the_newest_step(released):
    (released / "checkpoint").unlink()
    for step in (0, 20000, 3000):
        for path in released.glob("bert_model.ckpt.*"):
            copy = path.name.replace("bert_model.ckpt", f"model.ckpt-{step}")
            shutil.copy(path, released / copy)
    for path in released.glob("bert_model.ckpt.*"):
        path.unlink()
    assert find(released).prefix == released / "model.ckpt-20000"
    (released / "checkpoint").write_text(
        'model_checkpoint_path: "/gone/model.ckpt-3000"\n'
        'all_model_checkpoint_paths: "/gone/model.ckpt-20000"\n'
    )
    assert find(released).prefix == released / "model.ckpt-3000"
    assert find(released / "model.ckpt-0").prefix == released / "model.ckpt-0"


def test_two_trainings_are_ambiguous(released):
    (released / "checkpoint").unlink()
    for path in released.glob("bert_model.ckpt.*"):
        shutil.copy(path, path.with_name(path.name.replace("bert_model", "other_model")))
    with pytest.raises(
        UserError,
        match=r"ambiguous.* has 2 checkpoints \(bert_model.ckpt, other.*; name .*/bert_model.ckpt",
    ):
        find(released)


@pytest.mark.parametrize("path", [".", "bert_model.ckpt"])
def test_a_run_directory_of_googles_scripts(released, path):
    (released / "bert_config.json").unlink()
    with pytest.raises(UserError, match="bert_model.ckpt has no bert_config.json or albert_"):
        find(released / path)
