"""The parts of a Unigram tokenizer, read from a .model file or a `tokenizer.json`."""

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.errors import UserError
from bert_jax.tokenization.charsmap import check_charsmap
from bert_jax.tokenization.definition import (
    OTHER_MODEL,
    READ_REMEDY,
    bare_library,
    checked_steps,
    library_errors,
)
from bert_jax.tokenization.description import (
    ALBERT,
    BRACKETED,
    FAIRSEQ,
    Description,
    SpecialTokens,
    Token,
)
from bert_jax.tokenization.encoding import DEFAULT_TEMPLATE, FAIRSEQ_TEMPLATE, Template
from bert_jax.tokenization.interface import CAMEMBERT, SENTINEL, T5, XLM_ROBERTA
from bert_jax.tokenization.library import TOKENIZER_FILE
from bert_jax.tokenization.sentencepiece import WORD_MARKER

UNIGRAM = "Unigram"
"""The type of the model in a `tokenizer.json`."""

SENTINELS = 100
"""The number of sentinels of T5, where the files give no `extra_ids`."""

SPLITTER: Mapping[str, Any] = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "WhitespaceSplit"},
        {"type": "Metaspace", "replacement": WORD_MARKER, "prepend_scheme": "always"},
    ],
}
"""The `pre_tokenizer` of the classes of CamemBERT, XLM-R, T5 and ALBERT."""

_TABLE, _TABLE_KEY = "Precompiled", "precompiled_charsmap"
NORMALIZERS = (_TABLE, "NFC", "NFD", "NFKC", "NFKD", "StripAccents", "Lowercase", "Strip")
"""What a `tokenizer.json` may do to text. Each takes time in proportion to the text."""

