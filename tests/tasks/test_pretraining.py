"""Packed and unpacked rows give the same losses and gradients; tasks without a corpus."""

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.config import Sections, default_config, load_config, set_key
from bert_jax.data.pretraining.batches import PretrainingBatches
from bert_jax.data.pretraining.corpus import Corpus
from bert_jax.data.pretraining.packing import PackedBatches
from bert_jax.errors import UserError
from bert_jax.experiment import Experiment
from bert_jax.models.encoder import abstract_params
from bert_jax.models.execution import Execution
from bert_jax.tasks.base.corpora import Corpora
from bert_jax.tasks.base.task import means
from bert_jax.tasks.base.train_spec import TaskConfig
from bert_jax.tasks.pretraining.task import CorpusData, PretrainingTask
from bert_jax.training_options import OptimizerOptions, TrainOptions

OVERRIDES = {
    "precision": "float32",
    "model.hidden_size": 32,
    "model.num_hidden_layers": 1,
    "model.num_attention_heads": 2,
    "model.intermediate_size": 64,
    "model.max_position_embeddings": 32,
    "model.hidden_dropout_prob": 0.0,
    "model.attention_probs_dropout_prob": 0.0,
    "data.length": 30,
    "data.max_predictions": 6,
    "optimizer.name": "adamw",
    "optimizer.learning_rate": 5e-3,
    "optimizer.warmup_ratio": 0.1,
    "train.steps": 150,
    "train.global_batch_size": 32,
    "train.log_every": 15,
    "train.eval_every": 150,
    "train.checkpoint_every": 150,
}

OPTIONS = CorpusData(length=64, max_predictions=12, short_probability=0.5)


SPANS = dataclasses.replace(
    OPTIONS, objective="none", masking="span", span_boundary=True, mask_rounding="up",
    mask_fraction=0.18,
)  # fmt: skip


@pytest.fixture(scope="module")
def make_task(tiny_corpus, tiny_config):
    """Builds a task with batches of eight rows of 64 tokens."""

    def make(packing: bool, options: CorpusData = OPTIONS, train=None) -> PretrainingTask:
        corpus = Corpus.open(tiny_corpus)
        data = dataclasses.replace(options, packing=packing)
        return PretrainingTask(
            TaskConfig(data, TrainOptions(global_batch_size=8, **train or {}), OptimizerOptions()),
            Corpora({"": corpus}, corpus.tokenizer()),
            ModelDescription(
                dataclasses.replace(tiny_config, max_position_embeddings=64),
                "pretraining" if options.objective == "nsp" else "masked_lm",
            ),
            Execution(),
        )

    return make


@pytest.mark.parametrize(
    "options", [OPTIONS, pytest.param(SPANS, marks=pytest.mark.slow)], ids=["nsp", "spans"]
)
@pytest.mark.slow
def test_a_packed_batch_has_the_losses_and_gradients_of_its_examples(
    make_task, tiny_corpus, options
):
    corpus = Corpus.open(tiny_corpus)
    examples = PretrainingBatches(corpus.splits["train"], corpus.tokenizer(), options)
    packing = PackedBatches(examples)
    packed = packing.batch(0, 8)
    group = packing._group(0)
    unpacked = examples.examples(group.numbers[group.rows < 8])
    count = len(unpacked["input_ids"])
    assert count > 8
    assert count == packed["segment_ids"].max(axis=1).sum()

    task = make_task(packing=True, options=options)
    generator = np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: np.float32(generator.normal(0, 0.1, leaf.shape)), abstract_params(task.module)
    )

    @jax.jit
    def loss_and_gradient(params, batch):
        def loss(params):
            metrics = means(task.loss_sums(params, batch), task.loss_weights(batch))
            return metrics["loss"], metrics

        return jax.value_and_grad(loss, has_aux=True)(params)

    (_, actual), found_gradient = loss_and_gradient(params, packed)
    (_, expected), expected_gradient = loss_and_gradient(params, unpacked)
    assert actual == pytest.approx({name: float(x) for name, x in expected.items()}, rel=1e-6)
    largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(expected_gradient))
    for leaf, truth in zip(*map(jax.tree.leaves, (found_gradient, expected_gradient)), strict=True):
        np.testing.assert_allclose(leaf, truth, rtol=1e-4, atol=1e-6 * largest)


