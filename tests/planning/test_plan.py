"""Plans of a tiny training, and the command that makes them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax import cli
from bert_jax.config import Sections, complete_config
from bert_jax.planning import plan
from bert_jax.planning.hardware import find_topology, parse_slice
from bert_jax.planning.plan import PlanOptions, largest_that_fits, make_plan
from bert_jax.planning.report import _scaled, as_text
from bert_jax.sharding.mesh import MeshShape

TWO_BY_FOUR = MeshShape(data=-1, fsdp=2)
CONFIG = str(Path(__file__).parents[2] / "configs" / "pretrain.py")


@pytest.fixture
def run(capsys, tiny_overrides):
    """Runs the command in this process, for devices that need no preparation."""

    def go(*arguments: str, **keys: object) -> tuple[int, str, str]:
        code = cli.main(["plan", "--config", CONFIG, *arguments, *tiny_overrides(**keys)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return go


@pytest.mark.slow
def test_a_plan_from_shapes(lay_out):
    training, topology = lay_out("h100:8", TWO_BY_FOUR), find_topology(parse_slice("h100:8"))
    result = make_plan(training, topology, PlanOptions(), dtype="float32")
    assert (result["mesh"], result["devices"]) == ("data=4,fsdp=2", 8)
    assert (result["microbatch_per_device"], result["length"]) == (1, 16)
    assert (result["compiled"], result["fits"]) == (False, True)
    assert result["collectives"] == {}
    assert result["sent_bytes_per_device"] == result["least_sent_bytes_per_device"] > 0
    assert result["flops_per_step"] == pytest.approx(result["flops_per_token"] * 8 * 16)
    # As many rows as fill the memory.
    memory = result["memory_per_device"]
    assert sum(memory.values()) == result["peak_bytes_per_device"]
    rest = result["available_bytes_per_device"] - result["peak_bytes_per_device"]
    rows = result["largest_microbatch_per_device"]
    assert rows == pytest.approx(rest / memory["activations"], rel=0.01)


def test_days_and_costs(lay_out, monkeypatch):
    floor = {"compute": 0.36, "memory": 0.1, "interconnect": None}
    monkeypatch.setattr(plan, "step_seconds", lambda *_, **__: floor)
    training, topology = lay_out("h100:8", TWO_BY_FOUR), find_topology(parse_slice("h100:8"))
    free, priced = (
        make_plan(
            training,
            topology,
            PlanOptions(search=False, steps=1_000_000, price=price),
            dtype="bfloat16",
        )
        for price in (None, 2.5)
    )
    assert priced["step_floor_s"] == 0.36
    assert priced["device_hours_floor"] == pytest.approx(800)  # 100 hours of eight
    assert priced["days_floor"] == pytest.approx(100 / 24)
    assert priced["cost_floor"] == pytest.approx(2000)
    assert priced["largest_microbatch_per_device"] is None
    assert "cost, at least            2,000.00" in as_text([priced])
    assert free["cost_floor"] is None


@pytest.mark.slow
def test_the_command_gives_text(run):
    # A corpus is not needed, wherever it is.
    keys = {"mesh": "auto", "data__corpus": "gs://nowhere/corpus"}
    code, out, err = run("--topology", "h100:8", "--no-search", **keys)
    assert (code, err) == (0, "")
    assert out.startswith("h100:8, 8 devices: 0.0 M parameters, float32, batches of 8 × 16\n")
    assert "mesh data=8, micro-batches of 1 row on a device" in out
    assert "Estimated from shapes, not compiled." in out


def test_the_vocabulary_is_that_of_the_corpus_or_assumed(tokenizer, tmp_path, capsys):
    tokenizer.save(tmp_path / "tokenizer")

    def vocab_size(corpus, **model):
        config = {"task": "pretraining", "model": model, "data": {"corpus": str(corpus)}}
        sections = Sections.read(complete_config(config, where="test"))
        task = sections.spec.create_without_data(sections.task, sections.model_init())
        return task.description.config.vocab_size

    assert vocab_size(tmp_path) == 40
    assert vocab_size(tmp_path, vocab_size=96) == vocab_size("gs://nowhere", vocab_size=96) == 96
    assert capsys.readouterr().err == ""
    assert vocab_size(tmp_path / "later") == 30522
    assumed = "without a tokenizer, a vocabulary of 30,522 is assumed (tokenizer.vocab_size)\n"
    assert capsys.readouterr().err == assumed


@pytest.mark.slow
def test_several_meshes_are_sorted_and_shown_as_a_table(run):
    _, out, _ = run("--topology", "a100:2", "--mesh", "all", "--json", "--steps", "7")
    result = json.loads(out)
    assert sorted(plan["mesh"] for plan in result["meshes"]) == ["data=2", "fsdp=2", "tensor=2"]
    times = [plan["step_floor_s"] for plan in result["meshes"]]
    assert times == sorted(times)
    assert result["mesh"] == result["meshes"][0]["mesh"]
    assert {"flops_per_step", "peak_bytes_per_device", "compile_s"} <= set(result)
    assert (result["steps"], result["fits"]) == (7, True)
    assert sum(result["memory_per_device"].values()) == result["peak_bytes_per_device"]
    rows = [line.split() for line in as_text(result["meshes"]).splitlines()]
    assert [row[0] for row in rows if len(row) == 9 and row[1] == "yes"] == [
        plan["mesh"] for plan in result["meshes"]
    ]


@pytest.mark.slow
def test_a_batch_that_is_too_large_is_reported(run):
    rows = 2_000_000
    code, out, _ = run("--topology", "a100:2", "--mesh", "tensor=2", train__global_batch_size=rows)
    assert code == 0
    assert "mesh tensor=2, micro-batches of 2,000,000 rows on a device" in out
    line = next(line for line in out.splitlines() if line.startswith("fits"))
    assert line.startswith("fits                      no: ")
    largest = next(line for line in out.splitlines() if line.startswith("largest"))
    assert 100_000 < int(largest.split()[2].replace(",", "")) < 2_000_000


@pytest.mark.parametrize(
    ("limit", "known", "guess", "tried", "result"),
    [
        (40, {8: True}, 32, [32, 48], 32),
        (40, {8: True}, 100, [96, 64, 48, 32], 32),
        (40, {8: True}, 8, [12, 16, 24, 32], 32),  # four tries are over
        (5, {64: False}, 6, [6, 4], 4),
        (0, {64: False}, 2, [2, 1], 0),
        (40, {48: False, 32: True}, 32, [], 32),
        (40, {20: True}, 20, [16, 24, 32, 48], 32),  # 20 is no step of the search
        (1, {1: True}, 0, [2], 1),
    ],
)
def test_the_search_for_the_largest_microbatch(limit, known, guess, tried, result):
    tries = []

    def fits(rows: int) -> bool:
        tries.append(rows)
        return rows <= limit

    assert largest_that_fits(fits, known=known, guess=guess, tries=4) == result
    assert tries == tried


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--topology", "v7:2x2"), "--topology is 'v7:2x2'; the nearest known device is 'v4'"),
        (("--topology", "h100:3"), "it must be a multiple of 3 devices"),
        (("--topology", "h100:8", "--mesh", "data=3"), "does not fit 8 devices"),
        (("--topology", "h100:8", "--mesh", "fdsp=3"), "is not AXIS=SIZE"),
        (
            ("--topology", "h100:7", "--mesh", "all"),
            "global_batch_size is 8; it must be a multiple of 7 devices",
        ),
        (
            ("--topology", "h100:8", "--config.mesh=auto", "--config.mesh.fsdp=2"),
            "are set; leave out mesh=auto, or mesh.data, mesh.fsdp and mesh.tensor",
        ),
    ],
)
def test_errors_are_one_line(run, arguments, message):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_eight_cpu_devices_are_compiled_for_in_a_separate_process(tiny_overrides):
    command = ["plan", "--config", CONFIG, "--topology", "cpu:8", "--mesh", "fsdp=8", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "bert_jax", *command, *tiny_overrides()],
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout)
    assert result["compiled"]
    assert result["fits"]
    assert result["compile_s"] > 0
    assert result["step_floor_s"] is None  # no published peak
    assert result["collectives"]["all-gather"]["count"] > 0
    # The compiler gathers parameters at least once and scatters gradients.
    assert result["sent_bytes_per_device"] > 0.8 * result["least_sent_bytes_per_device"]
    assert "compiling" in done.stderr


def test_a_small_training_is_no_column_of_zeros():
    units = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
    sizes = {0: "0.00 KiB", 300: "0.29 KiB", 5 * 2**20: "5.00 MiB", 2**30 // 2: "0.50 GiB"}
    assert {size: _scaled(size, units) for size in sizes} == sizes
    assert _scaled(3 * 2**30, units, 8) == "    3.00 GiB"
