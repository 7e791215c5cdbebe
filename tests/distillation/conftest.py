"""Finished teachers of every task, and the data that they were made for."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest

from bert_jax.checkpoints import model_directory
from bert_jax.config import complete_config, set_keys
from bert_jax.experiment import Experiment
from bert_jax.models.encoder import init_params
from bert_jax.tasks.base.task import Task
from tests.distillation.rows import ROWS


@pytest.fixture(scope="session")
def experiment_of(base_model, tmp_path_factory) -> Callable[..., Experiment]:
    """An experiment that trains the small encoder for a task; keys are dotted.

    Keywords are keys of section `distillation`.
    """
    folder = tmp_path_factory.mktemp("data")

    def make(name: str, keys: dict[str, Any] | None = None, **distillation: Any) -> Experiment:
        task, data, rows = ROWS[name]
        file = folder / f"{name}.jsonl"
        numbered = [row | {"id": str(number)} for number, row in enumerate(rows)]
        file.write_text("".join(json.dumps(row) + "\n" for row in numbered))
        config = complete_config(
            {
                "task": task,
                "init_from": str(base_model),
                "precision": "float32",
                "model": {"pad_vocab_to_multiple_of": 8},
                "data": {"train": str(file), "validation": (str(file),), "length": 16, **data},
                "train": {"steps": 4, "global_batch_size": 4, "log_every": 1},
            },
            where="test",
        )
        named = {f"distillation.{key}": value for key, value in distillation.items()}
        return Experiment.from_config(set_keys(config, {**(keys or {}), **named}, where="test"))

    return make


@pytest.fixture(scope="session")
def teacher_of(experiment_of, tmp_path_factory) -> Callable[[str], Path]:
    """The directory of a teacher of a task, whose weights are random; each is made once."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            task: Task = experiment_of(name).task
            params = jax.jit(lambda key: init_params(task.module, key))(jax.random.key(7))
            # Larger than as training begins: so that scores differ.
            params = jax.tree.map(lambda leaf: leaf * 20 if leaf.ndim > 1 else leaf, params)
            if name == "pairs":
                params = params["bert"]
            made[name] = tmp_path_factory.mktemp("teacher") / "model"
            model_directory.save(made[name], task.description, params, task.tokenizer)
        return made[name]

    return make
