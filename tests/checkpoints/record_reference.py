"""Records what Hugging Face's BERT and its relatives compute, for tests without PyTorch.

    python tests/checkpoints/record_reference.py

writes `tests/checkpoints/recorded/*.json`; it needs torch 2.13.0 and transformers 5. Recorded are
small models, one for each architecture; gradients of the two heads that are trained together alone.
No weights are stored: both sides draw a tensor from its name. Of long arrays some values and the
norm are kept.
"""

import inspect
import json
import re
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

RECORDED = Path(__file__).with_name("recorded")

# How many values of an array are kept.
OUTPUT_SAMPLES, GRADIENT_SAMPLES = 16, 4


class Case(NamedTuple):
    """A model of transformers.

    Attributes:
        architecture: its class.
        fields: of its config, where they differ from `SMALL`.
        options: further arguments of the class.
        family: the first part of the names of its classes.
    """

    architecture: str
    fields: Mapping[str, Any] = {}
    options: Mapping[str, Any] = {}
    family: str = "Bert"


SMALL: Mapping[str, Any] = {
    "vocab_size": 41,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
    "hidden_act": "gelu",
}

_NAMES = {0: "negative", 1: "neutral", 2: "positive"}
_THREE_LABELS = {"id2label": _NAMES, "label2id": {name: label for label, name in _NAMES.items()}}

CASES: dict[str, Case] = {
    "encoder_gelu": Case("BertModel"),
    "pretraining": Case("BertForPreTraining", {"num_attention_heads": 3}),
    "masked_lm_gelu_new": Case("BertForMaskedLM", {"hidden_act": "gelu_new"}),
    "masked_lm_untied": Case(
        "BertForMaskedLM", {"hidden_act": "relu", "tie_word_embeddings": False}
    ),
    "next_sentence": Case("BertForNextSentencePrediction"),
    "sequence_classification": Case("BertForSequenceClassification", _THREE_LABELS),
    "token_classification": Case("BertForTokenClassification", _THREE_LABELS),
    "question_answering": Case("BertForQuestionAnswering"),
    "multiple_choice": Case("BertForMultipleChoice"),
}

# One model of each kind of relative: tests/families compares every head of all with transformers.
_RELATIVES: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "Roberta": (
        {
            "type_vocab_size": 1,
            "pad_token_id": 1,
            "layer_norm_eps": 1e-5,
            "max_position_embeddings": 18,
            **_THREE_LABELS,
        },
        "SequenceClassification",
    ),
    "DistilBert": ({}, "MaskedLM"),
    "MPNet": (
        {"pad_token_id": 1, "layer_norm_eps": 1e-5, "max_position_embeddings": 18},
        "MaskedLM",
    ),
    "Electra": ({"embedding_size": 10}, "MultipleChoice"),
    "Albert": (
        {"embedding_size": 10, "num_hidden_layers": 4, "num_hidden_groups": 2},
        "PreTraining",
    ),
    "MobileBert": (
        {
            "embedding_size": 5,
            "intra_bottleneck_size": 8,
            "num_feedforward_networks": 3,
            "classifier_activation": False,
            "hidden_act": "relu",
        },
        "PreTraining",
    ),
    # Rows of 8 tokens exceed the buckets and the distances.
    "DebertaV2": (
        {
            "layer_norm_eps": 1e-7,
            "relative_attention": True,
            "position_biased_input": False,
            "pos_att_type": ["c2p", "p2c"],
            "share_att_key": True,
            "position_buckets": 4,
            "max_relative_positions": 6,
            "norm_rel_ebd": "layer_norm",
            "conv_kernel_size": 3,
            "conv_act": "gelu",
            **_THREE_LABELS,
        },
        "SequenceClassification",
    ),
    "ModernBert": (
        {
            "num_hidden_layers": 4,
            "pad_token_id": 0,
            "local_attention": 4,
            "global_rope_theta": 160.0,
            "local_rope_theta": 10.0,
            "classifier_pooling": "mean",
            **_THREE_LABELS,
        },
        "SequenceClassification",
    ),
}
_KEYS_OF_DISTILBERT = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
}
CASES |= {
    family.lower(): Case(f"{family}For{head}", fields, family=family)
    for family, (fields, head) in _RELATIVES.items()
}


def random_tensor(name: str, shape: Sequence[int]) -> np.ndarray:
    """The tensor of that name, float32.

    No gain, bias or table has the values it begins with. In any width activations stay about 1 and
    queries prefer some keys; sub-layers add less than their inputs, or all tokens would grow
    alike with depth.
    """
    # NumPy promises that this generator draws the same numbers for ever; default_rng may change.
    values = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    if len(shape) == 2:
        gain = 1.0 if re.search(r"\.(query|key)\.", name) else 0.5
        values *= gain / np.sqrt(shape[1])
    else:
        values = 0.2 * values + bool(re.search(r"(LayerNorm|layer_norm)\.weight$", name))
    return values.astype(np.float32)


