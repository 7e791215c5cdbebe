"""The house of DESIGN.md: who may import whom, and how long a file may be."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "bert_jax"

# An import goes to a lower floor, or stays inside its own folder.
FLOORS = {
    "errors": -1,  # the cellar: everybody raises it
    "parameter_names": 0,
    "options": 0,
    "files": 0,
    "processor": 0,
    "models": 1,
    "tokenization": 1,
    "sharding": 1,
    "metrics": 1,
    "data": 2,
    "checkpoints": 2,
    "training": 3,
    "inference": 4,
    "planning": 4,
    "finetuning": 5,
    "parity": 5,
    "benchmarks": 5,
    "tasks": 6,
    "config": 7,
    "foundation": 7,
    "run_directory": 7,
    "costs": 7,
    "experiment": 7,
    "runs_report": 7,
    "several_runs": 7,
    "cli": 7,
    "__init__": 7,
    "__main__": 7,
}
# The door to TensorFlow stands in `data/`; its checkpoints are read and written through it.
THROUGH_A_DOOR = {
    "checkpoints/tensors/tensorflow_checkpoint.py": {"data"},
}
# What is foreign to the house, and the one room that may have it.
PERMITTED = {
    "parity/reference.py": {"torch", "transformers"},
}
# The top floor is one room.
TOP = 7

FILES = sorted(PACKAGE.rglob("*.py"))


def part_of(module: str) -> str:
    """The folder or file of the package that a module belongs to, as in `FLOORS`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imports_of(path: Path) -> set[str]:
    """Every module that a file imports, anywhere in it, `from a import b` as a and as a.b."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def own_imports(path: Path) -> set[str]:
    """The parts of the package that a file imports."""
    modules = {name for name in imports_of(path) if name.split(".")[0] == "bert_jax"}
    # `from bert_jax import experiment` is also an import of `bert_jax`, which says nothing.
    return {part_of(name) for name in modules if name != "bert_jax" and part_of(name) in FLOORS}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_go_down_or_stay_in_the_folder(path):
    own = path.relative_to(PACKAGE).with_suffix("").parts[0]
    for other in own_imports(path) - THROUGH_A_DOOR.get(name_of(path), set()):
        allowed = FLOORS[other] < FLOORS[own] or other == own or FLOORS[own] == TOP
        assert allowed, f"{own} (floor {FLOORS[own]}) imports {other} (floor {FLOORS[other]})"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_tensorflow_stays_under_data_and_pytorch_outside(path):
    roots = {name.split(".")[0] for name in imports_of(path)}
    foreign = {"torch", "transformers", "pickle", "dill", "cloudpickle"}
    assert roots & foreign <= PERMITTED.get(name_of(path), set())
    if path.relative_to(PACKAGE).parts[0] != "data":
        assert not roots & {"tensorflow", "tensorflow_datasets", "tensorflow_text"}
    assert "tests" not in roots


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def test_every_file_stands_on_a_floor():
    assert {path.relative_to(PACKAGE).with_suffix("").parts[0] for path in FILES} <= set(FLOORS)


def test_no_import_leads_back_to_its_file():
    graph = {
        ".".join(("bert_jax", *path.relative_to(PACKAGE).with_suffix("").parts)): imports_of(path)
        for path in FILES
    }
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " → ".join((*trail, module))
        if module in done:
            return
        for other in sorted(graph[module] & set(graph)):
            visit(other, (*trail, module))
        done.add(module)

    for module in graph:
        visit(module, ())


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_path_of_some_machine_and_nothing_left_to_do(path):
    text = path.read_text(encoding="utf-8")
    assert "/work/" not in text
    assert "/root/" not in text
    assert "TODO" not in text
    assert "FIXME" not in text


def test_the_test_itself_sees_a_wrong_import(tmp_path):
    wrong = tmp_path / "layers.py"
    wrong.write_text(
        "def f():\n    from bert_jax.training.loop import train\n    import tensorflow as tf\n"
    )
    assert own_imports(wrong) == {"training"}
    assert "tensorflow" in imports_of(wrong)