@pytest.mark.parametrize("packing", [False, True])
def test_batches_that_grow_are_the_first_rows_of_whole_ones(make_task, packing):
    growing = {"steps": 8, "batch_warmup": (2, 4), "batch_warmup_ratio": 0.5}
    whole, part = make_task(packing), make_task(packing, train=growing)
    of_hosts = [list(part.train_batches(1, 6, host=host, hosts=2)) for host in range(2)]
    sizes = []
    for number, batch in enumerate(part.train_batches(1, 6, host=0, hosts=1)):
        (expected,) = whole.train_batches(number + 1, number + 2, host=0, hosts=1)
        sizes.append(len(batch["input_ids"]))
        for name, array in batch.items():
            np.testing.assert_array_equal(array, expected[name][: sizes[-1]], err_msg=name)
            halves = [each[number][name] for each in of_hosts]
            np.testing.assert_array_equal(array, np.concatenate(halves), err_msg=name)
    assert sizes == [2, 4, 4, 8, 8]


def test_the_evaluation_masks_its_own_share(make_task):
    options = dataclasses.replace(
        OPTIONS, max_predictions=30, mask_fraction=0.4, validation_mask_fraction=0.1
    )
    task = make_task(False, options)
    batches = {
        0.4: next(task.train_batches(0, 1, host=0, hosts=1)),
        0.1: next(task.evaluation_batches(host=0, hosts=1)),
    }
    for fraction, batch in batches.items():
        is_real = batch["masked_lm_weights"].any(axis=1)
        lengths, masked = (
            batch[name][is_real].sum(axis=1) for name in ("attention_mask", "masked_lm_weights")
        )
        assert masked.tolist() == np.rint(fraction * lengths).clip(1).tolist()


@pytest.mark.slow
def test_the_loss_of_span_boundaries_is_that_of_a_loop_over_tokens(make_task):
    """MLM and SBO: each a mean of -log p over its own tokens; the loss is their sum."""
    task = make_task(packing=False, options=SPANS)
    (batch,) = task.train_batches(0, 1, host=0, hosts=1)
    generator = np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: np.float32(generator.normal(0, 0.1, leaf.shape)), abstract_params(task.module)
    )
    output = jax.jit(lambda inputs: task.module.apply({"params": params}, inputs))(
        task.inputs(batch)
    )
    actual = means(task.loss_sums(params, batch), task.loss_weights(batch))
    mlm, sbo = [], []
    for row in range(8):
        spans: dict[int, int] = {}
        masked = batch["masked_lm_positions"][row][batch["masked_lm_weights"][row] == 1].tolist()
        for index, position in enumerate(masked):
            start = spans.get(position - 1, position)  # of a run of masked positions
            spans[position] = start
            end = position
            while end + 1 in masked:
                end += 1
            word = batch["masked_lm_ids"][row, index]
            for logits, losses in ((output.prediction_logits, mlm), (output.span_logits, sbo)):
                scores = np.float64(logits[row, index])
                loss = np.log(np.exp(scores).sum()) - scores[word]
                # [CLS] and [SEP] are no boundaries.
                ids = batch["input_ids"][row]
                if losses is mlm or (start > 1 and ids[end + 2 : end + 3].any()):
                    losses.append(loss)
    assert 0 < len(sbo) < len(mlm)
    assert actual["mlm_loss"] == pytest.approx(np.mean(mlm), rel=1e-5)
    assert actual["sbo_loss"] == pytest.approx(np.mean(sbo), rel=1e-5)
    assert actual["loss"] == pytest.approx(np.mean(mlm) + np.mean(sbo), rel=1e-5)


