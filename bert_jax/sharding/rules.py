"""Rules by parameter name, among them the tables from array axes to mesh axes.

A rule is a regular expression and a value; decay masks, freezing, layer-wise rates and sharding are
tables of them. A parameter's name is its path in the tree, joined by "/", as in
`bert/encoder/layers/attention/query/kernel`; a rule matches where its expression occurs in the
name. The first match wins, and a parameter without a match is an error.

`PARAMETER_AXES` names the axes of each parameter, and `MESH_AXES` the mesh axis that splits each of
these. Activations name their axes where they arise, in `models/`.

There is no mesh axis for the tokens of a sequence. It would have to gather all keys and values in
every layer, and BERT's sequences are short: before one is too large for a device, the many
sequences of a batch can be split instead.
"""

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax.errors import UserError

Rules = Sequence[tuple[str, Any]]
LogicalAxes = tuple[str | None, ...]
MeshAxes = Mapping[str, str | tuple[str, ...] | None]

# First match wins; the parameters of the encoder are stacked over the layers.
PARAMETER_AXES: tuple[tuple[str, LogicalAxes], ...] = (
    (r"_norm/(scale|bias)$", ()),
    (r"word_embeddings/embedding$", ("vocab", "embed")),
    (r"(position|token_type)_embeddings/embedding$", (None, "embed")),
    # A generator has a fraction of the heads of its discriminator, which few meshes divide.
    (r"\bgenerator/layers/attention/(query|key|value)/kernel$", ("layers", "embed", None, "head")),
    (r"\bgenerator/layers/attention/(query|key|value)/bias$", ("layers", None, "head")),
    (r"\bgenerator/layers/attention/output/kernel$", ("layers", None, "head", "embed")),
    (r"layers/attention/(query|key|value)/kernel$", ("layers", "embed", "heads", "head")),
    (r"layers/attention/(query|key|value)/bias$", ("layers", "heads", "head")),
    (r"layers/attention/output/kernel$", ("layers", "heads", "head", "embed")),
    (r"layers/bottleneck_(input|attention)/kernel$", ("layers", "embed", None)),
    (r"layers/bottleneck_(input|attention)/bias$", ("layers", None)),
    (r"layers/(feed_forward_\d+_)?intermediate/kernel$", ("layers", "embed", "feed_forward")),
    (r"layers/(feed_forward_\d+_)?intermediate/bias$", ("layers", "feed_forward")),
    (r"layers/(feed_forward_\d+_)?contraction/kernel$", ("layers", "feed_forward", "embed")),
    (r"layers/(feed_forward_\d+_)?contraction/bias$", ("layers", "embed")),
    (r"layers/output/kernel$", ("layers", "feed_forward", "embed")),
    (r"layers/(attention/)?output/bias$", ("layers", "embed")),
    (r"(embedding_projection|embeddings/transformation)/kernel$", (None, "embed")),
    (r"(embedding_projection|embeddings/transformation)/bias$", ()),
    (r"(mlm_head|span_boundary_head)/bias$", ("vocab",)),
    (r"mlm_head/decoder(_extension)?$", ("vocab", "embed")),
    (r"(pooler|mlm_head|replaced_token_head|classifier)/dense/kernel$", ("embed", None)),
    (r"(replaced_token_head|classifier)/out_proj/kernel$", ("embed", None)),
    (r"qa_joint/(start|(end|no_answer)_hidden)/kernel$", ("embed", None)),
    (r"qa_joint/(end|no_answer)/kernel$", ()),
    (r"(nsp_head|classifier|sequence_summary|qa_outputs|relevance)/kernel$", ("embed", None)),
    (r"hidden_projection/kernel$", ("embed", None)),
    (r"text_vectors/\w+/(kernel|bias)$", ()),
    (r"\b(pooler|mlm_head|replaced_token_head|classifier)/(dense|out_proj)/bias$", ()),
    (r"\b(nsp_head|classifier|sequence_summary|qa_outputs|relevance|qa_joint/\w+)/bias$", ()),
    # The inputs are 2 D + 200 wide, which few sizes of a mesh divide.
    (r"span_boundary_head/\w+/dense/kernel$", (None, "embed")),
    (r"span_boundary_head/(\w+/dense/bias|place_embeddings/embedding)$", ()),
    (r"crf_(transitions|start|end)$", ()),
)

