"""The recipe "add a task": one module is trained, evaluated and predicted with."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from bert_jax import tasks
from bert_jax.cli import main


@pytest.fixture
def toy_task(tmp_path, monkeypatch):
    """Puts `toy_task.py` beside the tasks of the package."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    shutil.copy(Path(__file__).with_name("toy_task.py"), folder)
    monkeypatch.setattr(tasks, "__path__", [*tasks.__path__, str(folder)])
    yield "toy_task"
    sys.modules.pop("bert_jax.tasks.toy_task", None)
    vars(tasks).pop("toy_task", None)


@pytest.mark.slow
def test_one_module_is_a_task(toy_task, base_model, tmp_path, capsys):
    # Texts of one length in full batches: there is one shape to compile.
    reviews = {"the cat sat .": 1, "it was warm .": 3, "a boy ran .": 5}
    lines = [json.dumps({"text": text, "stars": stars}) + "\n" for text, stars in reviews.items()]
    (tmp_path / "train.jsonl").write_text("".join(lines * 160))
    (tmp_path / "reviews.jsonl").write_text("".join(lines))
    (tmp_path / "stars.py").write_text(f"""
def get_config():
    return {{
        "task": "toy_task",
        "init_from": "{base_model}",
        "data": {{
            "train": "{tmp_path}/train.jsonl",
            "validation": "{tmp_path}/reviews.jsonl",
            "label_column": "stars",
            "length": 16,
        }},
        "optimizer": {{"learning_rate": 1e-2}},
        "train": {{"epochs": 1.0, "global_batch_size": 8}},
    }}
""")

    def bert_jax(*arguments):
        assert main([*map(str, arguments)]) == 0
        return capsys.readouterr().out

    config, run = ("--config", tmp_path / "stars.py"), ("--workdir", tmp_path / "run")
    bert_jax("train", *config, *run)
    metrics = json.loads((tmp_path / "run" / "result.json").read_text())
    assert metrics["mean_absolute_error"] < 1.0  # of three stars for all: 1.33

    output = tmp_path / "predictions"
    evaluated = json.loads(bert_jax("evaluate", *config, *run, "--output", output))
    assert evaluated["mean_absolute_error"] == pytest.approx(metrics["mean_absolute_error"])
    first = json.loads((output / "validation.jsonl").read_text().splitlines()[0])
    assert (first["id"], first["expected"]) == ("0", 1)

    model, source = tmp_path / "run" / "model", tmp_path / "reviews.jsonl"
    files = ("--input", source, "--output", "-", "--label-column", "stars")
    predicted = bert_jax("predict", "--model", model, "--task", toy_task, *files).splitlines()
    assert len(predicted) == len(reviews)
    stars = pytest.approx(first["stars"], rel=1e-5)
    text = first["text"]
    assert json.loads(predicted[0]) == {"text": text, "expected": 1, "stars": stars}

    (line, *_) = bert_jax("predict", "--model", model, *files).splitlines()
    assert json.loads(line)["label"].startswith("LABEL_")  # of the task classification
