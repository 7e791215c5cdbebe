"""The axes of all parameters, and the shardings that follow from them and `sharding.rules`.

The modules name the axes of their activations; `HEAD` of a head names the axes of its parameters.
"""

import math
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax.errors import OptionError
from bert_jax.models.head import all_heads
from bert_jax.sharding.rules import (
    GATHERED_AXES,
    MESH_AXES,
    LogicalAxes,
    MeshAxes,
    Rules,
    match,
    name_of,
    partition_spec,
)

# First match wins; parameters of the layers are stacked.
ENCODER_AXES: tuple[tuple[str, LogicalAxes], ...] = (
    (r"_norm/(scale|bias)$", ()),
    (r"word_embeddings/embedding$", ("vocab", "embed")),
    (r"(position|token_type)_embeddings/embedding$", (None, "embed")),
    (r"embeddings/patches/kernel$", ("embed", None, None, None)),
    (r"embeddings/(patches/bias|cls_token|distillation_token|position_embeddings)$", ()),
    (r"attention/(positions/)?(query|key|value)/kernel$", ("layers", "embed", "heads", "head")),
    (r"attention/(positions/)?(query|key|value)/bias$", ("layers", "heads", "head")),
    (r"layers/(\w+_)?attention/output/kernel$", ("layers", "heads", "head", "embed")),
    (r"layers/(\w+_)?(input|recurrent|bottleneck_attention)/kernel$", ("layers", "embed", None)),
    (r"layers/(\w+_)?(input|recurrent|bottleneck_attention)/bias$", ("layers", None)),
    (r"layers/((\w+_)?intermediate|gate)/kernel$", ("layers", "embed", "feed_forward")),
    (r"layers/(\w+_)?intermediate/bias$", ("layers", "feed_forward")),
    (r"layers/((\w+_)?contraction|output)/kernel$", ("layers", "feed_forward", "embed")),
    (r"layers/((\w+_)?(contraction|attention/output)|output)/bias$", ("layers", "embed")),
    (r"embeddings/character_\w+/(embedding|kernel|bias)$", ()),
    (r"layers/(forward|backward)/(kernel|bias|projection_kernel)$", ("layers",)),
    (r"relative_positions/table/embedding$", (None, "heads")),
    (r"relative_embeddings/table/embedding$", (None, "embed")),
    (r"convolution/kernel$", (None, "embed", None)),
    (r"convolution/bias$", ()),
    (r"(embedding_projection|embeddings/(transformation|projection))/kernel$", (None, "embed")),
    (r"(embedding_projection|embeddings/transformation)/bias$", ()),
    (r"pooler/dense/kernel$", ("embed", None)),
    (r"pooler/dense/bias$", ()),
)


def parameter_axes() -> Rules:
    """The axes of the parameters of all models, by patterns of their names."""
    heads = (
        (rf"(^|/){pattern}$", axes) for head in all_heads().values() for pattern, axes in head.axes
    )
    return *heads, *ENCODER_AXES


def state_shardings(
    mesh: Mesh, state: Any, table: MeshAxes = MESH_AXES, *, has_means: bool = False
) -> Any:
    """A sharding for each leaf of a training state; optimizer moments follow their parameters.

    Args:
        mesh: the mesh.
        state: a tree of arrays or shapes; scalars are replicated.
        table: `MESH_AXES` or `ZERO_AXES`.
        has_means: whether an axis of size 1 is the mean over an axis of the parameter, and not
            split. (A parameter whose own axis is 1 cannot be split over more devices.)

    Raises:
        UserError: a parameter has no rule, or an axis does not divide over the mesh.
    """
    rules = parameter_axes()

    def sharding(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
        if leaf.ndim == 0:
            return NamedSharding(mesh, PartitionSpec())
        name = name_of(path)
        axes = match(rules, name)
        if has_means:
            sizes = zip(axes, leaf.shape, strict=False)
            axes = tuple(None if size == 1 else axis for axis, size in sizes)
        spec = partition_spec(axes, table)
        _check_divisible(mesh, name, leaf.shape, spec)
        return NamedSharding(mesh, spec)

    return jax.tree_util.tree_map_with_path(sharding, state)


def sharded_shapes(
    mesh: Mesh, state: Any, table: MeshAxes = MESH_AXES, *, has_means: bool = False
) -> Any:
    """The shapes of `state`, with the shardings of `state_shardings`."""
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        state,
        state_shardings(mesh, state, table, has_means=has_means),
    )


def gathered(mesh: Mesh, params: Any) -> Any:
    """The parameters as used in a program: parts split by `fsdp` are gathered.

    Once per micro-batch, in bfloat16 if that is the dtype of the products; gradients are split
    again. Otherwise XLA would multiply with parts of the kernels and add up activations, which are
    many more bytes.
    """
    if mesh.shape["fsdp"] == 1:
        return params
    whole = state_shardings(mesh, params, GATHERED_AXES)
    parts = state_shardings(mesh, params)

    @jax.custom_vjp
    def gather(params: Any) -> Any:
        return jax.lax.with_sharding_constraint(params, whole)

    def scatter(_: None, gradients: Any) -> tuple[Any]:
        return (jax.lax.with_sharding_constraint(gradients, parts),)

    gather.defvjp(lambda params: (gather(params), None), scatter)
    return gather(params)


def _check_divisible(mesh: Mesh, name: str, shape: tuple[int, ...], spec: PartitionSpec) -> None:
    for size, entry in zip(shape, spec, strict=False):
        axes = [
            axis
            for axis in ((entry,) if isinstance(entry, str) else entry or ())
            if mesh.shape[axis] > 1
        ]
        if size % math.prod(mesh.shape[axis] for axis in axes):
            split = " × ".join(f"{axis}={mesh.shape[axis]}" for axis in axes)
            key = f"mesh.{axes[0]}"
            rule = f"choose another {{{key}}} or another size of the model"
            problem = f"{name} has an axis of {size}, which {split} does not divide"
            raise OptionError(key, mesh.shape[axes[0]], rule, problem)
