"""Every shipped config is parsed, and trains two real steps when it or its model is small."""

import inspect
import json
import math
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bert_jax.config import default_config, load_config, set_key, set_keys
from bert_jax.data.pretraining.preparation.prepare import prepare
from bert_jax.errors import UserError
from bert_jax.experiment import Experiment
from bert_jax.training.optimizer import make_optimizer
from tests.runs import completed

CONFIGS = sorted((Path(__file__).parents[1] / "configs").glob("*.py"))

# As small as it gets, for any config.
SHRUNKEN = {
    "model.hidden_size": 16,
    "model.num_hidden_layers": 1,
    "model.num_attention_heads": 2,
    "model.intermediate_size": 16,
    "model.max_position_embeddings": 18,  # RoBERTa's begin behind the padding position
    "model.hidden_dropout_prob": 0.0,  # its random numbers take a third of the compilation
    "model.attention_probs_dropout_prob": 0.0,
    "data.length": 16,
    "data.max_predictions": 6,
    "optimizer.warmup_steps": 1,
    "optimizer.warmup_ratio": 0.0,
    "train.steps": 2,
    "train.global_batch_size": 2,
    "train.batch_warmup": (),
    "train.batch_warmup_ratio": 0.0,
}


def test_there_are_configs():
    assert {"pretrain.py", "pretrain_512.py", "quickstart.py"} <= {path.name for path in CONFIGS}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_config_is_parsed_and_its_header_has_a_command(path):
    config = load_config(str(path))
    # All keys are known, or `load` would have refused them; all sections are there.
    assert set(config) == set(default_config(config.task))
    assert config.train.global_batch_size > 0
    experiment = Experiment.from_config(config)  # checks the values of all sections
    options = experiment.sections.train.resolved(examples_per_epoch=100)
    make_optimizer(experiment.sections.optimizer, options.steps)
    # A shorter run needs no other key.
    shorter = Experiment.from_config(load_config(str(path), [("train.steps", "10")]))
    make_optimizer(shorter.sections.optimizer, 10)
    if not config.train.epochs:
        for key in ("log_every", "eval_every", "checkpoint_every"):
            assert 0 < config.train[key] <= options.steps
    header = path.read_text().split('"""')[1]
    assert "bert-jax train" in header or "bash launch/" in header, "how is it run?"
    assert "@@" not in header


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem)
        for path in CONFIGS
        if "masking" in load_config(str(path)).data
    ],
)
def test_a_shrunken_pretraining_config_trains_two_steps(path, tiny_corpus, tmp_path, capsys):
    config = load_config(f"{path}:corpus={tiny_corpus}")
    set_keys(config, SHRUNKEN, where="test")
    workdir = tmp_path / "run"
    result = Experiment.from_config(config).train(workdir)
    has_pairs, has_spans = config.data.objective != "none", config.data.span_boundary
    used = {"nsp": has_pairs, "sbo": has_spans, "rtd": 50 * (config.task == "replaced_tokens")}
    parts = {"mlm": 1} | {part: weight for part, weight in used.items() if weight}
    total = sum(weight * result[f"{part}_loss"] for part, weight in parts.items())
    assert result["loss"] == pytest.approx(total)
    assert {*(f"{part}_accuracy" for part in parts), "mlm_accuracy_most_frequent"} <= set(result)
    assert ("nsp_accuracy_majority" in result) == ("nsp_accuracy" in result) == has_pairs
    assert ("sbo_loss" in result) == has_spans
    stored = json.loads((workdir / "result.json").read_text())
    warnings = stored.pop("warnings")
    assert stored == {**result, "exported_step": 2}
    # Two steps learn nothing; the summary says what was read.
    rate = config.optimizer.learning_rate
    remedy = f"rate ({rate:g} now), more train.steps (2 now), or more data"
    assert any("is not better than" in each and each.endswith(remedy) for each in warnings)
    summary = json.loads((workdir / "data_summary.json").read_text())
    assert (summary["unit"], summary["train"]) == ("documents", 4)
    assert set(summary["warnings"]) < set(warnings)
    errors = capsys.readouterr().err
    assert errors.count("compiling: ") == 1  # its steps have one shape
    assert errors.count("data: train 4 documents, validation ") == 1
    assert f"each epoch shows {summary['epoch_share']:.0%} of the tokens" in errors
    for warning in warnings:
        assert errors.count(f"warning: {warning}") == 1
    records = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert [(record["step"], record["split"]) for record in records][-2:] == [
        (2, "train"),
        (2, "validation"),
    ]
    for name in ("config.json", "curves.png", "checkpoints/2", "model/model.safetensors"):
        assert (workdir / name).exists(), name


