"""Every task: files, metrics, packing, memory, errors; `predict` and `train` share its name."""

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
from bert_jax.errors import NotFiniteError, OptionError, UserError
from bert_jax.experiment import Experiment
from bert_jax.inference.engine import Engine
from bert_jax.inference.predict import predict
from bert_jax.models.heads.token_vectors import TokenVectors
from bert_jax.planning.roofline import program_flops
from bert_jax.planning.training_on_mesh import Training, TrainingOnMesh
from bert_jax.sharding.mesh import MeshShape
from bert_jax.tasks.base.model_init import initial_params
from bert_jax.training.loop import DivergedError

# Of texts; images are in `tests/tasks/images`.
OF_TEXTS = sorted({*tasks.task_names("PREDICT")} - {"image_classification", "attention_rollout"})
NAMES = sorted({*tasks.task_names()} & {*OF_TEXTS})

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


LABELS = {
    "classification": {"label": "x"},
    "multiple_choice": {"label": 1},
    "question_answering": {"answers": [{"text": "cat", "answer_start": 4}]},
    "similarity": {"label": 0.5},
    "tagging": {"tags": ["O", "B-A"]},
}


@pytest.fixture
def labelled(tmp_path):
    """Writes 20 labelled rows of a task: the rows, and the keys of `data` for their file."""

    def write(name):
        rows = [ROWS[name][0] | LABELS[name] | {"id": str(number)} for number in range(20)]
        if name == "classification":
            rows = [row | {"label": "xy"[number % 2]} for number, row in enumerate(rows)]
        file = tmp_path / "rows.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        keys = {"train": str(file), "validation": (str(file),), "length": 32}
        return rows, keys | ({"question_length": 8} if name == "question_answering" else {})

    return write


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_metric_is_refused_before_a_training(base_model, labelled, name):
    rows, keys = labelled(name)
    data = keys | {"best_metric": "f_one"}
    config = complete_config(
        {"task": name, "init_from": str(base_model), "data": data}, where="test"
    )
    with pytest.raises(OptionError, match="there is no metric 'f_one', only ") as error:
        _ = Experiment.from_config(config).task
    # Each metric in the message is accepted.
    names = str(error.value).rpartition("only ")[2].partition(";")[0].split(", ")
    for known in names:
        config.data.best_metric = known
        task = Experiment.from_config(config).task
    # A labelled file has the inputs of a file to predict.
    spec = tasks.find_task(name, "PREDICT").PREDICT
    parsed = spec.reader.parser(spec.options())(Record(rows[1], ""), 1)
    example = task.splits.validation[0].examples[1]
    assert (example.input, example.id) == (parsed.input, parsed.id)
    assert example.location == f"{keys['train']}:2"


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


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_scores_that_are_nan_are_an_error(load, name):
    row, _ = ROWS[name]
    model = load(name)
    damaged = jax.tree.map(
        lambda leaf: jax.device_put(np.full(leaf.shape, np.nan, leaf.dtype), leaf.sharding),
        model.params,
    )
    model = dataclasses.replace(model, params=damaged)
    calls = {
        "classification": lambda: model.classify([row["text"]]),
        "multiple_choice": lambda: model.choose(row["prompt"], row["choices"]),
        "question_answering": lambda: model.answer(row["question"], row["context"]),
        "similarity": lambda: model.similarity([row["text"]], [row["text_pair"]]),
        "tagging": lambda: model.tag([row["tokens"]]),
    }
    with pytest.raises(NotFiniteError, match="are not finite; the parameters of the model are"):
        calls[name]()
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


