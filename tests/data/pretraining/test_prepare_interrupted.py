"""Real processes that are killed or run out of space, then run again."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.corpora import directory_bytes

SCRIPT = """
import resource
import sys
from bert_jax.data.pretraining.options import PrepareOptions, VocabularyOptions
from bert_jax.data.pretraining.preparation.prepare import prepare
from bert_jax.data.pretraining.sources import source_specs
from bert_jax.errors import UserError

if __name__ == "__main__":
    text, output, workers, *file_size = sys.argv[1:]
    for limit in map(int, file_size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    options = PrepareOptions(
        source_specs(["text:" + text, "text:" + text], {"format": "lines"}),
        vocabulary=VocabularyOptions(vocab_size=300),
        validation_fraction=0.05,
    )
    try:
        prepare(options, output, workers=int(workers), progress=False, batch_characters=2000)
    except UserError as error:
        print(error)
        sys.exit(2)
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A script that prepares, a text of 0.6 MB, and the corpus of an undisturbed run.

    With a shorter text, a run on a busy machine ended before the test killed it.
    """
    folder = tmp_path_factory.mktemp("interrupted")
    (folder / "script.py").write_text(SCRIPT)
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(1, 9))) for _ in range(2000)]
    sentences = (" ".join(draw.choices(words, k=12)).capitalize() + "." for _ in range(8_400))
    lines = [" ".join(sentence) for sentence in zip(*[sentences] * 7, strict=True)]
    (folder / "text.txt").write_text("\n".join(lines))
    assert run(folder, folder / "undisturbed", workers=1).wait() == 0
    return folder


def run(
    work: Path, output: Path, *file_size: str, workers: int = 2, **options
) -> subprocess.Popen[str]:
    command = [sys.executable, work / "script.py", work / "text.txt", output, str(workers)]
    command += file_size
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, **options)


def written_batches(output: Path) -> int:
    return len(list(output.with_name(output.name + ".partial").glob("*/*.npz")))


def children(process) -> list[int]:
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return list(map(int, path.read_text().split()))


def is_running(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(") ")[2][0]
    except FileNotFoundError:
        return False
    return state != "Z"  # a zombie has ended, but its parent has not read the status


def wait_until(condition):
    while not condition():
        time.sleep(0.005)


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_goes_on_to_the_same_bytes(work, tmp_path, signal_number):
    output = tmp_path / "corpus"
    for least in (20, 80):  # killed, continued, killed again
        process = run(work, output, stderr=subprocess.DEVNULL)
        wait_until(lambda least=least: written_batches(output) >= least)
        workers = children(process)
        process.send_signal(signal_number)
        assert process.wait() != 0
        assert not output.exists()
        assert len(workers) >= 2
        wait_until(lambda workers=workers: not any(map(is_running, workers)))
    done = written_batches(output)
    assert run(work, output, workers=1).wait() == 0
    assert done >= 80
    assert directory_bytes(output) == directory_bytes(work / "undisturbed")
    assert not output.with_name("corpus.partial").exists()


@pytest.mark.slow
def test_a_full_disk_is_said_and_the_work_kept(work, tmp_path):
    output = tmp_path / "corpus"
    # The process sets it itself: Python code between fork and exec may hang among JAX's threads.
    process = run(work, output, "60001", stderr=subprocess.PIPE)
    message, errors = process.communicate()
    assert process.returncode == 2
    assert errors == ""
    assert message.startswith(f"cannot write {output}.partial")
    assert message.count("\n") == 1
    assert "File too large; free space" in message
    assert not output.exists()
    assert written_batches(output) > 10
    assert run(work, output).wait() == 0
    assert directory_bytes(output) == directory_bytes(work / "undisturbed")


@pytest.mark.slow
def test_a_worker_that_is_killed_does_not_hang_the_run(work, tmp_path):
    output = tmp_path / "corpus"
    process = run(work, output, stderr=subprocess.PIPE)
    wait_until(lambda: written_batches(output) >= 20)
    command = (Path(f"/proc/{pid}/cmdline") for pid in children(process))
    worker = next(path for path in command if b"spawn_main" in path.read_bytes())
    os.kill(int(worker.parent.name), signal.SIGKILL)
    message, errors = process.communicate()
    assert process.returncode == 2
    assert errors == ""
    assert message.startswith("a worker process was killed (out of memory?)")
    assert run(work, output).wait() == 0
    assert directory_bytes(output) == directory_bytes(work / "undisturbed")
