"""One process at a time writes to a place, on a disk or in a bucket."""

import dataclasses
import json
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
from bert_jax.files.processes import this_process

HOLD = """
import sys, time
from pathlib import Path
from bert_jax.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def quick(monkeypatch):
    """Another host counts as lost after 0.4 s."""
    monkeypatch.setattr(lock, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(lock, "STALE_SECONDS", 0.4)
    monkeypatch.setattr(lock, "_SETTLE_SECONDS", 0.05)
    monkeypatch.setattr(lock, "_CREATION_SECONDS", 0.2)


@pytest.fixture(params=["disk", "bucket"])
def place(request, tmp_path):
    on_disk = request.param == "disk"
    return as_path(f"{tmp_path if on_disk else request.getfixturevalue('bucket')}/out")


def of_another_host(file, **fields):
    """Puts the lock of a process on another host there."""
    process = dataclasses.replace(this_process(), host="elsewhere", machine="another", pid=7)
    record = lock._Record(process, "bert-jax train", "2026-01-01 00:00:00 UTC", "", "other")
    record = dataclasses.replace(record, **fields)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(record.as_bytes())


def file_of(place):
    return place.with_name(".out.bert_jax.lock")


def test_one_at_a_time_and_again_afterwards(place, quick):
    with locked(place):
        assert json.loads(file_of(place).read_text())["pid"] == os.getpid()
        message = rf"out is being written by process {os.getpid()} on "
        with pytest.raises(UserError, match=message), locked(place):
            pass
        check_locks()
        time.sleep(0.12)
        check_locks()
    assert not file_of(place).exists()
    with pytest.raises(ZeroDivisionError), locked(place):
        raise ZeroDivisionError
    assert not file_of(place).exists()


def test_a_lock_inside_covers_what_is_below(tmp_path):
    with locked(tmp_path / "run", inside=True):
        assert [path.name for path in (tmp_path / "run").iterdir()] == [".bert_jax.lock"]
        for below in ("run/model", "run.partial/model"):
            with locked(tmp_path / below):
                assert not list(tmp_path.rglob(".model*"))
        with locked(tmp_path / "run" / "seed-1", inside=True):  # a run of its own
            assert (tmp_path / "run" / "seed-1" / ".bert_jax.lock").is_file()
    assert not list(tmp_path.rglob("*.lock"))


def test_a_process_that_was_killed_holds_nothing(tmp_path):
    place = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, place], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    message = rf"^{place} is being written by process {process.pid} on .* \(-c {place}\), since 2"
    with pytest.raises(UserError, match=message), locked(place):
        pass
    process.send_signal(signal.SIGKILL)
    # At once, even before its parent has asked for its exit code.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    began = time.monotonic()
    with locked(place):
        assert json.loads(file_of(place).read_text())["pid"] == os.getpid()
    assert time.monotonic() - began < 0.5
    process.communicate()


def test_a_number_that_is_used_again_is_another_process(tmp_path):
    of_another_host(
        file_of(tmp_path / "out"), process=dataclasses.replace(this_process(), started="1")
    )
    with locked(tmp_path / "out"):
        pass


def test_a_silent_host_is_waited_for_once(place, quick, capsys):
    of_another_host(file_of(place))
    with locked(place):
        assert json.loads(file_of(place).read_text())["host"] != "elsewhere"
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"bert-jax: .*out is locked by process 7 on elsewhere \(bert-jax train\), since 2026-01-01 "
        "00:00:00 UTC; waiting for 0 s to see whether that still runs",
        line,
    )


def test_a_host_that_renews_its_lock_is_running(place, quick):
    of_another_host(file_of(place))
    timer = threading.Timer(0.1, of_another_host, [file_of(place)], {"renewed": "later"})
    timer.start()
    message = "is being written by process 7 on elsewhere"
    with pytest.raises(UserError, match=message), locked(place):
        pass
    timer.join()
    assert json.loads(file_of(place).read_text())["renewed"] == "later"


def test_a_lock_that_was_lost_ends_its_holder(place, quick):
    with locked(place):
        of_another_host(file_of(place))
        time.sleep(0.3)
        with pytest.raises(RetryableError, match="out was taken over by process 7 on elsewhere"):
            check_locks()
    assert json.loads(file_of(place).read_text())["host"] == "elsewhere"  # not ours to remove
    check_locks()


def test_a_lock_that_was_removed_is_made_again(tmp_path, quick):
    with locked(tmp_path / "out"):
        file_of(tmp_path / "out").unlink()
        time.sleep(0.2)
        assert file_of(tmp_path / "out").is_file()
        check_locks()


def test_of_many_exactly_one_takes_over(tmp_path, quick):
    """Threads, each with a lock of its own, at a file that a killed process has left."""
    dead = dataclasses.replace(this_process(), started="1")
    won, lost = [], []
    start, end = threading.Barrier(8), threading.Event()

    def attempt():
        start.wait()
        try:
            with locked(tmp_path / "out"):
                won.append(1)
                end.wait(5)
        except UserError:
            lost.append(1)
            if len(lost) == 7:
                end.set()

    of_another_host(file_of(tmp_path / "out"), process=dead)
    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 7)


def of(**changes):
    """The content of a lock of another process, with some fields changed."""
    fields = {"host": "a", "machine": "b", "pid": 1, "started": "", "command": "c"}
    return json.dumps({**fields, "since": "", "renewed": "", "token": "", **changes}).encode()


def hard_link(file):
    file.with_name("mine").write_bytes(of())
    file.hardlink_to(file.with_name("mine"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda file: file.write_text("my notes"), "is not a lock of bert-jax, or damaged; remove"),
        (lambda file: file.write_text('{"pid": 1}'), "is not a lock of bert-jax, or damaged"),
        (lambda file: file.write_text("[" * 50_000), "is not a lock of bert-jax, or damaged"),
        (lambda file: file.write_bytes(of(pid="7")), "is not a lock of bert-jax, or damaged"),
        (lambda file: file.write_bytes(of(pid=2**80)), "is not a lock of bert-jax, or damaged"),
        (lambda file: file.write_bytes(of(pid=-1)), "is not a lock of bert-jax, or damaged"),
        (lambda file: file.write_bytes(of(machine=[])), "is not a lock of bert-jax, or damaged"),
        (lambda file: file.write_bytes(of(command={})), "is not a lock of bert-jax, or damaged"),
        (lambda file: file.mkdir(), "is a directory, not a file of bert_jax; remove it"),
        (os.mkfifo, "is a named pipe, not a file of bert_jax; remove it"),
        (lambda file: file.symlink_to("/dev/zero"), "is a link, not a file of bert_jax; remove it"),
        (hard_link, r"is one of several names of a file \(hard links\), not a file of bert_jax"),
    ],
)
def test_a_file_of_others_in_its_place(tmp_path, make, message):
    file = file_of(tmp_path / "out")
    make(file)
    with pytest.raises(UserError, match=message), locked(tmp_path / "out"):
        pass
    assert os.path.lexists(file)


def test_a_file_without_content_was_left_by_a_kill(tmp_path, quick):
    file_of(tmp_path / "out").touch()
    with locked(tmp_path / "out"):
        pass
    assert list(tmp_path.iterdir()) == []
