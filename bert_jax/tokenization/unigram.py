"""Unigram models of SentencePiece as Hugging Face uses them, run by the library `tokenizers`."""

import base64
import binascii
import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.errors import UserError
from bert_jax.tokenization.definition import (
    OTHER_MODEL,
    READ_REMEDY,
    bare_library,
    checked_steps,
    library_errors,
    model_type,
)
from bert_jax.tokenization.description import ALBERT, FAIRSEQ, Description, SpecialTokens, Token
from bert_jax.tokenization.encoding import DEFAULT_TEMPLATE, FAIRSEQ_TEMPLATE
from bert_jax.tokenization.interface import CAMEMBERT, SENTENCEPIECE, XLM_ROBERTA
from bert_jax.tokenization.library import LIBRARY_CLASS, TOKENIZER_FILE, LibraryTokenizer
from bert_jax.tokenization.sentencepiece import WORD_MARKER, read_model
from bert_jax.tokenization.source import LIBRARY, MODEL_FILE, TokenizerSource

if TYPE_CHECKING:
    import tokenizers

MAX_PIECE_CHARACTERS = 1000
"""The time for a text is in proportion to the length of the longest piece; XLM-R's have 16."""

UNIGRAM = "Unigram"
"""The type of the model in a `tokenizer.json`."""

# In a .model file: types of pieces, and of the model.
_CONTROL, _USER_DEFINED = 3, 4
_UNIGRAM_MODEL = 1


@dataclasses.dataclass(frozen=True, slots=True)
class IdLayout:
    """How a family numbers the pieces of a .model file; <mask> follows as the last id.

    Attributes:
        first: the pieces with the first ids, and their scores.
        start: the first piece of the .model file that follows them.
        class_name: Hugging Face's class.
    """

    first: tuple[tuple[str, float], ...]
    start: int
    class_name: str


