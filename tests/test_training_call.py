"""`bert_jax.train`: records and keys of a config as arguments, trained as the command trains."""

import json

import numpy as np
import pytest

import bert_jax
from bert_jax import cli
from bert_jax.config import config_with
from bert_jax.errors import UserError

TEXTS = {"the cat sat .": "calm", "a boy ran .": "busy"}
RECORDS = [{"text": text, "label": label} for text, label in TEXTS.items()] * 40
KEYS = {"epochs": 2, "learning_rate": 2e-2, "global_batch_size": 8, "length": 16}


@pytest.fixture(scope="module")
def run(base_model, tmp_path_factory):
    """A classifier of two classes, trained on records."""
    workdir = tmp_path_factory.mktemp("call") / "run"
    records, names = iter(RECORDS), ["calm", "busy"]
    return bert_jax.train(
        "classification", base_model, records, RECORDS[:2], workdir=workdir, labels=names, **KEYS
    )


def test_a_call_trains_as_the_command_does(run, base_model, tmp_path, capsys):
    for name, rows in (("train", RECORDS), ("validation", RECORDS[:2])):
        content = "".join(json.dumps(row) + "\n" for row in rows)
        assert (run.workdir / "records" / f"{name}.jsonl").read_text() == content
    files = run.workdir / "records"
    config = f"classification:init_from={base_model},train={files}/train.jsonl"
    keys = {
        "data.validation": files / "validation.jsonl",
        "data.labels": "calm,busy",
        "train.epochs": 2.0,
        "optimizer.learning_rate": 2e-2,
        "train.global_batch_size": 8,
        "data.length": 16,
    }
    options = [f"--config.{key}={value}" for key, value in keys.items()]
    workdir = ["--workdir", str(tmp_path / "run")]
    assert cli.main(["train", "--config", config, *workdir, *options]) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    others = {"exported_step": 20, "warnings": run.result["warnings"]}
    assert run.result == {**last, **others}
    configs = [
        json.loads((path / "config.json").read_text()) for path in (run.workdir, tmp_path / "run")
    ]
    assert configs[0] == configs[1]


def test_it_returns_the_model_the_result_and_pictures(run):
    assert run.result["accuracy"] == 1.0
    assert "validation has 2 rows only: its metrics say little" in run.result["warnings"]
    assert [each.label for each in run.model.classify([*TEXTS])] == ["calm", "busy"]
    assert run.model.description.labels == ("calm", "busy")
    assert "aria-label=&quot;accuracy over the steps" in run._repr_html_()
    assert (run.workdir / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_call_loads_the_run_and_another_one_is_refused(run, base_model, capsys):
    def again(train, **keys):
        names = {"labels": ["calm", "busy"], "workdir": run.workdir}
        return bert_jax.train("classification", base_model, train, RECORDS[:2], **names, **keys)

    same = again(RECORDS, **KEYS)
    assert same.result == run.result
    assert capsys.readouterr().err == f"{run.workdir} is finished already: nothing to do\n"
    with pytest.raises(UserError, match=r"was started with other records for train; use another"):
        again(RECORDS[:-1], **KEYS)
    with pytest.raises(UserError, match=r"belongs to another config: data.length was 16 and is 32"):
        again(RECORDS, **{**KEYS, "length": 32})


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"text": "a", "label": "x"}, {"text": None, "label": "x"}], "train:2: 'text' is null"),
        ([{"text": "a"}], "train:1: there is no key 'label' among 'text'"),
        ([], "train: no examples; give another file as data.train"),
    ],
)
def test_an_error_names_the_record_and_leaves_no_run(
    records, message, base_model, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f"^{message}"):
        bert_jax.train("classification", base_model, records)
    assert [*(tmp_path / "runs").iterdir()] == []


def test_a_model_is_given_by_its_directory(model):
    with pytest.raises(UserError, match="model is of type LoadedModel; save it, and give the dir"):
        bert_jax.train("classification", model, RECORDS)


def test_values_are_arguments_of_the_file_or_keys():
    config = config_with(
        "squad", {"train": "a.json", "version": "2.0", "learning_rate": 1}, where="train"
    )
    assert (config.data.train, config.data.validation) == ("a.json", ())
    assert (config.train.epochs, config.optimizer.learning_rate) == (2.0, 1.0)
    config = config_with("retrieval", {"model": "M", "mesh.data": 2, "steps": 7}, where="train")
    assert (config.init_from, config.mesh.data) == ("M", 2)
    assert (config.train.steps, config.train.epochs) == (7, 0.0)
    assert config_with("continue_pretraining", {"model": "M"}, where="train").tokenizer.path == "M"
    assert config_with("question_answering", {}, where="train").task == "question_answering"
    for name, message in {
        "batch_size": "unknown key 'batch_size'; the nearest known is 'train.global_batch_size'",
        "temperature": r"several keys end in 'temperature'; give \*\*{'data.temperature': …} or",
    }.items():
        with pytest.raises(UserError, match=f"^train: {message}"):
            config_with("retrieval", {name: 1}, where="train")
    with pytest.raises(UserError, match=r"argument epochs is 'three'; it must be of type float"):
        config_with("classification", {"epochs": "three"}, where="train")
    assert np.array(config_with("tagging", {"labels": ["O", "1"]}, where="t").data.labels).size == 2


@pytest.mark.slow
def test_several_seeds_and_files(base_model, tmp_path):
    files = []
    for name in ("a", "b"):
        files.append(tmp_path / f"{name}.jsonl")
        files[-1].write_text("".join(json.dumps(row) + "\n" for row in RECORDS[:2]))
    run = bert_jax.train(
        *("classification", base_model, RECORDS, files),
        workdir=tmp_path / "run",
        seeds=(1, 2),
        test=str(files[0]),
        **{**KEYS, "epochs": 1},
    )
    assert run.result["mean"].keys() >= {"a_accuracy", "b_accuracy", "test_accuracy"}
    assert len(run.model.classify([*TEXTS])) == 2
    html = run.report().html
    assert all(f"<bdi>seed-{seed}</bdi>" in html for seed in (1, 2))
