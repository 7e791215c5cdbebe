"""Every shell script of the repository is clean."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_scripts_are_clean():
    beside = Path(sys.executable).with_name("shellcheck")
    shellcheck = str(beside) if beside.exists() else shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed; it comes with the extra [test]")
    scripts = [ROOT / ".ci" / "run"]
    for folder in ("docs", "tests", "launch"):
        scripts += (ROOT / folder).rglob("*.sh")
    assert len(scripts) > 8
    done = subprocess.run(
        [shellcheck, "--external-sources", *map(str, scripts)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
