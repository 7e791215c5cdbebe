"""Predictions that are killed again and again end with the same bytes as without a kill."""

import random
import subprocess
import sys
import time

import pytest

# The command, which records every 0.1 s how far it is.
COMMAND = """
import sys
from bert_jax import cli
from bert_jax.files import journal
journal.RECORD_SECONDS = 0.1
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.fixture
def start(make_model, tmp_path):
    """Starts the prediction of the answers to 4,000 questions."""

    def run(name):
        directory = tmp_path / "model"
        if not directory.exists():
            make_model("question_answering").save(directory)
            draw = random.Random(0)
            with (tmp_path / "in.jsonl").open("w") as file:
                for number in range(4_000):
                    words = "the cat sat on the mat . " * draw.randrange(1, 4)
                    file.write(f'{{"id": "{number}", "text": "{words}", "question": "the dog"}}\n')
        arguments = ["predict", "--model", directory, "--input", tmp_path / "in.jsonl"]
        arguments += ["--output", tmp_path / name, "--batch-size", "8"]
        arguments += ["--passage-column", "text", "--null-threshold", "0"]
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, *map(str, arguments)], stderr=subprocess.PIPE, text=True
        )

    return run


def contents(tmp_path, name):
    return {
        path.name.replace("killed", "whole"): path.read_bytes()
        for path in tmp_path.iterdir()
        if path.name.endswith(name)
    }


@pytest.mark.slow
def test_killed_again_and_again(start, tmp_path):
    whole, killed, draw = "whole.json", "killed.json", random.Random(0)
    process = start(whole)
    assert process.wait() == 0, process.stderr.read()
    expected = contents(tmp_path, whole)
    partial, size = tmp_path / f"{killed}.partial", len(expected[whole])
    for share in sorted(draw.uniform(0.1, 1) for _ in range(3)):
        process = start(killed)
        unfinished = partial / killed
        while not unfinished.exists() or unfinished.stat().st_size < share * size:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
        process.communicate()
    process = start(killed)
    errors = process.communicate()[1]
    assert process.returncode == 0, errors
    assert "continuing after" in errors
    assert len(expected) == 3
    assert contents(tmp_path, killed) == expected
    assert not partial.exists()