def test_a_later_phase_of_modernbert_needs_a_run():
    path = CONFIGS[0].with_name("pretrain_modernbert.py")
    with pytest.raises(UserError, match="phase=decay continues a run; give init_from=RUN"):
        load_config(f"{path}:phase=decay")


@pytest.mark.slow
def test_the_phases_of_modernbert(tiny_corpus, tmp_path, capsys):
    """Batches that grow, then longer rows with another rotary base from the run's own model."""
    path = CONFIGS[0].with_name("pretrain_modernbert.py")
    changes = {"data.max_predictions": 12, "model.max_position_embeddings": 32}
    small = SHRUNKEN | changes | {"optimizer.warmup_steps": 0}
    first = load_config(f"{path}:size=tiny,corpus={tiny_corpus},batch=8")
    assert first.train.batch_warmup == (1, 2, 4)
    growing = {
        "train.steps": 4, "train.global_batch_size": 8, "train.batch_warmup": (2, 4),
        "train.batch_warmup_ratio": 0.5, "train.log_every": 1,
    }  # fmt: skip
    set_keys(first, small | growing, where="test")
    one = Experiment.from_config(first).train(tmp_path / "one")
    assert capsys.readouterr().err.count("compiling: ") == 3
    config = json.loads((tmp_path / "one" / "model" / "config.json").read_text())
    assert (config["global_rope_theta"], config["local_rope_theta"]) == (10_000, 10_000)

    second = load_config(
        f"{path}:size=tiny,phase=extension,corpus={tiny_corpus},init_from={tmp_path / 'one'}"
    )
    longer = {"data.length": 32, "train.evaluate_first": True, "optimizer.learning_rate": 1e-3}
    set_keys(second, small | longer, where="test")
    two = Experiment.from_config(second).train(tmp_path / "two")
    config = json.loads((tmp_path / "two" / "model" / "config.json").read_text())
    assert (config["global_rope_theta"], config["local_rope_theta"]) == (160_000, 10_000)
    assert one["mlm_loss"] != two["mlm_loss"]
    records = [
        json.loads(line) for line in (tmp_path / "two" / "metrics.jsonl").read_text().splitlines()
    ]
    assert records[0]["mlm_loss"] == pytest.approx(one["mlm_loss"], abs=0.3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("gpt", {"tokenizer.vocab_size": 300}),
        (
            "t5",
            {
                "tokenizer.vocab_size": 137,
                "model.decoder_layers": 1,
                "model.attention_head_size": 8,
            },
        ),
    ],
)
def test_a_shrunken_config_of_a_model_that_writes_trains_two_steps(name, keys, tiny_text, tmp_path):
    path, corpus = CONFIGS[0].with_name(f"{name}.py"), tmp_path / "corpus"
    config = load_config(f"{path}:source=text:{tiny_text},corpus={corpus}")
    known = {key: value for key, value in SHRUNKEN.items() if key != "data.max_predictions"}
    set_keys(config, known | keys | {"data.validation_fraction": 0.4}, where="test")
    experiment = Experiment.from_config(config)
    prepare(experiment.prepare_options(), corpus, workers=1, progress=False)
    result = experiment.train(tmp_path / "run")
    assert result["perplexity"] == pytest.approx(math.exp(result["loss"]))
    assert {"accuracy", "accuracy_most_frequent"} < set(result)
    assert (tmp_path / "run" / "model" / "model.safetensors").exists()
    evaluated = Experiment.from_config(config).evaluate(model=tmp_path / "run" / "model")
    assert evaluated["loss"] == pytest.approx(result["loss"], rel=1e-5)


