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
process._GRACE_SECONDS, process._TWICE_SECONDS = float(sys.argv[2]), 0.1

def wait():
    print("ready", flush=True)
    time.sleep(600)

def working():
    try:
        wait()
    finally:
        print("cleaned up")

def working_shortly():
    print("ready", flush=True)
    time.sleep(0.5)
    print("worked")

def cleaning_up_for_long():
    try:
        wait()
    finally:
        time.sleep(600)

def in_a_library():  # no handler in Python can run before it returns
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # else it returns at once
    print("ready", flush=True)
    ctypes.CDLL(None).usleep(600_000_000)

def in_a_callback():
    class Object:
        def __del__(self):
            wait()
    Object()
    time.sleep(600)

def in_training():
    with StopSignals() as stop:
        print("ready", flush=True)
        while not stop.requested:
            time.sleep(0.01)
    time.sleep(0.5)  # another host saves
    return 3

def after_the_last_line():
    atexit.register(wait)
    return 3

def with_a_late_exception():
    class Object:
        def __del__(self):
            raise KeyboardInterrupt
    print("ready", flush=True)
    objects = [Object()]
    atexit.register(objects.clear)
    return 3

def with_an_error_of_its_own():  # as in an import
    try:
        wait()
    except KeyboardInterrupt:
        raise ValueError("a library made this of it")

def in_an_import():  # of a library that would print the exception and go on
    with open(os.path.join(os.path.dirname(__file__), "library.py"), "w") as file:
        file.write("from __main__ import wait\\nwait()\\n")
    try:
        import library
    except KeyboardInterrupt as error:
        print("printed by the library")
    time.sleep(600)

def run(name):
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
    ("name", "grace", "times", "output", "errors", "code"),
    [
        ("working", 60, 1, "cleaned up\n", LINE, 75),
        ("cleaning_up_for_long", 60, 2, "", LINE, 75),
        ("in_a_library", 0.2, 1, "", LINE, 75),
        ("in_an_import", 60, 1, "", LINE, 75),
        ("in_a_callback", 60, 1, "", LINE, 75),
        ("in_training", 0.2, 1, "", "", 3),
        ("after_the_last_line", 0.2, 1, "", "", 3),
        ("with_a_late_exception", 60, 0, "", "", 3),
        ("with_an_error_of_its_own", 60, 1, "", LINE, 75),
    ],
)
def test_whatever_the_command_does(program, name, grace, times, output, errors, code):
    process = subprocess.Popen(
        [sys.executable, program, name, str(grace)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    for number in (signal.SIGTERM, signal.SIGINT)[:times]:
        process.send_signal(number)
        time.sleep(0.15)
    actual = process.communicate()
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
        [*launcher, sys.executable, program, name, "60"], stdout=subprocess.PIPE, text=True,
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGHUP)
    assert process.communicate() == (output, errors)
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
    _, errors = process.communicate()
    assert process.returncode == 75, errors
    assert "Traceback" not in errors
    assert errors.count("bert-jax: ") == 1
    # It may follow a progress bar.
    assert re.search("bert-jax: (interrupted|stopped by a signal)", errors.splitlines()[-1])
