"""The roofline: FLOPs against published values and the traced program; the least times by hand."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from bert_jax.families import bert
from bert_jax.families.family import find_family
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import abstract_params
from bert_jax.models.head import find_head
from bert_jax.planning.hardware import HARDWARE
from bert_jax.planning.roofline import (
    LocalParameters,
    flops_of_batch,
    least_sent_bytes,
    local_parameters,
    memory_traffic,
    program_flops,
    real_flops,
    step_seconds,
)
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.tasks.base.encoder_decoder import EncoderDecoderTask
from bert_jax.tasks.base.task import ComputedModel

LOCAL = LocalParameters(split=1000, whole=100)


def mesh(**sizes: int):
    shape = MeshShape(**{"data": 1} | sizes)
    return make_mesh(shape, jax.devices()[:1] * (shape.data * shape.fsdp * shape.tensor))


def computed(training):
    """FLOPs of the program of a step."""
    return program_flops(training.step.trace(training.abstract, training.batch).jaxpr.jaxpr)


def model_flops(training):
    """FLOPs of the models of a step."""
    return flops_of_batch(training.training.task.computed_models, training.batch)


@pytest.mark.parametrize(
    ("size", "length", "predictions", "gigaflops"),
    [
        ("base", 128, 20, 69.9),
        ("base", 512, 80, 301.4),
        ("large", 128, 20, 240.6),
        ("large", 512, 80, 1020),
    ],
)
def test_gigaflops_of_a_sequence(size, length, predictions, gigaflops):
    result = real_flops(bert.FAMILY.new_config(size), np.array([length]), predictions)
    assert result / 1e9 == pytest.approx(gigaflops, rel=1e-3)


def test_twice_the_masks_cost_the_vocabulary_head_alone():
    """As in benchmarks/results/pretraining.md."""
    modern = find_family("modernbert")
    base = modern.new_config("base", vocab_size=50_368)
    tiny = modern.new_config("tiny", vocab_size=4096)
    few, many = (real_flops(base, np.array([1024]), masks) for masks in (154, 307))
    assert many / few == pytest.approx(1.045, abs=5e-4)
    few, many = (32 * real_flops(tiny, np.array([64]), masks) for masks in (10, 19))
    assert (few, many) == (8_688_500_736, 9_622_781_952)


BY_HAND = EncoderConfig(
    vocab_size=10,
    hidden_size=2,
    num_hidden_layers=3,
    num_attention_heads=1,
    intermediate_size=5,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["albert", "electra", "mobilebert", "modernbert", "roberta"])
def test_the_formula_is_what_a_program_of_any_family_computes(name):
    config = find_family(name).new_config("tiny", vocab_size=50, max_position_embeddings=40)
    if name == "electra":
        config = dataclasses.replace(config, embedding_size=24)
    module = find_head("masked_lm").make(config)
    ids = jax.ShapeDtypeStruct((1, 16), jnp.int32)
    positions = jax.ShapeDtypeStruct((1, 3), jnp.int32)
    program = jax.make_jaxpr(
        lambda params, ids, positions: module.apply(
            {"params": params}, ids, masked_lm_positions=positions
        )
    )(abstract_params(module), ids, positions)
    result = program_flops(program.jaxpr)
    assert 3 * result == real_flops(config, np.array([16]), 3)


@pytest.mark.slow
def test_the_formula_is_what_a_program_for_images_computes():
    """A classifier's last layer is left out, as for texts; 2 · 2 · 3 FLOPs per value of [CLS]."""
    fields = {"image_size": (30, 41), "patch_size": (8, 10), "num_channels": 2, "num_labels": 3}
    config = find_family("deit").new_config("tiny", **fields)
    module = find_head("image_classification").make(config)
    images = jax.ShapeDtypeStruct((2, 30, 41, 2), jnp.float32)
    program = jax.make_jaxpr(
        lambda params, images: module.apply({"params": params}, pixel_values=images)
    )(abstract_params(module), images)
    head = 2 * 2 * config.hidden_size * 3
    flops = flops_of_batch((ComputedModel(config),), {"pixel_values": images})
    assert 3 * (program_flops(program.jaxpr) - head) == flops
    assert flops == 2 * real_flops(config, np.array([2 + 3 * 4]), 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("marian", {"decoder_layers": 3, "decoder_attention_heads": 4, "decoder_ffn_dim": 72}),
        ("t5", {"attention_head_size": 24, "hidden_act": "gated-gelu"}),
    ],
)
def test_encoder_and_decoder_are_what_their_program_computes(name, fields):
    """Cross-attention, heads that are together wider than D, three matrices of feed-forward."""
    sizes = {"vocab_size": 50, "max_position_embeddings": 40}
    config = find_family(name).new_config("tiny", **sizes, **fields)
    module = find_head("text_to_text").make(config)
    ids, outputs = (jax.ShapeDtypeStruct((2, length), jnp.int32) for length in (16, 10))
    program = jax.make_jaxpr(
        lambda params, ids, outputs: module.apply(
            {"params": params}, ids, decoder_input_ids=outputs
        )
    )(abstract_params(module), ids, outputs)
    task = types.SimpleNamespace(
        description=types.SimpleNamespace(config=config), mean_source_length=16
    )
    models = EncoderDecoderTask.computed_models.fget(task)
    batch = {"input_ids": ids, "decoder/input_ids": outputs}
    assert 3 * program_flops(program.jaxpr) == flops_of_batch(models, batch)


