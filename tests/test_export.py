"""What a run exports: the model that it trains, or ELECTRA's generator beside it."""

from pathlib import Path

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.checkpoints.runs import RunCheckpoints
from bert_jax.cli import main
from bert_jax.config import load_config
from bert_jax.errors import UserError
from bert_jax.experiment import Experiment
from bert_jax.experiment import workdir as run_directory
from bert_jax.experiment.export import export
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.step import TrainState, abstract_state
from bert_jax.training_options import OptimizerOptions
from tests.random_params import random_params
from tests.runs import records_of

CONFIG = Path(__file__).parents[1] / "configs" / "pretrain_electra.py"
KEYS = {
    "model.hidden_size": "32",
    "model.embedding_size": "12",
    "model.num_hidden_layers": "2",
    "model.num_attention_heads": "4",
    "model.intermediate_size": "24",
    "model.max_position_embeddings": "16",
    "model.hidden_dropout_prob": "0.0",
    "model.attention_probs_dropout_prob": "0.0",
    "model.pad_vocab_to_multiple_of": "16",  # exports have no such rows
    "replaced_tokens.generator_size": "0.5",
    "precision": "float32",
    "data.length": "16",
    "data.max_predictions": "3",
    "train.steps": "2",
    "train.global_batch_size": "4",
    "optimizer.warmup_steps": "1",
    "optimizer.warmup_ratio": "0.0",
}
NOTE = (
    "warning: the exported model is the discriminator; `export --part generator` writes the "
    "generator\n"
)


@pytest.fixture(scope="module")
def experiment(tiny_corpus):
    return Experiment.from_config(load_config(f"{CONFIG}:corpus={tiny_corpus}", [*KEYS.items()]))


@pytest.fixture(scope="module")
def params(experiment):
    return random_params(experiment.task.module)


@pytest.fixture(scope="module")
def run(experiment, params, tmp_path_factory):
    """A run after two steps, as a training writes it."""
    workdir, task = tmp_path_factory.mktemp("run"), experiment.task
    run_directory.init_workdir(workdir, experiment.sections, task)
    run_directory.save_model_files(workdir, task)
    optimizer = make_optimizer(OptimizerOptions(), 2)
    abstract = abstract_state(task, optimizer, make_mesh(MeshShape(), jax.devices()[:1]))
    params = jax.tree.map(jax.numpy.asarray, params)
    state = TrainState(jax.numpy.int32(2), params, optimizer.init(params))
    assert jax.tree.structure(state) == jax.tree.structure(abstract)
    with RunCheckpoints(workdir, keep=1, best_metric=task.best_metric) as checkpoints:
        checkpoints.save(2, state, {"next_example": 8}, {"rtd_loss": 1.0})
    return workdir


def masked_rows(experiment) -> dict[str, np.ndarray]:
    (batch,) = experiment.task.train_batches(0, 1, host=0, hosts=1)
    return batch


def expected_logits(experiment, params, batch) -> np.ndarray:
    """The generator's logits within the training, [B, P, V]."""
    task = experiment.task
    return np.asarray(jax.jit(task.forward)(params, batch).prediction_logits)


