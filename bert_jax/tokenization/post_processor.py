"""The `post_processor` of a `tokenizer.json`, as a template."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.errors import UserError
from bert_jax.tokenization.definition import READ_REMEDY
from bert_jax.tokenization.interface import SpecialIds
from bert_jax.tokenization.template import DEFAULT_TEMPLATE, FAIRSEQ_TEMPLATE, Template


def read_template(
    path: Path, definition: Mapping[str, Any], names: Sequence[str | None]
) -> Template:
    """The positions of special tokens that the `post_processor` of a `tokenizer.json` gives.

    Args:
        path: file to name in errors.
        definition: the content of the file.
        names: the five special tokens, in the order of the fields of `SpecialIds`.

    Raises:
        UserError: it cannot be read, or gives a token another id than the vocabulary.
    """
    found = definition.get("post_processor") or {"type": "ByteLevel"}
    is_sequence = isinstance(found, dict) and found.get("type") == "Sequence"
    inner = found.get("processors") if is_sequence else None
    steps = inner if isinstance(inner, list) else [found]
    kinds = [step.get("type") if isinstance(step, dict) else None for step in steps]
    adding = [step for step, kind in zip(steps, kinds, strict=True) if kind != "ByteLevel"]
    # Without a template, the library adds nothing, and gives the second text type 1.
    if not adding:
        return Template("A", "A B:1")
    try:
        (step,) = adding
        _check_ids(path, definition, step)
        if step["type"] == "TemplateProcessing":
            texts = [
                [_template_part(part, step["special_tokens"], names) for part in step[key]]
                for key in ("single", "pair")
            ]
            return Template(*(" ".join(itertools.chain.from_iterable(text)) for text in texts))
        kind = {"BertProcessing": DEFAULT_TEMPLATE, "RobertaProcessing": FAIRSEQ_TEMPLATE}
        template = kind[step["type"]]
        roles = {role: _role(step[role][0], names) for role in ("cls", "sep")}
        single, pair = (
            [_word(roles.get(name, name), type_id) for name, type_id in template.parts(pair=two)]
            for two in (False, True)
        )
        return Template(" ".join(single), " ".join(pair))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise UserError(
            f"{path}: the post_processor {', '.join(map(str, kinds)):.80} cannot be read; known "
            "are TemplateProcessing, BertProcessing, RobertaProcessing and ByteLevel, with the "
            f"first text before the second: {READ_REMEDY}"
        ) from None


def _check_ids(path: Path, definition: Mapping[str, Any], step: Mapping[str, Any]) -> None:
    """Raises UserError if a post-processor, whose ids count, gives one to another token."""
    vocabulary = definition["model"]["vocab"]
    if isinstance(vocabulary, list):
        vocabulary = {piece: number for number, (piece, _) in enumerate(vocabulary)}
    added = {token["content"]: token["id"] for token in definition.get("added_tokens") or []}
    for token, token_id in (
        *(step[role] for role in ("cls", "sep") if role in step),
        *(
            pair
            for entry in step.get("special_tokens", {}).values()
            for pair in zip(entry["tokens"], entry["ids"], strict=True)
        ),
    ):
        known = added.get(token, vocabulary.get(token, token_id))
        if token_id != known:
            raise UserError(
                f"{path}: the ids in the post_processor have {token_id!r:.80} for {token!r:.80}, "
                f"and the vocabulary has {known}; save the tokenizer again"
            )


def _template_part(
    part: Mapping[str, Any], tokens: Mapping[str, Any], names: Sequence[str | None]
) -> list[str]:
    """A part of a TemplateProcessing as words of a `Template`; one token may stand for several."""
    ((kind, fields),) = part.items()
    name, type_id = fields["id"], int(fields["type_id"])
    if kind == "Sequence":
        return [_word(name, type_id)]
    return [_word(_role(token, names), type_id) for token in tokens[name]["tokens"]]


def _word(name: str, type_id: int) -> str:
    return f"{name}:{type_id}" if type_id else name


def _role(token: str, names: Sequence[str | None]) -> str:
    """The field of `SpecialIds` of a token, else the token itself."""
    fields = [field.name for field in dataclasses.fields(SpecialIds)]
    for field, name in zip(fields, names, strict=True):
        if name == token and field in ("cls", "sep"):
            return field
    if ":" in token or token in ("A", "B", *fields) or len(token.split()) != 1:
        raise ValueError(token)
    return token
