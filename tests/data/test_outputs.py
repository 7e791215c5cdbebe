"""Output files that are complete or missing; files that a later call continues; JSON records."""

import contextlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_strategies

from bert_jax.data.outputs import Layout, float32_repr, open_outputs, resumable_outputs, to_json
from bert_jax.errors import UserError
from bert_jax.files.journal import checksum

OBJECT = Layout(head="{", separator=", ", tail="}\n", empty="{}\n")
LIST = Layout("odds", head="[", separator=", ", tail="]\n", empty=None)
ROWS = ["one", "two", "three", "four", "five", "six"]


@contextlib.contextmanager
def open_lines(target):
    """Opens an output of one file."""
    with open_outputs(target, [Layout()]) as outputs:
        yield lambda text: outputs.write("", text)


def test_a_file_appears_when_it_is_whole_and_an_older_one_stays_after_an_error(tmp_path):
    (tmp_path / "real").mkdir()
    path, neighbour = tmp_path / "real" / "out.jsonl", tmp_path / "real" / "out.jsonl.partial"
    path.write_text("older\n")
    neighbour.write_text("precious")
    (tmp_path / "link.jsonl").symlink_to("real/out.jsonl")

    def fail(error):
        with open_lines(path) as write:
            write("1\n")
            raise error

    for error in (UserError, KeyboardInterrupt):
        with pytest.raises(error):
            fail(error)
        assert path.read_text() == "older\n"
    with open_lines(tmp_path / "link.jsonl") as write:
        write("1\n")
        write("2\n")
        assert path.read_text() == "older\n"
    assert path.read_text() == "1\n2\n"
    assert (tmp_path / "link.jsonl").is_symlink()
    assert neighbour.read_text() == "precious"
    assert sorted(os.listdir(tmp_path / "real")) == ["out.jsonl", "out.jsonl.partial"]


