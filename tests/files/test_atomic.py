"""Files and directories that are complete, or what they were before; JSON objects."""

import os
import threading
from pathlib import Path

import pytest

from bert_jax.errors import UserError
from bert_jax.files import (
    as_path,
    atomic_directory,
    atomic_file,
    read_json_object,
    remove_partial_files,
    write_atomically,
)


def test_a_file_is_replaced_or_unchanged(tmp_path, monkeypatch):
    path = tmp_path / "a"
    with atomic_file(path) as file:
        file.write(b"one")
        assert not path.exists()
    link = tmp_path / "link"
    link.symlink_to(path)
    write_atomically(link, b"two")
    assert link.is_symlink()
    assert path.read_bytes() == b"two"
    with pytest.raises(ZeroDivisionError), atomic_file(path) as file:
        file.write(b"%d" % (1 / 0))
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="cannot write .*folder: Is a directory; free space or"):
        write_atomically(tmp_path / "folder", b"")
    with pytest.raises(UserError, match="cannot write .*none/a: No such file"):
        write_atomically(tmp_path / "none" / "a", b"")
    assert path.read_bytes() == b"two"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a", "folder", "link"]


def test_neighbours_stay_and_files_of_killed_processes_can_be_removed(tmp_path):
    for name in ("a.partial", ".a.partial"):
        (tmp_path / name).write_text("of the user")
    write_atomically(tmp_path / "a", b"one")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.partial", "a", "a.partial"]
    remove_partial_files(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a.partial"]


def test_a_pipe_is_written_directly(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_atomically(pipe, b"one")
    reader.join()
    assert read == [b"one"]
    assert pipe.is_fifo()


def test_a_file_in_a_bucket_is_uploaded_at_the_end(bucket):
    path = as_path(f"{bucket}/a")
    with atomic_file(path) as file:
        file.write(b"one")
        assert not path.exists()
    with pytest.raises(ZeroDivisionError), atomic_file(path):
        raise ZeroDivisionError
    assert path.read_bytes() == b"one"


def write(directory, content, fail=None):
    with atomic_directory(
        directory, marker="config", last="weights", obsolete=("weights-*",)
    ) as partial:
        (partial / "config").write_text(content)
        (partial / "weights").write_text(content)
        if fail:
            raise fail


def contents(directory):
    return {path.name: path.read_text() for path in directory.iterdir()}


def test_a_directory_is_made_and_replaced_and_other_files_stay(tmp_path):
    target = tmp_path / "a" / "model"
    write(target, "one")
    (target / "README.md").write_text("a card")
    (target / "weights-1").write_text("an older shard")
    write(target, "two")
    assert contents(target) == {"config": "two", "weights": "two", "README.md": "a card"}
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("error", [UserError("no"), KeyboardInterrupt(), OSError("disk full")])
def test_after_an_error_a_directory_is_what_it_was(tmp_path, error):
    target = tmp_path / "model"
    write(target, "one")
    with pytest.raises((UserError, KeyboardInterrupt)):
        write(target, "two", fail=error)
    assert contents(target) == {"config": "one", "weights": "one"}
    assert list(tmp_path.iterdir()) == [target]


def test_directories_with_other_contents_are_not_touched(tmp_path):
    other = tmp_path / "model.partial"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    write(tmp_path / "model", "one")
    assert contents(other) == {"thesis.txt": "years of work"}
    with pytest.raises(UserError, match="holds other files and no config; give"):
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
    write(Path(), "one")
    assert contents(target) == {"config": "one", "weights": "one"}


def test_files_are_uploaded_at_the_end_and_nothing_after_an_error(bucket, tmp_path):
    remote = as_path(f"{bucket}/out")
    with atomic_directory(remote) as partial:
        (partial / "deep").mkdir()
        (partial / "deep" / "a").write_text("a")
        (partial / "b").write_text("b")
        assert not remote.exists()
    assert (remote / "deep" / "a").read_text() == "a"
    assert (remote / "b").read_text() == "b"
    with pytest.raises(ZeroDivisionError), atomic_directory(remote / "other") as partial:
        (partial / "a").write_text(str(1 / 0))
    assert not (remote / "other").exists()
    assert not partial.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{\n "a": 1,\n x}', "a.json:3: not JSON: .*; try"),
        (b"[1]", "a.json is not a JSON object; try"),
        (b'{"a": "\xff"}', "a.json: byte 7 is not UTF-8; try"),
        (b"[" * 100_000, "a.json cannot be read: .*; try"),
        (None, "a.json does not exist; try"),
    ],
)
def test_a_json_file_that_holds_no_object(tmp_path, content, message):
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_json_object(path, remedy="try")
    path.write_text('{"a": 1}')
    assert read_json_object(path) == {"a": 1}
