"""What is counted of a batch, and what a benchmark says."""

import json

import numpy as np
import pytest

from bert_jax import cli
from bert_jax.config import load_config
from bert_jax.errors import OptionError
from bert_jax.experiment import Experiment
from bert_jax.models.config import EncoderConfig
from bert_jax.planning.bench import BenchOptions, Timing, row_lengths, time_steps

TEXT = EncoderConfig()


def test_lengths_of_rows():
    mask = np.array([[1, 1, 1, 0], [1, 0, 0, 0]])
    assert row_lengths({"attention_mask": mask}, TEXT).tolist() == [3, 1]
    assert row_lengths({"attention_mask": mask[None]}, TEXT).tolist() == [3, 1]  # two choices
    packed = np.array([[1, 1, 2, 2, 2, 0], [1, 1, 1, 0, 0, 0]])
    assert sorted(row_lengths({"segment_ids": packed}, TEXT)) == [2, 3, 3]


def test_the_first_step_is_timed_separately():
    numbers = []
    timing = time_steps(numbers.append, 3, warmup=2)
    assert numbers == [0, 1, 2, 3, 4]
    assert len(timing.steps) == 3
    assert Timing(5.0, [1.0, 3.0, 2.0]).median == 2.0
    assert Timing(5.0, [1.0, 3.0, 2.0]).once == 3.0
    assert Timing(1.0, [2.0]).once == 0.0


def test_bad_options():
    with pytest.raises(OptionError, match="steps is 0; it must be at least 1"):
        BenchOptions("train", steps=0)
    with pytest.raises(OptionError, match="peak_flops is -1.0; it must be above 0"):
        BenchOptions("train", peak_flops=-1.0)


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


@pytest.fixture
def bench(capsys, monkeypatch):
    """Runs `bert-jax bench` in this process, without a corpus; its exit code, JSON and errors."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")

    def run(*arguments):
        keys = [f"--config.{key}={value}" for key, value in KEYS.items()]
        code = cli.main(["bench", "--config", "pretrain:size=tiny", *arguments, *keys])
        captured = capsys.readouterr()
        return code, json.loads(captured.out or "null"), captured.err

    return run


def test_a_corpus_is_not_finetuned_on_and_options_are_flags(bench):
    code, _, errors = bench("--work", "finetune")
    assert code == 2
    assert errors.endswith(
        "bert-jax: --work is 'finetune'; it needs the config of a labelled task, or --work train\n"
    )
    code, _, errors = bench("--work", "train", "--steps", "0")
    assert (code, errors) == (2, "bert-jax: --steps is 0; it must be at least 1\n")
    code, _, errors = bench("--work", "train", "--peak-tflops", "-1")
    assert (code, errors) == (
        2,
        "bert-jax: --peak-tflops is -1000000000000.0; it must be above 0\n",
    )


@pytest.mark.slow
def test_a_training_step_without_a_corpus(bench):
    code, result, errors = bench("--work", "train", "--steps", "2", "--peak-tflops", "0.1")
    assert code == 0, errors
    assert result["min_s"] <= result["median_s"] <= max(result["steps_s"])
    assert result["tokens_per_s"] == pytest.approx(2 * 4 * 16 / sum(result["steps_s"]), rel=1e-3)
    assert 0 < result["real_tokens_per_s"] <= result["tokens_per_s"]
    assert result["mfu"] == pytest.approx(result["flops_per_s"] / 1e11)
    assert result["peak_bytes"] > 1e7
    assert result["compile_s"] > result["median_s"]


@pytest.mark.slow
@pytest.mark.parametrize("work", ["infer", "pipeline"])
def test_other_work_and_a_trace(bench, work, tmp_path):
    code, result, errors = bench("--work", work, "--steps", "3", "--profile", str(tmp_path))
    assert code == 0, errors
    assert (result["work"], result["steps"]) == (work, 3)
    assert list(tmp_path.rglob("perfetto_trace.json.gz"))


def flops_of_a_token(result):
    return result["flops_per_s"] / result["real_tokens_per_s"]


@pytest.mark.slow
def test_flops_count_the_layers():
    keys = [(key, str(value)) for key, value in KEYS.items()]
    experiment = Experiment.from_config(load_config("pretrain:size=tiny", keys))
    # A layer of width 128: four matrices of attention and two four times as wide, each number of
    # which is multiplied and added once for a token; and scores and sums over the row's 16.
    forward = 2 * (4 * 128**2 + 2 * 128 * 512) + 4 * 128 * 16
    infer = experiment.bench(BenchOptions("infer", steps=2))
    assert flops_of_a_token(infer) == pytest.approx(forward)
    train = experiment.bench(BenchOptions("train", steps=2))
    # The words' scores besides, of at most 3 tokens of a row, and the pooler.
    heads = 3 / 16 * 2 * (128 * 100 + 128**2) + 2 / 16 * 128**2
    assert 3 * forward < flops_of_a_token(train) < 3 * (forward + heads)


@pytest.mark.slow
def test_finetuning_a_table(tmp_path, base_model):
    table = tmp_path / "train.tsv"
    table.write_text("text\tlabel\n" + "the cat sat\tgood\na dog ran away\tbad\n" * 8)
    config = load_config(
        f"classification:train={table},init_from={base_model}",
        [("train.global_batch_size", "4"), ("data.length", "16")],
    )
    result = Experiment.from_config(config).bench(BenchOptions("finetune", steps=2))
    assert (result["work"], result["rows"]) == ("finetune", 4)
    assert 0 < result["real_tokens_per_s"] <= result["tokens_per_s"]
