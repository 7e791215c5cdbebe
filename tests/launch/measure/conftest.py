"""Scripts of launch/measure/, imported as when they run."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def script(monkeypatch):
    """Imports a script beside its neighbours."""
    monkeypatch.syspath_prepend(str(ROOT / "launch" / "measure"))
    return importlib.import_module
