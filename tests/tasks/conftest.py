"""Models with labels; files in which the label can be seen in the words, and their training."""

import dataclasses
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from bert_jax.config import complete_config, set_keys
from bert_jax.experiment import Experiment
from bert_jax.inference.model import LoadedModel
from bert_jax.inference.predict import predict


@pytest.fixture
def write_table(tmp_path):
    """Writes rows as a TSV and gives its path."""

    def write(name, rows, *, end="\n", start=""):
        path = tmp_path / name
        text = start + end.join("\t".join(map(str, row)) for row in rows) + end
        path.write_bytes(text.encode())
        return path

    return write


@pytest.fixture(scope="session")
def sentences():
    """Makes texts with their label: whether they are about an animal."""

    def make(count, seed=0):
        draw = random.Random(seed)
        nouns = {"animal": ["cat", "dog", "bird"], "thing": ["mat", "tree", "sea"]}
        rows = []
        for _ in range(count):
            label = draw.choice(sorted(nouns))
            state = draw.choice(["warm", "long", "low"])
            rows.append((f"the {draw.choice(nouns[label])} was {state} .", label))
        return rows

    return make


@pytest.fixture(scope="session")
def experiment(base_model):
    """The experiment of a labelled task with a few overrides, as `data__train` for `data.train`."""

    def make(task, base=base_model, **keys):
        config = complete_config({"task": task, "init_from": str(base)}, where="test")
        settings = {
            "data.length": 32,
            "train.global_batch_size": 8,
            "optimizer.learning_rate": 3e-3,
            **{key.replace("__", "."): value for key, value in keys.items()},
        }
        settings = {
            key: str(value) if isinstance(value, Path) else value for key, value in settings.items()
        }
        return Experiment.from_config(set_keys(config, settings, where="test"))

    return make


@pytest.fixture
def task(experiment):
    """The task of a table of labelled texts; keys of `data` by name."""

    def make(table, base=None, **data):
        keys = {f"data__{name}": value for name, value in data.items()}
        keys |= {"base": base} if base else {}
        return experiment("classification", data__train=table, **keys).task

    return make


@pytest.fixture
def train(experiment, tmp_path):
    """Trains such an experiment; gives the result and the work directory."""

    def run(task, workdir="run", **keys):
        directory = tmp_path / workdir
        return experiment(task, **keys).train(directory), directory

    return run


@pytest.fixture
def write_rows(tmp_path):
    """Writes rows as JSON lines and gives their path."""

    def write(name, rows):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


@pytest.fixture(scope="session")
def read_rows():
    """Reads JSON lines, from a file or a text."""

    def read(source):
        text = source if isinstance(source, str) else source.read_text()
        return [json.loads(line) for line in text.splitlines()]

    return read


@pytest.fixture(scope="session")
def assert_same():
    """Compares what was read from JSON: equal but for the rounding of floats."""

    def compare(actual, expected, *, rel, where=""):
        assert type(actual) is type(expected), where
        if isinstance(expected, dict):
            assert list(actual) == list(expected), where
            for key, value in expected.items():
                compare(actual[key], value, rel=rel, where=f"{where}/{key}")
        elif isinstance(expected, list):
            assert len(actual) == len(expected), where
            for index, pair in enumerate(zip(actual, expected, strict=True)):
                compare(*pair, rel=rel, where=f"{where}/{index}")
        elif isinstance(expected, float):
            assert actual == pytest.approx(expected, rel=rel, abs=1e-5), where
        else:
            assert actual == expected, where

    return compare


@pytest.fixture(scope="session")
def make_labelled(make_model) -> Callable[..., LoadedModel]:
    """Builds a model with labels; with `scores`, these are its scores of everything."""

    def make(
        head: str,
        labels: Sequence[str],
        scores: Sequence[float] = (),
        **description: object,
    ) -> LoadedModel:
        model = make_model(head, num_labels=len(labels))
        described = dataclasses.replace(model.description, labels=tuple(labels), **description)
        params = dict(model.params)
        if scores:
            kernel = np.zeros(params["classifier"]["kernel"].shape, np.float32)
            params["classifier"] = {"kernel": kernel, "bias": np.array(scores, np.float32)}
        return dataclasses.replace(model, description=described, params=params)

    return make


@pytest.fixture
def predict_file(tmp_path) -> Callable[..., str]:
    """Writes an input, answers it in a directory of its own, and reads the output."""

    def run(
        model: LoadedModel,
        content: str | bytes,
        name: str = "in.jsonl",
        output: str = "out.jsonl",
        task: str | None = None,
        **options: object,
    ) -> str:
        source, target = tmp_path / name, tmp_path / output
        source.write_bytes(content if isinstance(content, bytes) else content.encode())
        chosen = {"progress": False, "batch_size": 2, **options}
        predict(model, task, source, target, chosen)
        return target.read_text()

    return run


@pytest.fixture
def listing(tmp_path) -> Callable[[], set[str]]:
    """The names of the files that are there."""

    def names() -> set[str]:
        return {path.name for path in Path(tmp_path).iterdir()}

    return names