QUOTES = (
    {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
    {"type": "Replace", "pattern": {"String": "''"}, "content": '"'},
)
_SQUEEZING = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
_SPACES = _SQUEEZING | {"pattern": {"Regex": r"\s{2,}|[\n\r\t]"}}  # DeBERTa's, in version 5
REPLACEMENTS = (*QUOTES, _SQUEEZING, _SQUEEZING | {"content": WORD_MARKER}, _SPACES)
"""The replacements of transformers' converters; no other pattern is admitted."""

ACCENTS, CASE = {"type": "StripAccents"}, {"type": "Lowercase"}
_ONLY = (
    "but only the Unigram models of CamemBERT, XLM-R, T5, ALBERT and DeBERTa are read from a "
    f"{TOKENIZER_FILE}: {OTHER_MODEL}"
)

# In a .model file: types of pieces, and of the model.
_CONTROL, _USER_DEFINED = 3, 4
_UNIGRAM_MODEL = 1


@dataclasses.dataclass(frozen=True, slots=True)
class IdLayout:
    """How a family numbers the pieces of a .model file.

    Attributes:
        first: the pieces with the first ids, and their scores.
        start: the first piece of the .model file that follows them.
        class_name: Hugging Face's class.
        description: special tokens and template of the class.
    """

    first: tuple[tuple[str, float], ...]
    start: int
    class_name: str
    description: Description

    def last(self, sentinels: int) -> list[str]:
        """The pieces with the last ids: those of T5 that stand for spans, else <mask>."""
        if self.description is T5_CLASS:
            return [SENTINEL.format(number) for number in reversed(range(sentinels))]
        return [FAIRSEQ[4]]

    def begins(self, pieces: Sequence[tuple[str, float]]) -> bool:
        """Whether pieces begin with the first ones of the layout."""
        names = [name for name, _ in self.first]
        return [name for name, _ in pieces[: len(names)]] == names


ALBERT_CLASS, _FAIRSEQ_CLASS = (
    Description(SpecialTokens.from_names(spelling, mask_takes_space=True), template)
    for spelling, template in ((ALBERT, DEFAULT_TEMPLATE), (FAIRSEQ, FAIRSEQ_TEMPLATE))
)
DEBERTA_CLASS = Description(SpecialTokens.from_names(BRACKETED), DEFAULT_TEMPLATE)
T5_CLASS = Description(
    SpecialTokens(
        {
            "eos_token": Token("</s>"),
            "unk_token": Token("<unk>"),
            "pad_token": Token("<pad>"),
        }
    ),
    Template(single="A eos", pair="A eos B eos"),
)
LAYOUTS = {
    CAMEMBERT: IdLayout(
        (
            *(("<s>NOTUSED", 0.0), ("<pad>", 0.0), ("</s>NOTUSED", 0.0), ("<unk>", 0.0)),
            ("<unk>NOTUSED", -100.0),
        ),
        start=1,
        class_name="CamembertTokenizer",
        description=_FAIRSEQ_CLASS,
    ),
    XLM_ROBERTA: IdLayout(
        (("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)),
        start=3,
        class_name="XLMRobertaTokenizer",
        description=_FAIRSEQ_CLASS,
    ),
    T5: IdLayout(
        (("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)),
        start=3,
        class_name="T5Tokenizer",
        description=T5_CLASS,
    ),
}


@dataclasses.dataclass(frozen=True)
class UnigramModel:
    """The parts of a tokenizer that its files define.

    Attributes:
        pieces: V pieces with their scores, the logarithms of probabilities, in the order of ids.
        normalizer: the steps of the `normalizer` of a `tokenizer.json`.
        unknown: id of the piece for unknown characters.
        user_defined: further tokens of a .model file, matched before the model sees a text.
        splitter: the `pre_tokenizer` of a `tokenizer.json`; None: there is none.
    """

    pieces: Sequence[tuple[str, float]]
    normalizer: Sequence[Mapping[str, Any]]
    unknown: int
    user_defined: tuple[Token, ...] = ()
    splitter: Mapping[str, Any] | None = dataclasses.field(default_factory=lambda: SPLITTER)

    @property
    def tables(self) -> list[Mapping[str, Any]]:
        """The steps of the normaliser that are tables of SentencePiece."""
        return [step for step in self.normalizer if step["type"] == _TABLE]

    def with_rules(self, cleaning: Sequence[Mapping[str, Any]] = ()) -> "UnigramModel":
        """The model with the rules of one of Hugging Face's classes, which takes only the table.

        Args:
            cleaning: steps before the table: ALBERT's, see `albert_cleaning`.
        """
        steps = [*cleaning, *self.tables[:1]]
        return dataclasses.replace(self, normalizer=steps, splitter=SPLITTER)

    @property
    def layout(self) -> IdLayout | None:
        """The layout that the first pieces show; None for ALBERT's and others."""
        return next((each for each in LAYOUTS.values() if each.begins(self.pieces)), None)

    @property
    def class_description(self) -> Description:
        """The special tokens and the template of Hugging Face's class for the pieces."""
        names = dict(self.pieces)
        if ALBERT[2] in names:
            return DEBERTA_CLASS if BRACKETED[1] in names else ALBERT_CLASS
        return self.layout.description if self.layout else _FAIRSEQ_CLASS


def t5_description(sentinels: int) -> Description:
    """The special tokens and the template of T5 with so many sentinels."""
    extra = tuple(Token(SENTINEL.format(number)) for number in range(sentinels))
    return dataclasses.replace(T5_CLASS, tokens=dataclasses.replace(T5_CLASS.tokens, extra=extra))


def albert_cleaning(*, do_lower_case: bool, keep_accents: bool) -> list[Mapping[str, Any]]:
    """What ALBERT's class does to text before the table, as steps of a `tokenizer.json`."""
    accents = [] if keep_accents else [{"type": "NFKD"}, ACCENTS]
    return [*QUOTES, *accents, *([CASE] if do_lower_case else [])]


def unigram_model(proto: Any, origin: str, kind: str, sentinels: int) -> UnigramModel:
    """The tokenizer that a .model file of SentencePiece defines, with the ids of a family.

    Args:
        proto: content of the file, see `read_model`.
        origin: file to name in errors.
        kind: a key of `LAYOUTS`.
        sentinels: number of pieces of T5 that stand for spans.

    Raises:
        UserError: it is not a unigram model, or not one of T5.
    """
    if proto.trainer_spec.model_type != _UNIGRAM_MODEL or proto.trainer_spec.byte_fallback:
        raise UserError(
            f"{origin}: {LAYOUTS[kind].class_name} needs a unigram model without pieces for bytes; "
            "give the .model file of such a model"
        )
    layout, scores = LAYOUTS[kind], [(piece.piece, piece.score) for piece in proto.pieces]
    if kind == T5 and not layout.begins(scores):
        found = ", ".join(name for name, _ in scores[: layout.start])
        raise UserError(
            f"{origin}: the first pieces are {found}, not <pad>, </s>, <unk> as in T5; give the "
            ".model file of a T5"
        )
    last = [(name, 0.0) for name in layout.last(sentinels)]
    pieces = [*layout.first, *scores[layout.start :], *last]
    added = tuple(
        Token(piece.piece, special=piece.type == _CONTROL)
        for piece in proto.pieces
        if piece.type in (_CONTROL, _USER_DEFINED)
    )
    table = base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()
    steps = [{"type": _TABLE, _TABLE_KEY: table}] if table else []
    unknown = [name for name, _ in layout.first].index(FAIRSEQ[1])
    return UnigramModel(pieces, steps, unknown, added)


def read_unigram_json(path: Path, definition: Mapping[str, Any]) -> UnigramModel:
    """The tokenizer that a `tokenizer.json` with a Unigram model defines.

    Args:
        path: file to name in errors.
        definition: the content of the file.

    Raises:
        UserError: a part is damaged, or its normaliser has other steps than `NORMALIZERS` and
            `REPLACEMENTS`, or its pre-tokenizer than WhitespaceSplit and Metaspace.
    """
    model = definition["model"]
    try:
        pieces = [(piece, float(score)) for piece, score in model["vocab"]]
        ids = dict(pieces)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        raise UserError(
            f"{path}: vocab is not a list of pieces with scores; {READ_REMEDY}"
        ) from None
    unknown = model.get("unk_id")
    is_id = type(unknown) is int and 0 <= unknown < len(pieces)
    if not is_id or (pieces[unknown][0] != FAIRSEQ[1] and FAIRSEQ[1] in ids):
        raise UserError(f"{path}: unk_id is {unknown!r:.80}, not the id of <unk>; {READ_REMEDY}")
    if model.get("byte_fallback"):
        raise UserError(f"{path}: the model has pieces for bytes (byte_fallback), {_ONLY}")
    steps = checked_steps(path, definition, "normalizer", (*NORMALIZERS, "Replace"))
    for step in steps:
        if step["type"] == _TABLE:
            _check_table(path, step.get(_TABLE_KEY))
        elif step["type"] == "Replace" and step not in REPLACEMENTS:
            raise UserError(f"{path}: the normalizer {step!s:.80} is not known, {_ONLY}")
    parts = checked_steps(path, definition, "pre_tokenizer", ("WhitespaceSplit", "Metaspace"))
    splitter = definition["pre_tokenizer"] if parts else None
    with library_errors(path):
        own, usual = (
            bare_library({"pre_tokenizer": each}).pre_tokenizer for each in (splitter, SPLITTER)
        )
    if own and own.__getstate__() == usual.__getstate__():
        # Squeezing spaces changes nothing where text is split at them.
        steps, splitter = [step for step in steps if step != _SQUEEZING], SPLITTER
    return UnigramModel(pieces, steps, unknown, splitter=splitter)


def _check_table(path: Path, text: Any) -> None:
    try:
        table = base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        raise UserError(f"{path}: {_TABLE_KEY} is not base64; {READ_REMEDY}") from None
    check_charsmap(path, table)
