"""docs/notebook.ipynb: stored without outputs, and its cells show what its text says."""

import ast
import os
import re
import shlex
from pathlib import Path

import pytest

from bert_jax import cli

ROOT = Path(__file__).parents[1]
PATH = ROOT / "docs" / "notebook.ipynb"


def read():
    nbformat = pytest.importorskip("nbformat")
    return nbformat.read(PATH, as_version=4)


def output_of(notebook, text):
    """What the only cell with this text has printed, and the types of its values."""
    (cell,) = (each for each in notebook.cells if text in each.source)
    printed = "".join(each.get("text", "") for each in cell.outputs if "name" in each)
    return printed, {kind for each in cell.outputs for kind in each.get("data", {})}


def percentages(text):
    return [int(number) for number in re.findall(r"(\d+)%", text)]


def test_it_has_no_outputs_and_its_commands_are_parsed():
    cells = [each for each in read().cells if each.cell_type == "code"]
    assert not any(each.outputs or each.execution_count for each in cells)
    calls = [
        node
        for cell in cells
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "bert_jax_command"
    ]
    lines = [call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)]
    assert len(lines) == 3
    for line in lines:
        cli.parse(shlex.split(line))


@pytest.mark.slow
def test_it_shows_what_it_says(tmp_path, optimized):
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    paths = (str(ROOT), os.environ.get("PYTHONPATH", ""))
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TMPDIR": str(tmp_path),
        "JAX_PLATFORMS": "cpu",
    }
    notebook = read()
    client = nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3")
    client.execute(env=environment, cwd=str(tmp_path))
    printed, _ = output_of(notebook, "verbs agree with their subject")
    assert min(percentages(printed)) >= 90
    printed, _ = output_of(notebook, "def mean_weights")
    heads = [map(float, re.findall(r"0\.\d\d", line)) for line in printed.splitlines()]
    assert max(subject - place for subject, place in heads) > 0.5
    printed, _ = output_of(notebook, "in training: ")
    seen, unseen = percentages(printed)
    assert seen >= 90
    assert unseen < 50
    pictures = ('report(["world"])', '["the old girls', "map_page(np", 'report(["world", "roberta"')
    for text in pictures:
        assert "text/html" in output_of(notebook, text)[1], text
