"""Signals at any time: one line and exit code 75, by real processes."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the state of a process")

LINE = "bert-jax: interrupted; run the same command again"

# What the main thread does when the signal comes, in place of a verb.
PROGRAM = """
import argparse, atexit, ctypes, os, signal, sys, time
os.environ["GLIBC_TUNABLES"] = ""
from bert_jax import cli, __main__, process
from bert_jax.sharding.stopping import StopSignals
process._GRACE_SECONDS, process._TWICE_SECONDS = 0.2, 0.1

def working():
    try:
        time.sleep(30)
    finally:
        print("cleaned up")

def working_shortly():
    time.sleep(0.5)
    print("worked")

def cleaning_up_for_long():
    try:
        time.sleep(30)
    finally:
        time.sleep(30)

def in_a_library():  # no handler in Python can run before it returns
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # else it returns at once
    ctypes.CDLL(None).usleep(30_000_000)

def in_a_callback():
    class Object:
        def __del__(self):
            time.sleep(30)
    Object()
    time.sleep(30)

def in_training():
    with StopSignals() as stop:
        while not stop.requested:
            time.sleep(0.01)
    time.sleep(0.5)  # another host saves
    return 3

def after_the_last_line():
    atexit.register(time.sleep, 30)
    return 3

def with_a_late_exception():
    class Object:
        def __del__(self):
            raise KeyboardInterrupt
    objects = [Object()]
    atexit.register(objects.clear)
    return 3

def with_an_error_of_its_own():  # as in an import
    try:
        time.sleep(30)
    except KeyboardInterrupt:
        raise ValueError("a library made this of it")

def run(name):
    print("ready", flush=True)
    return globals()[name]() or 0

cli.parse = lambda words: argparse.Namespace(run=lambda options: run(words[0]), parser=None)
sys.exit(__main__.main())
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("program")
    (folder / "program.py").write_text(PROGRAM)
    return folder / "program.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "times", "output", "errors", "code"),
    [
        ("working", 1, "cleaned up\n", LINE, 75),
        ("cleaning_up_for_long", 2, "", LINE, 75),
        ("in_a_library", 1, "", LINE, 75),
        ("in_a_callback", 1, "", LINE, 75),
        ("in_training", 1, "", "", 3),
        ("after_the_last_line", 1, "", "", 3),
        ("with_a_late_exception", 0, "", "", 3),
        ("with_an_error_of_its_own", 1, "", LINE, 75),
    ],
)
def test_whatever_the_command_does(program, name, times, output, errors, code):
    process = subprocess.Popen(
        [sys.executable, program, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.05)
    for number in (signal.SIGTERM, signal.SIGINT)[:times]:
        process.send_signal(number)
        time.sleep(0.15)
    actual = process.communicate(timeout=20)
    assert actual == (output, errors and f"{errors}\n")
    assert process.returncode == code


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "name", "output", "errors", "code"),
    [
        # The process that started the tests may ignore the signal, as `nohup` does.
        (["env", "--default-signal=HUP"], "working", "cleaned up\n", f"{LINE}\n", 75),
        (["nohup"], "working_shortly", "worked\n", "", 0),
    ],
)
def test_a_closed_terminal(program, launcher, name, output, errors, code):
    """As Ctrl-C, but not for a command that `nohup` has started."""
    process = subprocess.Popen(
        [*launcher, sys.executable, program, name], stdout=subprocess.PIPE, text=True,
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.05)  # until the program waits, as above
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=20) == (output, errors)
    assert process.returncode == code


def is_handled(process):
    """Whether the handlers are there; before, the interpreter starts, and restarts once."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    (mask,) = (line.split()[1] for line in lines if line.startswith("SigCgt"))
    return int(mask, 16) >> (signal.SIGTERM - 1) & 1


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["prepare", "train"])
@pytest.mark.parametrize(
    ("delay", "signals"),
    [
        (0, [signal.SIGTERM] * 2),
        (1, [signal.SIGINT, None, signal.SIGINT]),
        (3, [signal.SIGINT]),
    ],
)
def test_a_verb_from_its_first_moment_on(train_command, tmp_path, verb, delay, signals):
    command = train_command(tmp_path / "out", {"train.steps": 100_000})
    if verb == "prepare":
        (tmp_path / "text.txt").write_text("the cat sat on the mat .\n\n" * 200_000)
        config = f"{REPOSITORY}/configs/pretrain.py:source=text:{tmp_path}/text.txt"
        command = [*command[:3], "prepare", "--config", config, "--output", tmp_path / "out"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    while not is_handled(process):
        time.sleep(0.002)
    time.sleep(delay)
    for number in signals:
        if number is None:
            time.sleep(1.2)
        else:
            process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 75, errors
    assert "Traceback" not in errors
    assert errors.count("bert-jax: ") == 1
    # It may follow a progress bar.
    assert re.search("bert-jax: (interrupted|stopped by a signal)", errors.splitlines()[-1])
