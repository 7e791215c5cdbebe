"""Batches of queries with documents, and the vectors that a training computes of them."""

import contextlib
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.config import complete_config
from bert_jax.errors import OptionError, UserError
from bert_jax.experiment import Experiment
from bert_jax.families.dpr import FAMILY as PASSAGES
from bert_jax.families.dpr import QUESTIONS
from bert_jax.inference.engine import predict_examples
from bert_jax.inference.evaluation import evaluate
from bert_jax.models.execution import Execution
from bert_jax.models.heads.text_vectors import TextVectors
from bert_jax.models.surgery import without_padding
from bert_jax.models.vectors import Normalize
from bert_jax.planning.roofline import flops_of_batch, real_flops
from bert_jax.sharding.mesh import one_device_mesh
from bert_jax.tasks.base.predictor import BatchOptions, Model
from bert_jax.tasks.base.retrieval.towers import document_part
from bert_jax.tasks.embed import EmbeddingPredictor
from tests.random_params import random_params

ROWS = [
    {"query": "a cat", "positives": ["the cat sat ."], "negatives": ["on", "in"]},
    {"query": "a dog ran", "positives": ["a dog ran"], "negatives": []},
]


@pytest.fixture
def make_task(base_model, write_rows):
    def make(rows=ROWS, init_from=base_model, file="", **keys):
        file = file or str(write_rows("rows.jsonl", rows))
        config = {
            "task": "retrieval",
            "init_from": str(init_from),
            "train": {"global_batch_size": 4},
            **keys,
            "data": {"train": file, "validation": (file,), "length": 16, **keys.get("data", {})},
        }
        return Experiment.from_config(complete_config(config, where="test")).task

    return make


def test_a_batch_by_hand(make_task, tokenizer):
    keys = {"query_length": 4, "negatives": 1}
    batch = make_task(data=keys).rows.make(np.array([1, -1, 0]), 6)
    words = [[tokenizer.id_to_token(i) for i in row] for row in batch["query/input_ids"]]
    assert words == [
        ["[CLS]", "a", "dog", "[SEP]"],  # cut
        ["[PAD]"] * 4,
        ["[CLS]", "a", "cat", "[SEP]"],
    ]
    assert batch["query/attention_mask"].sum(axis=1).tolist() == [4, 0, 4]
    assert batch["document/input_ids"].shape == (3, 2, 6)
    assert batch["document/attention_mask"].sum(axis=2).tolist() == [[5, 0], [0, 0], [6, 3]]
    # Texts in their order: a cat, the cat sat ., on, in, a dog ran.
    assert batch["query_numbers"].tolist() == [4, -1, 0]
    assert batch["document_numbers"].tolist() == [[4, -1], [-1, -1], [1, 2]]
    assert batch["related_numbers"].tolist() == [[4, -1], [-2, -2], [0, 1]]
    assert batch["grades"].tolist() == [[1, 0], [0, 0], [1, 0]]
    assert batch["weights"].tolist() == [1, 0, 1]


@pytest.mark.parametrize("task", ["retrieval", "ranking"])
def test_examples_as_text(make_task, task):
    rows = [{**ROWS[0], "positives": [{"title": "Cats", "text": "the cat sat ."}]}]
    lines = make_task(rows, task=task, data={"titles": "pair"}).examples_as_text(1).splitlines()
    assert lines == ["a cat\t1\tCats\tthe cat sat .", "a cat\t0\ton", "a cat\t0\tin"]


def test_what_is_not_read_is_reported(make_task):
    warnings = make_task(data={"query_length": 4, "negatives": 1}).data_summary.warnings()
    assert warnings[:2] == [
        "1 of 2 queries are longer than 4 tokens, and the rest of them is not read: raise "
        "data.query_length",
        "1 documents are not read, of queries with more than 1 beside a positive: raise "
        "data.negatives",
    ]