def example_inputs(
    architecture: str, config: Mapping[str, Any], batch: int = 3, tokens: int = 8
) -> dict[str, np.ndarray]:
    """Rows of several lengths, the longest full; all but the last have two segments.

    int64 [B, T], for multiple choice [1, B, T]. Only padding has the id of [PAD]: Hugging Face
    gives it no gradient as an input.
    """
    generator = np.random.RandomState(0)
    # A trigram at the end of a text has padding in it.
    shortest = tokens if config.get("trigram_input") else 2
    lengths = np.linspace(tokens, shortest, batch).astype(int)[:, None]
    mask = (np.arange(tokens) < lengths).astype(np.int64)
    pad = config["pad_token_id"]
    ids = generator.randint(1 + pad, config["vocab_size"], mask.shape) * mask + pad * (1 - mask)
    types = (np.arange(tokens) >= lengths // 2) * mask * (np.arange(batch) < batch - 1)[:, None]
    if config.get("type_vocab_size") == 1:
        types = np.zeros_like(types)
    inputs = {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}
    if architecture.endswith("ForMultipleChoice"):
        return {name: array[None] for name, array in inputs.items()}
    return inputs


def score_weights(name: str, shape: Sequence[int], attention_mask: np.ndarray) -> np.ndarray:
    """Random weights of an output, 0 for padding; the gradients are those of its weighted sum."""
    weights = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    if attention_mask.shape == tuple(shape[:2]):
        weights *= attention_mask.reshape(*attention_mask.shape, *[1] * (len(shape) - 2))
    return weights.astype(np.float32)


def summary(array: np.ndarray, samples: int) -> list[float]:
    """The norm, then values from the first to the last at even distances."""
    flat = np.asarray(array, np.float64).ravel()
    indices = np.linspace(0, len(flat) - 1, samples).astype(int)
    return [float(f"{value:.7g}") for value in (np.linalg.norm(flat), *flat[indices])]


def reference_model(case: Case) -> Any:
    """The model of transformers, for evaluation, with tensors drawn by their names."""
    import torch
    import transformers

    keys = _KEYS_OF_DISTILBERT if case.family == "DistilBert" else {}
    fields = {keys.get(name, name): value for name, value in {**SMALL, **case.fields}.items()}
    config = getattr(transformers, f"{case.family}Config")(**fields)
    model = getattr(transformers, case.architecture)(config, **case.options).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(random_tensor(name, parameter.shape)))
    return model


def record(case: Case) -> dict[str, Any]:
    """The content of a file in `recorded/`."""
    import torch
    from safetensors.numpy import load_file

    model = reference_model(case)
    with tempfile.TemporaryDirectory() as directory:
        model.save_pretrained(directory)
        config = json.loads((Path(directory) / "config.json").read_text())
        saved = load_file(Path(directory) / "model.safetensors")
    inputs = example_inputs(case.architecture, config)
    bare = case.architecture.endswith("Model")
    taken = inspect.signature(model.forward).parameters
    output = model(
        **{name: torch.from_numpy(array) for name, array in inputs.items() if name in taken},
        output_hidden_states=bare,
    )
    outputs = {name: value for name, value in output.items() if name != "hidden_states"}
    hidden_states = {
        f"hidden_states {layer}": value for layer, value in enumerate(output.hidden_states or ())
    }
    recorded = {
        "config": config,
        "inputs": {name: array.tolist() for name, array in inputs.items()},
        "outputs": {
            name: summary(value.detach(), OUTPUT_SAMPLES)
            for name, value in (outputs | hidden_states).items()
        },
        "tensors": {name: tensor.shape for name, tensor in saved.items()},
    }
    if case == CASES["pretraining"]:
        mask = inputs["attention_mask"]
        weights = {name: score_weights(name, value.shape, mask) for name, value in outputs.items()}
        score = sum(
            (outputs[name] * torch.from_numpy(each)).sum() for name, each in weights.items()
        )
        score.backward()
        recorded["gradients"] = {
            name: summary(parameter.grad, GRADIENT_SAMPLES)
            for name, parameter in model.named_parameters()
            if parameter.grad is not None
        }
    return recorded


def as_json(recorded: Mapping[str, Any]) -> str:
    """JSON with a line for each entry of a section."""
    sections = []
    for section, entries in recorded.items():
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items()]
        sections.append(f' "{section}": {{\n' + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def main() -> None:
    """Writes all files."""
    RECORDED.mkdir(exist_ok=True)
    for name, case in CASES.items():
        (RECORDED / f"{name}.json").write_text(as_json(record(case)))


if __name__ == "__main__":
    main()
