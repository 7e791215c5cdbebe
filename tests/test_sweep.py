"""Runs with several seeds and over a grid, on sentences about cats and about dogs."""

import json
import shutil
from pathlib import Path

import pytest

from bert_jax.config import default_config, set_key, set_keys
from bert_jax.errors import UserError
from bert_jax.experiment import Experiment, sweep
from bert_jax.experiment.workdir import run_config
from bert_jax.training.loop import DivergedError

ANIMALS = ("cat", "dog")
VERBS = ("sat", "ran", "sang", "went", "play", "walk")
PLACES = ("on the mat", "to the sea", "up the tree", "down", "to a boy")


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    """Sixty sentences; the label is the animal."""
    path = tmp_path_factory.mktemp("data") / "animals.tsv"
    lines = [
        f"the {animal} {verb} {place} .\t{animal}"
        for verb in VERBS
        for place in PLACES
        for animal in ANIMALS
    ]
    path.write_text("\n".join(["text\tlabel", *lines]) + "\n")
    return path


@pytest.fixture(scope="module")
def make_config(table, tmp_path_factory, pieces):
    """A classifier of one layer of width 16, from nothing."""
    vocabulary = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    vocabulary.write_text("\n".join(pieces) + "\n")
    keys = {
        "task": "classification",
        "tokenizer.path": str(vocabulary),
        "model.hidden_size": 16,
        "model.num_hidden_layers": 1,
        "model.num_attention_heads": 2,
        "model.intermediate_size": 16,
        "model.max_position_embeddings": 16,
        "data.train": str(table),
        "data.validation": str(table),
        "data.length": 16,
        "optimizer.learning_rate": 1e-2,
        "train.epochs": 2.0,
        "train.global_batch_size": 8,
    }

    def make(**changes):
        config = default_config("classification")
        changed = {key.replace("__", "."): value for key, value in changes.items()}
        return set_keys(config, keys | changed, where="test")

    return make


def test_the_grid_of_the_paper(make_config):
    grid = sweep.parse_grid([], make_config())
    # Appendix A.3: 3 rates × 2 batch sizes × 3 lengths.
    assert grid == {
        "optimizer.learning_rate": (5e-5, 3e-5, 2e-5),
        "train.global_batch_size": (16, 32),
        "train.epochs": (2.0, 3.0, 4.0),
    }


def test_a_grid_from_the_command_line(make_config):
    config = make_config()
    before = config.to_dict()
    grid = sweep.parse_grid(
        ["optimizer.learning_rate=1e-3, 0", "data.class_weights=balanced",
         "data.labels=['cat','dog'],['dog','cat']", "train.epochs=1,2.5"],
        config,
    )  # fmt: skip
    assert grid == {
        "optimizer.learning_rate": (1e-3, 0.0),
        "data.class_weights": ("balanced",),
        "data.labels": (("cat", "dog"), ("dog", "cat")),
        "train.epochs": (1.0, 2.5),
    }
    assert [type(value) for value in grid["train.epochs"]] == [float, float]
    assert config.to_dict() == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train.epoch=1,2", "unknown key 'train.epoch'; the nearest known is 'train.epochs'"),
        ("train.epochs", "--sweep 'train.epochs' is not KEY=VALUE,VALUE, as train.epochs=2,3,4"),
        ("train.epochs=", "--sweep 'train.epochs=' is not KEY=VALUE,VALUE"),
        ("train.epochs=two", "train.epochs is 'two', a str; it must be of type float"),
        ("train.global_batch_size=8,8", "a value appears twice; leave one out"),
        ("task=tagging", "a config of task classification, not 'tagging'; choose another --config"),
        ("train.seeds=1,2", "--sweep train.seeds: give --config.train.seeds, or sweep over seed"),
    ],
)
def test_a_bad_grid_names_its_key(make_config, text, message):
    with pytest.raises(UserError) as raised:
        sweep.parse_grid([text], make_config())
    assert message in str(raised.value)
    with pytest.raises(UserError, match="train.steps appears twice"):
        sweep.parse_grid(["train.steps=1", "train.steps=2"], make_config())


