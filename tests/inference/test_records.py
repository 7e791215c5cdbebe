"""Records as JSON lines, and files that are whole or not there."""

import contextlib
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_strategies

from bert_jax.data.records import open_output, shortest, to_json
from bert_jax.errors import UserError


@contextlib.contextmanager
def open_records(target):
    """Opens an output of JSON lines."""
    with open_output(target) as output:
        yield SimpleNamespace(write=lambda record: output.write(to_json(record) + "\n"))


def test_a_record_by_hand():
    record = {
        "id": "é",
        "scores": np.array([[0.1, 1.0], [-1e-12, 3e20]], np.float32),
        "tokens": ["[CLS]", '"'],
        "none": None,
    }
    assert to_json(record) == (
        '{"id": "é", "scores": [[0.1, 1.0], [-1e-12, 3e+20]], "tokens": ["[CLS]", "\\""], '
        '"none": null}'
    )
    assert to_json({}) == "{}"
    assert to_json({"empty": np.zeros((2, 0), np.float32)}) == '{"empty": [[], []]}'


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
        assert np.float32(shortest(float(number))) == number
        digits, all_digits = (
            str(one).replace(".", "").strip("0") for one in (shortest(float(number)), float(number))
        )
        assert len(digits) <= len(all_digits)


def test_the_shortest_decimal():
    assert str(float(np.float32(0.1))) == "0.10000000149011612"
    assert str(shortest(float(np.float32(0.1)))) == "0.1"


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_that_json_cannot_say(number):
    with pytest.raises(UserError, match="'vector' is not finite"):
        to_json({"vector": np.array([1.0, number], np.float32)})


def test_a_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_text("older\n")
    with open_records(path) as records:
        records.write({"a": 1})
        records.write({"a": 2})
        assert path.read_text() == "older\n"
    assert path.read_text() == '{"a": 1}\n{"a": 2}\n'
    assert os.listdir(tmp_path) == ["out.jsonl"]


def test_after_an_error_the_older_file_stays(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_text("older\n")

    def fail(error):
        with open_records(path) as records:
            records.write({"a": 1})
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
    with open_records(tmp_path / "link.jsonl") as records:
        records.write({})
    assert (tmp_path / "link.jsonl").is_symlink()
    assert (tmp_path / "real" / "out.jsonl").read_text() == "{}\n"


def test_places_that_cannot_be_written(tmp_path):
    message = "none/out.jsonl: No such file or directory; free space or choose another place"
    with pytest.raises(UserError, match=message), open_records(tmp_path / "none" / "out.jsonl"):
        pass
    with pytest.raises(UserError, match="Is a directory"), open_records(tmp_path):
        pass


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux")
def test_devices_are_written_and_stay(tmp_path):
    with open_records("/dev/null") as records:
        records.write({"a": 1})
    assert not os.path.isfile("/dev/null")
    message = "cannot write /dev/full: No space left on device"
    with pytest.raises(UserError, match=message), open_records("/dev/full") as records:
        records.write({"a": 1})


PROGRAM = """
import sys
from bert_jax.errors import UserError
from bert_jax.data.records import open_output, to_json
try:
    with open_output("-") as output:
        for number in range(100_000):
            output.write(to_json({"number": number}) + "\\n")
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
        assert process.stdout.readline() == '{"number": 0}\n'
        process.stdout.close()
        process.stdin.write("go on\n")
        process.stdin.close()
        assert process.stderr.read() == "bert-jax: stdout: its reader has stopped reading\n"
        assert process.wait() == 1


def test_a_neighbour_called_partial_is_not_touched(tmp_path):
    neighbour = tmp_path / "out.jsonl.partial"
    neighbour.write_text("precious")
    with open_records(tmp_path / "out.jsonl") as records:
        records.write({"a": 1})
    assert neighbour.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "out.jsonl.partial"]
