"""Output files that are complete or not there."""

import contextlib
import os
import subprocess
import sys

import pytest

from bert_jax.data.outputs import Layout, open_outputs
from bert_jax.errors import UserError


@contextlib.contextmanager
def open_lines(target):
    """Opens an output of one file."""
    with open_outputs(target, [Layout()]) as outputs:
        yield lambda text: outputs.write("", text)


def test_a_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_text("older\n")
    with open_lines(path) as write:
        write("1\n")
        write("2\n")
        assert path.read_text() == "older\n"
    assert path.read_text() == "1\n2\n"
    assert os.listdir(tmp_path) == ["out.jsonl"]


def test_after_an_error_the_older_file_stays(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_text("older\n")

    def fail(error):
        with open_lines(path) as write:
            write("1\n")
            raise error

    for error in (UserError, KeyboardInterrupt):
        with pytest.raises(error):
            fail(error)
        assert path.read_text() == "older\n"
        assert os.listdir(tmp_path) == ["out.jsonl"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "out.jsonl").write_text("older\n")
    (tmp_path / "link.jsonl").symlink_to("real/out.jsonl")
    with open_lines(tmp_path / "link.jsonl") as write:
        write("1\n")
    assert (tmp_path / "link.jsonl").is_symlink()
    assert (tmp_path / "real" / "out.jsonl").read_text() == "1\n"


def test_places_that_cannot_be_written(tmp_path):
    message = "none/out.jsonl: No such file or directory; free space or choose another path"
    with pytest.raises(UserError, match=message), open_lines(tmp_path / "none" / "out.jsonl"):
        pass
    with pytest.raises(UserError, match="Is a directory"), open_lines(tmp_path):
        pass


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux")
def test_devices_are_written_and_stay(tmp_path):
    with open_lines("/dev/null") as write:
        write("1\n")
    assert not os.path.isfile("/dev/null")
    message = "cannot write /dev/full: No space left on device"
    with pytest.raises(UserError, match=message), open_lines("/dev/full") as write:
        write("1\n")


PROGRAM = """
import sys
from bert_jax.errors import UserError
from bert_jax.data.outputs import Layout, open_outputs
try:
    with open_outputs("-", [Layout()]) as outputs:
        for number in range(100_000):
            outputs.write("", f"{number}\\n")
            if number == 0:
                sys.stdin.readline()
except UserError as error:
    sys.exit(f"bert-jax: {error}")
"""


def test_stdout_is_flushed_line_by_line_and_may_be_closed():
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        # It waits for an answer: without a flush this would wait for ever.
        assert process.stdout.readline() == "0\n"
        process.stdout.close()
        process.stdin.write("go on\n")
        process.stdin.close()
        assert process.stderr.read() == "bert-jax: stdout: its reader has stopped reading\n"
        assert process.wait() == 1


def test_a_neighbour_called_partial_is_not_touched(tmp_path):
    neighbour = tmp_path / "out.jsonl.partial"
    neighbour.write_text("precious")
    with open_lines(tmp_path / "out.jsonl") as write:
        write("1\n")
    assert neighbour.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "out.jsonl.partial"]