@pytest.mark.slow
def test_vectors_are_those_of_prediction(make_task, tiny_config, tokenizer, tmp_path):
    """With a prompt for each side, whose tokens do not count, and a linear layer."""
    vectors = TextVectors(prompts={"query": "one the ", "document": "a "}, include_prompt=False)
    description = ModelDescription(
        tiny_config, "encoder", stored_vectors=vectors, add_pooling_layer=False
    )
    module = description.make_module(Execution())
    model_directory.save(tmp_path / "m", description, random_params(module), tokenizer)
    task = make_task(
        init_from=tmp_path / "m", data={"projection": 5},
        document_encoder={"separate": True},
    )  # fmt: skip
    params = random_params(task.module)
    batch = next(task.train_batches(0, 1, host=0, hosts=1))
    actual = jax.jit(task.forward)(params, batch)
    model = Model(task.module, params, tokenizer, task.description, one_device_mesh())
    numbers = batch["query_numbers"].tolist()
    for side, texts, found in (
        ("query", ["a cat", "a dog ran"], dict(zip(numbers, actual.query, strict=True))),
        (
            "document",
            ["the cat sat .", "a dog ran"],
            dict(zip(numbers, actual.document[:, 0], strict=True)),
        ),
    ):
        predictor = task.interaction.predictor(model, BatchOptions(4, 16), side)
        for number, vector in zip((0, 4), predict_examples(predictor, texts), strict=True):
            np.testing.assert_allclose(found[number], vector, rtol=1e-5, atol=1e-6)
    assert np.abs(actual.query[numbers.index(-1)]).max() == 0


def test_a_lack_of_memory_in_an_evaluation_names_keys(make_task, monkeypatch):
    task = make_task()
    monkeypatch.setattr(EmbeddingPredictor, "compute", lambda *_: jnp.zeros(1 << 50, jnp.int8))
    with pytest.raises(OptionError, match="; lower train.global_batch_size or data.length$"):
        evaluate(task, random_params(task.module), one_device_mesh())


def test_a_text_that_cannot_be_encoded_is_named_by_its_line(make_task, make_model, tmp_path):
    make_model("encoder", type_vocab_size=1).save(tmp_path / "one_segment")
    titled = [{"title": "sea", "text": "it was low ."}]
    rows = [*ROWS, {"query": "the sea", "positives": titled, "negatives": []}]
    data = {"titles": "pair"}
    task = make_task(rows, init_from=tmp_path / "one_segment", data=data)
    with pytest.raises(UserError, match=r"rows.jsonl:3: the text is a pair, but the model has"):
        _ = task.rows
    with pytest.raises(UserError, match=r"rows.jsonl:3: the text is a pair, but the model has"):
        evaluate(task, random_params(task.module), one_device_mesh())


def test_shortened_vectors_are_trained(make_task, model, tmp_path):
    shortened = dataclasses.replace(model.description.vectors, truncate_dim=3)
    description = dataclasses.replace(model.description, stored_vectors=shortened)
    dataclasses.replace(model, description=description).save(tmp_path / "short")
    task = make_task(init_from=tmp_path / "short")
    assert task.module.truncate_dim == 3
    outputs = task.forward(random_params(task.module), task.batches.batch(0))
    assert outputs.query.shape == (4, 3)


