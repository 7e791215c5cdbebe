"""The estimated memory of a step of each task, against that of XLA's compiler for this machine."""

import json

import jax
import pytest

from bert_jax.config import complete_config
from bert_jax.experiment import Experiment
from bert_jax.planning.training_on_mesh import Training, TrainingOnMesh
from bert_jax.sharding.mesh import MeshShape

pytestmark = pytest.mark.slow

BATCH = 512
ONE, TWO = {"text": "the cat sat on the mat ."}, {"text_pair": "it was warm ."}
ROWS = {
    "classification": [ONE | {"label": name} for name in "xyz"],
    "multiple_choice": [{"prompt": "the cat", "choices": ["sat", "ran", "sang"], "label": 1}],
    "question_answering": [
        {
            "question": "it was",
            "context": "the cat sat",
            "answers": [{"text": "cat", "answer_start": 4}],
        }
    ],
    "similarity": [ONE | TWO | {"label": label} for label in (0, 1)],
    "tagging": [{"tokens": ["the", "cat"], "tags": ["O", "B-A"]}],
}
CASES = {
    "classification": ("classification", {}),
    "choices": ("multiple_choice", {}),
    "questions": ("question_answering", {"data": {"question_length": 8}}),
    "pairs": ("similarity", {"data": {"loss": "cosine"}}),
    "all pairs": ("similarity", {"data": {"loss": "in_batch_negatives"}}),
    "tags": ("tagging", {"model": {"use_crf": True}}),
    "packed rows": ("pretraining", {"data": {"packing": True, "max_predictions": 6}}),
}


@pytest.mark.parametrize(("task", "keys"), CASES.values(), ids=CASES)
def test_the_estimate_is_near_what_the_compiler_needs(
    base_model, tiny_corpus, tmp_path, task, keys
):
    config = {"task": task, **{section: dict(values) for section, values in keys.items()}}
    data = {"length": 32, **keys.get("data", {})}
    if task == "pretraining":
        data["corpus"] = str(tiny_corpus)
        shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
        shape |= {"intermediate_size": 32, "max_position_embeddings": 32, "vocab_size": 40}
        shape |= {"pad_vocab_to_multiple_of": 40}
        config["model"] = shape
    else:
        file = tmp_path / "rows.jsonl"
        rows = [row | {"id": str(n)} for n, row in enumerate(ROWS[task] * 20)]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        config["init_from"] = str(base_model)
        data |= {"train": str(file), "validation": (str(file),)}
    config |= {"data": data, "train": {"steps": 10, "global_batch_size": BATCH}}
    experiment = Experiment.from_config(complete_config(config, where="test"))
    training = Training(experiment.task, experiment.optimizer, experiment.options)
    step = TrainingOnMesh(training, MeshShape(), jax.devices()[:1])
    estimated, compiled = step.estimate, step.compile(BATCH).memory
    # Nearly all are activations. The compiler also needs buffers for the layer that it computes,
    # one of only two here; what is forgotten or counted twice would be far more.
    assert estimated.activations > 0.99 * estimated.peak
    assert 0.6 < estimated.peak / compiled.peak < 0.8
