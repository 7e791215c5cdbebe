"""Rules by parameter name: the one mechanism behind sharding, decay masks and freezing.

A rule is a regular expression and a value. A parameter's name is its path in the tree, joined by
"/", as in `bert/encoder/layers/attention/query/kernel`; a rule matches where its expression is
found in the name. The first match wins, and a parameter without a match is an error.
"""

import re
from collections.abc import Sequence
from typing import Any

import jax

from bert_jax.errors import UserError

Rules = Sequence[tuple[str, Any]]


def name_of(path: Sequence[Any]) -> str:
    """The name of a parameter from its `jax.tree_util` key path."""
    return jax.tree_util.keystr(tuple(path), simple=True, separator="/")


def match(rules: Rules, name: str) -> Any:
    """The value of the first rule that is found in `name`.

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
    """A tree like `tree` with the value of each leaf's rule."""
    return jax.tree_util.tree_map_with_path(lambda path, _: match(rules, name_of(path)), tree)