SENTENCES = ["the cat was low .", "a dog was long ."]
QUESTION = {
    "question": "it was",
    "context": "the cat sat",
    "answers": [{"text": "cat", "answer_start": 4}],
}
RANKED = {"query": SENTENCES[0], "positives": [SENTENCES[1]], "negatives": ["one sat ."]}
# A row for each config of a labelled task; GLUE's are tables.
LABELLED = {
    "classification": {"text": SENTENCES[0], "label": "x"},
    "late_interaction": RANKED,
    "multiple_choice": {"prompt": "the cat", "choices": ["sat", "ran"], "label": 1},
    "ranking": RANKED,
    "reader": {"question": "it", "answers": ["sat"], "passages": ["the cat sat", "a tree"]},
    "retrieval": RANKED,
    "similarity": {"text": SENTENCES[0], "text_pair": SENTENCES[1], "label": 0.5},
    "sparse": RANKED,
    "squad": QUESTION,
    "tagging": {"tokens": ["the", "cat"], "tags": ["O", "B-A"]},
    "text_to_text": {"question": "the cat", "answers": ["sat", "a mat"]},
}


def labelled_files(name, directory):
    """Writes files for a config, and gives its arguments."""
    if name == "glue":
        head = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
        rows = [f"{number % 2}\t1\t2\t{SENTENCES[0]}\t{SENTENCES[1]}" for number in range(8)]
        for file in ("train.tsv", "dev.tsv"):
            (directory / file).write_text("\n".join([head, *rows]) + "\n")
        return f"task=mrpc,directory={directory}"
    rows = [dict(LABELLED[name], id=str(number)) for number in range(8)]
    if name == "classification":
        rows = [dict(row, label=f"class {number % 2}") for number, row in enumerate(rows)]
    files = ("train", "validation")
    for file in files:
        content = "".join(json.dumps(row) + "\n" for row in rows)
        (directory / f"{file}.jsonl").write_text(content)
    # The small vocabulary has no markers.
    preset = ["preset=hofstaetter"] if name == "late_interaction" else []
    return ",".join([*(f"{file}={directory}/{file}.jsonl" for file in files), *preset])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    # A student needs a teacher: tests/distillation; a translation begins with a new model:
    # tests/tasks/test_text_to_text.py; images: tests/tasks/images.
    [
        path.stem
        for path in CONFIGS
        if "source" not in load_config(str(path)).data
        and path.stem not in ("distill", "image_classification", "translation")
    ],
)
def test_a_finetuning_config_trains_two_steps_and_its_model_is_evaluated(name, request, tmp_path):
    path = next(path for path in CONFIGS if path.stem == name)
    arguments = labelled_files(name, tmp_path)
    keys = [("train.global_batch_size", "4"), ("train.steps", "2"), ("data.length", "16")]
    if name == "late_interaction":
        keys += [("data.query_length", "8")]
    if name == "squad":
        keys += [("data.window_step", "4"), ("data.question_length", "4")]
    base = request.getfixturevalue("base_t5" if name == "text_to_text" else "base_model")
    config = load_config(f"{path}:{arguments},init_from={base}", keys)
    result = Experiment.from_config(config).train(tmp_path / "run")
    predictions = tmp_path / "run" / "predictions"
    ending = "run" if name in ("late_interaction", "retrieval", "sparse") else "jsonl"
    assert (predictions / f"validation.{ending}").is_file()
    for file in tmp_path.glob("train.*"):
        file.unlink()  # the evaluation of a model does not need it
    model = tmp_path / "run" / "model"
    judged = Experiment.from_config(config).evaluate(model=model, output=tmp_path / "judged")
    for metric, value in judged.items():
        if metric in result and not metric.endswith("_lexicon"):
            assert value == pytest.approx(result[metric], rel=1e-5), metric


