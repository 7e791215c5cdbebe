"""Training of sparse vectors: the loss by hand and as sentence-transformers', the ramp, a run."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax import cli
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.models.dual_encoder import RankedVectors
from bert_jax.tasks.base.retrieval.objectives import find_objective
from bert_jax.tasks.sparse_retrieval.options import SparseData
from bert_jax.tasks.sparse_retrieval.task import SparseInteraction, flops
from tests.runs import assert_same_metrics, run_on_devices

# Vectors of 3 queries with 2 documents each, the positive first.
DRAW = np.random.default_rng(0)
QUERY = DRAW.normal(size=(3, 6)).clip(0).astype(np.float32)
DOCUMENT = DRAW.normal(size=(3, 2, 6)).clip(0).astype(np.float32)
# Loss and length of the gradient, recorded by `test_the_loss_of_the_peer`.
CASES = {0: (4.205573, 1.508604), 3: (3.395808, 1.343595)}


def test_flops_by_hand():
    weights = jnp.array([[1.0, 0, 2], [3, 0, 0], [9, 9, 9]])
    is_text = jnp.array([True, True, False])
    assert flops(weights, is_text) == 2**2 + 1**2
    # The second text has a single word: it counts as zeros.
    assert flops(weights, is_text, threshold=1) == 0.5**2 + 1**2


def loss_and_gradients(config, threshold):
    """The loss of a step with the whole regularisers, and its gradients."""
    data = SparseData(query_flops=0.3, document_flops=0.7, flops_threshold=threshold)
    description = ModelDescription(config, "masked_lm")
    interaction = SparseInteraction(description, None, data)
    numbers = 3 + np.arange(6).reshape(3, 2)
    batch = {
        "weights": np.ones(3, np.float32),
        "query_numbers": np.arange(3),
        "document_numbers": numbers,
        "related_numbers": np.stack([np.arange(3), numbers[:, 0]], axis=1),
        "regulariser_share": np.ones(3, np.float32),
    }

    def loss(query, document):
        vectors = RankedVectors(query, document)
        losses = find_objective(data, are_cosines=interaction.are_cosines).losses(
            interaction, vectors, batch
        )
        return losses.mean() + sum(interaction.regulariser(vectors, batch).values())

    return jax.value_and_grad(loss, (0, 1))(jnp.asarray(QUERY), jnp.asarray(DOCUMENT))


@pytest.mark.parametrize("threshold", CASES)
@pytest.mark.slow
def test_the_loss_as_recorded(tiny_config, threshold):
    loss, gradients = loss_and_gradients(tiny_config, threshold)
    length = np.sqrt(sum(np.square(each).sum() for each in gradients))
    assert (float(loss), float(length)) == pytest.approx(CASES[threshold], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("threshold", CASES)
def test_the_loss_of_the_peer(tiny_config, threshold):
    torch = pytest.importorskip("torch")
    peer = pytest.importorskip("sentence_transformers.sparse_encoder.losses")
    query, document = (torch.tensor(each, requires_grad=True) for each in (QUERY, DOCUMENT))
    columns = [query, *document.unbind(1)]
    ranking = peer.SparseMultipleNegativesRankingLoss(None)
    regulariser = peer.FlopsLoss(None, threshold or None)
    expected = (
        ranking.compute_loss_from_embeddings(columns, None)
        + 0.3 * regulariser.compute_loss_from_embeddings(query)
        + 0.7 * regulariser.compute_loss_from_embeddings(torch.cat(columns[1:]))
    )
    expected.backward()
    loss, gradients = loss_and_gradients(tiny_config, threshold)
    assert float(loss) == pytest.approx(expected.item(), rel=1e-5)
    for actual, tensor in zip(gradients, (query, document), strict=True):
        np.testing.assert_allclose(actual, tensor.grad.numpy(), atol=1e-5)


@pytest.fixture
def data(write_rows, make_queries):
    """The keys of `data` for 160 queries to train on, and 40 others."""
    train, validation = make_queries(160), make_queries(40, seed=1, negatives=4)
    return {
        "data__train": write_rows("train.jsonl", train),
        "data__validation": (str(write_rows("validation.jsonl", validation)),),
        "data__query_length": 8,
        "train__epochs": 0.6,
    }


def test_the_regularisers_rise_by_the_square_of_the_step(experiment, data):
    task = experiment("sparse_retrieval", **data, data__flops_ramp=0.34).task
    # 12 steps, 4 of them rising.
    batches = task.train_batches(0, 12, host=0, hosts=2)
    shares = [batch["regulariser_share"].tolist() for batch in batches]
    assert shares == [[share] * 4 for share in (0, 1 / 16, 1 / 4, 9 / 16, *[1.0] * 8)]
    assert task.batch_shapes()["regulariser_share"].shape == (8,)


def test_a_model_without_a_trained_head(experiment, make_model, data, tmp_path, capsys):
    said = "init_from has no head of a masked language model: an untrained one gives most words "
    make_model("masked_lm").save(tmp_path / "masked_lm")
    assert experiment("sparse_retrieval", tmp_path / "masked_lm", **data).task
    assert said not in capsys.readouterr().err
    make_model("encoder").save(tmp_path / "encoder")
    assert experiment("sparse_retrieval", tmp_path / "encoder", **data).task
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_run(train, experiment, data):
    keys = {**data, "train__epochs": 6.0, "data__query_prompt": "one: "}
    result, workdir = train("sparse_retrieval", **keys)
    assert result["ndcg@10"] > 0.9
    model = bert_jax.load(workdir / "model")
    assert model.report.complete
    assert model.description.stored_vectors.prompts == {"query": "one: "}
    best = model.rank("it was a cat", ["the sea was low .", "the cat was low ."])
    assert [match.index for match in best] == [1, 0]
    again = experiment("sparse_retrieval", **data).evaluate(model=workdir / "model")
    assert again == pytest.approx(result)


@pytest.mark.slow
def test_strong_regularisers_leave_few_words_also_with_cached_gradients(train, data, read_rows):
    def logged(name, **keys):
        _, workdir = train("sparse_retrieval", name, **data, **keys)
        rows = read_rows(workdir / "metrics.jsonl")
        return [row for row in rows if row["split"] == "train"][-1]

    strong = {"data__query_flops": 1.0, "data__document_flops": 1.0}
    weak, plain = logged("weak"), logged("plain", **strong)
    cached = logged("cached", **strong, train__microbatches=2)
    for side in ("query_words", "document_words"):
        assert plain[side] < 0.8 * weak[side]
    for name in ("loss", "document_flops_loss", "query_words", "gradient_norm", "parameter_norm"):
        assert plain[name] == pytest.approx(cached[name], rel=1e-3), name


@pytest.mark.slow
@pytest.mark.usefixtures("processes_without_torch")
def test_eight_devices_train_as_one(data, base_model, tmp_path):
    keys = {
        **data, "init_from": base_model, "precision": "float32", "data__length": 16,
        "train__global_batch_size": 16, "optimizer__learning_rate": 1e-3,
        "data__document_flops": 0.1,
    }  # fmt: skip
    eight = {f"mesh__{axis}": 2 for axis in ("data", "fsdp", "tensor")} | {"train__microbatches": 2}

    def command(name, keys):
        flags = {
            f"--config.{key.replace('__', '.')}": value[0] if isinstance(value, tuple) else value
            for key, value in keys.items()
        }
        return [
            *(sys.executable, "-m", "bert_jax", "train", "--config", "sparse"),
            *("--workdir", str(tmp_path / name)),
            *(f"{flag}={value}" for flag, value in flags.items()),
        ]

    assert cli.main(command("1", keys)[3:]) == 0
    run_on_devices(8, command("8", keys | eight))
    assert_same_metrics(tmp_path / "8", tmp_path / "1")
