"""Sentence similarity, end to end: pairs in, a bare encoder and cosines out."""

import dataclasses
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax.errors import OptionError, UserError
from bert_jax.experiment.export import export
from bert_jax.inference.evaluation import evaluate, write_result
from bert_jax.models.encoder import abstract_params
from bert_jax.models.heads.text_vectors import TextPooling, TextVectors
from bert_jax.models.vectors import Dense, Normalize
from bert_jax.sharding.mesh import one_device_mesh
from bert_jax.tasks.similarity.predict import PairPredictor
from bert_jax.tasks.similarity.task import SimilarityEvaluator
from tests.random_params import random_params

KINDS = {"animal": ["cat", "dog", "bird"], "thing": ["mat", "tree", "sea"]}


def pairs(count, seed=0):
    """Pairs of texts, and whether both are about animals or both about things."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        kinds = [draw.choice(sorted(KINDS)) for _ in range(2)]
        nouns = [draw.choice(KINDS[kind]) for kind in kinds]
        texts = [f"the {noun} was {draw.choice(['low', 'up'])} ." for noun in nouns]
        rows.append((*texts, kinds[0] == kinds[1]))
    return rows


HEADER = ("sentence1", "sentence2", "label")


@pytest.fixture
def write_pairs(write_table):
    def write(name, labels, count=160, seed=0):
        rows = [(first, second, labels[same]) for first, second, same in pairs(count, seed)]
        return write_table(name, [HEADER, *rows])

    return write


@pytest.mark.slow
def test_cosines_are_learned_and_the_encoder_is_exported(train, experiment, write_pairs, read_rows):
    table = write_pairs("train.tsv", (1, 5))
    test = write_pairs("test.tsv", ("", ""), count=4, seed=1)
    result, workdir = train(
        "similarity", data__train=table, data__test=test, data__label_range=(1, 5),
        data__loss="cosine", data__pooling="max", train__epochs=3.0,
    )  # fmt: skip
    assert result["spearman"] > 0.8
    assert result["pearson"] > 0.9 > result["spearman_overlap"]
    assert result["loss"] < 0.1

    model = bert_jax.load(workdir / "model")
    assert model.report.complete
    assert model.description.head == "encoder"
    assert model.description.vectors.poolings == ("max",)
    cat, _, tree = model.similarity(["the cat was up .", "the sea was up .", "the tree was up ."])
    assert cat[0] > 0.99 > 0.5 > cat[1]
    assert tree[1] > 0.5 > tree[0]

    # The evaluated predictions are the exported model's.
    validation = read_rows(workdir / "predictions" / "validation.jsonl")
    assert set(validation[0]) == {"id", "text", "text_pair", "expected", "similarity"}
    assert len(validation) == 16
    mse = np.mean([(row["similarity"] - (row["expected"] - 1) / 4) ** 2 for row in validation])
    assert mse == pytest.approx(result["loss"], rel=1e-4)
    predicted = read_rows(workdir / "predictions" / "test.jsonl")
    texts = [row[:2] for row in pairs(4, seed=1)]
    for row, (first, second) in zip(predicted, texts, strict=True):
        expected = model.similarity([first], [second])[0, 0]
        assert row["similarity"] == pytest.approx(expected, abs=1e-5)

    same = experiment("similarity", data__train=table, data__label_range=(1, 5))
    again = same.evaluate(model=workdir / "model")
    # Not Spearman's: many pairs are equal but for rounding, and other batches round otherwise.
    assert again["pearson"] == pytest.approx(result["pearson"], rel=1e-5)
    from_run = same.evaluate(workdir=workdir)
    assert from_run["loss"] == pytest.approx(result["loss"], rel=1e-4)


@pytest.fixture
def dense_model(base_model, tmp_path):
    """The base with a prompt, a Dense and a normalisation after a pooling."""
    model = bert_jax.load(base_model)
    vectors = TextVectors(
        poolings=("cls",),
        include_prompt=False,
        modules=(Dense(16, 8), Normalize()),
        prompts={"all": "the sea : "},
        default_prompt_name="all",
        similarity="dot",
    )
    kernel = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32) / 4
    weights = {"0_dense": {"kernel": kernel, "bias": np.zeros(8, np.float32)}}
    directory = tmp_path / "dense"
    dataclasses.replace(
        model,
        description=dataclasses.replace(model.description, stored_vectors=vectors),
        params=model.params | {"text_vectors": weights},
    ).save(directory)
    return directory


@pytest.mark.slow
def test_modules_after_the_pooling_are_trained_too(
    train, experiment, write_pairs, dense_model, tmp_path
):
    table = write_pairs("train.tsv", ("other", "same"), count=60)
    result, workdir = train(
        "similarity", data__train=table, data__loss="softmax", base=dense_model, train__steps=8
    )
    before, after = bert_jax.load(dense_model), bert_jax.load(workdir / "model")
    assert after.description.vectors.similarity == "dot"
    kernels = [model.params["text_vectors"]["0_dense"]["kernel"] for model in (before, after)]
    assert np.abs(kernels[1] - kernels[0]).max() > 1e-3
    # The evaluated predictions are the exported model's.
    same = experiment("similarity", dense_model, data__train=table, data__loss="softmax")
    same = same.evaluate(model=workdir / "model")
    assert same["dot_same"] == pytest.approx(result["dot_same"], abs=1e-5)
    export(workdir, tmp_path / "again", which="latest")
    texts = ["the cat was low .", "the sea was up ."]
    expected = after.embed(texts)
    assert expected.shape == (2, 8)
    np.testing.assert_array_equal(bert_jax.load(tmp_path / "again").embed(texts), expected)


def test_a_training_starts_from_the_files_of_the_model(make_task, dense_model):
    task = make_task("cosine", ROWS, base=dense_model)
    assert task.module.text_vectors == TextPooling(("cls",), (Dense(16, 8), Normalize()), 4)
    (batch,) = task.train_batches(0, 1, host=0, hosts=1)
    first = batch["input_ids"][0, 0][batch["attention_mask"][0, 0] > 0]
    tokens = " ".join(map(task.tokenizer.id_to_token, first))
    assert tokens.startswith("[CLS] the sea [UNK] ")
    assert set(abstract_params(task.module)["text_vectors"]) == {"0_dense"}
    with pytest.raises(UserError, match="the vectors have 32 values, and the model's Dense takes"):
        make_task("cosine", ROWS, base=dense_model, data__pooling="cls,mean")


@pytest.mark.parametrize("loss", ["cosine", "softmax"])
def test_a_shortened_vector_is_trained_as_it_is_evaluated(make_task, dense_model, loss):
    model = bert_jax.load(dense_model)
    shortened = dataclasses.replace(model.description.vectors, truncate_dim=3)
    description = dataclasses.replace(model.description, stored_vectors=shortened)
    dataclasses.replace(model, description=description).save(dense_model)
    task, mesh = make_task(loss, ROWS, base=dense_model), one_device_mesh()
    params = random_params(task.module)
    batch = task.batches.batch(0)
    outputs = task.forward(params, batch)
    assert outputs.vectors.shape == (4, 2, 3)
    trained = float(task.loss(params, outputs, batch)[""]["loss"]) / len(ROWS)
    assert evaluate(task, params, mesh).metrics["loss"] == pytest.approx(trained, rel=1e-5)


@pytest.mark.slow
def test_similar_and_other_pairs(train, write_pairs):
    table = write_pairs("train.tsv", (0, 1))
    result, _ = train("similarity", data__train=table, data__loss="contrastive", train__epochs=3.0)
    assert result["average_precision"] > 0.95 > result["average_precision_chance"]
    assert result["best_accuracy"] > 0.9


@pytest.mark.slow
def test_classes(train, experiment, write_pairs, read_rows):
    table = write_pairs("train.tsv", ("other", "same"))
    result, workdir = train(
        "similarity", data__train=table, data__loss="softmax", train__epochs=6.0
    )
    assert result["accuracy"] > 0.9 > result["accuracy_majority"]
    validation = read_rows(workdir / "predictions" / "validation.jsonl")
    made = {"similarity", "label", "probabilities"}
    assert set(validation[0]) == {"id", "text", "text_pair", "expected"} | made
    right = [row["label"] == row["expected"] for row in validation]
    assert np.mean(right) == result["accuracy"]
    # The classifier stays behind.
    model = bert_jax.load(workdir / "model")
    assert set(model.params) == {"embeddings", "encoder"}
    same = experiment("similarity", data__train=table, data__loss="softmax")
    again = same.evaluate(model=workdir / "model")
    assert again["cosine_same"] == pytest.approx(result["cosine_same"], abs=1e-5)


@pytest.mark.slow
def test_pairs_without_labels(train, write_table):
    rows = [(f"the {noun} {verb} .", f"a {noun} was {verb} {index} .")
            for noun in (*KINDS["animal"], *KINDS["thing"], "boy", "song", "sun", "shell")
            for verb in ("sang", "ran", "sat")
            for index in ("up", "down")]  # fmt: skip
    table = write_table("train.tsv", [HEADER[:2], *rows])
    result, _ = train(
        "similarity", data__train=table, data__loss="in_batch_negatives",
        data__validation_fraction=0.3, train__epochs=10.0, train__microbatches=2,
    )  # fmt: skip
    assert result["mean_reciprocal_rank"] > 2 * result["mean_reciprocal_rank_chance"]
    assert result["accuracy@1"] > 0.5


def test_single_texts_are_two_views(experiment, write_table):
    """They are trained on with dropout; validation pairs have two texts and degrees."""
    texts = write_table("texts.tsv", [("text",), ("the sea",), ("a dog ran",)])
    pairs = write_table("pairs.tsv", [HEADER, ("the sea", "the cat", 1), ("a dog", "it ran", 5)])
    keys = {"data__loss": "in_batch_negatives", "data__validation": pairs}
    task = experiment("similarity", data__train=texts, data__label_range=(1, 5), **keys).task
    batch = task.batches.batch(0)
    assert (batch["input_ids"][:, 0] == batch["input_ids"][:, 1]).all()
    task.evaluator.check()
    assert task.evaluator.best_metric == ("spearman", True)
    scored = write_table("scored.tsv", [("text", "label"), ("the sea", 1)])
    with pytest.raises(OptionError, match="scored.tsv:2: there is no second text"):
        _ = experiment("similarity", data__train=scored, data__validation=pairs).task


@pytest.mark.slow
def test_pairs_without_labels_are_evaluated(experiment, base_model, write_table):
    table = write_table("pairs.tsv", [HEADER[:2], ("the sea", "the cat"), ("a dog", "it ran")])
    for data in (
        {"data__validation": table},
        {"data__train": table, "data__validation_fraction": 0.5},
    ):
        task = experiment("similarity", data__loss="in_batch_negatives", **data)
        assert 0 < task.evaluate(model=base_model)["mean_reciprocal_rank"] <= 1


def test_predictions_of_an_evaluation(experiment, base_model, write_table, read_rows, tmp_path):
    pairs = {
        "validation": [("the sea", "the cat"), ("a dog", "it ran")],
        "test": [("a sun", "the tree")],
    }
    scored = [(*pair, 0.5) for pair in pairs["validation"]]
    made = experiment(
        "similarity",
        data__validation=write_table("scored.tsv", [HEADER, *scored]),
        data__test=write_table("plain.tsv", [HEADER[:2], *pairs["test"]]),
    )
    mesh, output = one_device_mesh(), tmp_path / "predictions"
    task, params = made._finished_model(base_model, mesh)
    result = evaluate(task, params, mesh, with_test=True)
    assert list(result.predictions) == ["validation", "test"]
    write_result(output, task.evaluator, result)
    assert result.test_metrics == {}  # without labels
    model = bert_jax.load(base_model)
    for name, texts in pairs.items():
        expected = [model.similarity([first], [second])[0, 0] for first, second in texts]
        actual = [prediction.similarity for prediction in result.predictions[name]]
        assert actual == pytest.approx(expected, abs=1e-6)
        written = [row["similarity"] for row in read_rows(output / f"{name}.jsonl")]
        assert written == pytest.approx(expected, abs=1e-6)
    assert list(evaluate(task, params, mesh).predictions) == ["validation"]


def test_what_an_evaluation_cannot_do(experiment, base_model, write_table, monkeypatch):
    plain = write_table("plain.tsv", [HEADER[:2], ("the sea", "the cat")])
    made = experiment("similarity", data__validation=plain)
    with pytest.raises(OptionError, match="plain.tsv has no labels; give output, a dir") as result:
        made.evaluate(model=base_model)
    assert result.value.key == "output"

    monkeypatch.setattr(PairPredictor, "compute", lambda *_: jnp.zeros(1 << 50, jnp.int8))
    mesh = one_device_mesh()
    task, params = made._finished_model(base_model, mesh)
    with pytest.raises(OptionError, match="; lower train.global_batch_size or data.length$"):
        evaluate(task, params, mesh, with_test=True)
    monkeypatch.undo()
    monkeypatch.setattr(SimilarityEvaluator, "is_labelled", lambda *_: jnp.zeros(1 << 50, jnp.int8))
    message = "for the metrics of an evaluation: .*; give fewer examples as data.validation$"
    with pytest.raises(OptionError, match=message):
        evaluate(task, params, mesh, with_test=True)


@pytest.fixture
def make_task(experiment, write_table):
    def make(loss, rows, **keys):
        table = write_table("train.tsv", [HEADER, *rows])
        keys = {"train__global_batch_size": 4, "data__loss": loss, **keys}
        return experiment("similarity", data__train=table, data__validation=table, **keys).task

    return make


ROWS = [
    ("the cat sat on the mat .", "it was warm .", 1),
    ("a dog", "the dog ran .", 0),
    ("the sea", "low", 1),
]


def test_a_batch_by_hand(make_task):
    task = make_task("contrastive", ROWS)
    (batch,) = task.train_batches(0, 1, host=0, hosts=1)
    assert batch["input_ids"].shape == (4, 2, 16)
    assert batch["labels"].tolist()[:3] == [0, 1, 1]
    assert batch["weights"].tolist() == [1, 1, 1, 0]
    ids, masks = batch["input_ids"].reshape(8, 16), batch["attention_mask"].reshape(8, 16)
    texts = [
        " ".join(map(task.tokenizer.id_to_token, row[mask > 0]))
        for row, mask in zip(ids, masks, strict=True)
    ]
    assert texts == [
        "[CLS] a dog [SEP]",
        "[CLS] the dog ran . [SEP]",
        "[CLS] the cat sat on the mat . [SEP]",
        "[CLS] it was warm . [SEP]",
        "[CLS] the sea [SEP]",
        "[CLS] low [SEP]",
        "",
        "",
    ]
    assert not batch["token_type_ids"].any()


def test_no_pooler_is_trained_or_exported(make_task):
    """The base has one, which no loss reaches: weight decay alone would change it."""
    task = make_task("softmax", ROWS)
    assert not task.description.add_pooling_layer
    params = abstract_params(task.module)
    assert set(params) == {"bert", "classifier"}
    assert set(params["bert"]) == {"embeddings", "encoder"}


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["in_batch_negatives", "cosine", "contrastive", "softmax"])
def test_a_row_that_fills_up_a_batch_changes_nothing(make_task, loss):
    task = make_task(loss, ROWS)
    (batch,) = task.train_batches(0, 1, host=0, hosts=1)
    count = int(batch["weights"].sum())
    real = {name: array[:count] for name, array in batch.items()}
    params = random_params(task.module)
    compute = jax.jit(jax.value_and_grad(lambda *arguments: task.loss_sums(*arguments)[""]["loss"]))
    (value, gradient), (expected, exact) = compute(params, batch), compute(params, real)
    assert value == pytest.approx(float(expected), rel=1e-5)
    for actual, reference in zip(jax.tree.leaves(gradient), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(actual, reference, atol=1e-5 * (1 + np.abs(reference).max()))


@pytest.mark.parametrize(
    ("keys", "rows", "message"),
    [
        ({"loss": "angular"}, ROWS, "data.loss is 'angular'; known are cosine, contras"),
        ({"pooling": "pooler"}, ROWS, "pooling is 'pooler'; known are cls, max, mean, mean_sq"),
        ({"label_range": (5,)}, ROWS, r"data.label_range is \(5,\); give the least and the great"),
        ({"label_range": ("low", "high")}, ROWS, "data.label_range is .*; give the least and the"),
        ({"label_range": ("nan", 1)}, ROWS, "data.label_range is .*; give the least and the great"),
        ({"text_column": "sentence1"}, ROWS, r"train.tsv:2: there is no second text to compare"),
        ({}, [("a", "b", 4)] * 3, r"train.tsv:2: the label 4 is not between 0 and"),
    ],
)
def test_refused_options_and_labels(train, write_table, tmp_path, keys, rows, message):
    table = write_table("train.tsv", [HEADER, *rows])
    keys = {f"data__{key}": value for key, value in keys.items()}
    with pytest.raises(UserError, match=message):
        train("similarity", data__train=table, data__validation=table, **keys)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("loss", "keys", "message"),
    [
        # The classifier would learn, but it is thrown away.
        (
            "softmax",
            {"optimizer__freeze_encoder": True},
            "optimizer.freeze_encoder is True; that",
        ),
        (
            "cosine",
            {"optimizer__freeze_layers": 2},
            "optimizer.freeze_layers is 2; that leaves",
        ),
    ],
)
def test_a_training_of_nothing(make_task, loss, keys, message):
    with pytest.raises(UserError, match=message):
        make_task(loss, ROWS, **keys)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_vectors_and_loss_equal_sentence_transformers(train, experiment, write_pairs, pooling):
    torch = pytest.importorskip("torch")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer import losses

    table = write_pairs("train.tsv", (0, 1), count=40)
    _, workdir = train("similarity", data__train=table, data__pooling=pooling, train__steps=2)
    peer = sentence_transformers.SentenceTransformer(str(workdir / "model"), device="cpu").eval()
    model = bert_jax.load(workdir / "model")
    texts = [text for row in pairs(12, seed=5) for text in row[:2]]
    expected = peer.encode(texts)
    np.testing.assert_allclose(model.embed(texts, pooling=pooling), expected, atol=1e-5)
    np.testing.assert_allclose(
        model.similarity(texts), peer.similarity(expected, expected), atol=1e-5
    )

    # The loss of a whole batch, through the encoder.
    task = experiment(
        "similarity", workdir / "model", data__train=table, data__pooling=pooling,
        model__pad_vocab_to_multiple_of=1,  # as in the parameters of a model that is read
    ).task  # fmt: skip
    (batch,) = task.train_batches(0, 1, host=0, hosts=1)
    actual = task.loss_sums({"bert": model.params}, batch)[""]["loss"] / batch["weights"].sum()
    features = [
        {
            name: torch.tensor(batch[name][:, index]).long()
            for name in ("input_ids", "token_type_ids", "attention_mask")
        }
        for index in (0, 1)
    ]
    with torch.no_grad():
        loss = losses.CosineSimilarityLoss(peer)(features, torch.tensor(batch["labels"]))
    assert float(actual) == pytest.approx(loss.item(), rel=1e-4)