def row_and_model(name, load, base_t5):
    """A row for a task of `bert-jax predict`, and a model that can predict it."""
    if name in ROWS:
        return ROWS[name][0], load(name)
    # The tasks without a training of their own take a model with any head, or with that for masks.
    if name in ("generate", "alignments"):
        return {"text": "the cat"}, bert_jax.load(base_t5)
    if name == "next_sentence":
        return {"text": "the cat", "text_pair": "the dog"}, load("pretraining")
    model = load("masked_lm")
    if name == "token_vectors":
        described = dataclasses.replace(model.description, stored_vectors=TokenVectors())
        model = dataclasses.replace(model, description=described)
    return {"text": "the [MASK]"}, model


@pytest.mark.parametrize("name", OF_TEXTS)
@pytest.mark.slow
def test_half_of_a_surrogate_pair_is_an_error_of_its_example_alone(load, base_t5, name):
    row, model = row_and_model(name, load, base_t5)
    damaged = json.loads(json.dumps(row).replace("the", "\\ud83d"))
    spec = tasks.find_task(name, "PREDICT").PREDICT
    options = spec.options()
    parse = spec.reader.parser(options)
    inputs = [parse(Record(each, ""), 0).input for each in (row, damaged, row)]
    first, error, last = Engine(spec.predictor(model, options)).predict(inputs)
    assert (
        str(error)
        == "text, character 0: U+D83D is half of a surrogate pair, not a character; remove it"
    )
    same = [to_json(spec.to_record(inputs[0], prediction)) for prediction in (first, last)]
    assert same[0] == same[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_TEXTS)
def test_what_is_packed_is_computed_in_packed_rows(load, base_t5, tmp_path, name):
    """Less is multiplied than in padded rows; a task that cannot do it has padded rows."""
    row, model = row_and_model(name, load, base_t5)
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
    unpacked = ("alignments", "attentions", "generate", "hidden_states")
    assert is_packed == (name not in unpacked)
    assert packed < padded if is_packed else packed == padded


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rate"), [("classification", 1e30), ("tagging", 1e10)])
def test_a_diverged_training_is_reported_before_its_evaluation(train, labelled, name, rate):
    keys = {f"data__{key}": value for key, value in labelled(name)[1].items()}
    with pytest.raises(DivergedError, match=r"is not finite; .* lower learning rate"):
        train(
            name, **keys, optimizer__learning_rate=rate, train__epochs=20.0,
            train__log_every=1000, train__eval_every=1, train__evaluate_per_epoch=0,
        )  # fmt: skip


MEMORY = {
    "choices": ("multiple_choice", {}),
    "all pairs": (
        "similarity",
        {"data": {"loss": "in_batch_negatives", "label_range": (0.0, 0.9)}},
    ),
    "tags": ("tagging", {"model": {"use_crf": True}}),
    "packed rows": ("pretraining", {"data": {"packing": True, "max_predictions": 6}}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("task", "keys"), MEMORY.values(), ids=MEMORY)
def test_the_estimated_memory_of_a_step_is_near_the_compiler_s(
    base_model, tiny_corpus, labelled, task, keys
):
    config = {"task": task, **{section: dict(values) for section, values in keys.items()}}
    data = {"length": 32, **keys.get("data", {})}
    if task == "pretraining":
        data["corpus"] = str(tiny_corpus)
        shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
        shape |= {"intermediate_size": 32, "max_position_embeddings": 32, "vocab_size": 40}
        config["model"] = shape | {"pad_vocab_to_multiple_of": 40}
    else:
        config["init_from"] = str(base_model)
        data |= labelled(task)[1]
    config |= {"data": data, "train": {"steps": 10, "global_batch_size": 512}}
    experiment = Experiment.from_config(complete_config(config, where="test"))
    training = Training(experiment.task, experiment.optimizer, experiment.options)
    step = TrainingOnMesh(training, MeshShape(), jax.devices()[:1])
    estimated, compiled = step.estimate, step.compile(512).memory
    # Nearly all are activations. The compiler also needs buffers for the layer that it computes,
    # one of only two here; what is forgotten or counted twice would be far more.
    assert estimated.activations > 0.99 * estimated.peak
    assert 0.6 < estimated.peak / compiled.peak < 0.8
