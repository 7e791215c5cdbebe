"""The roofline of a training step: FLOPs, bytes moved and sent, and the minimum time.

Only the FLOPs of matrix products count, as usual; a multiplication and an addition count as two.
The rest of a step is memory traffic.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.models import character_cnn, projected_lstm, recurrent_layer
from bert_jax.models.config import EncoderConfig
from bert_jax.models.disentangled_attention import span
from bert_jax.models.encoder_with_head import row_kinds, token_shape
from bert_jax.models.heads.masked_lm import MaskedLMOptions
from bert_jax.planning.hardware import Hardware
from bert_jax.tasks.base.task import ComputedModel

# Adam reads gradient, parameter and two moments, and writes the latter three, float32 each: 28
# bytes for the 8 of the two moments. Adafactor keeps few moments; of it, this is a low bound.
_UPDATE_BYTES_PER_MOMENT_BYTE = 28 / 8


def real_flops(
    config: EncoderConfig, lengths: np.ndarray, predictions: int, *, has_global_tokens: bool = False
) -> float:
    """FLOPs of sequences, both passes: the sum of 3·[L·T·(8D² + 4DF + 4TD) + P·2(D² + DV)].

    That is BERT; other families also have maps between widths, attention heads that are together
    wider or narrower than D, gated feed-forward blocks, layers in which a token sees a part of the
    T, projections of global tokens, 6D² more for each token (Longformer; what these see beyond the
    window is not counted), DeBERTa's positions, and a linear layer on patches. A layer of an LSTM
    is T·16D², of a GRU T·12D²; of two directions, a quarter less. The backward pass takes twice the
    forward pass. Recomputation to save memory is work of the program, not of the model, and is not
    counted; nor are pooler, next-sentence head and classifiers, which are less than a thousandth.
    `step_flops` counts all models of a step.

    Args:
        config: D `hidden_size`, F `intermediate_size`, L layers, V `vocab_size`.
        lengths: int64 [B], T of each sequence, without padding.
        predictions: P of all, positions that the vocabulary head computes; 0 without that head.
        has_global_tokens: whether the task has global tokens, if the layers can have them.
    """
    width, narrow, embedded = config.hidden_size, config.attention_size, config.embedding_width
    heads = config.num_attention_heads * config.head_dim
    matrices = 3 if config.is_gated else 2
    tokens, long = float(lengths.sum()), lengths.astype(np.float64)
    layers = config.num_hidden_layers
    pairs = 0.0
    for window in config.windows:
        # Of the tokens of a layer, as many as fit see `near` others on either side.
        near = long - 1 if window is None else np.minimum(window, long - 1)
        pairs += float((long * (2 * near + 1) - near * (near + 1)).sum())
    # Queries, keys, values and outputs; then the feed-forward blocks.
    per_token = 6.0 * narrow * heads + 2.0 * width * heads
    feed_forward = 2 * matrices * narrow * config.intermediate_size
    per_token += config.num_feedforward_networks * feed_forward
    if config.attention_window is not None and has_global_tokens:
        per_token += 6 * narrow * heads
    if config.layer_kind == "bottleneck":
        per_token += 6 * width * narrow  # two maps in, one out
    if config.is_recurrent:
        kind = projected_lstm if config.layer_kind == "projected_lstm" else recurrent_layer
        pairs, per_token = 0.0, kind.flops_per_token(config)
    layer_flops = layers * tokens * per_token + pairs * 4 * heads
    if config.relative_attention:
        # Each token with the positions of its distances to the others, or of their buckets.
        positions = np.minimum(2 * long - 1, 2 * span(config))
        terms = len(config.position_terms)
        layer_flops += layers * terms * 2 * heads * float((long * positions).sum())
    layer_flops += tokens * 2 * config.conv_kernel_size * width**2
    inputs = 0.0
    if config.has_embedding_projection:
        inputs = tokens * 2 * embedded * width
    if config.images is not None:
        patches = tokens - len(lengths) * config.images.num_leading_tokens
        pixels = math.prod(config.images.patch) * config.images.num_channels
        inputs = patches * 2 * pixels * width
    if config.trigram_input:
        inputs = tokens * 6 * embedded * width
    if character_cnn.reads_characters(config):
        inputs = tokens * character_cnn.flops_per_word(config)
    predicted = width if config.head_options(MaskedLMOptions).extended_decoder else embedded
    head = 2 * (width * predicted + predicted * config.vocab_size)
    return 3.0 * (inputs + layer_flops + predictions * head)


def step_flops(
    models: Sequence[ComputedModel], row_lengths: Mapping[str, np.ndarray], predictions: int
) -> float:
    """FLOPs of all models of a training step; see `real_flops`.

    Args:
        models: the models.
        row_lengths: int64 [B], T of each row, by the kind of row.
        predictions: see `real_flops`.
    """
    flops = 0.0
    for model in models:
        lengths = np.concatenate([row_lengths[kind] for kind in model.rows or row_lengths])
        trained = real_flops(
            model.config,
            lengths,
            predictions if model.has_vocabulary_head else 0,
            has_global_tokens=model.has_global_tokens,
        )
        trained += 3.0 * float(lengths.sum()) * model.flops_per_token
        flops += trained if model.is_trained else trained / 3
    return flops


def flops_of_batch(
    models: Sequence[ComputedModel], batch: Mapping[str, jax.ShapeDtypeStruct]
) -> float:
    """`step_flops` of a batch of these shapes."""
    masked = batch.get("masked_lm_positions")
    predictions = math.prod(masked.shape) if masked is not None else 0
    flops = 0.0
    for model in models:
        row_lengths = {}
        for kind, rows in row_kinds(batch).items():
            *leading, length = token_shape(rows, model.config)
            row_lengths[kind] = np.full(math.prod(leading), length)
        flops += step_flops([model], row_lengths, predictions)
    return flops


def program_flops(jaxpr: Any) -> float:
    """FLOPs of the matrix products of a traced program, times the iterations of its loops.

    Unlike the formula this includes recomputation in the backward pass.
    """
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            inner = math.prod(left[axis] for axis in contracted)
            total += 2.0 * inner * math.prod(equation.outvars[0].aval.shape)
            continue
        if equation.primitive.name == "cond":  # only one branch runs, such as that for the platform
            total += max(program_flops(branch.jaxpr) for branch in equation.params["branches"])
            continue
        times = 1
        if equation.primitive.name == "scan":
            times = equation.params["length"]
        elif equation.primitive.name == "pallas_call":  # its body is for one block
            times = math.prod(equation.params["grid_mapping"].grid)
        for value in jax.tree.leaves(equation.params):
            inside = getattr(value, "jaxpr", value)  # a ClosedJaxpr contains a Jaxpr
            if hasattr(inside, "eqns"):
                total += times * program_flops(inside)
    return total


def step_seconds(
    hardware: Hardware,
    *,
    devices: int,
    dtype: str,
    program_flops: float,
    moved_bytes: float,
    sent_bytes: float,
) -> dict[str, float | None]:
    """The minimum time of a step: seconds that each part of a device is busy at its peak rate.

    Args:
        hardware: kind of each device.
        devices: number of devices that share the FLOPs.
        dtype: dtype of activations.
        program_flops: FLOPs of the whole step, on all devices.
        moved_bytes: bytes to and from the memory of one device, see `memory_traffic`.
        sent_bytes: bytes sent by one device.

    Returns:
        "compute", all matrix products of the program, including recomputation; "memory", to read
        and write optimizer state, parameters and kept activations; "interconnect", to send. None if
        the rate is not known.
    """
    amounts = {
        "compute": (program_flops / devices, hardware.flops(dtype)),
        "memory": (moved_bytes, hardware.memory_bandwidth),
        "interconnect": (sent_bytes, hardware.interconnect_bandwidth),
    }
    return {name: rate and amount / rate for name, (amount, rate) in amounts.items()}


class LocalParameters(NamedTuple):
    """The number of parameters that a device keeps.

    Attributes:
        split: number in its part of the parameters that `fsdp` splits.
        whole: number of all others.
    """

    split: int
    whole: int


def local_parameters(params: Any) -> LocalParameters:
    """Counts the parameters of a device, from their shapes and shardings."""
    split = whole = 0
    for leaf in jax.tree.leaves(params):
        size = math.prod(leaf.sharding.shard_shape(leaf.shape))
        if "fsdp" in leaf.sharding.spec:
            split += size
        else:
            whole += size
    return LocalParameters(split, whole)


def memory_traffic(
    local: LocalParameters,
    moments: int,
    activations: int,
    mesh: Mesh,
    *,
    itemsize: int,
    microbatches: int,
) -> float:
    """The minimum number of bytes that a step reads from and writes to a device's memory.

    The optimizer's arrays once; the parameters for the forward and the backward pass of each
    micro-batch, complete even if `fsdp` keeps only a part; each kept activation written and read.

    Args:
        local: parameters of the device.
        moments: bytes of the optimizer's state on the device, for the parameters that it updates:
            frozen ones have none, and replicas may share the work.
        activations: bytes that the backward pass of a micro-batch keeps.
        mesh: sizes of the mesh.
        itemsize: bytes per element of an activation.
        microbatches: micro-batches per step.
    """
    gathered = local.whole + local.split * mesh.shape["fsdp"]
    return (
        _UPDATE_BYTES_PER_MOMENT_BYTE * moments
        + microbatches * 2 * itemsize * gathered
        + microbatches * 2 * activations
    )


def least_sent_bytes(
    local: LocalParameters, mesh: Mesh, *, itemsize: int, layer_activations: float, layers: int
) -> float:
    """The analytic minimum of bytes that a device must send in a step, for any program.

    Over `data`, an all-reduce of the gradients: 2 (n-1)/n of their bytes. Over `fsdp`, the
    parameters are gathered once and the gradients scattered once: (n-1)/n of the bytes each;
    parameters that are not split are all-reduced. Over `tensor`, an all-reduce of the hidden states
    after attention and feed-forward, in both passes.

    Args:
        local: parameters of the device.
        mesh: sizes of the mesh.
        itemsize: bytes per element that is sent.
        layer_activations: elements of the hidden states of one layer on one device, B·T·D.
        layers: L, number of layers.
    """
    data, fsdp, tensor = (mesh.shape[axis] for axis in ("data", "fsdp", "tensor"))
    reduced = local.split * _reduced(data) + local.whole * _reduced(data * fsdp)
    gathered = 2 * local.split * (fsdp - 1)
    hidden = 4 * layers * layer_activations * _reduced(tensor)
    return itemsize * (reduced + gathered + hidden)


def _reduced(devices: int) -> float:
    """The fraction of an array that each device sends in an all-reduce."""
    return 2 * (devices - 1) / devices
