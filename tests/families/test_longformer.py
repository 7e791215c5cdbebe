"""What is special in Longformer: its windows in files, the global tokens of tasks, conversions."""

import json

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.checkpoints.config_file import config_bytes, read_config
from bert_jax.cli import main
from bert_jax.errors import UserError
from bert_jax.families.family import find_family
from tests.checkpoints.fields.config_json import MINIMAL_CONFIGS

FIELDS = {"model_type": "longformer", **MINIMAL_CONFIGS["longformer"]}


def read(path, fields):
    path.write_text(json.dumps(fields))
    return read_config(path)


@pytest.mark.parametrize(("window", "radii"), [([4, 6], (2, 3)), (8, (4, 4))])
def test_windows_of_a_file(tmp_path, window, radii):
    described = read(tmp_path / "config.json", FIELDS | {"attention_window": window})
    assert described.config.windows == radii
    written = json.loads(config_bytes(described))
    assert written["attention_window"] == [2 * radius for radius in radii]
    assert written["sep_token_id"] == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_window": [4, 5]}, r"attention_window is .*; it must be even, from 2"),
        ({"attention_window": [4]}, r"attention_window is \(4,\); give one for each layer: num"),
        ({"attention_window": "wide"}, "attention_window is 'wide'; it must be even, from 2"),
        ({"attention_window": None}, "lacks attention_window; give the whole longformer config"),
        ({"sep_token_id": None}, "lacks sep_token_id; give the whole longformer config"),
        ({"attention_dilation": [2, 2]}, r"attention_dilation is \[2, 2\]; only None is supported"),
    ],
)
def test_what_a_file_lacks_or_contradicts_is_an_error(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path / "config.json", FIELDS | changes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "head", ["SequenceClassification", "QuestionAnswering", "MultipleChoice", "TokenClassification"]
)
def test_the_global_tokens_of_a_head_are_those_of_transformers(head, tmp_path):
    """Neither side is told which; T > 2 · window + 2."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tests.families.test_parity_of_families import save_model

    class_name = f"LongformerFor{head}"
    reference = save_model("longformer", class_name, find_family("longformer"), tmp_path)
    ids = np.random.default_rng(0).integers(5, 53, (4, 30))
    ids[:, 0] = 0
    for row, question in enumerate((3, 8, 12, 5)):
        ids[row, [question, question + 1, 29]] = 2
    mask = np.ones_like(ids)
    ids[1, 25:], mask[1, 25:], ids[1, 24] = 1, 0, 2
    shape = (2, 2, 30) if head == "MultipleChoice" else ids.shape
    ids, mask = ids.reshape(shape), mask.reshape(shape)
    with torch.no_grad():
        output = reference(torch.tensor(ids), attention_mask=torch.tensor(mask))
    model = bert_jax.load(tmp_path)
    computed = jax.jit(model.module.apply)({"params": model.params}, ids, None, mask)
    computed = computed if isinstance(computed, tuple) else (computed,)
    for array, expected in zip(computed, output.values(), strict=True):
        real = mask == 1 if array.shape[:2] == mask.shape and head != "MultipleChoice" else ...
        np.testing.assert_allclose(array[real], expected.numpy()[real], atol=1e-4)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Random classifiers of transformers: BERT and RoBERTa of 37 and 39 positions."""
    pytest.importorskip("transformers")
    from tests.families.test_parity_of_families import save_model

    root = tmp_path_factory.mktemp("sources")
    for name, prefix in (("bert", "Bert"), ("roberta", "Roberta")):
        for head in ("SequenceClassification", "MaskedLM"):
            save_model(name, f"{prefix}For{head}", find_family(name), root / f"{name}{head}")
    return root


@pytest.mark.slow
@pytest.mark.parametrize("head", ["SequenceClassification", "MaskedLM"])
@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_a_converted_model_keeps_what_it_computes_of_short_texts(sources, tmp_path, name, head):
    """Here, and in transformers; a text may then be longer than the table of positions was."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    source, output = sources / f"{name}{head}", tmp_path / "long"
    arguments = ["--positions", "200", "--attention-window", "64", "--to", "longformer"]
    assert main(["convert", "--input", str(source), "--output", str(output), *arguments]) == 0
    before, after = bert_jax.load(source), bert_jax.load(output)
    assert after.description.class_name == f"LongformerFor{head}"
    assert (after.config.max_length, after.config.windows) == (200, (32,) * 3)
    ids = np.random.default_rng(0).integers(5, 53, (3, 33))
    mask = np.ones_like(ids)
    mask[1, 20:] = 0
    ids[mask == 0] = 1
    logits = [
        np.asarray(jax.jit(model.module.apply)({"params": model.params}, ids, None, mask))
        for model in (before, after)
    ]
    peer = getattr(transformers, f"LongformerFor{head}").from_pretrained(output).eval()

    def of_peer(ids, mask):
        with torch.no_grad():
            return peer(torch.tensor(ids), attention_mask=torch.tensor(mask)).logits.numpy()

    real = mask == 1 if head == "MaskedLM" else ...
    np.testing.assert_allclose(logits[1][real], logits[0][real], atol=1e-5)
    np.testing.assert_allclose(of_peer(ids, mask)[real], logits[0][real], atol=1e-4)
    long = np.random.default_rng(1).integers(5, 53, (1, 150))
    computed = jax.jit(after.module.apply)({"params": after.params}, long)
    np.testing.assert_allclose(computed, of_peer(long, np.ones_like(long)), atol=1e-4)


@pytest.mark.slow
def test_what_cannot_become_a_longformer(sources, tmp_path):
    model = bert_jax.load(sources / "bertMaskedLM")
    for family, positions, window, message in (
        ("longformer", 36, None, "positions is 36, but the model has 37 and"),
        ("longformer", 100, 7, "attention_window is 7; it must be even, from 2"),
        ("roberta", 100, None, "no other models become roberta models; give another family"),
    ):
        with pytest.raises(UserError, match=message):
            model.to_family(family, positions=positions, attention_window=window)
    long = model.to_family("longformer", positions=100)
    with pytest.raises(UserError, match="a longformer model cannot become a Longformer; give one"):
        long.to_family("longformer")