def test_questions_of_ones_own_need_no_development_file(base_model, tmp_path):
    labelled_files("squad", tmp_path)
    path = next(path for path in CONFIGS if path.stem == "squad")
    config = load_config(f"{path}:train={tmp_path}/train.jsonl,init_from={base_model}")
    set_key(config, "data.length", 32, where="test")
    set_key(config, "data.question_length", 8, where="test")
    task = Experiment.from_config(config).task
    assert [len(part.examples) for part in task.splits.validation] == [1]


def test_arguments_of_the_main_config():
    path = next(path for path in CONFIGS if path.name == "pretrain.py")
    config = load_config(
        f"{path}:size=mini,length=512,source=text:a.txt,corpus=c", [("train.steps", "7")]
    )
    assert (config.model.size, config.data.length, config.train.steps) == ("mini", 512, 7)
    assert (config.data.source, config.data.corpus) == ("text:a.txt", "c")
    # 15 % of 512 are 76.8.
    assert 76 < config.data.max_predictions < 85
    assert config.data.objective == "nsp"


@pytest.mark.slow
def test_an_installed_package_finds_its_configs(tmp_path):
    """A wheel, unpacked elsewhere, knows the configs by their bare names."""
    root = Path(__file__).parents[1]
    source, wheels, site = (tmp_path / name for name in ("source", "wheels", "site"))
    source.mkdir()
    for name in ("setup.py", "README.md"):
        shutil.copy(root / name, source)
    for name in ("bert_jax", "configs"):
        shutil.copytree(root / name, source / name)
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
    subprocess.run([*build, "-w", wheels, source], check=True)
    (wheel,) = wheels.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    done = completed(
        [sys.executable, "-m", "bert_jax", "train", "--config", "glue:task=mrpc", "--workdir", "r"],
        cwd=site,
        env=os.environ | {"PYTHONPATH": str(site)},
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("bert-jax: init_from is not set")


def test_arguments_have_a_default_of_their_type():
    for path in CONFIGS:
        namespace: dict = {}
        exec(compile(path.read_text(), str(path), "exec"), namespace)
        for parameter in inspect.signature(namespace["get_config"]).parameters.values():
            assert isinstance(parameter.default, parameter.annotation), (path, parameter)


# You et al., 2020, table of untuned LAMB: batch, learning rate · 1000, warm-up, steps at 512.
LAMB = [
    (512, 5 / 2**3.0, 1 / 320, 1_000_000),
    (1024, 5 / 2**2.5, 1 / 160, 500_000),
    (2048, 5 / 2**2.0, 1 / 80, 250_000),
    (4096, 5 / 2**1.5, 1 / 40, 125_000),
    (8192, 5 / 2**1.0, 1 / 20, 62_500),
    (16384, 5 / 2**0.5, 1 / 10, 31_250),
    (32768, 5 / 2**0.0, 1 / 5, 15_625),
]


@pytest.mark.parametrize(("batch", "rate", "warmup", "steps"), LAMB)
def test_lamb_follows_the_table_of_its_paper(batch, rate, warmup, steps):
    path = next(path for path in CONFIGS if path.name == "pretrain_lamb.py")
    phases = [load_config(f"{path}:length={n},batch={batch}") for n in (128, 512)]
    for config in phases:
        assert config.optimizer.name == "lamb"
        assert config.optimizer.learning_rate == pytest.approx(rate / 1000)
        assert config.optimizer.warmup_ratio == pytest.approx(warmup)
        assert config.train.global_batch_size == batch
    # 512 million sequences, a tenth of them in the second phase.
    assert sum(config.train.steps for config in phases) == pytest.approx(steps, abs=1)
    assert phases[0].train.steps == pytest.approx(0.9 * steps, abs=1)


def test_lamb_in_the_two_phases_of_its_paper():
    path = next(path for path in CONFIGS if path.name == "pretrain_lamb.py")
    first, second = (load_config(f"{path}:length={length}") for length in (128, 512))
    assert [config.train.global_batch_size for config in (first, second)] == [65536, 32768]
    assert first.train.steps + second.train.steps == pytest.approx(8599, rel=1e-3)
    assert (second.optimizer.learning_rate, second.optimizer.warmup_ratio) == (5e-3, 0.2)