def test_a_row_for_a_pipe_is_there_at_once(monkeypatch):
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    with open(reader, "rb"), open(writer, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        with open_lines("-") as write:
            write("1\n")
            assert os.read(reader, 10) == b"1\n"


def test_paths_that_cannot_be_written(tmp_path):
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


def write_rows(target, stop=6, killed=False, request="a", rows=ROWS, mark_every=2):
    """Writes rows from where an earlier call ended; stops before row `stop`."""
    with resumable_outputs(target, [OBJECT, LIST], lambda: {"request": request}) as outputs:
        begun = outputs.rows
        for number in range(begun, len(rows)):
            if number == stop:
                if killed:  # nothing is recorded any more
                    outputs._journal.keep = lambda: "everything"
                raise KeyboardInterrupt
            outputs.write("", rows[number])
            if number >= 3:
                outputs.write("odds", str(number))
            if (number + 1) % mark_every == 0:
                outputs.mark(number + 1, f"digest {number + 1}")
    return begun


@pytest.mark.parametrize("killed", [False, True])
def test_an_output_is_continued_after_any_row(tmp_path, monkeypatch, killed):
    # With 0 seconds between records, each mark is one; a kill then loses the rows after it.
    monkeypatch.setattr("bert_jax.files.journal.RECORD_SECONDS", 0.0)
    for stops in [(0, 1), (1, 5), (2, 2), (3, 4), (5, 5)]:
        target = tmp_path / "out"
        for stop in stops:
            if stop >= 2 * (stops[0] // 2):  # the second call does not begin before the first ended
                with pytest.raises(KeyboardInterrupt):
                    write_rows(target, stop, killed)
                assert not target.exists()
                assert (tmp_path / "out.partial").exists() == (killed or max(stops[0], stop) >= 2)
        assert write_rows(target) == 2 * (max(stops) // 2)
        assert target.read_text() == "{one, two, three, four, five, six}\n"
        assert (tmp_path / "odds_out").read_text() == "[3, 4, 5]\n"
        assert sorted(os.listdir(tmp_path)) == ["bert_jax.json", "odds_out", "out"]
        target.unlink()
        (tmp_path / "odds_out").unlink()
    assert write_rows(target, rows=[]) == 0
    assert sorted(os.listdir(tmp_path)) == ["bert_jax.json", "out"]
    assert target.read_text() == "{}\n"


def test_a_record_without_files_has_no_rows(tmp_path):
    target = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        write_rows(target, 4)
    path = tmp_path / "out.partial" / ".record.json"
    record = {**json.loads(path.read_text()), "files": {}}
    del record["checksum"]
    path.write_text(json.dumps({**record, "checksum": checksum(record)}))
    assert write_rows(target) == 0
    assert target.read_text() == "{one, two, three, four, five, six}\n"


def test_only_files_of_earlier_calls_are_replaced(tmp_path):
    target = tmp_path / "out"
    write_rows(target, rows=["one"])
    write_rows(target)  # ours
    listed = json.loads((tmp_path / "bert_jax.json").read_text())["files"]
    assert sorted(listed) == ["odds_out", "out"]
    assert listed["out"][0].startswith("35:")

    for path, content, problem in [
        (target, "{mine}", "was changed since bert_jax wrote it; move it away"),
        (tmp_path / "odds_new", "mine", "was not written by bert_jax"),
    ]:
        path.write_text(content)
        before = {other.name: other.read_bytes() for other in tmp_path.iterdir()}
        with pytest.raises(UserError, match=f"{path.name} {problem}"):
            write_rows(tmp_path / path.name.removeprefix("odds_"))
        assert {other.name: other.read_bytes() for other in tmp_path.iterdir()} == before
    target.write_text("")  # nothing is lost
    write_rows(target)

    # A file that appears while rows are written is kept, and so are the rows.
    target = tmp_path / "late"

    class Rows(list):
        def __getitem__(self, number):
            if number == 3:
                target.write_text("mine")
            return super().__getitem__(number)

    with pytest.raises(UserError, match="late was not written by bert_jax"):
        write_rows(target, rows=Rows(ROWS))
    assert target.read_text() == "mine"
    target.unlink()
    assert write_rows(target) == 6
    assert target.read_text() == "{one, two, three, four, five, six}\n"


def test_an_output_of_a_pipe_is_not_continued(tmp_path):
    def write(rows):
        with resumable_outputs(tmp_path / "out", [OBJECT, LIST], None) as outputs:
            for row in rows:
                if row == "stop":
                    raise KeyboardInterrupt
                outputs.write("", row)
                outputs.mark(1, "digest")

    with pytest.raises(KeyboardInterrupt):
        write(["one", "stop"])
    assert os.listdir(tmp_path) == []
    write(["one"])
    assert (tmp_path / "out").read_text() == "{one}\n"
    with pytest.raises(KeyboardInterrupt):
        write_rows(tmp_path / "out", 4)
    with pytest.raises(UserError, match="4 predictions of another request .other input."):
        write(["one"])


def test_an_output_has_one_writer(tmp_path):
    message = r"out.partial is being written by process \d+ on .*; wait for it"
    with (
        resumable_outputs(tmp_path / "out", [OBJECT], dict),
        pytest.raises(UserError, match=message),
    ):
        write_rows(tmp_path / "out")
    assert (tmp_path / "out").read_text() == "{}\n"


def test_a_record_by_hand():
    record = {
        "id": "é",
        "scores": np.array([[0.1, 1.0], [-1e-12, 3e20]], np.float32),
        "tokens": ["[CLS]", '"'],
        "none": None,
        "empty": np.zeros((2, 0), np.float32),
    }
    assert to_json(record) == (
        '{"id": "é", "scores": [[0.1, 1.0], [-1e-12, 3e+20]], "tokens": ["[CLS]", "\\""], '
        '"none": null, "empty": [[], []]}'
    )
    assert to_json({}) == "{}"
    rows = ({"row": row} for row in np.float32([[0.1, 1], [2, 0.3]]))
    assert to_json([rows, (None, "a")]) == (
        '[[{"row": [0.1, 1.0]}, {"row": [2.0, 0.3]}], [null, "a"]]'
    )
    assert str(float32_repr(float(np.float32(0.1)))) == "0.1"
    for number in (np.nan, np.inf):
        with pytest.raises(UserError, match="'vector' is not finite"):
            to_json({"vector": np.array([1.0, number], np.float32)})


@given(
    numpy_strategies.arrays(
        np.float32,
        numpy_strategies.array_shapes(min_dims=1, max_dims=3, max_side=4),
        elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
    )
)
def test_every_float32_reads_back_as_itself(array):
    read = json.loads(to_json({"array": array}))["array"]
    np.testing.assert_array_equal(np.array(read, np.float32), array)
    for number in array.ravel():
        assert np.float32(float32_repr(float(number))) == number
        digits, all_digits = (
            str(decimal).replace(".", "").strip("0")
            for decimal in (float32_repr(float(number)), float(number))
        )
        assert len(digits) <= len(all_digits)