LAYOUTS = {
    CAMEMBERT: IdLayout(
        (
            *(("<s>NOTUSED", 0.0), ("<pad>", 0.0), ("</s>NOTUSED", 0.0), ("<unk>", 0.0)),
            ("<unk>NOTUSED", -100.0),
        ),
        start=1,
        class_name="CamembertTokenizer",
    ),
    XLM_ROBERTA: IdLayout(
        (("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)),
        start=3,
        class_name="XLMRobertaTokenizer",
    ),
}


@dataclasses.dataclass(frozen=True)
class UnigramModel:
    """The parts of a tokenizer that its files define.

    Attributes:
        pieces: V pieces with their scores, the logarithms of probabilities, in the order of ids.
        charsmap: SentencePiece's compiled table of normalisation; empty for none.
        cleaning: steps before the table of normalisation, as in a `tokenizer.json`: ALBERT's.
        user_defined: further tokens of a .model file, matched before the model sees a text.
        unknown: id of the piece for unknown characters.
        splitter: the `pre_tokenizer` of a `tokenizer.json` that splits text in another way than
            the classes of CamemBERT, XLM-R and ALBERT; else None.
    """

    pieces: Sequence[tuple[str, float]]
    charsmap: bytes
    unknown: int
    user_defined: tuple[Token, ...] = ()
    cleaning: Sequence[Mapping[str, Any]] = ()
    splitter: Mapping[str, Any] | None = None

    @property
    def class_description(self) -> Description:
        """The special tokens and the template of Hugging Face's class for the pieces."""
        return _ALBERT_CLASS if ALBERT[2] in dict(self.pieces) else _FAIRSEQ_CLASS


_ALBERT_CLASS, _FAIRSEQ_CLASS = (
    Description(SpecialTokens.of(spelling, mask_takes_space=True), template)
    for spelling, template in ((ALBERT, DEFAULT_TEMPLATE), (FAIRSEQ, FAIRSEQ_TEMPLATE))
)


class UnigramTokenizer(LibraryTokenizer):
    """Normalises text, splits it at white space, and each word into the most probable pieces.

    This is what Hugging Face's classes do with the models of CamemBERT and XLM-R, and with a
    `tokenizer.json` of ALBERT (without the rule for numbers of `SentencePieceTokenizer`).
    The SentencePiece library differs where a text has the character "▁" itself. The mask token
    takes the space before it.
    """

    _word_markers = (WORD_MARKER,)

    def __init__(
        self,
        model: UnigramModel,
        description: Description | None = None,
        origin: str = "the vocabulary",
        rows: int | None = None,
    ) -> None:
        """A tokenizer of the library; for further arguments see `LibraryTokenizer`.

        Raises:
            UserError: the vocabulary lacks a special token, or has a piece that is too long.
        """
        _check_model(origin, model)
        self._model = model
        self.class_description = model.class_description
        description = description or self.class_description
        tokens = description.tokens
        tokens = dataclasses.replace(tokens, extra=(*model.user_defined, *tokens.extra))
        with library_errors(origin):
            library = self._make_library(())
        super().__init__(library, dataclasses.replace(description, tokens=tokens), origin, rows)

    def _make_library(self, hidden: Collection[str]) -> "tokenizers.Tokenizer":
        """A tokenizer of the library without added tokens; no text has the `hidden` pieces."""
        from tokenizers import models

        pieces = [
            # A piece with a space never matches: text is split there.
            (f"{piece} " if piece in hidden else piece, score)
            for piece, score in self._model.pieces
        ]
        steps = [*self._model.cleaning]
        if charsmap := self._model.charsmap:
            encoded = base64.b64encode(charsmap).decode()
            steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
        normalizer = {"type": "Sequence", "normalizers": steps} if len(steps) > 1 else None
        library = bare_library(
            {
                "normalizer": normalizer or next(iter(steps), None),
                "pre_tokenizer": self._model.splitter or _SPLITTER,
            }
        )
        # From Python, scores are exact; the library's parser of JSON may round them.
        library.model = models.Unigram(pieces, unk_id=self._model.unknown, byte_fallback=False)
        return library

    def _complete(self, library: "tokenizers.Tokenizer") -> None:
        from tokenizers import decoders

        library.decoder = decoders.Metaspace(WORD_MARKER, prepend_scheme="always")
        library.post_processor = self._template_processor()

    def _for_sentences(self, library: "tokenizers.Tokenizer") -> "tokenizers.Tokenizer":
        """A copy without the special tokens: the model would match a literal "<mask>"."""
        added = library.get_added_tokens_decoder()
        specials = {token.content for token in added.values() if token.special}
        copied = self._make_library(specials)
        # Special tokens beside the vocabulary reserve their ids.
        size = len(self._model.pieces)
        tokens = [token for i, token in sorted(added.items()) if i >= size or not token.special]
        copied.add_tokens(tokens)
        copied.encode_special_tokens = True
        return copied

    def fingerprint(self) -> str:
        """A hash of pieces, cleaning and added tokens: the same for all files of a tokenizer."""
        added = json.loads(self._library.to_str())["added_tokens"]
        parts = [UNIGRAM, list(self._model.pieces), added, list(self._model.cleaning)]
        parts += [self._model.splitter] if self._model.splitter else []
        return self._digest(parts, self._model.charsmap)

    def save(self, directory: str | Path, *, max_length: int | None = None) -> None:
        """Writes `tokenizer.json` and `tokenizer_config.json`.

        Hugging Face's `AutoTokenizer` reads them, as a `CamembertTokenizer`, `XLMRobertaTokenizer`
        or `AlbertTokenizer` by the first ids, and returns the same ids and offsets.
        """
        names, class_name = self.description.tokens.names, LIBRARY_CLASS
        for layout in LAYOUTS.values():
            if self._pieces[: len(layout.first)] == [piece for piece, _ in layout.first]:
                class_name = layout.class_name
        rules: dict[str, Any] = {"tokenizer_class": class_name}
        rules |= {"bos_token": names["cls"], "eos_token": names["sep"]}
        if self.class_description is _ALBERT_CLASS:
            steps = {step["type"] for step in self._model.cleaning}
            rules["tokenizer_class"] = "AlbertTokenizer"
            rules["do_lower_case"] = "Lowercase" in steps
            rules["keep_accents"] = "StripAccents" not in steps
        self._save(directory, rules, max_length)


def load(source: TokenizerSource) -> UnigramTokenizer:
    """The tokenizer of a .model file with a family's ids, or of a `tokenizer.json`."""
    path, definition, kind = source.path(MODEL_FILE), source.definition, source.kind
    source.check_no_arguments(
        path, "do not apply to a SentencePiece model as in XLM-R, which has a normalisation"
    )
    if source.switch("add_prefix_space") is False:
        raise UserError(
            f"{source.config_path}: add_prefix_space is false; a SentencePiece model is supported "
            "only with it"
        )
    if definition is not None and model_type(definition) == UNIGRAM:
        model = read_unigram_json(path, definition)
    elif MODEL_FILE in source.files:
        model = read_model_file(path, kind)
    else:
        raise UserError(
            f"{path.parent} has no *.model file, and no {TOKENIZER_FILE} with a Unigram model; "
            "copy the tokenizer's files there"
        )
    pieces = dict(model.pieces)
    if ALBERT[2] in pieces and not source.named:
        source.check_kind(path, SENTENCEPIECE)
    if kind != LIBRARY:
        model = dataclasses.replace(model, splitter=None)
    if kind == SENTENCEPIECE and source.named:
        steps = (
            *_QUOTES,
            *(() if source.switch("keep_accents", False) else _ACCENTS),
            *(_CASE if source.switch("do_lower_case", True) else ()),
        )
        model = dataclasses.replace(model, cleaning=steps)
    described = source.describe(model.class_description, pieces)
    return UnigramTokenizer(model, described, str(path), source.rows)


def read_model_file(path: Path, kind: str) -> UnigramModel:
    """The tokenizer that a .model file of SentencePiece defines, with the ids of a family.

    Args:
        path: the file.
        kind: a key of `LAYOUTS`.

    Raises:
        UserError: it is not a unigram model.
    """
    _, proto = read_model(path)
    if proto.trainer_spec.model_type != _UNIGRAM_MODEL or proto.trainer_spec.byte_fallback:
        raise UserError(
            f"{path}: {LAYOUTS[kind].class_name} needs a unigram model without pieces for bytes; "
            "give the .model file of such a model"
        )
    layout, scores = LAYOUTS[kind], [(piece.piece, piece.score) for piece in proto.pieces]
    pieces = [*layout.first, *scores[layout.start :], (FAIRSEQ[4], 0.0)]
    added = tuple(
        Token(piece.piece, special=piece.type == _CONTROL)
        for piece in proto.pieces
        if piece.type in (_CONTROL, _USER_DEFINED)
    )
    charsmap = proto.normalizer_spec.precompiled_charsmap
    return UnigramModel(
        pieces, charsmap, [name for name, _ in layout.first].index(FAIRSEQ[1]), added
    )


def read_unigram_json(path: Path, definition: Mapping[str, Any]) -> UnigramModel:
    """The tokenizer that a `tokenizer.json` with a Unigram model defines.

    Its normaliser may be Precompiled, after ALBERT's cleaning; ` {2,}` → " " after it changes
    nothing, since text is split at white space.

    Args:
        path: file to name in errors.
        definition: the content of the file.

    Raises:
        UserError: a part is damaged, or is not as in CamemBERT and XLM-R.
    """
    model = definition["model"]
    try:
        pieces = [(piece, float(score)) for piece, score in model["vocab"]]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UserError(
            f"{path}: vocab is not a list of pieces with scores; {READ_REMEDY}"
        ) from None
    unknown = model.get("unk_id")
    is_id = type(unknown) is int and 0 <= unknown < len(pieces)
    if not is_id or (pieces[unknown][0] != FAIRSEQ[1] and FAIRSEQ[1] in dict(pieces)):
        raise UserError(f"{path}: unk_id is {unknown!r:.80}, not the id of <unk>; {READ_REMEDY}")
    if model.get("byte_fallback"):
        raise UserError(f"{path}: the model has pieces for bytes (byte_fallback), {_ONLY}")
    charsmap, cleaning = b"", []
    for step in checked_steps(path, definition, "normalizer", _NORMALIZERS):
        if step["type"] == "Precompiled":
            charsmap = _decoded(path, step.get("precompiled_charsmap"))
        elif step in _CLEANING and not charsmap:
            cleaning.append(step)
        elif step != _SQUEEZING:
            raise UserError(f"{path}: the normalizer {step!s:.80} is not known, {_ONLY}")
    splitter = checked_steps(path, definition, "pre_tokenizer", ("WhitespaceSplit", "Metaspace"))
    kinds = [step["type"] for step in splitter]
    schemes = [step.get("prepend_scheme", "always") for step in splitter if len(step) > 1]
    is_usual = kinds == ["WhitespaceSplit", "Metaspace"] and schemes == ["always"]
    other = None if is_usual else definition.get("pre_tokenizer")
    return UnigramModel(pieces, charsmap, unknown, cleaning=cleaning, splitter=other)


_NORMALIZERS = ("Precompiled", "Replace", "NFKD", "StripAccents", "Lowercase")
_ONLY = (
    "but only the Unigram models of CamemBERT, XLM-R and ALBERT are read from a tokenizer.json: "
    f"{OTHER_MODEL}"
)
_CLEANING = (
    {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
    {"type": "Replace", "pattern": {"String": "''"}, "content": '"'},
    {"type": "NFKD"},
    {"type": "StripAccents"},
    {"type": "Lowercase"},
)
_QUOTES, _ACCENTS, _CASE = _CLEANING[:2], _CLEANING[2:4], _CLEANING[4:]
_SPLITTER = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "WhitespaceSplit"},
        {"type": "Metaspace", "replacement": WORD_MARKER, "prepend_scheme": "always"},
    ],
}
_SQUEEZING = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}


def _decoded(path: Path, text: Any) -> bytes:
    try:
        return base64.b64decode(text or "", validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise UserError(f"{path}: precompiled_charsmap is not base64; {READ_REMEDY}") from None


def _check_model(origin: str, model: UnigramModel) -> None:
    """Raises UserError where the library would panic or take too long."""
    for token_id, (piece, score) in enumerate(model.pieces):
        is_text = isinstance(piece, str) and len(piece) <= MAX_PIECE_CHARACTERS
        if not is_text or not np.isfinite(score):
            raise UserError(
                f"{origin}: the piece {token_id} is {piece!r:.80} with the score {score}, not a "
                f"text of at most {MAX_PIECE_CHARACTERS} characters with a finite score; copy the "
                "file again"
            )
