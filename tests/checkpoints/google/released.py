"""A tiny model as Google releases it: its files, its variables, and how they are read."""

from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.google_files import load_description, load_params
from bert_jax.checkpoints.parameters import LoadReport
from bert_jax.checkpoints.tensors.tensorflow_checkpoint import write_checkpoint
from bert_jax.data.tensorflow import import_tensorflow
from bert_jax.models.config import EncoderConfig
from bert_jax.models.execution import Execution

# L 2, D 6, N 3, H 2, F 5, V 7, C 4; a released bert_config.json with all that it may hold.
GOOGLE_CONFIG = {
    "attention_probs_dropout_prob": 0.1,
    "directionality": "bidi",
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.2,
    "hidden_size": 6,
    "initializer_range": 0.02,
    "intermediate_size": 5,
    "max_position_embeddings": 9,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "pooler_fc_size": 768,
    "pooler_type": "first_token_transform",
    "type_vocab_size": 2,
    "vocab_size": 7,
}
CONFIG = EncoderConfig(
    vocab_size=7,
    hidden_size=6,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=5,
    max_position_embeddings=9,
    hidden_dropout_prob=0.2,
)
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "##s"]


def dense(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/kernel": (inputs, outputs), f"{name}/bias": (outputs,)}


def norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}/gamma": (6,), f"{name}/beta": (6,)}


def encoder_layer(name: str) -> dict[str, tuple[int, ...]]:
    return {
        **dense(f"{name}/attention/self/query", 6, 6),
        **dense(f"{name}/attention/self/key", 6, 6),
        **dense(f"{name}/attention/self/value", 6, 6),
        **dense(f"{name}/attention/output/dense", 6, 6),
        **norm(f"{name}/attention/output/LayerNorm"),
        **dense(f"{name}/intermediate/dense", 6, 5),
        **dense(f"{name}/output/dense", 5, 6),
        **norm(f"{name}/output/LayerNorm"),
    }


BERT = {
    "bert/embeddings/word_embeddings": (7, 6),
    "bert/embeddings/position_embeddings": (9, 6),
    "bert/embeddings/token_type_embeddings": (2, 6),
    **norm("bert/embeddings/LayerNorm"),
    **encoder_layer("bert/encoder/layer_0"),
    **encoder_layer("bert/encoder/layer_1"),
    **dense("bert/pooler/dense", 6, 6),
}
WORDS = {
    **dense("cls/predictions/transform/dense", 6, 6),
    **norm("cls/predictions/transform/LayerNorm"),
    "cls/predictions/output_bias": (7,),
}
NEXT_SENTENCE = {
    "cls/seq_relationship/output_weights": (2, 6),
    "cls/seq_relationship/output_bias": (2,),
}
SQUAD = {"cls/squad/output_weights": (2, 6), "cls/squad/output_bias": (2,)}
LABELS = {"output_weights": (4, 6), "output_bias": (4,)}
PRETRAINING = BERT | WORDS | NEXT_SENTENCE


def counted(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Variable 0 has the numbers 0, 1, 2, …, variable 1 the numbers 100, 101, 102, …"""
    return {
        name: np.float32(100 * number + np.arange(np.prod(shape)).reshape(shape))
        for number, (name, shape) in enumerate(shapes.items())
    }


def write_with_saver(prefix, values) -> None:
    """As the scripts of google-research/bert do: variables by name, Adam's slots, the step."""
    tensorflow = import_tensorflow()
    v1 = tensorflow.compat.v1
    with tensorflow.Graph().as_default(), v1.Session() as session:
        for name, value in values.items():
            v1.get_variable(name, initializer=value, use_resource=False)
            for slot in ("adam_m", "adam_v"):
                v1.get_variable(f"{name}/{slot}", initializer=value * 0, use_resource=False)
        v1.train.get_or_create_global_step()
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(prefix))


def write_with_slots(prefix, values) -> None:
    """The same variables without a graph."""
    slots = {
        f"{name}/{slot}": value * 0
        for name, value in values.items()
        for slot in ("adam_m", "adam_v")
    }
    write_checkpoint(prefix, {**values, **slots, "global_step": np.int64(0)})


class Model(NamedTuple):
    description: ModelDescription
    params: Any
    report: LoadReport


def load(files, head=None) -> Model:
    """What every caller does with the two functions."""
    description = load_description(files, head)
    module = description.make_module(Execution())
    return Model(description, *load_params(files, description, module))


def same(first, second) -> bool:
    """Whether two trees are equal to the bit."""
    assert jax.tree.structure(first) == jax.tree.structure(second)
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)
