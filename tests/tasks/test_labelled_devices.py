"""One device and eight, small batches and large ones: the same metrics and the same predictions."""

import dataclasses
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.families.dpr import READER
from bert_jax.files.manifest import MANIFEST
from bert_jax.models.execution import Execution
from bert_jax.models.head import with_fields
from bert_jax.models.heads.text_vectors import TextVectors
from bert_jax.tasks.base.labelled_evaluator import MISTAKES
from tests.random_params import random_params

pytestmark = pytest.mark.slow

COUNT = 13  # neither of the batch sizes divides it, nor do eight devices
WORDS = ["the", "a", "it", "cat", "dogs", "bird", "mat", "sea", "sang", "walked", "up", "long", "."]
TAGS = ("O", "B-ANIMAL", "B-PLACE", "I-ANIMAL", "I-PLACE")
# What is computed from scores; all other metrics are those of decisions, and have no tolerance.
OF_SCORES = ("loss", "pearson", "best_f1_threshold")


@dataclasses.dataclass(frozen=True)
class Case:
    """A model of a task, the keys of section `data`, and the fields of its file's rows.

    `scale` is the standard deviation of the weights.
    """

    task: str
    head: str
    fields: dict[str, object]
    data: dict[str, object]
    model: dict[str, object] = dataclasses.field(default_factory=dict)
    scale: float = 0.4


CASES = {
    "classification": Case(
        "classification", "classification",
        {"labels": ("one", "two", "three"), "problem_type": "single_label_classification"},
        {"length": 32}, {"num_labels": 3},
    ),
    # Most sentences and passages are longer than a row: windows of one are in several batches.
    "tagging": Case(
        "tagging", "tagging", {"labels": TAGS}, {"length": 12},
        {"num_labels": 5},
    ),
    "tagging by a chain": Case(
        "tagging", "tagging", {"labels": TAGS}, {"length": 12},
        {"num_labels": 5, "use_crf": True},
    ),
    "question_answering": Case(
        "question_answering", "question_answering",
        {"other": {"null_score_diff_threshold": 0.0}}, {"length": 20, "window_step": 6},
    ),
    "question_answering by the joint head": Case(
        "question_answering", "question_answering",
        {"other": {"null_score_diff_threshold": 0.0}}, {"length": 20, "window_step": 6},
        # 512 hidden units make large logits, whose rounding their log probabilities would have.
        {"qa_head": "joint"}, scale=0.1,
    ),
    "multiple_choice": Case(
        "multiple_choice", "multiple_choice", {}, {"length": 32},
    ),
    "ranking": Case(
        "ranking", "classification", {}, {"length": 32}, {"num_labels": 1},
    ),
    "reader": Case(
        "reader", "reader", {"family": READER}, {"length": 24},
    ),
    "similarity": Case(
        "similarity", "encoder", {"stored_vectors": TextVectors()}, {"length": 32},
    ),
}  # fmt: skip


def examples(task):
    """Rows of a file in JSON Lines, of which nothing can be learned."""
    draw = random.Random(7)
    for number in range(COUNT):
        words = draw.choices(WORDS, k=draw.randint(3, 24))
        text, other = " ".join(words), " ".join(draw.choices(WORDS, k=draw.randint(2, 5)))
        if task == "classification":
            yield {"text": text, "label": draw.choice(["one", "two", "three"])}
        elif task == "tagging":
            tags = [draw.choice(["O", "B-ANIMAL", "B-PLACE"]) for _ in words]
            yield {"tokens": words, "tags": tags}
        elif task == "question_answering":
            answers = [] if number % 3 == 0 else [{"text": words[0], "answer_start": 0}]
            yield {"id": f"q{number}", "question": other, "context": text, "answers": answers}
        elif task == "multiple_choice":
            choices = draw.sample(WORDS, draw.randint(2, 4))
            yield {"prompt": text, "choices": choices, "label": draw.randrange(len(choices))}
        elif task == "reader":
            passages = [draw.choices(WORDS, k=draw.randint(2, 9)) for _ in range(number % 4 + 1)]
            answers, texts = passages[-1][:1], [{"text": " ".join(each)} for each in passages]
            yield {"question": other, "answers": answers, "passages": texts}
        elif task == "ranking":
            documents = draw.sample(WORDS, draw.randint(2, 4))
            labels = [draw.randrange(3) for _ in documents]
            yield {"query": text, "documents": documents, "labels": labels}
        else:
            yield {"sentence1": text, "sentence2": other, "score": draw.random()}


