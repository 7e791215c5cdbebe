"""FLOPs of a training step: those that the model needs, and those that a program computes.

A multiplication and an addition count as two. Only matrix products count, as is usual: the rest is
memory traffic.
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from bert_jax.models.config import EncoderConfig


def training_flops(config: EncoderConfig, *, length: int, predictions: int) -> float:
    """FLOPs of one sequence, forward and backward: 3·[S·L·(8D² + 4DF + 4SD) + P·2(D² + DV)].

    The backward pass takes twice the forward pass. What is computed twice to save memory is work
    of the program, not of the model, and is not counted; nor are pooler and sentence head, less
    than a thousandth.

    Args:
        config: D `hidden_size`, F `intermediate_size`, L layers, V `vocab_size`.
        length: S, tokens of a sequence.
        predictions: P, positions that the head over the vocabulary sees; 0 without that head.
    """
    return real_flops(config, np.array([length]), predictions)


def real_flops(config: EncoderConfig, lengths: np.ndarray, predictions: int) -> float:
    """`training_flops` of sequences together that have lengths of their own, padding left out.

    Args:
        config: of the model.
        lengths: int64 [n], tokens of each sequence.
        predictions: positions of all of them that the head over the vocabulary sees.
    """
    width, inner = config.hidden_size, config.intermediate_size
    tokens, pairs = float(lengths.sum()), float((lengths.astype(np.float64) ** 2).sum())
    layer = tokens * (8 * width**2 + 4 * width * inner) + pairs * 4 * width
    head = 2 * (width**2 + width * config.vocab_size)
    return 3.0 * (config.num_hidden_layers * layer + predictions * head)


def flops_of_batch(config: EncoderConfig, batch: Mapping[str, jax.ShapeDtypeStruct]) -> float:
    """`training_flops` of all sequences of a batch."""
    rows, length = math.prod(batch["input_ids"].shape[:-1]), batch["input_ids"].shape[-1]
    masked = batch.get("masked_lm_positions")
    predictions = masked.shape[-1] if masked is not None else 0
    return rows * training_flops(config, length=length, predictions=predictions)


def program_flops(jaxpr: Any) -> float:
    """FLOPs of the matrix products of a traced program, those in loops as often as they run.

    Unlike the formula this sees what is computed again in the backward pass.
    """
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            inner = math.prod(left[axis] for axis in contracted)
            total += 2.0 * inner * math.prod(equation.outvars[0].aval.shape)
            continue
        if equation.primitive.name == "cond":  # one way is gone, as for the platform
            total += max(program_flops(branch.jaxpr) for branch in equation.params["branches"])
            continue
        times = 1
        if equation.primitive.name == "scan":
            times = equation.params["length"]
        elif equation.primitive.name == "pallas_call":  # its body is for one block
            times = math.prod(equation.params["grid_mapping"].grid)
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                inside = getattr(part, "jaxpr", part)  # a ClosedJaxpr has one inside
                if hasattr(inside, "eqns"):
                    total += times * program_flops(inside)
    return total
