"""How a process of `bert-jax` begins."""

import os
import subprocess
import sys

import pytest

from bert_jax import __main__ as entry
from tests.runs import completed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is asked for on Linux")

# What the process that does the work was given.
PROGRAM = """
import os, sys
from bert_jax import cli
cli.main = lambda: print(os.environ["GLIBC_TUNABLES"], sys.flags.utf8_mode, sys.argv[1:]) or 3
from bert_jax.__main__ import main
sys.exit(main())
"""


TUNABLES = (
    "glibc.malloc.hugetlb=1"
    ":glibc.malloc.mmap_threshold=68719476736"
    ":glibc.malloc.trim_threshold=68719476736"
)


@pytest.mark.parametrize(("own", "expected"), [(None, TUNABLES), ("glibc.malloc.check=0",) * 2])
def test_the_process_has_its_memory_its_arguments_and_its_options(own, expected, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    done = completed(
        [sys.executable, "-X", "utf8", str(program), "train", "a b"],
        env=environment | ({} if own is None else {"GLIBC_TUNABLES": own}),
    )
    assert done.returncode == 3, done.stderr
    assert done.stdout == f"{expected} 1 ['train', 'a b']\n"


def test_a_process_begins_anew_once(monkeypatch):
    begun = []
    monkeypatch.setattr(os, "execv", lambda *words: begun.append(words))
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    for _ in range(2):
        entry._tune_memory()
    assert len(begun) == 1
    program, words = begun[0]
    assert program == words[0] == sys.executable


@pytest.mark.slow
def test_without_a_home_directory_nothing_is_said_about_pictures(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import argparse\n"
        "from bert_jax import cli\n"
        "def run(options):\n"
        "    from matplotlib.figure import Figure\n"
        "    Figure().savefig('a.png')\n"
        "    return 0\n"
        "cli.parse = lambda words: argparse.Namespace(run=run, parser=None)\n"
        "cli.main([])\n"
    )
    hidden = ("MPLCONFIGDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = completed(
        [sys.executable, str(program)], env=environment | {"HOME": "/proc/none"}, cwd=tmp_path
    )
    assert (tmp_path / "a.png").is_file(), done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_command_without_standard_streams(tmp_path, streams):
    program = tmp_path / "program.py"
    program.write_text(WITHOUT_STREAMS)
    done = subprocess.run(["bash", "-c", f"{sys.executable} {program} {streams}"], check=False)
    assert done.returncode == 3
    assert (tmp_path / "file").read_text() == "content"


WITHOUT_STREAMS = """
import os, pathlib, sys
from bert_jax import cli, __main__

def work():
    with (pathlib.Path(__file__).parent / "file").open("w") as file:
        assert file.fileno() > 2  # else libraries would write to it
        for stream in (sys.stderr, sys.__stderr__):
            print("lost", file=stream, flush=True)
            stream.write("x" * 100_000)
        file.write("content")
    return 3

cli.main = work
sys.exit(__main__.main())
"""