@pytest.mark.parametrize(
    ("point", "name"),
    [
        (
            {"optimizer.learning_rate": 5e-5, "train.global_batch_size": 16, "train.epochs": 2.0},
            "learning_rate=5e-05,global_batch_size=16,epochs=2",
        ),
        ({"data.length": 64, "mesh.length": 1}, "data.length=64,mesh.length=1"),
        ({"optimizer.freeze_encoder": True}, "freeze_encoder=True"),
        ({"init_from": "models/mini"}, "init_from=models_mini-30869cf9"),
    ],
)
def test_names_can_be_read(point, name):
    assert sweep.name_of(point, dict.fromkeys(point, ())) == name


def test_names_of_different_points_differ():
    grid = {"init_from": ("a/b", "a b", "x" * 300, "x" * 301)}
    names = {sweep.name_of({"init_from": value}, grid) for value in grid["init_from"]}
    assert len(names) == 4
    assert max(map(len, names)) < 120


def test_which_points_are_checked_by_one_look_at_data_and_model(make_config):
    def key(**changes):
        return sweep.check_key(Experiment.from_config(make_config(**changes)))

    same = {"seed": 1, "optimizer__learning_rate": 1e-4, "train__epochs": 3.0}
    assert key(**same) == key(train__global_batch_size=16) == key()
    assert key(optimizer__shard_over_data=True) != key()
    assert key(data__length=8) != key()
    assert key(init_from="other") != key()
    assert key(precision="float32") != key()
    # mesh=auto depends on the size of the batch.
    assert key(mesh__auto=True, train__global_batch_size=16) != key(mesh__auto=True)


def test_points_that_differ_in_a_section_of_one_task_are_all_checked():
    def key(size):
        config = default_config("replaced_tokens")
        set_key(config, "replaced_tokens.generator_size", size, where="test")
        return sweep.check_key(Experiment.from_config(config))

    assert key(0.25) == key(0.25) != key(0.5)


