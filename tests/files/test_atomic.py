"""Files and directories that are complete, or what they were before; JSON objects."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.errors import UserError
from bert_jax.files import (
    as_path,
    atomic_directory,
    atomic_file,
    check_undamaged,
    remove_partial_files,
    write_atomically,
    write_listed,
)
from bert_jax.files.manifest import MANIFEST


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
    message = "cannot write .*folder: Is a directory; free space or"
    with pytest.raises(UserError, match=message), atomic_file(tmp_path / "folder"):
        pass
    with pytest.raises(UserError, match="cannot write .*none/a: No such file"):
        write_atomically(tmp_path / "none" / "a", b"")
    assert path.read_bytes() == b"two"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a", "folder", "link"]


def test_neighbours_stay_and_files_of_killed_processes_can_be_removed(tmp_path):
    for name in ("a.partial", ".a.partial"):
        (tmp_path / name).write_text("of the user")
    (tmp_path / f".a.{os.getpid()}.partial").symlink_to("a.partial")  # it is not followed
    write_atomically(tmp_path / "a", b"one")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.partial", "a", "a.partial"]
    remove_partial_files(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a.partial"]
    assert (tmp_path / "a.partial").read_text() == "of the user"


def test_pipes_and_streams_are_written_directly(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    program = (
        "import sys; from pathlib import Path; from bert_jax.files import atomic_file\n"
        "for path in sys.argv[1:]:\n"
        "    with atomic_file(Path(path)) as file: file.write(b'one')"
    )
    command = [sys.executable, "-c", program, str(pipe), "/dev/stdout"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert pipe.read_bytes() == b"one"
        assert process.stdout.read() == b"one"
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (os.mkfifo, "is a named pipe, not a regular file; "),
        (os.mkdir, "is a directory, not a regular file; "),
        (lambda path: path.symlink_to("/dev/null"), "is a link to /dev/null, which is outside of"),
        (lambda path: path.symlink_to("../mine"), "is a link to .*/mine, which is outside of"),
        (lambda path: path.symlink_to(path.name), "cannot be read: Too many levels of symbolic"),
    ],
)
def test_only_regular_files_are_replaced(tmp_path, make, message):
    (tmp_path / "mine").write_bytes(b"not to be written")
    run = tmp_path / "run"
    for name in ("list.json", "b.txt"):
        write_listed(run, {"a.json": b"{}", "b.txt": b"b"}, "list.json")
        kept = {path.name: path.read_bytes() for path in run.iterdir() if path.name != name}
        (run / name).unlink()
        make(run / name)
        with pytest.raises(UserError, match=f"{name} {message}"):
            write_listed(run, {"a.json": b"[]", "b.txt": b"B"}, "list.json")
        with pytest.raises(UserError, match=f"{name} {message}"):
            write_atomically(run / name, b"B")
        assert {name: (run / name).read_bytes() for name in kept} == kept
        shutil.rmtree(run)
    assert (tmp_path / "mine").read_bytes() == b"not to be written"


def write(directory, content, fail=None, shards=()):
    with atomic_directory(
        directory, marker="config", last="weights", obsolete=("weights-*",)
    ) as partial:
        for name in ("config", "weights", *shards):
            (partial / name).write_text(content)
        if fail:
            raise fail


def contents(directory):
    files = (path for path in directory.iterdir() if path.name != MANIFEST)
    return {path.name: path.read_text() for path in files}


def test_a_directory_is_made_and_replaced_and_other_files_stay(tmp_path):
    target = tmp_path / "a" / "model"
    write(target, "one", shards=["weights-1"])
    (target / "README.md").write_text("a card")
    write(target, "two")
    assert contents(target) == {"config": "two", "weights": "two", "README.md": "a card"}
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("error", [UserError("no"), KeyboardInterrupt(), OSError("disk full")])
def test_after_an_error_a_directory_is_unchanged(tmp_path, error):
    target = tmp_path / "model"
    write(target, "one")
    with pytest.raises((UserError, KeyboardInterrupt)):
        write(target, "two", fail=error)
    assert contents(target) == {"config": "one", "weights": "one"}
    assert list(tmp_path.iterdir()) == [target]


def test_directories_with_other_contents_are_not_touched(tmp_path, monkeypatch):
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
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config").write_text("of a run, without a manifest")
    with pytest.raises(UserError, match="config was not written by bert_jax"):
        write(tmp_path / "run", "two")
    monkeypatch.chdir(tmp_path / "model")
    write(Path(), "two")
    assert contents(tmp_path / "model") == {"config": "two", "weights": "two"}


def test_a_directory_in_the_way_is_named_before_anything_is_removed(tmp_path):
    target = tmp_path / "model"
    write(target, "one", shards=["weights-1"])
    (target / "weights").unlink()
    (target / "weights").mkdir()
    with pytest.raises(UserError, match="weights is a directory; move it away"):
        write(target, "two")
    assert (target / "config").read_text() == "one"
    assert (target / "weights-1").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("config", "was changed since bert_jax wrote it; move it away, or write elsewhere"),
        ("weights", "was changed since bert_jax wrote it"),
        ("weights-1", r"was not written by bert_jax \(it is not in .*/bert_jax.json\)"),
        ("vocabulary", r"was not written by bert_jax \(it is not in .*/bert_jax.json\)"),
    ],
)
def test_foreign_files_are_neither_replaced_nor_removed(tmp_path, name, message):
    target = tmp_path / "model"
    write(target, "one")
    (target / name).write_text("own")  # as long as "one"
    before = contents(target)
    with pytest.raises(UserError, match=f"{target}/{name} {message}"):
        write(target, "two", shards=["vocabulary"])
    assert contents(target) == before


def test_a_directory_may_be_known_by_its_manifest_alone(tmp_path):
    target = tmp_path / "predictions"
    for content in ("one", "two"):
        with atomic_directory(target, marker=MANIFEST) as partial:
            (partial / "a").write_text(content)
        (target / "notes").write_text("own")
    assert contents(target) == {"a": "two", "notes": "own"}
    for name, message in {"a": "was changed since", "notes": "was not written by"}.items():
        (target / "a").write_text("years of work")
        with (
            pytest.raises(UserError, match=f"{target / name} {message} bert_jax"),
            atomic_directory(target, marker=MANIFEST) as partial,
        ):
            (partial / name).write_text("three")
    assert contents(target) == {"a": "years of work", "notes": "own"}
    (target / MANIFEST).unlink()
    with (
        pytest.raises(UserError, match="predictions holds other files and no bert_jax.json; give"),
        atomic_directory(target, marker=MANIFEST),
    ):
        pass


def test_the_weights_are_removed_first_and_moved_last(tmp_path, monkeypatch):
    target = tmp_path / "model"
    write(target, "one", shards=["weights-1"])
    done = []

    def watch(name, method):
        def watched(path, *arguments, **how):
            done.append((name, path.name))
            return method(path, *arguments, **how)

        monkeypatch.setattr(Path, name, watched)

    watch("replace", Path.replace)
    watch("unlink", Path.unlink)
    write(target, "two", shards=["z"])
    assert [step for step in done if not step[1].startswith(".")] == [
        *(("unlink", "weights"), ("unlink", "weights-1")),
        *(("replace", "config"), ("replace", "z"), ("replace", "weights")),
    ]


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("moved", [0, 1])
def test_after_a_kill_between_the_moves_it_is_written_again(tmp_path, monkeypatch, moved, is_new):
    undisturbed, target = tmp_path / "undisturbed", tmp_path / "model"
    if not is_new:
        write(target, "one")
    calls = iter(range(9))
    replace = Path.replace

    def killed(path, other):
        if path.parent.name.endswith(".partial") and next(calls) == moved:
            raise KeyboardInterrupt  # nothing is done after it
        return replace(path, other)

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write(target, "two")
    monkeypatch.undo()
    (target / f".{MANIFEST}.1.partial").write_text("half of")  # of a kill a little earlier
    for directory in (undisturbed, target):
        write(directory, "three")
    assert contents(target) == {"config": "three", "weights": "three"}
    assert (target / MANIFEST).read_bytes() == (undisturbed / MANIFEST).read_bytes()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(b"B"), "b.txt is damaged, or was changed since"),
        (lambda path: None, "b.txt is missing, but .*/list.json lists it; copy it again, or"),
        (os.mkfifo, "b.txt is damaged, or was changed since"),
        (lambda path: path.symlink_to("/dev/zero"), "b.txt is damaged, or was changed since"),
    ],
)
def test_a_listed_file_that_is_damaged_is_named(tmp_path, damage, message):
    write_listed(tmp_path, {"a.json": b"{}", "deep/b.txt": b"b"}, "list.json")
    write_listed(tmp_path, {"a.json": b"[1]"}, "list.json")
    check_undamaged(tmp_path, ["*"], "list.json")
    path = tmp_path / "deep" / "b.txt"
    path.unlink()
    damage(path)
    check_undamaged(tmp_path, ["a.json"], "list.json")
    with pytest.raises(UserError, match=message):
        check_undamaged(tmp_path, ["deep/*"], "list.json")
    for content in (b"{", b"[]", b"{}", b'{"files": 1}', b'{"files": {"a": 1}}'):
        (tmp_path / "list.json").write_bytes(content)
        with pytest.raises(UserError, match="list.json.*; copy it again, or remove it"):
            check_undamaged(tmp_path, ["*"], "list.json")


@pytest.mark.slow
def test_files_are_uploaded_at_the_end_and_nothing_after_an_error(bucket, tmp_path):
    path = as_path(f"{bucket}/a")
    with atomic_file(path) as file:
        file.write(b"one")
        assert not path.exists()
    with pytest.raises(ZeroDivisionError), atomic_file(path):
        raise ZeroDivisionError
    assert path.read_bytes() == b"one"
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