@pytest.mark.slow
def test_two_views_of_a_text(make_task, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("the cat sat .\na dog ran\n")
    keys = {"hidden_dropout_prob": 0.1}
    task = make_task(file=str(file), model=keys, data={"format": "text"})
    batch = next(task.train_batches(0, 1, host=0, hosts=1))
    params = random_params(task.module)
    forward = jax.jit(task.forward)
    same, views = forward(params, batch), forward(params, batch, jax.random.key(0))
    np.testing.assert_allclose(same.query, same.document[:, 0], rtol=1e-5)
    differences = np.abs(views.query - views.document[:, 0]).max(axis=1)
    assert (differences[batch["weights"] > 0] > 1e-3).all()


def test_packed_rows_change_nothing(make_task):
    task = make_task(ROWS * 2)
    batch = next(task.train_batches(0, 1, host=0, hosts=1))
    packed = task.pack_rows(batch, 1)
    assert packed["query/pack_indices"].shape[1] < 4
    assert packed["document/pack_indices"].shape[1] < 8
    params = random_params(task.module)
    forward = jax.jit(task.forward)
    expected, actual = forward(params, batch), forward(params, packed)
    for side, other in zip(expected, actual, strict=True):
        np.testing.assert_allclose(side, other, rtol=1e-4, atol=1e-6)


def test_the_two_encoders_of_dpr(make_task, tiny_config, tokenizer, tmp_path):
    """Each has its class, in the files that a training starts from and in those that it writes."""
    params = {}
    for name, family in (("questions", QUESTIONS), ("passages", PASSAGES)):
        description = ModelDescription(
            tiny_config, "encoder", family=family, add_pooling_layer=False
        )
        module = description.make_module(Execution())
        params[name] = random_params(module, seed=len(params))
        model_directory.save(tmp_path / name, description, params[name], tokenizer)
    task = make_task(
        init_from=tmp_path / "questions",
        document_encoder={"separate": True, "init_from": str(tmp_path / "passages")},
    )  # fmt: skip
    vectors = task.description.vectors
    assert (vectors.poolings, vectors.similarity) == (("cls",), "dot")
    assert not task.interaction.are_cosines
    source = model_directory.load_description(tmp_path / "questions")
    loaded, report = task.load_params(tmp_path / "questions", source, task.module)
    assert report.complete
    part = document_part(task.description, task.module)
    assert task.description.class_name == "DPRQuestionEncoder"
    assert part.description.class_name == "DPRContextEncoder"
    for actual, name in ((loaded["bert"], "questions"), (part.params(loaded), "passages")):
        actual = without_padding(actual, tiny_config)
        jax.tree.map(np.testing.assert_array_equal, actual, params[name])


@pytest.mark.parametrize(
    ("layers", "vectors", "data", "problem"),
    [
        (1, {}, {}, "differ in architecture or tokenizer; give two that are alike"),
        (2, {"poolings": ("cls",)}, {}, "differ in the files' poolings; give two that are alike"),
        (2, {"modules": (Normalize(),)}, {}, "differ in the files' modules; give two"),
        (2, {"max_length": 9}, {"length": 0}, "the encoders have different lengths"),
        (2, {"max_length": 9}, {}, ""),
        (2, {}, {"length": 0}, ""),
    ],
)
def test_two_encoders_in_one_directory_must_be_alike(
    make_task, tiny_config, tokenizer, tmp_path, layers, vectors, data, problem
):
    models = []
    for count, changed in ((2, {}), (layers, vectors)):
        config = dataclasses.replace(tiny_config, num_hidden_layers=count)
        vectors = TextVectors(**{"max_length": 12, **changed})
        description = ModelDescription(
            config, "encoder", add_pooling_layer=False, stored_vectors=vectors
        )
        params = random_params(description.make_module(Execution()))
        models.append((description, params, tokenizer))
    model_directory.save(tmp_path / "both", *models[0], {"query": models[1]})
    task = make_task(init_from=tmp_path / "both", document_encoder={"separate": True}, data=data)
    source = model_directory.load_description(tmp_path / "both")
    refused = pytest.raises(UserError, match=problem) if problem else contextlib.nullcontext()
    with refused:
        task.load_params(tmp_path / "both", source, task.module)


def test_a_finished_model_has_encoders_that_are_alike(make_task, tiny_config, tokenizer, tmp_path):
    """A training makes them alike; an evaluation would compute both as the encoder of queries."""
    for name, pooling in (("queries", "mean"), ("documents", "cls")):
        vectors = TextVectors(poolings=(pooling,))
        description = ModelDescription(
            tiny_config, "encoder", add_pooling_layer=False, stored_vectors=vectors
        )
        params = random_params(description.make_module(Execution()))
        model_directory.save(tmp_path / name, description, params, tokenizer)
    towers = {"separate": True, "init_from": str(tmp_path / "documents")}
    task = make_task(init_from=tmp_path / "queries", document_encoder=towers)
    source = model_directory.load_description(tmp_path / "queries")
    task.load_params(tmp_path / "queries", source, task.module)
    task.splits = dataclasses.replace(task.splits, train=[])
    with pytest.raises(UserError, match="documents: the two encoders differ in the files' pooling"):
        task.load_params(tmp_path / "queries", source, task.module)


def test_queries_are_not_longer_than_documents(make_task):
    with pytest.raises(OptionError, match="query_length is 17; it must be at most 16, the length"):
        make_task(data={"query_length": 17})


def test_scores_that_are_cosines(make_task):
    def are_cosines(**data):
        return make_task(data=data).interaction.are_cosines

    assert are_cosines()
    assert are_cosines(similarity="dot", normalize=True)
    assert are_cosines(similarity="dot", matryoshka=(8,))  # these are scaled to length 1, too
    assert not are_cosines(similarity="dot")
    assert not are_cosines(similarity="euclidean")


def test_margins_of_a_teacher_that_cosines_do_not_have(make_task):
    def check(margin, **data):
        rows = [ROWS[0] | {"scores": [margin, 0.0, 0.0]}]
        assert make_task(rows, data={"loss": "margin_mse", **data}).rows

    check(2.0)
    check(9.5, similarity="dot", normalize=False)
    rule = "scores differ by 9.5, and cosines by 2 at most; set data.similarity=dot and data.norm"
    dot = {"similarity": "dot"}
    for data in ({}, {**dot, "normalize": True}, {**dot, "matryoshka": (8,)}):
        with pytest.raises(OptionError, match=rule):
            check(9.5, **data)


def test_the_files_have_the_length_of_the_training(make_task, tiny_config):
    assert make_task().description.vectors.max_length == 16
    assert make_task(task="sparse_retrieval").description.stored_vectors.max_length == 16
    task = make_task(data={"length": 0})
    assert task.description.vectors.max_length == task.options.length == tiny_config.max_length


def test_a_planned_training_has_the_longest_rows(base_model):
    data = {"length": 24, "query_length": 8, "negatives": 3}
    config = {
        "task": "retrieval", "init_from": str(base_model), "data": data,
        "train": {"global_batch_size": 8192, "steps": 10},
    }  # fmt: skip
    experiment = Experiment.from_config(complete_config(config, where="test"))
    task = dataclasses.replace(experiment, with_data=False).task
    shapes = task.batch_shapes()
    assert shapes["query/input_ids"].shape == (8192, 8)
    assert shapes["document/input_ids"].shape == (8192, 4, 24)
    # Nearly the same FLOPs as of rows of one kind with as many tokens each.
    by_kind = real_flops(task.description.config, np.array([8] * 8192 + [24] * 4 * 8192), 0)
    assert flops_of_batch(task.computed_models, shapes) == by_kind


REFUSED = {
    "pooler": ({"data": {"pooling": "pooler"}}, "data.pooling is 'pooler'; known are cls, max"),
    "wide": ({"data": {"matryoshka": (17,)}}, "data.matryoshka is .* have 16 values: leave 17 out"),
    "alone": (
        {"document_encoder": {"init_from": "x"}},
        "document_encoder.init_from is 'x'; set {document_encoder.separate=true}",
    ),
    "directions": (
        {"data": {"directions": ("query_to_query",)}},
        "data.directions is .*; query_to_document must be among them",
    ),
    "dot": (
        {"data": {"loss": "contrastive", "similarity": "dot"}},
        "data.similarity is 'dot'; {data.loss=contrastive} takes cosines: set data.similarity=cos",
    ),
    "none": (
        {"data": {"loss": "triplet", "negatives": 0}},
        "data.negatives is 0; {data.loss=triplet} compares documents of a query: give at least 1",
    ),
}


@pytest.mark.parametrize(("keys", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_options(make_task, keys, message):
    with pytest.raises(OptionError, match=message.replace("{", "").replace("}", "")):
        make_task(**keys)
