"""Contenders take turns in processes of their own; what fails is left out; results are kept."""

import argparse
import json
import math
import sys

import pytest

from benchmarks.__main__ import main
from benchmarks.harness import GLIBC_TUNABLES, Work, environment, measure
from benchmarks.report import draw, outside, table
from bert_jax import __main__ as entry
from bert_jax.errors import UserError

CONTENDERS = """
import os, time
def record(options):
    def step(number):
        print("noise")
        os.write(1, b"more noise")
        with open(options.record, "a") as file:
            file.write(f"{options.contender}{number} ")
        return {"texts": options.texts, "difference": 0.5}
    return step
def fails(options):
    return lambda number: {0: 1}[number + 1] and None
def hangs(options):
    return lambda number: time.sleep(60)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Measures a work whose contenders are functions of a module; its result and the turns."""
    (tmp_path / "others.py").write_text(CONTENDERS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def run(contenders, *, rounds=2, steps=1, seconds=60.0, **fields):
        settings = argparse.Namespace(
            output=tmp_path, contenders=None, rounds=rounds, steps=steps,
            peer_python=sys.executable, more=[],
        )  # fmt: skip
        options = {"record": str(tmp_path / "record"), "texts": 10}
        setups = {name: setup.replace(":", "others:", 1) for name, setup in contenders.items()}
        work = Work("", setups, options, **fields)
        result = measure("work", work, options, settings, seconds)
        record = tmp_path / "record"
        return work, result, record.read_text().split() if record.exists() else []

    return run


@pytest.mark.slow
def test_every_other_round_is_in_reverse_order_and_the_first_does_not_count(run):
    _, result, turns = run({"a": ":record", "b": ":record"}, rounds=2, steps=2)
    assert turns == [*["a-1", "a-1", "b-1", "b-1", "b0", "b0", "a0", "a0", "a1", "a1", "b1", "b1"]]
    assert [len(result["rounds"][name]) for name in "ab"] == [2, 2]
    figures = result["rounds"]["a"][0]
    assert 0 <= figures["seconds"] < 1
    assert (figures["texts"], result["settings"]["steps"]) == (10, 2)
    assert "cores" in result["machine"]["processor"]


@pytest.mark.slow
def test_new_processes_take_each_turn_and_an_interrupted_work_continues(run, tmp_path):
    contenders = {"a": ":record", "b": ":record"}
    run(contenders, rounds=3, fresh=True)
    path = tmp_path / "work.json"
    result = json.loads(path.read_text())
    for turns in result["rounds"].values():
        del turns[2:]
    path.write_text(json.dumps(result))
    _, result, turns = run(contenders, rounds=3, fresh=True)
    assert turns == ["a0", "b0", "a1", "b1", "a2", "b2", "a2", "b2"]
    assert len(result["rounds"]["a"]) == 3


def test_a_finished_work_is_not_repeated_and_not_taken_for_another(run):
    _, first, turns = run({"a": ":record"})
    _, again, still = run({"a": ":record"})
    assert (again, still) == (first, turns)
    with pytest.raises(UserError, match="other settings; use another --output"):
        run({"a": ":record"}, rounds=3)


@pytest.mark.parametrize(
    ("setup", "reason"), [(":fails", "KeyError: 1"), (":none", "no attribute 'none'")]
)
def test_a_contender_that_fails_is_left_out(run, setup, reason):
    work, result, turns = run({"a": ":record", "b": setup})
    assert reason in result["left_out"]["b"]
    assert "work-b.log" in result["left_out"]["b"]
    assert turns == ["a-1", "a0", "a1"]
    assert outside("work", work, result) == []


def test_nothing_is_measured_without_the_reference_and_a_process_that_hangs_is_ended(run):
    work, result, turns = run({"a": ":hangs", "b": ":record"}, seconds=1.5)
    assert outside("work", work, result) == ["work was not measured: too slow"]
    assert turns == []


def test_what_contenders_get_from_their_environment(monkeypatch):
    assert entry._TUNED == GLIBC_TUNABLES  # the memory settings of the command
    for platforms, expected in (("cuda", "cuda,cpu"), ("cpu", "cpu"), ("tpu,cpu", "tpu,cpu")):
        monkeypatch.setenv("JAX_PLATFORMS", platforms)
        assert environment()["JAX_PLATFORMS"] == expected


@pytest.mark.slow
def test_a_command_is_timed_with_its_figures(run, tmp_path):
    program = (
        "import json, sys; print('x'); print(json.dumps({'mfu': None, 'f1': float(sys.argv[2])}))"
    )
    (tmp_path / "program.py").write_text(program)
    command = "peer " + str(tmp_path / "program.py") + " {run} {seed} --texts={texts}"
    _, result, _ = run({"a": command}, rounds=2, fresh=True, figures=("f1", "mfu", "missing"))
    rounds = result["rounds"]["a"]
    assert [figures["f1"] for figures in rounds] == [0.0, 1.0]
    assert set(rounds[0]) == {
        *("f1", "seconds", "processor_seconds", "MiB", "MiB of a tenth", "compiling s")
    }


@pytest.mark.slow
def test_a_command_that_fails_is_left_out_with_its_last_line(run):
    _, result, _ = run({"a": "peer -c 'import nothing_like_it'"}, fresh=True)
    assert "ended with 1: ModuleNotFoundError: No module named 'nothing" in result["left_out"]["a"]


RESULT = {
    "machine": {"processor": "Zen 4, 2 cores", "gpu": ""},
    "versions": {"jax": "0.10"},
    "left_out": {"c": "no torch"},
    "rounds": {
        "a": [{"seconds": s, "processor_seconds": s, "texts": 10, "f1": s / 10} for s in (1, 2)],
        "b": [{"seconds": 3, "processor_seconds": 1}, {"seconds": 4, "processor_seconds": 1}],
        "c": [],
    },
}


def test_the_table_and_the_plot(tmp_path):
    text = table({"w": Work("", {}, rate="texts")}, {"w": RESULT}, ["too much"])
    assert text.splitlines()[0] == "processor Zen 4, 2 cores, jax 0.10"
    assert text.splitlines()[4:] == [
        "| w | a | 1500 (1000–2000) ms | 1500 (1000–2000) ms | 1 | 7.5 texts/s, f1 0.15 ± 0.071 |",
        "| w | b | 3500 (3000–4000) ms | 1000 (1000–1000) ms | 2.50 (2.00–3.00) |  |",
        "| w | c | – | – | – | left out: no torch |",
        "",
        "- too much",
    ]
    draw({"w": RESULT}, tmp_path / "works.png")
    assert (tmp_path / "works.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("value", "is_beyond"), [(0.1, False), (0.3, True), (math.nan, True)])
def test_figures_beyond_their_limits(value, is_beyond):
    result = {"left_out": {}, "rounds": {"a": [{"xla float32": value, "xla bfloat16": 9.0}]}}
    findings = outside("kernels", Work("", {}, limits={"float32": 0.2}), result)
    assert findings == [f"kernels: xla float32 is {value:.3g}; the limit is 0.2"] * is_beyond


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["infer", "rows=3"], "rows=3 is not an option; give NAME=VALUE of kind, size, batch"),
        (["infer", "batch=x"], "batch=x is not of type int"),
        (["masking", "packing=maybe"], "packing=maybe is not of type bool"),
        (["finetune"], "data, model must be given as NAME=VALUE"),
    ],
)
def test_mistakes_are_one_line(words, message, tmp_path, capsys):
    assert main([*words, "--output", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"benchmarks: {message}")
