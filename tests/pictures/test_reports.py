"""The report of runs: their numbers, curves and mistakes; texts that are HTML; what is refused."""

import json
import re

import pytest

from bert_jax import cli
from bert_jax.config import complete_config
from bert_jax.pictures.mistakes import mistakes
from bert_jax.reports import report

HOSTILE = '<script>alert("1")</script>'


@pytest.fixture
def make_run(tmp_path):
    """Writes the work directory of a finished classification."""

    def make(name, loss, **keys):
        workdir = tmp_path / name
        (workdir / "predictions").mkdir(parents=True)
        config = complete_config({"task": "classification", **keys}, where="test")
        (workdir / "config.json").write_text(json.dumps(config.to_dict()))
        lines = [
            {"step": 1, "split": "train", "loss": 2 * loss, "learning_rate": 1e-3},
            {"step": 1, "split": "resumed"},
            {"step": 2, "split": "train", "loss": loss, "learning_rate": 5e-4},
            {"step": 2, "split": "validation", "loss": loss, "accuracy": 0.5},
        ]
        (workdir / "metrics.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines))
        result = {"loss": loss, "accuracy": 0.5, "exported_step": 2}
        result["warnings"] = [f"warning {HOSTILE}"]
        (workdir / "result.json").write_text(json.dumps(result))
        predictions = [
            {"text": "nice & fine", "expected": "good", "label": HOSTILE, "score": 0.75},
            {"text": f"so {HOSTILE}", "expected": "good", "label": "good", "score": 0.5},
            {"text": "שלום", "expected": HOSTILE, "label": "good", "score": 0.9},
        ]
        rows = ({"id": str(number)} | each for number, each in enumerate(predictions))
        text = "".join(f"{json.dumps(each)}\n" for each in rows)
        (workdir / "predictions" / "validation.jsonl").write_text(text)
        return workdir

    return make


def test_runs_side_by_side(make_run, tmp_path, capsys):
    runs = [make_run(HOSTILE.replace("/", "_"), 0.5), make_run("two", 0.25, seed=7)]
    target = tmp_path / "report.html"
    assert cli.main(["report", *map(str, runs), "--output", str(target)]) == 0
    assert "report.html: 2 runs" in capsys.readouterr().err
    html = target.read_text()
    assert "<td>loss</td><td>0.5</td><td>0.25</td>" in html
    assert re.search(r"<td>seed</td><td><bdi>\d+</bdi></td><td><bdi>7</bdi></td>", html)
    assert "exported_step" not in html
    assert html.count("<figure>") == 3  # loss, learning rate, accuracy
    assert "learning rate over the steps; at the end" in html
    assert html.count("stroke-dasharray: 0.8,1.32") == 3 * 2  # where each was resumed
    # The most certain mistake first, with its text.
    first, second = html.index("<bdi>שלום</bdi>"), html.index("<bdi>nice &amp; fine</bdi>")
    assert first < second
    assert "<script" not in html
    assert "href=" not in html.replace('xlink:href="#', "").replace('xlink:href="data:', "")


def test_mistakes_of_each_kind_of_prediction():
    label = {"id": "0", "expected": ["b", "a"], "label": ["a"], "score": 0.5}
    assert "<td><bdi>b, a</bdi></td><td><bdi>a</bdi></td>" in mistakes([label])
    pair = {"id": "0", "expected": "b", "label": "a", "probabilities": {"a": 0.6, "b": 0.4}}
    assert "<td><bdi>b</bdi></td><td><bdi>a</bdi></td>" in mistakes([pair])
    tags = {"id": "0", "words": ["Ada", "ran"], "expected": ["PER", "O"], "tags": ["O", "O"]}
    html = mistakes([tags | {"scores": [0.9, 0.8]}])
    wrong = "<td><bdi>Ada: PER</bdi></td><td><bdi>Ada: O</bdi></td><td><bdi>Ada ran</bdi></td>"
    assert wrong in html
    assert '<td><bdi>PER</bdi></td><td><span class="cell" style="--share: 1.000">1</span>' in html
    values = [{"id": str(n), "expected": 1.0, "value": value} for n, value in enumerate((1, 4, 3))]
    values[1]["text"] = "far"
    html = mistakes(values)
    assert "The worst 2 of 2 wrong predictions of 3" in html
    assert "<td><bdi>1</bdi></td><td><bdi>4</bdi></td><td><bdi>far</bdi></td>" in html
    assert html.index("<bdi>4</bdi>") < html.index("<bdi>3</bdi>")
    answer = {"id": "0", "expected": [], "answer": "Paris", "score": -2.0}
    assert "<td><bdi></bdi></td><td><bdi>Paris</bdi></td>" in mistakes([answer])
    read = {"id": "0", "question": "who", "expected": ["Ada"], "answer": "Bob", "passage": 1}
    assert "<td><bdi>Bob</bdi></td><td><bdi>who</bdi></td>" in mistakes([read | {"score": 1.0}])
    choice = {"id": "0", "prompt": "it", "choices": ["a", "b"], "expected": 1, "index": 0}
    html = mistakes([choice | {"score": 0.9, "choice": "a"}])
    shown = ("1: b", "0: a", "it / a b")
    assert "".join(f"<td><bdi>{each}</bdi></td>" for each in shown) in html
    assert mistakes([{"id": "0", "label": "a", "score": 1.0}]) == ""


def test_a_directory_of_seeds_stands_for_its_runs(make_run, tmp_path, refused):
    several = tmp_path / "seeds"
    several.mkdir()
    (several / "several_runs.json").write_text('{"kind": "seeds"}')
    message = refused("report", several, "--output", tmp_path / "x.html")
    assert "none of its runs has begun" in message
    for number in (1, 2):
        make_run(f"seeds/seed-{number}", number / 4)
    (several / "model").mkdir()
    (several / "model" / "config.json").write_text("{}")
    html = report([several]).html
    assert re.findall(r"--colour: #\w+\"><bdi>([\w-]+)", html)[:2] == ["seed-1", "seed-2"]


def test_errors_are_one_line(make_run, tmp_path, refused):
    target = tmp_path / "report.html"
    message = refused("report", tmp_path, "--output", target)
    assert message.endswith("is not a run: it has no config.json; use another --workdir\n")
    run = make_run("run", 1.0)
    (run / "predictions" / "validation.jsonl").write_text('{"id": "0", "label": "a"\n')
    assert "validation.jsonl is damaged; evaluate the run again" in refused(
        "report", run, "--output", target
    )
    target.write_text("mine")
    (run / "predictions" / "validation.jsonl").unlink()
    assert "was not written by bert_jax" in refused("report", run, "--output", target)
