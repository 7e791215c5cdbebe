"""A directory that is whole, or is what it was."""

import pytest

from bert_jax.checkpoints.whole_directory import whole_directory
from bert_jax.errors import UserError


def write(directory, content, fail=None):
    with whole_directory(
        directory, marker="config", last="weights", obsolete=("weights-*",)
    ) as partial:
        (partial / "config").write_text(content)
        (partial / "weights").write_text(content)
        if fail:
            raise fail


def contents(directory):
    return {path.name: path.read_text() for path in directory.iterdir()}


def test_it_is_made_and_replaced_and_other_files_stay(tmp_path):
    target = tmp_path / "a" / "model"
    write(target, "one")
    (target / "README.md").write_text("a card")
    (target / "weights-1").write_text("an older shard")
    write(target, "two")
    assert contents(target) == {"config": "two", "weights": "two", "README.md": "a card"}
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("error", [UserError("no"), KeyboardInterrupt(), OSError("disk full")])
def test_after_an_error_it_is_what_it_was(tmp_path, error):
    target = tmp_path / "model"
    write(target, "one")
    with pytest.raises((UserError, KeyboardInterrupt)):
        write(target, "two", fail=error)
    assert contents(target) == {"config": "one", "weights": "one"}
    assert list(tmp_path.iterdir()) == [target]


def test_what_is_not_ours_is_not_touched(tmp_path):
    other = tmp_path / "model.partial"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    write(tmp_path / "model", "one")
    assert contents(other) == {"thesis.txt": "years of work"}
    with pytest.raises(UserError, match="holds something that is no model"):
        write(other, "two")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file; give a directory"):
        write(tmp_path / "file", "two")


def test_a_directory_in_the_way_is_named_before_anything_is_removed(tmp_path):
    target = tmp_path / "model"
    write(target, "one")
    (target / "weights").unlink()
    (target / "weights").mkdir()
    (target / "weights-1").write_text("a shard")
    with pytest.raises(UserError, match="weights is a directory; move it away"):
        write(target, "two")
    assert (target / "config").read_text() == "one"
    assert (target / "weights-1").exists()


def test_the_current_directory(tmp_path, monkeypatch):
    target = tmp_path / "model"
    target.mkdir()
    monkeypatch.chdir(target)
    from pathlib import Path

    write(Path(), "one")
    assert contents(target) == {"config": "one", "weights": "one"}