MESH_AXES: MeshAxes = {
    "batch": ("data", "fsdp"),
    "length": None,
    "hidden": None,  # D of activations
    "embed": "fsdp",  # D of parameters
    "heads": "tensor",
    "head": None,
    "feed_forward": "tensor",
    "vocab": "tensor",
    "layers": None,
}

# The table for optimizer moments if each replica of the parameters keeps a part of them
# (ZeRO, stage 1: Rajbhandari et al., 2020, section 5.1).
ZERO_AXES: MeshAxes = {**MESH_AXES, "embed": ("fsdp", "data")}

# The table for parameters during a step, see `gathered`.
GATHERED_AXES: MeshAxes = {**MESH_AXES, "embed": None}


def name_of(path: Sequence[Any]) -> str:
    """The name of a parameter from its `jax.tree_util` key path."""
    return jax.tree_util.keystr(tuple(path), simple=True, separator="/")


def match(rules: Rules, name: str) -> Any:
    """The value of the first rule that matches `name`.

    Raises:
        UserError: no rule matches.
    """
    for pattern, value in rules:
        if re.search(pattern, name):
            return value
    raise UserError(
        f"no rule matches the parameter {name}; add one to {', '.join(p for p, _ in rules)}"
    )


def match_tree(rules: Rules, tree: Any) -> Any:
    """A tree like `tree` with the value of the matching rule for each leaf."""
    return jax.tree_util.tree_map_with_path(lambda path, _: match(rules, name_of(path)), tree)


def partition_spec(axes: LogicalAxes, table: MeshAxes = MESH_AXES) -> PartitionSpec:
    """Mesh axes of an array with these logical axes, by `MESH_AXES` or `ZERO_AXES`.

    Raises:
        UserError: an axis is not in the table, or two axes map to one mesh axis.
    """
    entries = []
    used: dict[str, str] = {}
    for axis in axes:
        if axis is not None and axis not in table:
            raise UserError(f"axis {axis!r} is not in the sharding table; add it to MESH_AXES")
        entry = None if axis is None else table[axis]
        for mesh_axis in (entry,) if isinstance(entry, str) else entry or ():
            if mesh_axis in used:
                raise UserError(
                    f"axes {used[mesh_axis]!r} and {axis!r} both lie on mesh axis {mesh_axis!r}; "
                    "change one of them in MESH_AXES"
                )
            used[mesh_axis] = str(axis)
        entries.append(entry)
    return PartitionSpec(*entries)


def state_shardings(mesh: Mesh, state: Any, table: MeshAxes = MESH_AXES) -> Any:
    """A sharding for each leaf of a training state; optimizer moments follow their parameters.

    Args:
        mesh: the mesh.
        state: a tree of arrays or shapes; scalars are replicated.
        table: `MESH_AXES` or `ZERO_AXES`.

    Raises:
        UserError: a parameter has no rule, or an axis does not divide over the mesh.
    """

    def sharding(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
        if leaf.ndim == 0:
            return NamedSharding(mesh, PartitionSpec())
        name = name_of(path)
        spec = partition_spec(match(PARAMETER_AXES, name), table)
        _check_divisible(mesh, name, leaf.shape, spec)
        return NamedSharding(mesh, spec)

    return jax.tree_util.tree_map_with_path(sharding, state)


def sharded_shapes(mesh: Mesh, state: Any, table: MeshAxes = MESH_AXES) -> Any:
    """Shapes like those of `state`, with the shardings of `state_shardings`."""
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        state,
        state_shardings(mesh, state, table),
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
            raise UserError(
                f"{name} has an axis of {size}, which {split} does not divide; "
                f"choose another mesh.{axes[0]} or another size of the model"
            )


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """The sharding of every array of a batch: axis 0 is the batch."""
    return NamedSharding(mesh, partition_spec(("batch",)))


@contextlib.contextmanager
def on_mesh(mesh: Mesh) -> Iterator[None]:
    """A context in which models shard activations by their named axes and `MESH_AXES`."""
    with jax.set_mesh(mesh), nn.logical_axis_rules(tuple(MESH_AXES.items())):
        yield