def test_a_mixture_of_sources_can_be_swept():
    config = default_config("pretraining")
    mixture = [{"source": "text:a.txt", "weight": 2}, "text:b.txt"]
    set_key(config, "data.source", mixture, where="test")
    keys = [sweep.check_key(Experiment.from_config(config)) for _ in range(2)]
    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    ("key", "values", "message"),
    [
        ("optimizer.layer_decay", (0.9, 2.0), "optimizer.layer_decay is 2.0; it must be above 0"),
        ("data.length", (16, 17), "data.length is 17; this model takes 3 to 16 tokens"),
        ("data.best_metric", ("loss", "accuracy"), "evaluated by accuracy and the first by loss"),
        ("optimizer.freeze_layers", (0, 9), "optimizer.freeze_layers is 9; this model has 1 layer"),
        # Without another look at the data.
        ("optimizer.decay", ("linear", "quadratic"), "optimizer.decay is 'quadratic'; known are"),
        ("precision", ("float32", "float12"), "precision is 'float12'"),
        ("train.epochs", (2.0, 0.1), "optimizer.warmup_steps is 5; it must lie between 0 and"),
    ],
)
def test_a_bad_point_is_refused_before_any_run(make_config, tmp_path, key, values, message):
    config = make_config(optimizer__warmup_steps=5, optimizer__warmup_ratio=0.0)
    with pytest.raises(UserError, match=message):
        sweep.sweep(config, tmp_path / "runs", {key: values})
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("content", ["", "[1]", "{}", '{"kind": "other"}', "\udcff"])
def test_a_damaged_work_directory_is_named(make_config, tmp_path, content):
    (tmp_path / "several_runs.json").write_text(content, errors="surrogateescape")
    with pytest.raises(UserError, match=r"several_runs.json is damaged; remove it to continue"):
        sweep.train_seeds(make_config(train__seeds=(1,)), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["several_runs.json"]


def test_seeds_are_distinct(make_config, tmp_path):
    with pytest.raises(UserError, match="train.seeds is .*; seeds must be distinct"):
        sweep.train_seeds(make_config(train__seeds=(1, 1)), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_sweep_names_the_key_that_it_replaces_once(make_config, tmp_path, capsys):
    config = make_config(train__steps=6)
    grid = sweep.parse_grid(["train.epochs=1,2"], config)
    with pytest.raises(UserError, match="seeds must be distinct"):
        sweep.sweep(config, tmp_path, grid | {"train.seeds": ((1, 1),)})
    expected = "--sweep train.epochs replaces train.steps=6 of the config\n"
    assert capsys.readouterr().err == expected


@pytest.mark.slow
def test_that_a_run_has_diverged_counts_for_its_config_alone(make_config, tmp_path):
    directory = tmp_path / "runs" / "seed-1"
    config = make_config(train__seeds=(1,))
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(make_config(seed=1).to_dict()))
    (directory / "diverged.txt").write_text("the loss of step 7 is not finite\n")
    result = sweep.train_seeds(config, tmp_path / "runs")
    assert result["failed"] == {"seed-1": "the loss of step 7 is not finite"}
    other = make_config(train__seeds=(1,), optimizer__learning_rate=1e-3)
    with pytest.raises(
        UserError, match="seed-1 belongs to another config: optimizer.learning_rate"
    ):
        sweep.train_seeds(other, tmp_path / "runs")


@pytest.fixture(scope="module")
def three_seeds(make_config, tmp_path_factory):
    """A work directory with three seeds, and what was returned."""
    workdir = tmp_path_factory.mktemp("seeds") / "runs"
    config = make_config(train__seeds=(1, 2, 3), optimizer__learning_rate=3e-3)
    return workdir, sweep.train_seeds(config, workdir)


@pytest.mark.slow
def test_a_run_for_each_seed_and_the_best_model(three_seeds):
    workdir, result = three_seeds
    assert json.loads((workdir / "result.json").read_text()) == result
    assert list(result["runs"]) == ["seed-1", "seed-2", "seed-3"]
    for seed in (1, 2, 3):
        config = run_config(workdir / f"seed-{seed}")
        assert (config.seed, config.train.seeds) == (seed, ())
        alone = json.loads((workdir / f"seed-{seed}" / "result.json").read_text())
        assert alone.items() >= result["runs"][f"seed-{seed}"].items()
    # Other seeds are other runs.
    losses = [run["loss"] for run in result["runs"].values()]
    assert len(set(losses)) == 3
    assert result["mean"]["loss"] == pytest.approx(sum(losses) / 3)
    accuracies = {name: run["accuracy"] for name, run in result["runs"].items()}
    assert accuracies[result["best"]] == max(accuracies.values())
    copied, best = workdir / "model", workdir / result["best"] / "model"
    assert {p.name for p in copied.iterdir()} == {p.name for p in best.iterdir()}
    for path in copied.iterdir():
        assert path.read_bytes() == (best / path.name).read_bytes()
    assert {p.name for p in workdir.iterdir()} == {
        "seed-1", "seed-2", "seed-3", "model", "several_runs.json", "result.json", "result.md",
        "result.png",
    }  # fmt: skip


@pytest.mark.slow
def test_it_goes_on_where_it_was_and_takes_more_seeds(make_config, three_seeds, tmp_path, capsys):
    whole, expected = three_seeds
    workdir = Path(shutil.copytree(whole, tmp_path / "runs"))
    # As after a kill in the second run and before the third; the copy of the model was under way.
    (workdir / "seed-2" / "result.json").unlink()
    shutil.rmtree(workdir / "seed-3")
    shutil.rmtree(workdir / "model")
    (workdir / ".model.partial").mkdir()
    options = {"optimizer__learning_rate": 3e-3}
    actual = sweep.train_seeds(make_config(train__seeds=(1, 2, 3), **options), workdir)
    assert actual == expected
    said = capsys.readouterr().err
    assert f"{workdir / 'seed-1'} is finished already" in said
    assert f"resuming {workdir / 'seed-2'}" in said
    assert not (workdir / ".model.partial").exists()
    assert (workdir / "model" / "model.safetensors").is_file()
    # The summary has the requested seed alone; the other runs stay on disk.
    actual = sweep.train_seeds(make_config(train__seeds=(2,), **options), workdir)
    assert list(actual["runs"]) == ["seed-2"]
    assert actual["deviation"]["accuracy"] is None


@pytest.mark.slow
def test_other_work_directories_are_refused(make_config, three_seeds, tmp_path):
    workdir, _ = three_seeds
    before = sorted(path.name for path in workdir.iterdir())
    with pytest.raises(UserError, match="holds the runs of seeds; use another --workdir"):
        sweep.sweep(make_config(), workdir, {"seed": (1, 2)})
    with pytest.raises(UserError, match="belongs to another config: optimizer.weight_decay was"):
        sweep.train_seeds(
            make_config(
                train__seeds=(1,), optimizer__learning_rate=3e-3, optimizer__weight_decay=0.5
            ),
            workdir,
        )
    with pytest.raises(UserError, match="seed-1 is a single run; use another --workdir"):
        sweep.train_seeds(make_config(train__seeds=(1,)), workdir / "seed-1")
    assert sorted(path.name for path in workdir.iterdir()) == before
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot make .*; use another --workdir"):
        sweep.train_seeds(make_config(train__seeds=(1,)), tmp_path / "file" / "runs")


@pytest.mark.slow
def test_a_sweep_ranks_its_runs_and_names_those_that_fail(make_config, tmp_path, capsys):
    workdir = tmp_path / "runs"
    grid = {"optimizer.learning_rate": (0.0, 1e30, 3e-3)}
    result = sweep.sweep(make_config(), workdir, grid)
    # Without learning nothing is better than guessing; with an absurd rate nothing is a number.
    zero, absurd, good = "learning_rate=0", "learning_rate=1e+30", "learning_rate=0.003"
    assert result["runs"][zero]["accuracy"] <= 0.5 == result["baselines"]["accuracy_majority"]
    assert "is not better than accuracy_majority 0.5000" in result["not_better"][zero]
    assert result["runs"][absurd]["accuracy"] is None
    assert "is not finite" in result["failed"][absurd]
    assert list(result["runs"])[-1] == absurd
    assert run_config(workdir / good).optimizer.learning_rate == 3e-3
    assert (workdir / "model" / "model.safetensors").read_bytes() == (
        workdir / result["best"] / "model" / "model.safetensors"
    ).read_bytes()
    table = capsys.readouterr().out.splitlines()
    assert table[0].split()[:2] == ["run", "accuracy"]
    assert table[3].split() == [absurd, *["-"] * (len(table[0].split()) - 1)]
    assert (workdir / "result.md").read_text().startswith("| run | accuracy |")
    # What has diverged is not tried again.
    again = sweep.sweep(make_config(), workdir, grid)
    assert again == result
    assert (workdir / absurd / "diverged.txt").read_text().strip() == result["failed"][absurd]


@pytest.mark.slow
def test_diverged_seeds_count_against_a_point(make_config, tmp_path, monkeypatch):
    def train(self, workdir, *, describe=True):
        rate, seed = self.sections.optimizer.learning_rate, self.sections.task.seed
        (workdir / "model").mkdir(parents=True)
        if (rate, seed) == (0.1, 2):
            raise DivergedError("the loss of step 7 is not finite")
        (workdir / "model" / "model.safetensors").write_bytes(b"parameters")
        return {"accuracy": 0.9 if rate == 0.1 else 0.8, "loss": 0.5}

    monkeypatch.setattr(Experiment, "train", train)
    monkeypatch.setattr(sweep, "_check_all", lambda configs: (("accuracy", True), {}))
    config = make_config(train__seeds=(1, 2), data__best_metric="accuracy")
    result = sweep.sweep(config, tmp_path / "runs", {"optimizer.learning_rate": (0.1, 0.01)})
    assert list(result["runs"]) == ["learning_rate=0.01", "learning_rate=0.1"]
    assert result["best"] == "learning_rate=0.01"
    assert result["failed"] == {"learning_rate=0.1": "1 of 2 seeds diverged"}
    inner = json.loads((tmp_path / "runs" / "learning_rate=0.01" / "result.json").read_text())
    assert list(inner["runs"]) == ["seed-1", "seed-2"]
    assert result["runs"]["learning_rate=0.01"] == inner["mean"]
    assert (tmp_path / "runs" / "model" / "model.safetensors").read_bytes() == b"parameters"