@pytest.mark.parametrize(("head", "has_global_tokens"), [("tagging", 0), ("classification", 1)])
def test_a_program_projects_global_tokens_where_the_head_has_such(head, has_global_tokens):
    """The program also has the head, and compares whole blocks: less than a hundredth more."""
    sizes = {"vocab_size": 50, "max_position_embeddings": 40, "attention_window": (8, 8)}
    config = find_family("longformer").new_config("tiny", **sizes)
    module = find_head(head).make(config)
    ids = jax.ShapeDtypeStruct((1, 16), jnp.int32)
    program = jax.make_jaxpr(lambda params, ids: module.apply({"params": params}, ids))(
        abstract_params(module), ids
    )
    flops = real_flops(config, np.array([16]), 0, has_global_tokens=bool(has_global_tokens)) / 3
    # Two layers of width 128, 16 tokens.
    assert flops == 12_709_888 + has_global_tokens * 2 * 16 * 6 * 128 * 128
    assert flops < program_flops(program.jaxpr) < 1.01 * flops


def test_a_batch_is_all_its_sequences():
    config = bert.FAMILY.new_config("tiny")
    rows = {"input_ids": jax.ShapeDtypeStruct((5, 4, 32), jnp.int32)}  # four choices each
    models = (ComputedModel(config),)
    assert flops_of_batch(models, rows) == 20 * real_flops(config, np.array([32]), 0)
    rows["masked_lm_positions"] = jax.ShapeDtypeStruct((5, 4, 6), jnp.int32)
    assert flops_of_batch(models, rows) == 20 * real_flops(config, np.array([32]), 6)


def test_flops_of_a_step_by_hand():
    # A token of a layer: 8·4 + 4·2·5 + 4·7·2 = 128. A prediction: 2 (4 + 20) = 48.
    assert real_flops(BY_HAND, np.array([7]), 4) == 3 * (7 * 3 * 128 + 4 * 48)
    # Of 7 tokens that see 2 on each side, 3, 4, 5, 5, 5, 4 and 3: 29 pairs in two of three layers.
    local = dataclasses.replace(BY_HAND, global_attn_every_n_layers=3, local_attention=4)
    assert real_flops(local, np.array([7]), 0) == 3 * (7 * 3 * 72 + (49 + 2 * 29) * 4 * 2)
    # Of 7 tokens that see 1 on each side, 2 at the ends and 3 between: 19 pairs in each layer. The
    # projections of global tokens take 6·4 of each token and layer.
    window = dataclasses.replace(BY_HAND, attention_window=(2, 2, 2))
    assert real_flops(window, np.array([7]), 0) == 3 * 3 * (7 * 72 + 19 * 4 * 2)
    with_global_tokens = ComputedModel(window, has_global_tokens=True)
    rows = {"input_ids": jax.ShapeDtypeStruct((1, 7), jnp.int32)}
    assert flops_of_batch((with_global_tokens,), rows) == 3 * 3 * (7 * (72 + 24) + 19 * 4 * 2)
    # A discriminator's head maps each token from 2 to 2 to 1: 12. A teacher has no backward pass.
    rows = {
        "input_ids": jax.ShapeDtypeStruct((2, 7), jnp.int32),
        "masked_lm_positions": jax.ShapeDtypeStruct((2, 4), jnp.int32),
    }
    discriminator = ComputedModel(BY_HAND, has_vocabulary_head=False, flops_per_token=12)
    assert flops_of_batch((discriminator,), rows) == 3 * 14 * (3 * 128 + 12)
    teacher = ComputedModel(BY_HAND, is_trained=False)
    assert flops_of_batch((discriminator, teacher), rows) == (
        3 * 14 * (3 * 128 + 12) + 14 * 3 * 128 + 8 * 48
    )


def test_a_model_computes_all_kinds_of_rows_or_those_it_names_by_hand():
    # As above; a layer takes 8 · 2 FLOPs per token less for rows of 5 tokens than of 7.
    queries, passages = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((2, 7), (3, 5)))
    batch = {"query/input_ids": queries, "passage/input_ids": passages}
    both = ComputedModel(BY_HAND)
    one = dataclasses.replace(both, rows=("passage",))
    assert flops_of_batch((both,), batch) == 3 * (14 * 3 * 128 + 15 * 3 * 112)
    assert flops_of_batch((one,), batch) == 3 * 15 * 3 * 112


