"""One process at a time writes a directory or file, on a disk or in a bucket."""

import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from bert_jax.errors import RetryableError, UserError
from bert_jax.files import as_path, check_locks, lock, locked

HOLD = """
import sys, time
from pathlib import Path
from bert_jax.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""
OTHER = b"process 7 on elsewhere (bert-jax train), since 2026-01-01 00:00:00 UTC\nabc\n"


@pytest.fixture
def quick(monkeypatch):
    """A process that does not renew its lock in a bucket counts as lost after 0.4 s."""
    monkeypatch.setattr(lock, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(lock, "STALE_SECONDS", 0.4)
    monkeypatch.setattr(lock, "_SETTLE_SECONDS", 0.05)


@pytest.fixture(params=["disk", "bucket"])
def output(request, tmp_path):
    on_disk = request.param == "disk"
    return as_path(f"{tmp_path if on_disk else request.getfixturevalue('bucket')}/out")


@pytest.fixture
def remote(bucket):
    return as_path(f"{bucket}/out")


def file_of(output):
    return output.with_name(".out.bert_jax.lock")


def test_one_at_a_time_and_again_afterwards(output, quick):
    with locked(output):
        assert file_of(output).read_text().startswith(f"process {os.getpid()} on ")
        message = rf"out is being written by process {os.getpid()} on "
        with pytest.raises(UserError, match=message), locked(output):
            pass
        check_locks()
        time.sleep(0.12)
        check_locks()
    assert not file_of(output).exists()
    with pytest.raises(ZeroDivisionError), locked(output):
        raise ZeroDivisionError
    assert not file_of(output).exists()


def test_a_lock_inside_covers_the_paths_below(tmp_path):
    with locked(tmp_path / "run", inside=True):
        assert [path.name for path in (tmp_path / "run").iterdir()] == [".bert_jax.lock"]
        for below in ("run/model", "run.partial/model"):
            with locked(tmp_path / below):
                assert not list(tmp_path.rglob(".model*"))
        with locked(tmp_path / "run" / "seed-1", inside=True):  # another run
            assert (tmp_path / "run" / "seed-1" / ".bert_jax.lock").is_file()
    assert not list(tmp_path.rglob("*.lock"))


def test_a_process_that_was_killed_holds_nothing(tmp_path):
    output = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, output], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    message = rf"^{output} is being written by process {process.pid} on .* \(-c {output}\), since 2"
    with pytest.raises(UserError, match=message), locked(output):
        pass
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert file_of(output).read_text().startswith(f"process {process.pid} ")
    with locked(output):
        assert file_of(output).read_text().startswith(f"process {os.getpid()} ")
    assert list(tmp_path.iterdir()) == []


def test_a_silent_process_is_waited_for_in_a_bucket(remote, quick, capsys):
    file_of(remote).write_bytes(OTHER)
    with locked(remote):
        assert file_of(remote).read_text().startswith(f"process {os.getpid()} on ")
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"bert-jax: .*out is locked by process 7 on elsewhere \(bert-jax train\), since 2026-01-01 "
        "00:00:00 UTC; waiting for 0 s to see whether that still runs",
        line,
    )


def test_a_process_that_renews_its_lock_is_running(remote, quick):
    file_of(remote).write_bytes(OTHER)
    timer = threading.Timer(0.1, file_of(remote).write_bytes, [OTHER + b"renewed"])
    timer.start()
    message = "is being written by process 7 on elsewhere"
    with pytest.raises(UserError, match=message), locked(remote):
        pass
    timer.join()
    assert file_of(remote).read_bytes() == OTHER + b"renewed"


def test_a_lock_that_was_lost_ends_its_holder(remote, quick):
    with locked(remote):
        file_of(remote).write_bytes(OTHER)
        time.sleep(0.3)
        with pytest.raises(RetryableError, match="out was taken over by process 7 on elsewhere"):
            check_locks()
    assert file_of(remote).read_bytes() == OTHER  # not ours to remove
    check_locks()


def test_of_many_exactly_one_takes_over(output, quick):
    """Threads, each with its own lock, at a file that a killed process has left."""
    won, lost = [], []
    start, end = threading.Barrier(8), threading.Event()

    def attempt():
        start.wait()
        try:
            with locked(output):
                won.append(1)
                end.wait(100)
        except UserError:
            lost.append(1)
            if len(lost) == 7:
                end.set()

    file_of(output).write_bytes(OTHER)
    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 7)


def hard_link(file):
    file.with_name("mine").write_text("my notes")
    file.hardlink_to(file.with_name("mine"))


def link(file):
    file.with_name("mine").write_text("my notes")
    file.symlink_to("mine")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda file: file.mkdir(), "cannot write .*out: Is a directory"),
        (os.mkfifo, "is a named pipe, not a file of bert_jax; remove it"),
        (link, "cannot write .*out: Too many levels of symbolic links"),
        (hard_link, r"is one of several names of a file \(hard links\), not a file of bert_jax"),
    ],
)
def test_a_foreign_file_at_the_path_of_the_lock(tmp_path, make, message):
    file = file_of(tmp_path / "out")
    make(file)
    with pytest.raises(UserError, match=message), locked(tmp_path / "out"):
        pass
    assert os.path.lexists(file)
    assert file.is_dir() or file.is_fifo() or file.read_text() == "my notes"
