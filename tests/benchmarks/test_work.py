"""What is counted of a batch, and what a benchmark says."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from bert_jax import costs
from bert_jax.benchmarks.command import BenchOptions
from bert_jax.benchmarks.timing import Timing, time_steps
from bert_jax.benchmarks.work import row_lengths
from bert_jax.config import load_config
from bert_jax.errors import UserError


def test_lengths_of_rows_alone():
    mask = np.array([[1, 1, 1, 0], [1, 0, 0, 0]])
    assert row_lengths({"attention_mask": mask}).tolist() == [3, 1]
    assert row_lengths({"attention_mask": mask[None]}).tolist() == [3, 1]  # two choices


def test_lengths_of_packed_rows():
    ids = np.array([[1, 1, 2, 2, 2, 0], [1, 1, 1, 0, 0, 0]])
    assert sorted(row_lengths({"segment_ids": ids})) == [2, 3, 3]


def test_the_first_step_is_told_from_the_others():
    numbers = []
    timing = time_steps(numbers.append, 3, warmup=2)
    assert numbers == [0, 1, 2, 3, 4]
    assert len(timing.steps) == 3
    assert Timing(5.0, [1.0, 3.0, 2.0]).median == 2.0
    assert Timing(5.0, [1.0, 3.0, 2.0]).once == 3.0
    assert Timing(1.0, [2.0]).once == 0.0


def test_options_that_are_none():
    with pytest.raises(UserError, match="--steps 0: at least 1"):
        BenchOptions("train", steps=0)
    with pytest.raises(UserError, match="--peak-tflops -1: it must be above 0"):
        BenchOptions("train", peak_flops=-1e12)


KEYS = {
    "model.num_hidden_layers": 1,
    "model.vocab_size": 100,
    "tokenizer.vocab_size": 100,
    "data.length": 16,
    "data.max_predictions": 3,
    "train.global_batch_size": 4,
    "train.steps": 10,
    "optimizer.warmup_steps": 0,
}


def bench(*arguments):
    keys = [f"--config.{key}={value}" for key, value in KEYS.items()]
    command = [
        sys.executable,
        "-m",
        "bert_jax",
        "bench",
        "--config",
        "configs/pretrain.py:size=tiny",
    ]
    return subprocess.run(
        [*command, *arguments, *keys],
        env=os.environ | {"JAX_COMPILATION_CACHE_DIR": ""},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_training_step_without_a_corpus():
    done = bench("--work", "train", "--steps", "2", "--peak-tflops", "0.1")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["min_s"] <= found["median_s"] <= max(found["steps_s"])
    assert found["tokens_per_s"] == pytest.approx(2 * 4 * 16 / sum(found["steps_s"]), rel=1e-3)
    assert 0 < found["real_tokens_per_s"] <= found["tokens_per_s"]
    assert found["mfu"] == pytest.approx(found["flops_per_s"] / 1e11)
    assert found["peak_bytes"] > 1e7
    assert found["compile_s"] > found["median_s"]


@pytest.mark.slow
@pytest.mark.parametrize("work", ["infer", "pipeline"])
def test_the_other_works(work, tmp_path):
    done = bench("--work", work, "--steps", "3", "--profile", str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["work"], found["steps"]) == (work, 3)
    assert list(tmp_path.rglob("perfetto_trace.json.gz"))


def flops_of_a_token(found):
    return found["flops_per_s"] / found["real_tokens_per_s"]


@pytest.mark.slow
def test_flops_are_those_of_the_layers():
    config = load_config(
        "configs/pretrain.py:size=tiny", [(key, str(value)) for key, value in KEYS.items()]
    )
    # A layer of width 128: four matrices of attention and two four times as wide, each number of
    # which is multiplied and added once for a token; and scores and sums over the row's 16.
    forward = 2 * (4 * 128**2 + 2 * 128 * 512) + 4 * 128 * 16
    infer = costs.bench(config, BenchOptions("infer", steps=2))
    assert flops_of_a_token(infer) == pytest.approx(forward)
    train = costs.bench(config, BenchOptions("train", steps=2))
    # The words' scores besides, of at most 3 tokens of a row, and the pooler.
    heads = 3 / 16 * 2 * (128 * 100 + 128**2) + 2 / 16 * 128**2
    assert 3 * forward < flops_of_a_token(train) < 3 * (forward + heads)


@pytest.mark.slow
def test_finetuning_a_table(tmp_path, base_model):
    table = tmp_path / "train.tsv"
    table.write_text("text\tlabel\n" + "the cat sat\tgood\na dog ran away\tbad\n" * 8)
    config = load_config(
        f"configs/classification.py:train={table},init_from={base_model}",
        [("train.global_batch_size", "4"), ("data.length", "16")],
    )
    found = costs.bench(config, BenchOptions("finetune", steps=2))
    assert (found["work"], found["rows"]) == ("finetune", 4)
    assert 0 < found["real_tokens_per_s"] <= found["tokens_per_s"]


def test_a_corpus_is_not_finetuned_on():
    done = bench("--work", "finetune")
    assert done.returncode == 2
    assert done.stderr.startswith("bert-jax: --work finetune needs a config of a labelled task")
