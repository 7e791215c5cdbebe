"""The name table: by hand, complete, and its own inverse."""

import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bert_jax.checkpoints.parameters import fill, tensor_shape, to_tensor
from bert_jax.families.bert import FAMILY
from bert_jax.families.bert import HUGGINGFACE as TABLE
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import abstract_params
from bert_jax.models.head import find_head, with_fields
from bert_jax.models.heads.tagging import TaggingOptions

# L 2, D 6, N 3, H 2, F 5, V 7: all different, so that no wrong transposition fits by chance.
CONFIG = EncoderConfig(
    vocab_size=7,
    hidden_size=6,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=5,
    max_position_embeddings=9,
    num_labels=4,
    tie_word_embeddings=False,
    heads=(TaggingOptions(use_crf=True),),
)
BY_NAME = {rule.parameter: rule for rule in TABLE.rules}


def to_tensors(rule, value):
    """Name and tensor of a parameter, for each layer if it is stacked."""
    parts = value if rule.stacked else [value]
    for layer, part in enumerate(parts):
        yield rule.tensor.format(layer=layer), to_tensor(rule, part)


def from_tensor(rule, tensor, shape):
    place = np.empty(shape, tensor.dtype)
    fill(rule, place, tensor)
    return place


@pytest.fixture(scope="module")
def shapes():
    """Every parameter of any of the models."""
    found = {}
    for name in FAMILY.class_names:
        tree = abstract_params(find_head(name).make(CONFIG))
        prefix = "bert/" if name == "encoder" else ""
        for path, leaf in flatten_dict(tree, sep="/").items():
            found[prefix + path] = leaf.shape
    joint = find_head("question_answering").make(with_fields(CONFIG, {"qa_head": "joint"}))
    for path, leaf in flatten_dict(abstract_params(joint), sep="/").items():
        found[path] = leaf.shape
    return found


def test_every_parameter_has_one_rule_and_every_rule_a_parameter(shapes):
    assert len(BY_NAME) == len(TABLE.rules) == len(shapes)
    assert set(BY_NAME) == set(shapes)


@pytest.mark.parametrize(
    ("spelling", "canonical"),
    [
        ("bert.pooler.dense.weight", "bert.pooler.dense.weight"),
        ("pooler.dense.weight", "bert.pooler.dense.weight"),
        ("embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.weight"),
        (
            "bert.encoder.layer.11.output.LayerNorm.beta",
            "bert.encoder.layer.11.output.LayerNorm.bias",
        ),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
        ("classifier.weight", "classifier.weight"),
        ("my_head.gamma", "my_head.gamma"),
        ("bert.embeddings.position_ids", None),
        ("embeddings.token_type_ids", None),
    ],
)
def test_spellings(spelling, canonical):
    assert TABLE.canonical(spelling) == canonical


def test_names_and_shapes_by_hand(shapes):
    found = {
        name: tensor.shape
        for ours, shape in shapes.items()
        for name, tensor in to_tensors(BY_NAME[ours], np.zeros(shape, np.float32))
    }
    layer = {
        "attention.self.query": (6, 6),
        "attention.self.key": (6, 6),
        "attention.self.value": (6, 6),
        "attention.output.dense": (6, 6),
        "intermediate.dense": (5, 6),
        "output.dense": (6, 5),
    }
    expected = {
        "bert.embeddings.word_embeddings.weight": (7, 6),
        "bert.embeddings.position_embeddings.weight": (9, 6),
        "bert.embeddings.token_type_embeddings.weight": (2, 6),
        "bert.embeddings.LayerNorm.weight": (6,),
        "bert.embeddings.LayerNorm.bias": (6,),
        "bert.pooler.dense.weight": (6, 6),
        "bert.pooler.dense.bias": (6,),
        "cls.predictions.bias": (7,),
        "cls.predictions.decoder.weight": (7, 6),
        "cls.predictions.transform.dense.weight": (6, 6),
        "cls.predictions.transform.dense.bias": (6,),
        "cls.predictions.transform.LayerNorm.weight": (6,),
        "cls.predictions.transform.LayerNorm.bias": (6,),
        "cls.seq_relationship.weight": (2, 6),
        "cls.seq_relationship.bias": (2,),
        "qa_outputs.weight": (2, 6),
        "qa_outputs.bias": (2,),
        # The last of the models that call their head so: one score a choice.
        "classifier.weight": (1, 6),
        "classifier.bias": (1,),
        "crf.transitions": (4, 4),
        "crf.start_transitions": (4,),
        "crf.end_transitions": (4,),
        "qa_joint.start.weight": (1, 6),
        "qa_joint.start.bias": (1,),
    }
    for name in ("end", "no_answer"):
        expected[f"qa_joint.{name}_hidden.weight"] = (512, 12)
        expected[f"qa_joint.{name}_hidden.bias"] = (512,)
        expected[f"qa_joint.{name}.weight"] = (1, 512)
        expected[f"qa_joint.{name}.bias"] = (1,)
    for number in range(2):
        prefix = f"bert.encoder.layer.{number}."
        for name, shape in layer.items():
            expected[f"{prefix}{name}.weight"] = shape
            expected[f"{prefix}{name}.bias"] = shape[:1]
        for name in ("attention.output", "output"):
            expected[f"{prefix}{name}.LayerNorm.weight"] = (6,)
            expected[f"{prefix}{name}.LayerNorm.bias"] = (6,)
    assert found == expected