def test_products_of_a_program_in_loops_calls_and_branches():
    def step(x, kernels):  # [2, 3], [4, 3, 3]
        inner = jax.jit(lambda h, kernel: h @ kernel)
        h = jax.lax.scan(lambda h, kernel: (inner(h, kernel), None), x, kernels)[0]
        return jax.lax.platform_dependent(h, cpu=lambda h: h @ h.T, default=lambda h: 2 * h @ h.T)

    traced = jax.jit(step).trace(jnp.ones((2, 3)), jnp.ones((4, 3, 3)))
    assert program_flops(traced.jaxpr.jaxpr) == 4 * 2 * 2 * 3 * 3 + 2 * 2 * 3 * 2


@pytest.mark.slow
def test_the_program_of_a_step_agrees_with_the_formula(lay_out):
    training = lay_out("h100:1", MeshShape())
    # Pooler and sentence head are on top of the formula; they weigh more in a tiny model.
    width = 32
    extra = 3 * 8 * 2 * (width * width + 2 * width)
    assert computed(training) == pytest.approx(model_flops(training) + extra, rel=1e-2)


@pytest.mark.slow
def test_a_generator_of_one_head_is_whole_on_each_device(lay_out):
    """ELECTRA: discriminator and generator are all that a step computes, on any mesh."""
    keys = {"task": "replaced_tokens", "model__family": "electra"}
    alone, split = (lay_out("h100:2", MeshShape(tensor=size), **keys) for size in (1, 2))
    for training in (alone, split):
        assert computed(training) == model_flops(training)
    specs = jax.tree.map(lambda leaf: leaf.sharding.spec, split.abstract.params)
    of_heads = (
        layers["attention"]["query"]["kernel"]
        for layers in (specs["bert"]["encoder"]["layers"], specs["generator"]["layers"])
    )
    assert list(of_heads) == [
        PartitionSpec(None, "fsdp", "tensor", None),
        PartitionSpec(None, "fsdp", None, None),
    ]


@pytest.mark.slow
def test_recomputation_is_counted(lay_out):
    plain, full = (
        computed(lay_out("h100:1", MeshShape(), model__remat=remat)) for remat in ("none", "full")
    )
    # The forward pass of all layers once more: up to a third.
    assert 1.2 < full / plain < 1.34


def test_each_part_at_its_peak():
    amounts = {"program_flops": 4 * 197e12, "moved_bytes": 819e9 / 2, "sent_bytes": 200e9 / 4}
    result = step_seconds(HARDWARE["v5e"], devices=4, dtype="bfloat16", **amounts)
    assert result == {"compute": 1.0, "memory": 0.5, "interconnect": 0.25}
    result = step_seconds(HARDWARE["cpu"], devices=4, dtype="float32", **amounts)
    assert result == dict.fromkeys(("compute", "memory", "interconnect"))  # no known rate


def test_memory_traffic():
    # The optimizer moves 28 bytes of each of 500 that it updates; three micro-batches read 4,100
    # twice.
    assert memory_traffic(LOCAL, 8 * 500, 5000, mesh(fsdp=4), itemsize=2, microbatches=3) == (
        28 * 500 + 3 * (2 * 2 * 4100) + 3 * 2 * 5000
    )


@pytest.mark.parametrize(
    ("sizes", "numbers_sent"),
    [
        ({}, 0),
        ({"data": 8}, 2 * 7 / 8 * 1100),
        ({"fsdp": 4}, 2 * 3 * 1000 + 2 * 3 / 4 * 100),
        ({"data": 2, "fsdp": 4}, 2 * 1 / 2 * 1000 + 2 * 3 * 1000 + 2 * 7 / 8 * 100),
        ({"tensor": 2}, 4 * 12 * 500 * 2 * 1 / 2),
    ],
)
def test_what_must_be_sent(sizes, numbers_sent):
    result = least_sent_bytes(LOCAL, mesh(**sizes), itemsize=2, layer_activations=500, layers=12)
    assert result == 2 * numbers_sent


def test_parameters_of_a_device(lay_out):
    training = lay_out("h100:8", MeshShape(data=2, fsdp=4))
    result, total = local_parameters(training.abstract.params), lay_out("h100:1", MeshShape())
    count = sum(leaf.size for leaf in jax.tree.leaves(total.abstract.params))
    assert result.split * 4 + result.whole == count
    # LayerNorms and the biases of what is not D wide: those of query, key, value (32), the first
    # feed-forward (64), pooler and word head (32), words (96), sentences (2).
    assert result.whole == 2 * 32 * 6 + 2 * (3 * 32 + 64) + 2 * 32 + 96 + 2