@pytest.mark.slow
def test_the_generator_is_exported_as_a_masked_language_model(
    run, experiment, params, tmp_path, capsys
):
    command = ["export", "--workdir", str(run), "--output", str(tmp_path / "model")]
    assert main([*command, "--part", "generator"]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{tmp_path}/model: step 2 of {run}\n"
    assert "discriminator" not in printed.err

    model = bert_jax.load(tmp_path / "model")
    assert model.description.class_name == "ElectraForMaskedLM"
    config = model.config
    shape = config.hidden_size, config.num_attention_heads, config.intermediate_size
    assert (*shape, config.embedding_size, config.num_hidden_layers) == (16, 1, 64, 12, 2)
    assert model.params["bert"]["embeddings"]["word_embeddings"]["embedding"].shape[1] == 12
    batch = masked_rows(experiment)
    names = ("input_ids", "attention_mask", "masked_lm_positions")
    actual = model.module.apply({"params": model.params}, **{name: batch[name] for name in names})
    expected = expected_logits(experiment, params, batch)
    words = config.vocab_size
    np.testing.assert_allclose(actual[..., :words], expected[..., :words], atol=1e-5)


def test_export_names_the_part_that_it_omits(run, tmp_path, capsys):
    assert main(["export", "--workdir", str(run), "--output", str(tmp_path / "model")]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{tmp_path}/model: step 2 of {run}\n"
    assert NOTE in printed.err
    assert bert_jax.load(tmp_path / "model").description.head == "replaced_tokens"


@pytest.mark.slow
def test_the_mean_of_checkpoints_is_exported(tiny_corpus, params, tmp_path):
    keys = KEYS | {
        "train.steps": "3",
        "train.checkpoint_every": "1",
        "train.keep_checkpoints": "3",
        "train.average_checkpoints": "2",
    }
    experiment = Experiment.from_config(
        load_config(f"{CONFIG}:corpus={tiny_corpus}", [*keys.items()])
    )
    run, task = tmp_path / "run", experiment.task
    run_directory.init_workdir(run, experiment.sections, task)
    run_directory.save_model_files(run, task)
    with RunCheckpoints(run, keep=3) as checkpoints:
        for step in (1, 2, 3):
            scaled = jax.tree.map(lambda x: jax.numpy.asarray(x * step), params)  # noqa: B023
            checkpoints.save(step, {"params": scaled}, {"next_example": 4 * step}, {})
    word = "embeddings", "word_embeddings", "embedding"
    expected = params.get("discriminator", params)
    for which, factor in (("", 2.5), ("latest", 3.0), ("1", 1.0)):
        assert export(run, tmp_path / f"model{which}", which=which) == (3 if which != "1" else 1)
        exported = bert_jax.load(tmp_path / f"model{which}").params["bert"]
        value, whole = exported, expected["bert"]
        for key in word:
            value, whole = value[key], whole[key]
        np.testing.assert_allclose(value, factor * whole[: len(value)], rtol=1e-6)


def test_a_run_has_no_other_parts(run, tmp_path):
    message = (
        "part is 'discriminator'; a run of the task replaced_tokens has no such part; known are "
        "generator: leave --part out"
    )
    with pytest.raises(UserError, match=f"^{message}$"):
        export(run, tmp_path / "model", part="discriminator")
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_the_result_of_a_training_is_of_the_mean_that_it_exports(tiny_corpus, tmp_path):
    keys = KEYS | {
        "train.steps": "6",
        "train.checkpoint_every": "2",
        "train.keep_checkpoints": "3",
        "train.average_checkpoints": "3",
        "optimizer.learning_rate": "0.01",
    }
    config = load_config(f"{CONFIG}:corpus={tiny_corpus}", [*keys.items()])
    result = Experiment.from_config(config).train(tmp_path / "run")
    evaluated = Experiment.from_config(config).evaluate(workdir=tmp_path / "run")
    assert evaluated == pytest.approx({name: result[name] for name in evaluated}, rel=1e-6)
    means = bert_jax.load(tmp_path / "run" / "model").params
    parts = []
    for step in (2, 4, 6):
        export(tmp_path / "run", tmp_path / str(step), which=str(step))
        parts.append(bert_jax.load(tmp_path / str(step)).params)
    jax.tree.map(
        lambda mean, *each: np.testing.assert_allclose(mean, np.mean(each, axis=0), atol=1e-6),
        means,
        *parts,
    )
    last = [row for row in records_of(tmp_path / "run") if row["split"] == "validation"][-1]
    assert result["rtd_loss"] != last["rtd_loss"]


@pytest.mark.slow
def test_a_training_names_the_omitted_part_and_transformers_reads_the_generator(
    experiment, tmp_path, capsys
):
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    experiment.train(tmp_path / "run")
    assert NOTE in capsys.readouterr().err
    export(tmp_path / "run", tmp_path / "model", part="generator")
    theirs, report = transformers.ElectraForMaskedLM.from_pretrained(
        tmp_path / "model", output_loading_info=True
    )
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ours = bert_jax.load(tmp_path / "model")
    batch = masked_rows(experiment)
    inputs = {name: batch[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
    actual = ours.module.apply({"params": ours.params}, **inputs)
    with torch.no_grad():
        tensors = {name: torch.from_numpy(value.astype(int)) for name, value in inputs.items()}
        expected = theirs.eval()(**tensors).logits.numpy()
    np.testing.assert_allclose(actual, expected, atol=1e-4)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert len(tokenizer) == ours.tokenizer.vocab_size
