"""Files that come from others: what is opened, and what is refused by name."""

import os
import socket

import pytest

from bert_jax.errors import UserError
from bert_jax.files import (
    as_path,
    is_there,
    open_regular,
    read_json,
    read_json_object,
    read_limited,
    reading,
    regular_files_below,
)


@pytest.fixture
def model(tmp_path):
    """An empty model directory beside a file that is not part of it."""
    (tmp_path / "secret").write_bytes(b"password")
    directory = tmp_path / "model"
    directory.mkdir()
    return directory


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (os.mkdir, "config.json is a directory, not a regular file; try another"),
        (os.mkfifo, "config.json is a named pipe, not a regular file; try another"),
        (make_socket, "config.json (is a socket, not a regular file|cannot be read: .*); try"),
        (lambda path: path.symlink_to("/dev/zero"), "config.json is a link to /dev/zero, which is"),
        (lambda path: path.symlink_to("/dev/fd/0"), "config.json is a link to .*, which is outsi"),
        (lambda path: path.symlink_to("../secret"), "config.json is a link to /.*/secret, which"),
        (lambda path: path.symlink_to("none"), "config.json does not exist; try another"),
        (lambda path: path.symlink_to(path.name), "config.json cannot be read: .*symbolic links"),
        (lambda path: None, "config.json does not exist; try another"),
    ],
)
def test_only_regular_files_are_opened(model, make, message, monkeypatch):
    monkeypatch.chdir(model)  # the path of a socket is short
    make(as_path("config.json"))
    for read in (open_regular, lambda path, remedy: read_limited(path, 9, remedy=remedy)):
        with pytest.raises(UserError, match=message):
            read(model / "config.json", remedy="try another")
    assert is_there(model / "config.json") == os.path.lexists(model / "config.json")
    with pytest.raises(UserError, match=r"^/dev/zero is a device, not a regular file; no$"):
        read_limited(as_path("/dev/zero"), 9, remedy="no")


def test_the_files_below_a_directory(model, tmp_path):
    (model / "deep" / "er").mkdir(parents=True)
    (model / "empty").mkdir()
    for name in ("a", "deep/b", "deep/er/c"):
        (model / name).write_text(name)
    (model / "deep" / "link").symlink_to("../a")
    (tmp_path / "other").symlink_to(model)
    for directory in (model, tmp_path / "other"):
        names = regular_files_below(directory, remedy="no")
        assert names == {"a", "deep/b", "deep/er/c", "deep/link"}
    assert regular_files_below(model / "none", remedy="no") == set()
    for make, message in (
        (os.mkfifo, "is a named pipe, not a regular file; no"),
        (lambda path: path.symlink_to("/dev/zero"), "is a link to /dev/zero, which is outside of"),
        (lambda path: path.symlink_to("../../../secret"), "is a link to .*secret, which is outsi"),
        (lambda path: path.symlink_to("../../deep"), "is a directory, not a regular file; no"),
    ):
        path = model / "deep" / "er" / "x"
        make(path)
        with pytest.raises(UserError, match=f"{path} {message}"):
            regular_files_below(model, remedy="no")
        path.unlink()


def test_links_stay_in_their_directory(model, tmp_path):
    (model / "a.json").write_text('{"a": 1}')
    (model / "b.json").symlink_to("a.json")
    (tmp_path / "other").symlink_to(model)  # the directory itself may be a link
    assert read_json_object(tmp_path / "other" / "b.json") == {"a": 1}
    (model / "1_Pooling").mkdir()
    (model / "1_Pooling" / "config.json").symlink_to("../a.json")
    assert read_json_object(model / "1_Pooling" / "config.json", model) == {"a": 1}
    with pytest.raises(UserError, match="a.json, which is outside of .*1_Pooling; copy the file"):
        read_json_object(model / "1_Pooling" / "config.json")
    (model / "outside").symlink_to(tmp_path)
    with pytest.raises(UserError, match="secret is a link to .*, which is outside of .*model; "):
        read_limited(model / "outside" / "secret", 9, model, remedy="")


def test_links_into_the_hubs_cache(tmp_path):
    cache = tmp_path / "models--google-bert--bert"
    blobs, snapshot = cache / "blobs", cache / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    (snapshot / "1_Pooling").mkdir(parents=True)
    (blobs / "hash").write_text("[1]")
    (snapshot / "config.json").symlink_to("../../blobs/hash")
    (snapshot / "1_Pooling" / "config.json").symlink_to("../../../blobs/hash")
    assert read_json(snapshot / "config.json") == [1]
    assert read_json(snapshot / "1_Pooling" / "config.json") == [1]
    assert read_json(snapshot / "1_Pooling" / "config.json", snapshot) == [1]
    # A blob that leads out of the cache, as no program of the hub makes it.
    (tmp_path / "secret").write_text("[2]")
    (blobs / "link").symlink_to(tmp_path / "secret")
    (snapshot / "vocab.txt").symlink_to("../../blobs/link")
    with pytest.raises(UserError, match="vocab.txt is a link to .*secret, which is outside of"):
        read_json(snapshot / "vocab.txt")


def test_the_size_is_limited(model, monkeypatch):
    (model / "a.json").write_bytes(b"[1, 2, 3]")
    assert read_limited(model / "a.json", 9, remedy="no") == b"[1, 2, 3]"
    with pytest.raises(UserError, match=r"a.json is larger than the limit of 7.62939e-06 MiB; no$"):
        read_limited(model / "a.json", 8, remedy="no")
    monkeypatch.setattr(reading, "JSON_BYTES", 8)
    with pytest.raises(UserError, match=r"a.json is larger than the limit of .*; copy it again$"):
        read_json(model / "a.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{\n "a": 1,\n x}', "a.json:3: not JSON: .*; try"),
        (b"[1]", "a.json is not a JSON object; try"),
        (b'{"a": "\xff"}', "a.json: byte 7 is not UTF-8; try"),
        (b"[" * 100_000, "a.json: its JSON is nested too deeply; try"),
        (b"9" * 5000, "a.json cannot be read: Exceeds the limit .*; try"),
    ],
)
def test_a_json_file_that_holds_no_object(model, content, message):
    (model / "a.json").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_json_object(model / "a.json", remedy="try")


def test_files_of_a_bucket(bucket):
    path = as_path(f"{bucket}/model/config.json")
    with pytest.raises(UserError, match="config.json does not exist; no"):
        read_limited(path, 9, remedy="no")
    assert not is_there(path)
    path.write_bytes(b"[1, 2, 3]")
    assert is_there(path)
    assert read_json(path) == [1, 2, 3]
    with pytest.raises(UserError, match="config.json is larger than the limit of"):
        read_limited(path, 8, remedy="no")
