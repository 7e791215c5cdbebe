"""Each field of a file of a model directory is computed, carried over or refused, as listed."""

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bert_jax.checkpoints.config_file import read_config, write_config
from bert_jax.checkpoints.sentence_transformers import read_vectors
from bert_jax.checkpoints.sentence_transformers import vector_files as files_of_vectors
from bert_jax.errors import UserError
from bert_jax.models.config import Head
from bert_jax.models.execution import Execution
from bert_jax.models.text_vectors import TextVectors
from tests.checkpoints.fields import CARRIED, COMPUTED, REFUSED, Field, refused, vector_files
from tests.checkpoints.fields.config_json import CONFIGS, MINIMAL_CONFIGS

TESTS = Path(__file__).parents[1]


def in_config(path: Path, model_type: str, key: str, field: Field) -> str:
    """What happens to a field of `config.json`."""
    fields = {"model_type": model_type, **MINIMAL_CONFIGS[model_type]}
    path.write_text(json.dumps(fields))
    before = read_config(path)
    path.write_text(json.dumps(fields | {key: field.value}))
    try:
        described = read_config(path)
        for head in described.family.class_names:
            dataclasses.replace(described, head=head).make_module(Execution())
    except UserError as error:
        return REFUSED if re.search(rf"config.json: {key} is ", str(error)) else str(error)
    write_config(path, dataclasses.replace(described, head=Head.ENCODER))
    assert read_config(path).config == described.config
    if described.config == before.config:
        return CARRIED if json.loads(path.read_text()).get(key) == field.value else "dropped"
    name, shown = field.shows
    return COMPUTED if getattr(described.config, name) == shown else "computed otherwise"


@pytest.mark.parametrize("model_type", CONFIGS)
def test_fields_of_config_json(tmp_path, model_type):
    rows = {key: field for key, field in CONFIGS[model_type].items() if not field.test}
    found = {
        key: in_config(tmp_path / "config.json", model_type, key, field)
        for key, field in rows.items()
    }
    assert found == {key: field.outcome for key, field in rows.items()}


def changed(content: Any, path: str, value: Any) -> Any:
    """A copy of the content of a JSON file with another value at a path such as "0.name"."""
    key, _, rest = path.partition(".")
    step = int(key) if isinstance(content, list) else key
    inner = content[step] if isinstance(content, list) else content.get(step, {})
    new = changed(inner, rest, value) if rest else value
    if isinstance(content, list):
        return [new if number == step else entry for number, entry in enumerate(content)]
    return {**content, step: new}


def at(content: Any, path: str) -> Any:
    """The value at a path; None if there is none."""
    for key in path.split("."):
        if isinstance(content, list):
            content = content[int(key)]
        else:
            content = content.get(key) if isinstance(content, dict) else None
    return content


def of_vectors(directory: Path, name: str, path: str, field: Field) -> str:
    """What happens to a field of a file of sentence-transformers."""

    def read(files: Mapping[str, Any]) -> TextVectors:
        for file, content in files.items():
            (directory / file).parent.mkdir(exist_ok=True)
            (directory / file).write_text(json.dumps(content))
        return read_vectors(directory)

    before = read(vector_files.FILES)
    found = read({**vector_files.FILES, name: changed(vector_files.FILES[name], path, field.value)})
    if found.unsupported:
        named = path.rpartition(".")[2], str(field.value)
        is_named = name in found.unsupported and any(word in found.unsupported for word in named)
        return REFUSED if is_named else found.unsupported
    written = files_of_vectors(found, 16)
    kept = at(json.loads(written[name]), path) == field.value
    if dataclasses.replace(found, other=before.other) == before:
        return CARRIED if kept else "dropped"
    observable, shown = field.shows
    return COMPUTED if getattr(found, observable) == shown and kept else "computed otherwise"


@pytest.mark.parametrize("name", vector_files.VECTORS)
def test_fields_of_sentence_transformers(tmp_path, name):
    rows = {path: field for path, field in vector_files.VECTORS[name].items() if not field.test}
    found = {path: of_vectors(tmp_path, name, path, field) for path, field in rows.items()}
    assert found == {path: field.outcome for path, field in rows.items()}


@pytest.mark.parametrize("name", sorted(vector_files.REFUSED_MODULES))
def test_modules_of_sentence_transformers(tmp_path, name):
    field = refused(f"sentence_transformers.models.{name}")
    for number in range(3):
        path = f"{number}.type"
        assert of_vectors(tmp_path, vector_files.MODULES, path, field) == REFUSED


def test_every_test_that_a_row_names_exists():
    text = "".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    lists = [*CONFIGS.values(), *vector_files.VECTORS.values()]
    named = {field.test for fields in lists for field in fields.values()} - {""}
    assert {name for name in named if f"def {name}(" not in text} == set()
