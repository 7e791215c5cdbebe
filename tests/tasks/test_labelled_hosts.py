"""Two real processes fine-tune and judge as this one does: the same decisions and files."""

import json
import random
import sys
from pathlib import Path

import pytest

from bert_jax import cli
from tests.runs import printed_lines

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
KEYS = {
    "precision": "float32",
    "data.length": 16,
    "train.global_batch_size": 8,
    "train.log_every": 1,
    "optimizer.learning_rate": 3e-3,
}


def train_command(task, workdir, base, **keys):
    values = KEYS | {name.replace("__", "."): value for name, value in keys.items()}
    return [
        *(sys.executable, "-m", "bert_jax", "train", "--config", f"{REPOSITORY}/configs/{task}.py"),
        *("--workdir", str(workdir), f"--config.init_from={base}"),
        *(f"--config.{name}={value}" for name, value in values.items()),
    ]


def alone(command):
    assert cli.main(command[3:]) == 0


def together(start_hosts, command):
    """The output of the main host; the other prints nothing."""
    main_host, other = start_hosts(command, 2, devices=2)
    texts = [process.communicate() for process in (main_host, other)]
    assert (main_host.returncode, other.returncode) == (0, 0), texts
    assert printed_lines(texts[1][0]) == []
    assert texts[1][1] == ""
    return texts[0][0]


def assert_same_records(actual, expected, count):
    """Each line of the log: the losses of all steps, and the metrics of all evaluations."""
    ours, peer = (
        [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for run in (actual, expected)
    )
    assert len(ours) == len(peer) >= count
    for row, reference in zip(ours, peer, strict=True):
        for name in set(reference) - {"split", "tokens_per_second", "real_tokens_per_second"}:
            tolerance = 1e-4 if name == "gradient_norm" else 1e-5
            assert row[name] == pytest.approx(reference[name], rel=tolerance), (row["step"], name)


def test_seeds_of_a_classification(start_hosts, base_model, sentences, assert_same, tmp_path):
    for name, count in (("train", 30), ("validation", 13)):
        rows = [("text", "label"), *sentences(count, seed=count)]
        (tmp_path / f"{name}.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    keys = {
        "data__train": tmp_path / "train.tsv",
        "data__validation": tmp_path / "validation.tsv",
        "train__epochs": 2.0,
        "train__seeds": "1,2",
    }
    one, two = tmp_path / "one", tmp_path / "two"
    alone(train_command("classification", one, base_model, **keys))
    output = together(start_hosts, train_command("classification", two, base_model, **keys))
    report = json.loads(output.splitlines()[-1])
    assert report == json.loads((two / "result.json").read_text())
    assert_same(report, json.loads((one / "result.json").read_text()), rel=1e-4)
    assert {path.name for path in two.iterdir()} == {path.name for path in one.iterdir()}
    for seed in ("seed-1", "seed-2"):
        assert_same_records(two / seed, one / seed, 8)
        ours, peer = (run / seed / "predictions" for run in (two, one))
        assert {path.name for path in ours.iterdir()} == {path.name for path in peer.iterdir()}
        lines = [
            list(map(json.loads, (folder / "validation.jsonl").read_text().splitlines()))
            for folder in (ours, peer)
        ]
        assert_same(*lines, rel=1e-4)
        assert len(lines[0]) == 13


def test_a_tagging_by_a_chain_and_its_evaluation(
    start_hosts, base_model, assert_same, tmp_path, capsys
):
    draw = random.Random(3)
    for name, count in (("train", 20), ("validation", 11)):
        rows = []
        for _ in range(count):
            words = draw.choices(["the", "cat", "dog", "sat", "ran", "to", "sea", "mat"], k=5)
            tags = ["B-ANIMAL" if word in ("cat", "dog") else "O" for word in words]
            rows.append(json.dumps({"tokens": words, "tags": tags}) + "\n")
        (tmp_path / f"{name}.jsonl").write_text("".join(rows))
    keys = {
        "data__train": tmp_path / "train.jsonl",
        "data__validation": tmp_path / "validation.jsonl",
        "train__epochs": 2.0,
        "model__use_crf": "true",
    }
    one, two = tmp_path / "one", tmp_path / "two"
    alone(train_command("tagging", one, base_model, **keys))
    together(start_hosts, train_command("tagging", two, base_model, **keys))
    assert_same_records(two, one, 6)
    results = [json.loads((run / "result.json").read_text()) for run in (two, one)]
    assert_same(*results, rel=1e-4)
    for name in ("validation.conll",):
        assert (two / "predictions" / name).read_text() == (one / "predictions" / name).read_text()

    evaluated = tmp_path / "judged"
    evaluate = [sys.executable, "-m", "bert_jax", "evaluate", "--workdir", str(two)]
    output = together(start_hosts, [*evaluate, "--output", str(evaluated)])
    capsys.readouterr()
    alone(evaluate)
    expected = json.loads(capsys.readouterr().out.splitlines()[-1])
    actual = json.loads(output.splitlines()[-1])
    # What is counted is the same to the last digit.
    assert {name: value for name, value in actual.items() if name != "loss"} == {
        name: value for name, value in expected.items() if name != "loss"
    }
    name = "validation.conll"
    assert (evaluated / name).read_text() == (two / "predictions" / name).read_text()
