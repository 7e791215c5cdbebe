"""Local copies of remote files."""

import json
import shutil
from collections import namedtuple

import pytest

from bert_jax.errors import UserError
from bert_jax.files import as_path, fetch, upload, user_cache, write_atomically
from bert_jax.files.paths import filesystem


def files_below(path):
    files = (file for file in path.rglob("*") if file.is_file())
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}


@pytest.fixture
def remote(bucket):
    directory = as_path(f"{bucket}/model")
    for name in ("config.json", "model.bin", "tokenizer/vocab.txt"):
        write_atomically(directory / name, name.encode())
    return directory


@pytest.fixture
def fetched(monkeypatch, remote):
    """Names of the files that were fetched since it was last emptied."""
    store, root = filesystem(remote)
    names: list[str] = []
    get = store.get_file

    def get_file(source, target):
        names.append(source.removeprefix(f"{root}/"))
        get(source, target)

    monkeypatch.setattr(store, "get_file", get_file)
    return names


def test_a_local_directory_is_itself(tmp_path):
    assert fetch(tmp_path) is tmp_path


def test_a_copy_is_kept_and_brought_up_to_date(remote, fetched):
    copy = fetch(remote)
    assert copy.is_relative_to(user_cache() / "fetched" / "gs")
    names = {"config.json", "model.bin", "tokenizer/vocab.txt"}
    assert {name: files_below(copy)[name] for name in names} == {n: n.encode() for n in names}
    assert sorted(fetched) == sorted(names)

    fetched.clear()
    assert fetch(remote) == copy
    assert fetched == []

    write_atomically(remote / "model.bin", b"MODEL.bin")  # of the same size
    (remote / "config.json").unlink()
    (copy / "tokenizer" / "vocab.txt").write_bytes(b"cut")
    fetch(remote)
    assert sorted(fetched) == ["model.bin", "tokenizer/vocab.txt"]
    assert (copy / "model.bin").read_bytes() == b"MODEL.bin"
    assert not (copy / "config.json").exists()


def test_only_requested_files_are_fetched(remote, fetched):
    copy = fetch(remote, ["tokenizer/*"])
    assert fetched == ["tokenizer/vocab.txt"]
    assert (copy / "tokenizer" / "vocab.txt").is_file()
    assert fetch(remote / "config.json").read_bytes() == b"config.json"


def test_an_interrupted_copy_goes_on(remote, fetched, monkeypatch):
    store, _ = filesystem(remote)
    get = store.get_file

    def breaks(source, target):
        if source.endswith("model.bin"):
            with open(target, "w") as file:
                file.write("half")
            raise ConnectionError("the line is dead")
        get(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(store, "get_file", breaks)
        with pytest.raises(UserError, match=r"model\.bin: cannot be reached: the line is dead"):
            fetch(remote)
    [copy] = (user_cache() / "fetched").rglob("model")
    (copy / ".model.bin.1.partial").write_text("of a process that was killed")
    assert fetch(remote) == copy
    assert not list(copy.rglob("*.partial"))
    # Those before the break were not fetched again.
    assert sorted(fetched) == ["config.json", "model.bin", "tokenizer/vocab.txt"]
    assert (copy / "model.bin").read_bytes() == b"model.bin"


def test_a_bucket_writes_and_removes_nothing_outside_of_the_copy(remote, tmp_path):
    (tmp_path / "mine").write_text("mine")
    copy = fetch(remote)
    outside = "../" * len(copy.relative_to(tmp_path).parts) + "mine"
    store, root = filesystem(remote)
    # The record of a copy, which lists what to remove, is not a file of the bucket.
    store.pipe_file(f"{root}/.fetched.json", json.dumps({outside: "4 a"}).encode())
    store.pipe_file(f"{root}/tokenizer/", b"")  # what a console makes for a folder
    assert fetch(remote) == fetch(remote) == copy
    store.pipe_file(f"{root}/{outside}", b"theirs")
    with pytest.raises(UserError, match=r"model names '(\.\./)+mine', which is not the name of a"):
        fetch(remote)
    with pytest.raises(UserError, match=r"names 'bucket/.*/\.\.', which is not the na"):
        fetch(remote / outside)
    assert (tmp_path / "mine").read_text() == "mine"
    store.rm_file(f"{root}/{outside}")


def test_errors_name_the_path(remote, monkeypatch):
    with pytest.raises(UserError, match="does not exist, or holds nothing of"):
        fetch(remote.parent / "nothing")
    with pytest.raises(UserError, match=r"holds nothing of \*\.pt"):
        fetch(remote, ["*.pt"])
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, 10))
    with pytest.raises(UserError, match="GB are free; remove files, or set XDG_CACHE_HOME"):
        fetch(remote)


def test_a_cache_that_cannot_be_written(remote, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match="XDG_CACHE_HOME to another disk"):
        fetch(remote)


def test_upload_keeps_the_order_of_the_names(bucket, tmp_path, monkeypatch):
    for name in ("a", "b", "c"):
        (tmp_path / name).touch()
    remote = as_path(bucket)
    store, root = filesystem(remote)
    names = []
    monkeypatch.setattr(store, "put_file", lambda source, target: names.append(target))
    upload(tmp_path, remote, ["b", "a"])
    assert names == [f"{root}/b", f"{root}/a"]
