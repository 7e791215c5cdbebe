"""Models with labels, and a call that answers a file."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from bert_jax.inference.model import LoadedModel
from bert_jax.inference.predict import predict
from bert_jax.models.config import Head
from bert_jax.tasks.base.predict_task import PredictOptions


@pytest.fixture(scope="session")
def make_labelled(make_model) -> Callable[..., LoadedModel]:
    """Builds a model with labels; with `scores`, these are its scores of everything."""

    def make(
        head: Head,
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
def answered(tmp_path) -> Callable[..., str]:
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
        chosen = PredictOptions(**{"progress": False, "batch_size": 2, **options})
        predict(model, task, source, target, chosen)
        return target.read_text()

    return run


@pytest.fixture
def left(tmp_path) -> Callable[[], set[str]]:
    """The names of the files that are there."""

    def names() -> set[str]:
        return {path.name for path in Path(tmp_path).iterdir()}

    return names
