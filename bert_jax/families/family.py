"""What a family of encoders is: everything that differs between BERT and its relatives.

A family is one module of this package that defines `FAMILY`. Its name is the `model_type` of
`config.json` with "-" replaced by "_"; nothing has to be registered.
"""

import dataclasses
import importlib
import pkgutil
from collections.abc import Mapping

import bert_jax.families
from bert_jax.errors import UserError
from bert_jax.models.config import Head


@dataclasses.dataclass(frozen=True)
class Family:
    """One family.

    Attributes:
        model_type: its name in `config.json`.
        class_names: the heads that it has, and Hugging Face's class of each.
    """

    model_type: str
    class_names: Mapping[Head, str]


def find_family(model_type: str) -> Family:
    """The family with this `model_type`.

    Raises:
        UserError: there is none.
    """
    known = family_names()
    name = model_type.replace("-", "_")
    if name not in known:
        raise UserError(f"model_type {model_type!r} is unknown; known are {', '.join(known)}")
    family: Family = importlib.import_module(f"bert_jax.families.{name}").FAMILY
    return family


def family_names() -> list[str]:
    """The modules of this package that define a family."""
    modules = pkgutil.iter_modules(bert_jax.families.__path__)
    return sorted(module.name for module in modules if module.name != "family")


def head_of_class(class_name: str) -> Head | None:
    """The head of one of Hugging Face's classes, of whatever family; None if no family has it."""
    for name in family_names():
        for head, known in find_family(name).class_names.items():
            if known == class_name:
                return head
    return None
