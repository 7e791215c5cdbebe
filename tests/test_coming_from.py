"""The tables for users of sentence-transformers and transformers, run with both libraries."""

import ast
import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bert_jax

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[1] / "docs"
TEXTS = ["the cat sat on the mat .", "it was warm", "a dog ran to the sea and sang"]
NAMES = {
    "texts": TEXTS,
    "others": ["the sun", "the cat sat"],
    "query": "the cat sat",
    "positive": "it was warm",
    "negative": "a boy ran",
    "a": "the cat",
    "b": "the dog",
    "pairs": [("the cat", "it was warm"), ("a dog", "ran")],
}
PARTS = [
    *({"query": f"the {word}", "positives": [f"a {word} sat"], "negatives": ["it was"]}
      for word in ("cat", "dog", "bird", "boy", "sun", "sea", "song", "mat", "shell", "tree")),
]  # fmt: skip
RECORDS = {
    "triplets": PARTS,
    "taught": [{**each, "scores": [5.0, 1.5]} for each in PARTS],
    "scored": [
        {"text": each["query"], "text_pair": "it was warm", "label": number / 10}
        for number, each in enumerate(PARTS)
    ],
    "related": [
        {"text": each["query"], "text_pair": "it was warm", "label": number % 2}
        for number, each in enumerate(PARTS)
    ],
}
# What makes a training short.
SHORT = {"steps": 1, "global_batch_size": 4, "length": 32, "precision": "float32"}


def lines_of(page: str, number: int) -> list[tuple[str, str]]:
    """The code in both columns of a table of a page, which are counted from 0."""
    tables = re.findall(r"(?m)^\|.*\n\|---\|---\|\n((?:\|.*\n)+)", (DOCS / page).read_text())
    rows = [row.strip("| ").split(" | ") for row in tables[number].splitlines()]
    return [(left.split("`")[1], right.split("`")[1]) for left, right in rows]


@pytest.fixture(scope="module")
def models(make_model, tmp_path_factory) -> dict[str, Path]:
    """A sentence encoder with prompts, and a cross-encoder of one output, both saved here."""
    directory = tmp_path_factory.mktemp("models")
    encoder = make_model("encoder")
    vectors = dataclasses.replace(
        encoder.description.vectors, prompts={"query": "query: "}, similarity="cosine"
    )
    description = dataclasses.replace(encoder.description, stored_vectors=vectors)
    dataclasses.replace(encoder, description=description).save(directory / "encoder")
    make_model("classification", num_labels=1).save(directory / "cross")
    return {"model": directory / "encoder", "cross": directory / "cross"}


@pytest.fixture(scope="module")
def both(models) -> tuple[dict[str, Any], dict[str, Any]]:
    """The names of the left and of the right column."""
    reference = pytest.importorskip("sentence_transformers")
    from sentence_transformers import util
    from sentence_transformers.cross_encoder import losses as cross_losses
    from sentence_transformers.sentence_transformer import losses

    left = {
        **NAMES,
        "util": util,
        "losses": losses,
        "cross_losses": cross_losses,
        "InputExample": reference.InputExample,
        "model": reference.SentenceTransformer(str(models["model"]), device="cpu"),
        "cross": reference.CrossEncoder(str(models["cross"]), device="cpu"),
    }
    return left, {**NAMES, **{name: bert_jax.load(path) for name, path in models.items()}}


