"""The two sharding tables: complete, consistent, and strict."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict
from jax.sharding import PartitionSpec

from bert_jax.errors import UserError
from bert_jax.families.family import find_family
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import abstract_params
from bert_jax.models.head import all_heads, find_head, with_fields
from bert_jax.models.heads.hidden_projection import ProjectedStudent
from bert_jax.models.heads.replaced_tokens import ReplacedTokenPretraining
from bert_jax.models.heads.span_boundary import SpanBoundaryModel
from bert_jax.models.heads.tagging import TaggingOptions
from bert_jax.models.heads.text_vectors import TextPooling
from bert_jax.models.parameter_sharding import parameter_axes, state_shardings
from bert_jax.models.vectors import TEXT_VECTORS, Dense
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.sharding.rules import (
    MESH_AXES,
    ZERO_AXES,
    batch_sharding,
    match,
    on_mesh,
    partition_spec,
)

# No two sizes of it are the same.
CONFIG = EncoderConfig(
    vocab_size=50,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=40,
    num_labels=5,
    tie_word_embeddings=False,
    heads=(TaggingOptions(use_crf=True),),
)
HEADS = [name for name, head in all_heads().items() if head.module]
SIZES = {"layers": 2, "vocab": 50, "embed": 24, "heads": 3, "head": 8, "feed_forward": 40}


def shapes_of(config=CONFIG, head="pretraining"):
    return abstract_params(find_head(head).make(config))


def mesh_of(**sizes):
    count = 1
    for size in sizes.values():
        count *= size
    return make_mesh(MeshShape(**{"data": 1} | sizes), jax.devices()[:1] * count)


@pytest.mark.parametrize("head", HEADS)
def test_every_parameter_has_axes_of_its_rank_and_sizes(head):
    for name, leaf in flatten_dict(shapes_of(head=head), sep="/").items():
        axes = match(parameter_axes(), name)
        assert axes == () or len(axes) == leaf.ndim, name
        assert ("layers" in axes) == ("/layers/" in name and axes != ()), name
        partition_spec(axes)
        for axis, size in zip(axes, leaf.shape, strict=False):
            assert axis not in SIZES or SIZES[axis] == size, name


@pytest.mark.parametrize(
    ("new", "known"),
    [
        ("cross_attention/query/kernel", "attention/query/kernel"),
        ("cross_attention/output/bias", "attention/output/bias"),
        ("gate_intermediate/kernel", "intermediate/kernel"),
    ],
)
def test_a_second_sub_layer_is_split_as_the_first(new, known):
    rules = parameter_axes()
    assert match(rules, f"decoder/layers/{new}") == match(rules, f"encoder/layers/{known}")


def test_the_joint_head_is_split_along_its_inputs():
    joint = with_fields(CONFIG, {"qa_head": "joint"})
    actual = flatten_dict(shapes_of(joint, "question_answering")["qa_joint"], sep="/")
    split = {
        name for name in actual if match(parameter_axes(), f"qa_joint/{name}") == ("embed", None)
    }
    assert split == {"start/kernel", "end_hidden/kernel", "no_answer_hidden/kernel"}
    assert all(
        match(parameter_axes(), f"qa_joint/{name}") == () for name in actual if name not in split
    )


@pytest.mark.slow
def test_every_rule_is_some_parameter_s_first():
    joint = with_fields(CONFIG, {"qa_head": "joint"})
    mobile, electra, modern = (
        find_family(name).new_config("tiny") for name in ("mobilebert", "electra", "modernbert")
    )
    positions = {"share_att_key": False, "conv_kernel_size": 3, "position_buckets": 8}
    deberta = find_family("deberta-v2").new_config("tiny", **positions)
    mixed, elmo = with_fields(CONFIG, {"layer_mix": "softmax"}), find_family("elmo")
    recurrent = find_family("lstm").new_config("base")
    attending = with_fields(recurrent, {"decoder_attention": "additive"})
    models = [
        *((CONFIG, head) for head in HEADS),
        (joint, "question_answering"),
        (mobile, "masked_lm"),
        (dataclasses.replace(electra, embedding_size=8), "classification"),
        (electra, "multiple_choice"),
        (find_family("t5").new_config("tiny"), "text_to_text"),
        (find_family("marian").new_config("tiny"), "text_to_text"),
        (modern, "classification"),
        (deberta, "masked_lm"),
        (mixed, "classification"),
        (elmo.new_config("tiny"), "tagging"),
        (recurrent, "causal_lm"),
        (attending, "text_to_text"),
        (find_family("deit").new_config("tiny"), "image_classification_with_teacher"),
        (find_family("vit").new_config("tiny"), "image_classification"),
    ]
    names = {name for model in models for name in flatten_dict(shapes_of(*model), sep="/")}
    student = ProjectedStudent(CONFIG, find_head("masked_lm").make(CONFIG), width=8)
    joint_training = ReplacedTokenPretraining(electra)
    for module in (SpanBoundaryModel(CONFIG), student, joint_training):
        names |= set(flatten_dict(abstract_params(module), sep="/"))
    pooling, hidden = TextPooling(modules=(Dense(24, 8),)), jnp.zeros((1, 2, 24))
    variables = jax.eval_shape(pooling.init, jax.random.key(0), hidden, hidden[..., 0] == 0)
    names |= set(flatten_dict({TEXT_VECTORS: variables["params"]}, sep="/"))
    used = set()
    for name in names:
        used.add(
            next(pattern for pattern, _ in parameter_axes() if match([(pattern, 1), ("", 0)], name))
        )
    assert used == {pattern for pattern, _ in parameter_axes()}


def test_axes_that_are_named_are_known():
    for _, axes in parameter_axes():
        assert {axis for axis in axes if axis is not None} <= set(MESH_AXES)


def test_partition_specs_by_hand():
    assert partition_spec(("batch", "length", "hidden")) == PartitionSpec(
        ("data", "fsdp"), None, None
    )
    assert partition_spec(("layers", "embed", "heads", "head")) == PartitionSpec(
        None, "fsdp", "tensor", None
    )
    assert partition_spec(("vocab", "embed")) == PartitionSpec("tensor", "fsdp")
    assert partition_spec((None, "embed")) == PartitionSpec(None, "fsdp")
    assert partition_spec(()) == PartitionSpec()


def test_moments_are_split_further_than_parameters_by_hand():
    # D is cut for fsdp first, so that a replica's part of the moments is a part of its parameters.
    assert partition_spec(("vocab", "embed"), ZERO_AXES) == PartitionSpec(
        "tensor", ("fsdp", "data")
    )
    assert partition_spec(("layers", "heads", "head"), ZERO_AXES) == PartitionSpec(
        None, "tensor", None
    )
    for _, axes in parameter_axes():
        partition_spec(axes, ZERO_AXES)


@pytest.mark.parametrize("head", ["pretraining", "tagging", "multiple_choice"])
def test_activations_name_axes_of_the_table_that_do_not_collide(monkeypatch, head):
    # Flax, which applies the table to activations, would leave such an axis unsplit without a word.
    named = set()

    def constrain(x, axes):
        assert len(axes) == x.ndim
        named.add(axes)
        return x

    monkeypatch.setattr(nn, "with_logical_constraint", constrain)
    module = find_head(head).make(CONFIG)
    jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((1, 8), jnp.int32))
    assert ("batch", "length", "hidden") in named
    assert ("vocab", None) in named  # the table of word embeddings, whole in D
    for axes in named:
        partition_spec(axes)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (("vocab", "heads"), "axes 'vocab' and 'heads' both lie on mesh axis 'tensor'; change one"),
        (("embed", "embed"), "axes 'embed' and 'embed' both lie on mesh axis 'fsdp'"),
        (("batch", "embed"), "axes 'batch' and 'embed' both lie on mesh axis 'fsdp'"),
        (("batch", "width"), "axis 'width' is not in the sharding table; add it to MESH_AXES"),
    ],
)
def test_collisions_and_unknown_axes(axes, message):
    with pytest.raises(UserError, match=message):
        partition_spec(axes)


def test_moments_lie_where_their_parameters_lie():
    params = shapes_of(find_family("bert").new_config("tiny"))
    moments = jax.eval_shape(optax.adam(1e-3).init, params)
    state = {"params": params, "opt_state": moments, "step": np.int32(0)}
    actual = state_shardings(mesh_of(data=2, fsdp=2, tensor=2), state)
    specs = jax.tree.map(lambda sharding: sharding.spec, actual["params"])
    assert jax.tree.map(lambda s: s.spec, actual["opt_state"][0].mu) == specs
    assert jax.tree.map(lambda s: s.spec, actual["opt_state"][0].nu) == specs
    assert actual["step"].spec == actual["opt_state"][0].count.spec == PartitionSpec()
    flat = flatten_dict(specs, sep="/")
    assert flat["bert/encoder/layers/intermediate/kernel"] == PartitionSpec(None, "fsdp", "tensor")
    assert flat["bert/encoder/layers/attention/output/kernel"] == PartitionSpec(
        None, "tensor", None, "fsdp"
    )
    assert flat["bert/embeddings/layer_norm/scale"] == PartitionSpec()


def test_an_axis_that_the_mesh_does_not_divide():
    shapes = shapes_of(find_family("bert").new_config("tiny"))
    message = "has an axis of 2, which tensor=4 does not divide; choose another mesh.tensor or"
    with pytest.raises(UserError, match=message):
        state_shardings(mesh_of(tensor=4), {"bert": shapes["bert"]["encoder"]})
    state = {"pooler": {"dense": {"kernel": jax.ShapeDtypeStruct((12, 12), jnp.float32)}}}
    mesh = mesh_of(data=4, fsdp=2)
    specs = state_shardings(mesh, state)["pooler"]["dense"]["kernel"].spec
    assert specs == PartitionSpec("fsdp", None)
    message = "has an axis of 12, which fsdp=2 × data=4 does not divide; choose another"
    with pytest.raises(UserError, match=message):
        state_shardings(mesh, state, ZERO_AXES)


def test_a_batch_is_split_over_data_and_fsdp():
    assert batch_sharding(mesh_of(data=2, fsdp=2)).spec == PartitionSpec(("data", "fsdp"))


def test_models_constrain_their_activations_on_a_mesh():
    def named(x):
        return nn.with_logical_constraint(x * 2, ("batch", "length", "hidden"))

    x = np.ones((4, 3, 2), np.float32)
    assert "sharding_constraint" not in jax.jit(named).lower(x).as_text()
    with on_mesh(make_mesh(MeshShape())):
        program = jax.jit(named).lower(x).as_text()
    assert "sharding_constraint" in program
    assert '[{"data", "fsdp"}, {}, {}]' in program
