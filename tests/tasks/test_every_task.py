"""What is trained by a name can be loaded and asked by the same name."""

import json
import pkgutil

import pytest

import bert_jax
from bert_jax import tasks
from bert_jax.inference.loading import TASKS
from bert_jax.inference.predict import predict
from bert_jax.inference.predictions.options import PredictOptions

NAMES = sorted({module.name for module in pkgutil.iter_modules(tasks.__path__)} - {"pretraining"})

# A row that each task can answer, and the keys of its answer.
ROWS = {
    "classification": ({"text": "the cat"}, {"label", "score", "probabilities"}),
    "multiple_choice": (
        {"prompt": "the cat", "choices": ["sat", "ran"]},
        {"index", "choice", "score", "probabilities"},
    ),
    "question_answering": (
        {"question": "it was", "context": "the cat sat"},
        {"answer", "start", "end", "score"},
    ),
    "similarity": ({"text": "the cat", "text_pair": "the dog"}, {"similarity"}),
    "tagging": ({"tokens": ["the", "cat"]}, {"words", "tags", "scores"}),
}


def test_tasks_are_found():
    assert {"classification", "similarity", "tagging"} <= set(NAMES)
    assert set(NAMES) <= set(TASKS)


@pytest.mark.parametrize("name", NAMES)
def test_load_and_predict_know_its_name(base_model, tmp_path, name):
    row, keys = ROWS[name]
    (tmp_path / "in.jsonl").write_text(json.dumps(row) + "\n")
    model = bert_jax.load(base_model, task=name)
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    assert predict(model, name, source, target, PredictOptions(progress=False)) == 1
    assert keys <= set(json.loads(target.read_text()))