def scores_of(value: Any) -> Any:
    """What both libraries say: arrays, or the number and score of each text."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [(hit["corpus_id"], hit["score"]) for hit in value]
    if isinstance(value, list) and hasattr(value[0], "score"):
        named = [getattr(hit, "index", None) for hit in value]
        ids = [int(hit.id) if n is None else n for n, hit in zip(named, value, strict=True)]
        return list(zip(ids, (hit.score for hit in value), strict=True))
    if isinstance(value, list) and hasattr(value[0], "shape"):
        return np.concatenate([np.asarray(each) for each in value])
    return np.asarray(value)


VECTORS = lines_of("from_sentence_transformers.md", 0)


@pytest.mark.parametrize("line", VECTORS, ids=[left for left, _ in VECTORS])
def test_both_compute_the_same(line, both):
    left, right = (scores_of(eval(code, names)) for code, names in zip(line, both, strict=True))
    np.testing.assert_allclose(right, left, atol=1e-5)


def test_examples_have_the_same_texts(both):
    for left, right in lines_of("from_sentence_transformers.md", 2):
        example, record = eval(left, both[0]), eval(right, both[1])
        texts = []
        for value in record.values():
            texts += value if isinstance(value, list) else [value]
        assert [text for text in texts if isinstance(text, str)] == example.texts
        assert record.get("label", 0) == example.label


LOSSES = lines_of("from_sentence_transformers.md", 3)


@pytest.mark.parametrize("line", LOSSES, ids=[left for left, _ in LOSSES])
def test_every_loss_trains(line, both, models, tmp_path):
    eval(line[0], both[0])
    call = ast.parse(line[1], mode="eval")
    set_keys = {word.arg for word in call.body.keywords}
    for name, value in {**SHORT, "workdir": str(tmp_path / "run")}.items():
        if name not in set_keys:
            call.body.keywords.append(ast.keyword(name, ast.Constant(value)))
    directory = models["cross" if '"ranking"' in line[1] else "model"]
    names = {**RECORDS, "bert_jax": bert_jax, "DIR": directory}
    run = eval(compile(ast.fix_missing_locations(call), line[1], "eval"), names)
    assert (run.workdir / "model" / "model.safetensors").exists()
    assert run.result["warnings"]


# Pipelines, and what both say of their first text.
LABELS = {
    "text-classification": ("cold", "warm"),
    "token-classification": ("O", "B-PER", "I-PER"),
    "zero-shot-classification": ("contradiction", "entailment"),
}
PIPELINES = {
    "fill-mask": (
        "masked_lm",
        lambda left: [(each["token_str"], each["score"]) for each in left],
        lambda right: [(each.token, each.score) for each in right],
    ),
    "text-classification": (
        "classification",
        lambda left: [(each["label"], each["score"]) for each in left],
        lambda right: [(each.label, each.score) for each in right],
    ),
    "token-classification": (
        "tagging",
        lambda left: [(each["entity_group"], each["start"]) for each in left[0]],
        lambda right: [(each.type, each.start) for each in right[0].entities],
    ),
    "feature-extraction": (
        "encoder",
        lambda left: [("", value) for value in np.ravel(left[0][0])],
        lambda right: [("", value) for value in right[0].states.ravel()],
    ),
    "zero-shot-classification": (
        "classification",
        lambda left: [(each["labels"][0], each["scores"][0]) for each in left],
        lambda right: [(each.label, each.score) for each in right],
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_and_its_method_say_the_same(name, make_model, tmp_path):
    transformers = pytest.importorskip("transformers")
    head, of_left, of_right = PIPELINES[name]
    labels = LABELS.get(name, ())
    model = make_model(head, **({"num_labels": len(labels)} if labels else {}))
    description = dataclasses.replace(model.description, labels=labels)
    dataclasses.replace(model, description=description).save(tmp_path / "model")
    (line,) = (each for each in lines_of("from_transformers.md", 0) if f'"{name}"' in each[0])
    left, right = (code.replace("[…]", '["cat", "dog"]') for code in line)
    names = {
        "DIR": str(tmp_path / "model"),
        "text": "the [MASK] sat on the mat .",
        "texts": TEXTS,
        "pipeline": transformers.pipeline,
        "model": bert_jax.load(tmp_path / "model"),
    }
    expected, actual = of_left(eval(left, names)), of_right(eval(right, names))
    assert [key for key, _ in actual] == [key for key, _ in expected]
    np.testing.assert_allclose(
        [value for _, value in actual], [value for _, value in expected], atol=1e-5
    )