def test_packing_is_for_training_only(make_task):
    packed, unpacked = make_task(packing=True), make_task(packing=False)
    assert packed.examples_per_epoch < unpacked.examples_per_epoch
    for actual, expected in zip(
        packed.evaluation_batches(host=0, hosts=1),
        unpacked.evaluation_batches(host=0, hosts=1),
        strict=True,
    ):
        assert list(actual) == list(expected)
        for name, array in expected.items():
            assert actual[name].tobytes() == array.tobytes()
    assert packed.evaluator.baselines() == unpacked.evaluator.baselines()
    assert "row 0, example 1: " in packed.examples_as_text(8)
    assert "row" not in unpacked.examples_as_text(8)


def without_data(config):
    return Experiment(Sections.read(config), with_data=False).task


@pytest.mark.parametrize("objective", ["nsp", "sop", "none"])
def test_batches_of_nothing_have_the_shapes_of_batches(tiny_corpus, objective):
    config = default_config("pretraining")
    for key, value in {
        "data.objective": objective,
        "data.length": 20,
        "data.max_predictions": 4,
        "train.global_batch_size": 6,
        "model.size": "tiny",
        "tokenizer.path": str(tiny_corpus / "tokenizer"),
    }.items():
        set_key(config, key, value, where="test")
    without = without_data(config)
    config.data.corpus = str(tiny_corpus)
    task = Experiment.from_config(config).task
    (batch,) = task.train_batches(0, 1, host=0, hosts=1)
    real = {key: jax.ShapeDtypeStruct(value.shape, value.dtype) for key, value in batch.items()}
    assert without.batch_shapes() == task.batch_shapes() == real
    assert without.description == task.description


def test_replaced_tokens_are_evaluated_on_a_general_corpus_too(tiny_corpus):
    config = default_config("replaced_tokens")
    for key, value in {
        "data.corpus": str(tiny_corpus),
        "data.general_corpus": str(tiny_corpus),
        "data.length": 20,
        "data.max_predictions": 4,
        "model.family": "electra",
        "model.size": "tiny",
    }.items():
        set_key(config, key, value, where="test")
    assert set(Experiment.from_config(config).task.fingerprints()) == {"corpus", "general_corpus"}


def test_pairs_need_a_family_with_a_head_for_them():
    config = default_config("pretraining")
    set_key(config, "model.family", "roberta", where="test")
    with pytest.raises(
        UserError, match="^data.objective is 'nsp'; models of the family roberta have no"
    ):
        without_data(config)


def test_the_vocabulary_of_a_model_that_has_none_yet():
    config = default_config("pretraining")
    assert without_data(config).description.config.vocab_size == 30_522


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parts"),
    [("roberta", ["mlm"]), ("albert", ["mlm", "nsp"]), ("spanbert", ["mlm", "sbo"])],
)
def test_the_losses_of_each_objective_go_down(name, parts, tiny_corpus, tmp_path, capsys):
    path = Path(__file__).parents[2] / "configs" / f"pretrain_{name}.py"
    config = load_config(f"{path}:corpus={tiny_corpus}")
    for key, value in OVERRIDES.items():
        set_key(config, key, value, where="test")
    result = Experiment.from_config(config).train(tmp_path / "run")
    lines = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    losses = [line for line in lines if line["split"] == "train"]
    for part in parts:
        first, last = (losses[index][f"{part}_loss"] for index in (0, -1))
        assert last < 0.8 * first, part
    assert {f"{part}_loss" for part in parts} == {key for key in result if key[4:] == "loss"}
    # What is exported is read as any model, and has no other tensors.
    model = bert_jax.load(tmp_path / "run" / "model")
    assert model.description.head is ("pretraining" if name == "albert" else "masked_lm")
    said = "the exported model has no head of span boundaries" in capsys.readouterr().err
    assert said == (name == "spanbert")
    assert "span_boundary_head" not in model.params