PROGRAM = """
import json, sys
from pathlib import Path
import jax
from bert_jax.experiment import Experiment
from bert_jax.config import complete_config

directory, batch_size = Path(sys.argv[1]), int(sys.argv[2])
results = {"devices": jax.device_count()}
for name, (task, data) in json.loads((directory / "cases.json").read_text()).items():
    keys = {
        "task": task,
        "data": data,
        "train": {"global_batch_size": batch_size},
        "precision": "float32",
    }
    config = complete_config(keys, where="test")
    output = directory / f"{jax.device_count()}-{batch_size}" / name
    model = directory / name / "model"
    results[name] = Experiment.from_config(config).evaluate(model=model, output=output)
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory, tiny_config, tokenizer) -> Path:
    """A random model for each case, whose weights are large enough that its answers differ."""
    directory: Path = tmp_path_factory.mktemp("devices")
    for number, (name, case) in enumerate(CASES.items()):
        config = with_fields(tiny_config, case.model)
        description = ModelDescription(config, case.head, **case.fields)
        params = random_params(description.make_module(Execution()), seed=number, scale=case.scale)
        model_directory.save(directory / name / "model", description, params, tokenizer)
        rows = "".join(json.dumps(row) + "\n" for row in examples(case.task))
        (directory / name / "validation.jsonl").write_text(rows)
    cases = {
        name: (case.task, {"validation": [f"{directory}/{name}/validation.jsonl"], **case.data})
        for name, case in CASES.items()
    }
    (directory / "cases.json").write_text(json.dumps(cases))
    return directory


@pytest.fixture(scope="module")
def evaluated(directory, processes_without_torch):
    """Evaluates all cases in a process: the metrics, and where the predictions are."""

    def run(devices, batch_size):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(directory), str(batch_size)],
            env=os.environ | {"JAX_NUM_CPU_DEVICES": str(devices)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        evaluation = json.loads(done.stdout.splitlines()[-1])
        assert evaluation["devices"] == devices
        return evaluation, directory / f"{devices}-{batch_size}"

    return run


@pytest.fixture(scope="module")
def expected(evaluated):
    """All examples in one batch on one device."""
    return evaluated(1, 128)


@pytest.fixture(scope="module")
def evaluation(evaluated):
    """The same in batches of eight on eight devices; five examples make the last batch."""
    return evaluated(8, 8)


# The field that differs between examples: equal files prove nothing if all predictions are alike.
DECISIONS = {
    "classification": "label",
    "tagging": "tags",
    "question_answering": "answer",
    "multiple_choice": "index",
    "ranking": "scores",
    "reader": "answer",
    "similarity": "similarity",
}


@pytest.mark.parametrize("name", CASES)
def test_devices_and_batches_change_no_answer(evaluation, expected, assert_same, name):
    metrics, right = evaluation[0][name], expected[0][name]
    assert set(metrics) == set(right)
    for key, value in right.items():
        tolerance = 1e-5 if key in OF_SCORES else 0
        assert metrics[key] == pytest.approx(value, rel=tolerance, abs=tolerance), key
    files = sorted(path.name for path in (expected[1] / name).iterdir())
    assert sorted(path.name for path in (evaluation[1] / name).iterdir()) == files
    lines = records(expected[1] / name / "validation.jsonl")
    assert len(lines) == COUNT
    assert len({json.dumps(line[DECISIONS[CASES[name].task]]) for line in lines}) > 1
    files.remove(MANIFEST)  # checksums, of rounded numbers
    for file in files:
        answers, reference = evaluation[1] / name / file, expected[1] / name / file
        if file.endswith((".json", ".jsonl")):
            assert_same(records(answers), records(reference), rel=1e-5)
        elif file.endswith(".run"):  # queries, documents and ranks; scores are rounded
            columns = (path.read_text().splitlines() for path in (answers, reference))
            actual, right = ([line.split()[:4] for line in lines] for lines in columns)
            assert actual == right
        elif file.endswith(MISTAKES):  # a score has four digits, and rounding may add to the last
            (actual, scores), (right, references) = map(mistakes, (answers, reference))
            assert actual == right
            assert scores == pytest.approx(references, rel=1e-3)
        elif not file.endswith(".png"):
            assert answers.read_text() == reference.read_text()


def records(path):
    """What a file of JSON or of JSON Lines holds."""
    text = path.read_text()
    return json.loads(text) if path.suffix == ".json" else list(map(json.loads, text.splitlines()))


def mistakes(path):
    """The rows of a file of mistakes without scores, and the scores."""
    header, *rows = (line.split("\t") for line in path.read_text().splitlines())
    column = header.index("score")
    return [header, *rows], [float(row.pop(column)) for row in rows]