def test_parameters_of_one_shape_are_not_exchanged():
    ours, theirs = "bert/encoder/layers", "bert.encoder.layer.{layer}"
    names = {
        "crf_start": "crf.start_transitions",
        "crf_end": "crf.end_transitions",
        "qa_joint/end/kernel": "qa_joint.end.weight",
        "qa_joint/no_answer/kernel": "qa_joint.no_answer.weight",
        "qa_joint/end_hidden/kernel": "qa_joint.end_hidden.weight",
        "qa_joint/no_answer_hidden/kernel": "qa_joint.no_answer_hidden.weight",
        "bert/embeddings/layer_norm/scale": "bert.embeddings.LayerNorm.weight",
        "bert/embeddings/layer_norm/bias": "bert.embeddings.LayerNorm.bias",
        f"{ours}/attention/query/kernel": f"{theirs}.attention.self.query.weight",
        f"{ours}/attention/key/kernel": f"{theirs}.attention.self.key.weight",
        f"{ours}/attention/value/kernel": f"{theirs}.attention.self.value.weight",
        f"{ours}/attention_norm/scale": f"{theirs}.attention.output.LayerNorm.weight",
        f"{ours}/output_norm/scale": f"{theirs}.output.LayerNorm.weight",
    }
    assert {name: BY_NAME[name].tensor for name in names} == names


@pytest.mark.parametrize("ours", BY_NAME)
def test_there_and_back_to_the_bit(shapes, ours):
    rule, shape = BY_NAME[ours], shapes[ours]
    value = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    tensors = list(to_tensors(rule, value))
    assert len({name for name, _ in tensors}) == len(tensors) == (2 if rule.stacked else 1)
    layer_shape = shape[1:] if rule.stacked else shape
    parts = []
    for _, tensor in tensors:
        assert tensor.shape == tensor_shape(rule, layer_shape)
        assert tensor.flags.c_contiguous
        parts.append(from_tensor(rule, tensor, layer_shape))
    back = np.stack(parts) if rule.stacked else parts[0]
    assert back.shape == shape
    assert back.tobytes() == value.tobytes()


def tensor_of(ours: str, value: np.ndarray) -> np.ndarray:
    return next(tensor for _, tensor in to_tensors(BY_NAME[ours], value))


def test_kernels_are_transposed_and_heads_flattened_by_hand():
    # One layer, D 2, N 2, H 1. Ours [layer, in, head, width]: row 0 goes to heads 1 and 2.
    query = np.array([[[[1.0], [2.0]], [[3.0], [4.0]]]])
    assert tensor_of("bert/encoder/layers/attention/query/kernel", query).tolist() == [
        [1.0, 3.0],
        [2.0, 4.0],
    ]
    # Ours [layer, head, width, out].
    output = np.array([[[[1.0, 2.0]], [[3.0, 4.0]]]])
    assert tensor_of("bert/encoder/layers/attention/output/kernel", output).tolist() == [
        [1.0, 3.0],
        [2.0, 4.0],
    ]
    # Tables are as they are.
    table = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    found = tensor_of("bert/embeddings/word_embeddings/embedding", table)
    assert found.tolist() == table.tolist()
