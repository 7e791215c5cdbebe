"""Rules by parameter name, among them the tables from array axes to mesh axes.

A rule is a regular expression and a value; decay masks, freezing, layer-wise rates and sharding are
tables of them. A parameter's name is its path in the tree, joined by "/", as in
`bert/encoder/layers/attention/query/kernel`; a rule matches where its expression occurs in the
name. The first match wins, and a parameter without a match is an error.

`models.parameter_sharding` names the axes of each parameter, and `MESH_AXES` the mesh axis that
splits each of these. Activations name their axes where they arise, in `models/`.

There is no mesh axis for the tokens of a sequence. It would have to gather all keys and values in
every layer, and BERT's sequences are short: before one is too large for a device, the many
sequences of a batch can be split instead.
"""

import contextlib
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


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """The sharding of every array of a batch: axis 0 is the batch."""
    return NamedSharding(mesh, partition_spec(("batch",)))


@contextlib.contextmanager
def on_mesh(mesh: Mesh) -> Iterator[None]:
    """A context in which models shard activations by their named axes and `MESH_AXES`."""
    with jax.set_mesh(mesh), nn.logical_axis_rules(tuple(MESH_AXES.items())):
        yield
