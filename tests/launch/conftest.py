"""Scripts of launch/, run with stand-ins for the programs of a cloud on their PATH."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def programs(tmp_path) -> Path:
    """A directory of programs that stands before all others on the PATH."""
    directory = tmp_path / "programs"
    directory.mkdir()
    return directory


@pytest.fixture
def add_program(programs) -> Callable[[str, str], Path]:
    """Adds a program: Python if its text begins with `import`, else bash."""

    def add(name: str, text: str) -> Path:
        is_python = text.lstrip().startswith("import")
        interpreter = sys.executable if is_python else "/usr/bin/env bash"
        path = programs / name
        path.write_text(f"#!{interpreter}\n{text}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return add


@pytest.fixture
def environment(programs) -> dict[str, str]:
    """The environment of a script: the usual programs only, without a cloud's."""
    usual = programs.parent / "usual"
    usual.mkdir()
    for name in ("bash", "env", "basename", "dirname", "sed", "tail", "cat", "mktemp", "mkdir",
                 "git", "tar", "gzip", "sleep", "touch", "rm", "mv", "hostname", "nohup", "setsid",
                 "cksum", "date"):  # fmt: skip
        for folder in os.environ["PATH"].split(os.pathsep):
            if (found := Path(folder, name)).exists():
                (usual / name).symlink_to(found)
                break
    (usual / "python3").symlink_to(sys.executable)
    return {"PATH": f"{programs}:{usual}", "HOME": str(programs.parent), "POLL_SECONDS": "0.1"}


@pytest.fixture
def run_script(environment) -> Run:
    """Runs `launch/NAME ARGUMENTS…` to its end."""

    def run(
        name: str, *arguments: str, extra: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(ROOT / "launch" / name), *arguments],
            env=environment | dict(extra or {}),
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def refused(run_script) -> Callable[..., str]:
    """Runs a script that must refuse: exit code 2 and one line, which is returned."""

    def run(name: str, *arguments: str) -> str:
        done = run_script(name, *arguments)
        assert done.returncode == 2, (done.stdout, done.stderr)
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert done.stdout == ""
        return done.stderr.strip()

    return run
