"""Each field of a file of a model directory is computed, carried over or refused, as listed."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from bert_jax.checkpoints.config_file import read_config, write_config
from bert_jax.errors import UserError
from bert_jax.models.config import Head
from bert_jax.models.execution import Execution
from tests.checkpoints.fields import CARRIED, COMPUTED, REFUSED, Field
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


def test_every_test_that_a_row_names_exists():
    text = "".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    named = {field.test for fields in CONFIGS.values() for field in fields.values()} - {""}
    assert {name for name in named if f"def {name}(" not in text} == set()
