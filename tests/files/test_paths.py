"""Paths of buckets, through the real client and a server on loopback."""

import builtins
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.errors import RetryableError, UserError, as_retryable
from bert_jax.files import (
    as_path,
    below,
    is_remote,
    matching_files,
    open_binary,
    reachable,
    state_of,
    user_cache,
    write_atomically,
)
from bert_jax.inference.loading import load
from bert_jax.sharding.runtime import use_compilation_cache


def test_local_paths(tmp_path):
    assert as_path("runs/a") == Path("runs/a")
    assert type(as_path("runs/a")) is type(Path())
    assert not is_remote(Path("runs/a"))
    (tmp_path / "file").write_bytes(b"abc")
    state = state_of(tmp_path / "file")
    assert (state.size, state.modified) == (3, (tmp_path / "file").stat().st_mtime_ns)


@pytest.mark.parametrize("text", ["hdfs://b/a", "http://example.org/a", "gs://", "://a"])
def test_unsupported_paths_are_refused(text):
    with pytest.raises(UserError, match="known are gs://BUCKET/PATH and s3://BUCKET/PATH"):
        as_path(text)


@pytest.mark.parametrize(
    "name",
    [
        *("../a", "a/../../b", "a/..", "..", "./a", "/etc/passwd", "//host/a", "", "a//b", "a/"),
        *("C:a", "C:\\a", "a\\..\\..\\b", "\\\\host\\a", "a\0b"),
    ],
)
def test_a_name_that_leaves_its_directory(name):
    with pytest.raises(UserError, match=r"manifest.json names '.*', which is not the name of a fi"):
        below(Path("model"), name, "manifest.json")
    for other in ("a", "a/b.txt", "..a/b..", "a b/ä[1]\n", "ab:c"):
        assert below(Path("model"), other, "") == Path(f"model/{other}")
    assert str(below(as_path("gs://b/a"), "c/d", "")) == "gs://b/a/c/d"


def test_a_small_file_is_like_one_on_disk(bucket):
    path = as_path(f"{bucket}/a") / "b.txt"
    assert str(path) == f"{bucket}/a/b.txt"
    assert is_remote(path)
    assert not path.is_file()
    write_atomically(path, b"one")
    write_atomically(path, b"three")
    assert path.read_bytes() == b"three"
    assert path.is_file()
    assert path.parent.is_dir()
    assert [actual.name for actual in path.parent.iterdir()] == ["b.txt"]
    assert state_of(path).size == 5
    with open_binary(path) as file:
        assert (file.read(2), file.tell(), file.read()) == (b"th", 2, b"ree")


def test_files_by_name_directory_and_pattern(bucket):
    for name in ("b.txt", "a.txt", "c.gz", "deep/d.txt", ".hidden/e.txt", "deep/.f"):
        write_atomically(as_path(f"{bucket}/{name}"), name.encode())

    def names(pattern):
        return [str(path).removeprefix(f"{bucket}/") for path in matching_files(pattern)]

    assert names(f"{bucket}/a.txt") == ["a.txt"]
    assert names(bucket) == ["a.txt", "b.txt", "c.gz", "deep/d.txt"]
    assert names(f"{bucket}/*.txt") == ["a.txt", "b.txt"]
    assert names(f"{bucket}/**/*.txt") == [".hidden/e.txt", "a.txt", "b.txt", "deep/d.txt"]
    assert names(f"{bucket}/no*") == []


def test_a_store_without_its_client_names_the_extra(monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **keywords):
        if name == "s3fs":
            raise ImportError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"s3:// needs the extra \[s3\]: pip install"):
        matching_files("s3://bucket/a")


def test_errors_of_a_store_are_one_line(bucket):
    def there():
        return reachable(as_path(f"{bucket}/a"))

    with pytest.raises(UserError, match=r"gs://.*: cannot be reached: first;"), there():
        raise RuntimeError("first\nsecond")
    with pytest.raises(RuntimeError), reachable(Path("here")):
        raise RuntimeError
    again = pytest.raises(RetryableError, match="cannot be reached: late")
    with again, as_retryable(), there():  # it was there before: worth another try
        raise TimeoutError("late")
    with pytest.raises(UserError, match="fix it") as actual, as_retryable():
        raise UserError("fix it")
    assert type(actual.value) is UserError


def test_a_bucket_is_read_without_tensorflow():
    # Another library that asks first, as orbax or TensorFlow Datasets do.
    script = (
        "import bert_jax.files, sys\n"
        "from etils import epath\n"
        "epath.Path('.').exists()\n"
        "print(type(bert_jax.files.as_path('gs://bucket/a')._backend).__name__)\n"
        "print('tensorflow' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["_FileSystemSpecBackend", "False"]


def test_a_user_without_a_home_directory(monkeypatch):
    for name in ("HOME", "XDG_CACHE_HOME", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])  # as in a container
    with pytest.raises(UserError, match="no home directory; set XDG_CACHE_HOME"):
        user_cache()
    use_compilation_cache()  # does nothing
    with pytest.raises(UserError, match="~/model"):
        load("~/model")
