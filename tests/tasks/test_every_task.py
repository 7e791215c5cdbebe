"""What is trained by a name can be loaded and asked by the same name."""

import dataclasses
import functools
import json

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax import tasks
from bert_jax.checkpoints.parameters import LoadReport
from bert_jax.config import complete_config
from bert_jax.data.outputs import to_json
from bert_jax.data.readers.tables import Record
from bert_jax.errors import NotFiniteError, UserError
from bert_jax.experiment import Experiment
from bert_jax.inference.engine import Engine
from bert_jax.inference.predict import predict
from bert_jax.planning.roofline import program_flops
from bert_jax.tasks.base.model_init import initial_params

NAMES = sorted({*tasks.task_names()} - {"pretraining", "replaced_tokens"})

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


def test_tasks_are_found_by_their_names():
    assert {"classification", "similarity", "tagging"} <= set(NAMES)


LABELS = {
    "classification": {"label": "x"},
    "multiple_choice": {"label": 1},
    "question_answering": {"answers": [{"text": "cat", "answer_start": 4}]},
    "similarity": {"label": 0.5},
    "tagging": {"tags": ["O", "B-A"]},
}


@pytest.mark.parametrize("name", NAMES)
def test_a_metric_that_is_none_is_refused_before_a_training(base_model, tmp_path, name):
    rows = [ROWS[name][0] | LABELS[name] | {"id": str(number)} for number in range(20)]
    if name == "classification":
        rows = [row | {"label": "xy"[number % 2]} for number, row in enumerate(rows)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    keys = {"train": str(file), "validation": (str(file),), "best_metric": "f_one", "length": 32}
    if name == "question_answering":
        keys["question_length"] = 8
    config = complete_config(
        {"task": name, "init_from": str(base_model), "data": keys}, where="test"
    )
    with pytest.raises(UserError, match="there is no metric 'f_one', only ") as found:
        _ = Experiment.from_config(config).task
    # Each of those that it names would do.
    names = str(found.value).rpartition("only ")[2].partition(";")[0].split(", ")
    for known in names:
        config.data.best_metric = known
        task = Experiment.from_config(config).task
    # A labelled file has the inputs of a file to predict.
    spec = tasks.find_task(name, "PREDICT").PREDICT
    parsed = spec.reader.parser(spec.options())(Record(rows[1], ""), 1)
    example = task.splits.validation[0].examples[1]
    assert (example.input, example.id) == (parsed.input, parsed.id)
    assert example.location == f"{file}:2"


def test_a_task_reads_the_parameters_of_its_model(base_model, tmp_path, monkeypatch):
    """As a task with several encoders does, from several directories."""
    (tmp_path / "a.jsonl").write_text(json.dumps(ROWS["similarity"][0] | LABELS["similarity"]))
    data = dict.fromkeys(("train", "validation"), str(tmp_path / "a.jsonl")) | {"length": 32}
    config = {"task": "similarity", "init_from": str(base_model), "data": data}
    experiment = Experiment.from_config(complete_config(config, where="test"))
    task, params = experiment.task, {"passages": {}}
    read = staticmethod(lambda *_, **__: (params, LoadReport((), ("passages",), ())))
    monkeypatch.setattr(type(task), "load_params", read)
    assert initial_params(experiment.model_init, task, experiment.mesh, seed=0) == params
    with pytest.raises(UserError, match="cannot be evaluated for task similarity: .* passages"):
        experiment.evaluate(model=base_model)


@pytest.mark.parametrize("name", NAMES)
def test_a_record_is_the_same_example_in_a_request_and_in_a_file(tmp_path, name):
    row, file = ROWS[name][0] | LABELS[name] | {"id": "7", "x": 1}, tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n")
    spec = tasks.find_task(name, "PREDICT").PREDICT
    parsed = spec.reader.parser(spec.options())(Record(row, f"{file}:1"), 0)
    with spec.reader.open(file, spec.options()) as examples:
        assert list(examples) == [parsed]
    assert parsed.id == "7"
    assert parsed.fields == LABELS[name] | {"id": "7", "x": 1}


@pytest.fixture(scope="module")
def load(base_model):
    """Loads the encoder with a new head for a task, once for each."""
    return functools.cache(lambda name: bert_jax.load(base_model, task=name))


@pytest.mark.parametrize("name", NAMES)
def test_scores_that_are_nan_are_an_error(load, name):
    row, _ = ROWS[name]
    model = load(name)
    damaged = jax.tree.map(
        lambda leaf: jax.device_put(np.full(leaf.shape, np.nan, leaf.dtype), leaf.sharding),
        model.params,
    )
    model = dataclasses.replace(model, params=damaged)
    asked = {
        "classification": lambda: model.classify([row["text"]]),
        "multiple_choice": lambda: model.choose(row["prompt"], row["choices"]),
        "question_answering": lambda: model.answer(row["question"], row["context"]),
        "similarity": lambda: model.similarity([row["text"]], [row["text_pair"]]),
        "tagging": lambda: model.tag([row["tokens"]]),
    }
    with pytest.raises(NotFiniteError, match="are not finite; the parameters of the model are"):
        asked[name]()
    if name == "similarity":
        for further in (
            lambda: model.search(row["text"], [row["text_pair"]]),
            lambda: model.embed([row["text"]]),
            lambda: model.hidden_states([row["text"]]),
            lambda: model.attentions([row["text"]]),
        ):
            with pytest.raises(NotFiniteError):
                further()


@pytest.mark.parametrize("name", NAMES)
def test_load_and_predict_know_its_name(load, tmp_path, name):
    row, keys = ROWS[name]
    (tmp_path / "in.jsonl").write_text(json.dumps(row) + "\n")
    model = load(name)
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    options = {"progress": False, "batch_size": 1}
    assert predict(model, name, source, target, options) == 1
    assert keys <= set(json.loads(target.read_text()))


def row_and_head(name):
    """A row for a task of `bert-jax predict`, and a head that can predict it."""
    # The tasks without a training of their own take a model with any head, or with that for masks.
    return (ROWS[name][0], name) if name in ROWS else ({"text": "the [MASK]"}, "masked_lm")


@pytest.mark.parametrize("name", tasks.task_names("PREDICT"))
def test_half_of_a_surrogate_pair_is_an_error_of_its_example_alone(load, name):
    row, head = row_and_head(name)
    damaged = json.loads(json.dumps(row).replace("the", "\\ud83d"))
    spec = tasks.find_task(name, "PREDICT").PREDICT
    options = spec.options()
    parse = spec.reader.parser(options)
    inputs = [parse(Record(each, ""), 0).input for each in (row, damaged, row)]
    first, error, last = Engine(spec.predictor(load(head), options)).predict(inputs)
    assert str(error) == r"the text has '\ud83d', half of a surrogate pair; remove it"
    same = [to_json(spec.to_record(inputs[0], prediction)) for prediction in (first, last)]
    assert same[0] == same[1]


@pytest.mark.parametrize("name", tasks.task_names("PREDICT"))
def test_what_is_packed_is_computed_in_packed_rows(load, tmp_path, name):
    """Less is multiplied than in padded rows; a task that cannot do it has padded rows."""
    row, head = row_and_head(name)
    model = load(head)
    source = tmp_path / "in.jsonl"
    source.write_text((json.dumps(row) + "\n") * 40)
    spec = tasks.find_task(name, "PREDICT").PREDICT
    options = spec.options(batch_size=4)

    def flops(packs_rows):
        predictor = spec.predictor(model, options)
        predictor.packs_rows &= packs_rows
        with spec.reader.open(source, options) as examples:
            encoded = predictor.encode([example.input for example in examples])
        batches = [batch.arrays for batch in Engine(predictor).batches(encoded)]
        is_packed = any("pack_indices" in batch for batch in batches)
        programs = (jax.make_jaxpr(predictor.compute)(batch) for batch in batches)
        return is_packed, sum(program_flops(program.jaxpr) for program in programs)

    (is_packed, packed), (_, padded) = flops(True), flops(False)
    assert is_packed == (name not in ("attentions", "hidden_states"))
    assert packed < padded if is_packed else packed == padded
