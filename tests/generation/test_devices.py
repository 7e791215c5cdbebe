"""One device and eight: the same sequences; the rows of a prompt stay on their device."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.runs import completed

pytestmark = pytest.mark.slow


def test_eight_devices():
    done = completed(
        [sys.executable, "-m", "tests.generation.compare_devices"],
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "8"},
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    for found in json.loads(done.stdout.splitlines()[-1]).values():
        assert found["devices"] == 8
        # The devices agree on whether to go on; nothing else.
        assert found["exchanges"] == ["all-reduce"]
        assert found["same"]
        assert found["close"]
        assert len(found["lengths"]) > 1
