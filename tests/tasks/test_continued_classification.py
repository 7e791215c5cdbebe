"""With what a work directory continues: the same data and model, more steps, a single run."""

import json
import shutil

import pytest

from bert_jax.config import complete_config
from bert_jax.errors import UserError
from bert_jax.experiment import Experiment
from bert_jax.experiment import workdir as run_directory


def test_a_run_of_numbers_continues(task, write_table, tmp_path):
    def made(divisor):
        rows = [("text", "label"), *((f"the cat was {n} .", n / divisor) for n in range(20))]
        return task(write_table("train.tsv", rows), problem_type="regression")

    run_directory.save_model_files(tmp_path / "run", made(2))
    run_directory.check_unchanged(tmp_path / "run", made(2))
    with pytest.raises(UserError, match="run was started with other data: "):
        run_directory.check_unchanged(tmp_path / "run", made(4))


def test_a_run_continues_only_with_the_same_data(task, write_table, tmp_path):
    def table(rows, name="train.tsv"):
        return write_table(name, [("text", "label"), *rows])

    def check(path):
        made = task(path, validation=tmp_path / "validation.tsv")
        if not (tmp_path / "run").exists():
            run_directory.save_model_files(tmp_path / "run", made)
        run_directory.check_unchanged(tmp_path / "run", made)

    rows = [(f"the cat was {n} .", "odd" if n % 2 else "even") for n in range(20)]
    table(rows, "validation.tsv")
    check(table(rows))
    check(table(rows, "renamed.tsv"))
    swapped = [(text, "even" if label == "odd" else "odd") for text, label in rows]
    with pytest.raises(UserError, match="run was started with other data: train changed since"):
        check(table(swapped))
    with pytest.raises(UserError, match="other data: examples_per_epoch, train changed since"):
        check(table([*rows, ("a dog .", "odd")]))
    renamed = [(text, "o" + label) for text, label in rows]
    table(renamed, "validation.tsv")
    with pytest.raises(UserError, match="learns the labels even, odd, but the data now"):
        check(table(renamed))
    table(rows[:-1], "validation.tsv")
    with pytest.raises(UserError, match="other data: validation changed since"):
        check(table(rows))
    made = task(table(rows), validation=tmp_path / "validation.tsv")
    assert run_directory.changed_evaluation_data(tmp_path / "run", made) == ["validation"]


def test_a_run_continues_only_with_the_same_model(task, base_model, write_table, tmp_path):
    rows = [(f"the cat was {n} .", "odd" if n % 2 else "even") for n in range(20)]
    table, run = write_table("train.tsv", [("text", "label"), *rows]), tmp_path / "run"
    run_directory.save_model_files(run, task(table))

    def changed(name, old, new):
        model = shutil.copytree(base_model, tmp_path / name)
        for file in ("bert_jax.json", "tokenizer.json"):
            (model / file).unlink()
        text = (model / name).read_text()
        assert old in text
        (model / name).write_text(text.replace(old, new))
        return task(table, model)

    with pytest.raises(UserError, match="run was started with other data: tokenizer changed since"):
        run_directory.check_unchanged(run, changed("vocab.txt", "\ncat\n", "\ncats\n"))
    activation = changed("config.json", '"hidden_act": "gelu"', '"hidden_act": "relu"')
    with pytest.raises(UserError, match="with another model: hidden_act changed since; use ano"):
        run_directory.check_unchanged(run, activation)


def test_a_run_may_become_longer_but_not_shorter_than_it_is(
    base_model, write_table, tmp_path, capsys
):
    rows = [("text", "label"), *((f"the cat was {n} .", "ab"[n % 2]) for n in range(20))]
    table = str(write_table("train.tsv", rows))
    workdir = tmp_path / "run"

    def begin(**train):
        config = {
            "task": "classification",
            "init_from": str(base_model),
            "data": {"train": table, "length": 32},
            "train": {"global_batch_size": 6, **train},
        }
        begun = Experiment.from_config(complete_config(config, where="test"))
        task = begun.task
        run_directory.init_workdir(workdir, begun.sections, task)
        if not (workdir / "data.json").exists():
            run_directory.save_model_files(workdir, task)
        written = json.loads((workdir / "config.json").read_text())["train"]
        return written["steps"], written["epochs"], (workdir / "result.json").exists()

    assert begin(epochs=3.0) == (0, 3.0, False)
    (workdir / "checkpoints" / "9").mkdir(parents=True)  # three epochs of three batches, finished
    (workdir / "result.json").write_text("{}")
    (workdir / ".metrics.jsonl.1.partial").write_text("of a process that was killed")
    assert begin(steps=9) == (9, 0.0, True)  # the same length in other words
    assert not list(workdir.rglob("*.partial"))
    assert begin(epochs=3.0, eval_every=2) == (0, 3.0, True)
    assert capsys.readouterr().err == ""
    with pytest.raises(UserError) as error:
        begin(epochs=2.0)
    assert str(error.value) == (
        f"{workdir} has done 9 steps already, and the config sets 6; use another --workdir, or "
        "at least train.steps=9"
    )
    write_table("train.tsv", [*rows, ("a dog .", "a")])
    with pytest.raises(UserError, match="run was started with other data"):
        begin(epochs=5.0)
    write_table("train.tsv", rows)
    assert begin(epochs=3.0) == (0, 3.0, True)  # what was refused has changed nothing
    assert begin(epochs=5.0) == (0, 5.0, False)
    assert capsys.readouterr().err == (
        f"{workdir}: 9 steps before, 15 now, 9 of them done; from here on the learning rate "
        "follows the schedule of 15 steps: 3.7e-06 in step 9, 1.4e-05 in the next\n"
    )
    assert begin(steps=10) == (10, 0.0, False)
    assert begin(steps=9) == (9, 0.0, False)  # it ends where it is


def test_a_single_run_does_not_begin_where_several_are(train, write_table, sentences, tmp_path):
    table = write_table("train.tsv", [("text", "label"), *sentences(40)])
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "several_runs.json").write_text('{"kind": "seeds"}')
    with pytest.raises(UserError, match="run holds several runs; give one of its runs"):
        train("classification", data__train=table)
