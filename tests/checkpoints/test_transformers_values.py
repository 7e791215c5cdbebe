"""What the models of Hugging Face's `transformers` compute, beside ours: live, in many shapes."""

import runpy
import tempfile
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from bert_jax.parity.compare import compare

pytestmark = pytest.mark.slow

pytest.importorskip("torch")
pytest.importorskip("transformers")

REFERENCE = runpy.run_path(str(Path(__file__).with_name("record_reference.py")))
Case, reference_model = REFERENCE["Case"], REFERENCE["reference_model"]

# Beside a decoder of its own transformers keeps a second bias, which has no gradient.
DECODER_BIAS = "cls.predictions.decoder.bias"

LIMITS = {"hidden states": 2e-5, "logits": 1e-4, "loss": 1e-4, "gradient": 1e-4}

# Each kind of loss, in shapes that no released model has; test_recorded has every head.
ODD_SHAPES = {
    "pretraining": Case("BertForPreTraining", {"hidden_size": 20, "num_attention_heads": 5}),
    "masked_lm_untied": Case("BertForMaskedLM", {"tie_word_embeddings": False}),
    "multi_label": Case(
        "BertForSequenceClassification",
        {"num_labels": 5, "problem_type": "multi_label_classification"},
    ),
    "classification": Case("BertForSequenceClassification", {"num_labels": 3}),
    "regression": Case(
        "BertForSequenceClassification", {"num_labels": 1, "problem_type": "regression"}
    ),
    "tagging": Case("BertForTokenClassification", {"num_labels": 7, "type_vocab_size": 16}),
    "question_answering": Case("BertForQuestionAnswering", {"intermediate_size": 1}),
    "multiple_choice": Case("BertForMultipleChoice", {"num_hidden_layers": 1}),
}
BASE = Case(
    "BertForPreTraining",
    {
        "vocab_size": 30522,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
    },
)


@pytest.mark.parametrize("name", ODD_SHAPES)
def test_values_in_odd_shapes(name, tokenizer, tmp_path):
    check_values(ODD_SHAPES[name], tokenizer, tmp_path)


@pytest.mark.usefixtures("optimized")
def test_values_of_base(tokenizer):
    # Not tmp_path, of which pytest would keep the half gigabyte of three runs.
    with tempfile.TemporaryDirectory() as directory:
        check_values(BASE, tokenizer, Path(directory))


def check_values(case, tokenizer, directory: Path) -> None:
    """Hidden states, outputs, losses and gradients on the inputs of `bert-jax parity`."""
    reference_model(case).save_pretrained(directory)
    tokenizer.save(directory)
    report = compare(directory)
    assert report.agrees, report.as_table()
    assert report.architecture == case.architecture
    assert report.equal_tensors[0] == report.equal_tensors[1] > 0
    assert list(report.inputs) == ["short", "padded", "full"]
    assert report.causes == ()
    differences: dict[str, list] = {quantity: [] for quantity in LIMITS}
    for entry in report.differences:
        differences[entry.quantity].append(entry)
        assert entry.error <= LIMITS[entry.quantity], entry
    layers = {**REFERENCE["SMALL"], **case.fields}["num_hidden_layers"]
    assert len({entry.name for entry in differences["hidden states"]}) == 1 + layers
    assert differences["logits"] or case.options == {"add_pooling_layer": False}
    assert differences["loss"]
    parameters = load_file(directory / "model.safetensors").keys() - {DECODER_BIAS}
    prefix = "bert." if case.architecture == "BertModel" else ""
    gradients = {entry.name for entry in differences["gradient"]}
    assert gradients == {prefix + name for name in parameters}
