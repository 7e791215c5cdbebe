"""DeBERTa's SentencePiece models, whose ids are those of the file: the mask alone is added.

Source: microsoft/DeBERTa, DeBERTa/deberta/spm_tokenizer.py. Hugging Face transformers 5 normalises
text by NFC instead of the model's own table, so that its ids differ in texts with characters such
as "ﬁ" or "１".
"""

import dataclasses
from collections.abc import Collection, Sequence

from bert_jax.errors import UserError
from bert_jax.tokenization.cleaning import TextCleaner
from bert_jax.tokenization.description import Description
from bert_jax.tokenization.sentencepiece import SentencePieceTokenizer, read_model
from bert_jax.tokenization.source import MODEL_FILE, TokenizerSource
from bert_jax.tokenization.unigram_model import DEBERTA_CLASS

# Rules of DeBERTa's tokenizers that no published model has.
_REFUSED = ("do_lower_case", "split_by_punct")


class _Unchanged(TextCleaner):
    """Text as it is: the model has the rules."""

    def clean(self, text: str) -> str:
        return text

    def clean_with_origins(self, text: str) -> tuple[str, Sequence[int]]:
        return text, range(len(text))


class DebertaV2Tokenizer(SentencePieceTokenizer):
    """Runs a SentencePiece model on text that is not cleaned before."""

    _class_name, _file, _cleaner_class = "DebertaV2Tokenizer", "spm.model", _Unchanged

    def _digit_comma_splits(self) -> dict[int, list[int]]:
        return {}

    def fingerprint(self) -> str:
        return self._digest([self._class_name, super().fingerprint()])


def load(source: TokenizerSource) -> DebertaV2Tokenizer:
    """The tokenizer of a .model file.

    Raises:
        UserError: a file is damaged, or has rules that are not supported.
    """
    path = source.files[MODEL_FILE]
    source.check_no_arguments(path, "do not apply to DeBERTa's model, which has a normalisation")
    for key in _REFUSED:
        if source.switch(key):
            raise UserError(f"{source.config_path}: {key} is true; only false is supported")
    content, proto = read_model(path)
    pieces = [piece.piece for piece in proto.pieces]
    description = source.describe(DEBERTA_CLASS, pieces)
    if source.rows is None or source.rows > len(pieces):
        description = _with_mask(description, pieces)
    return DebertaV2Tokenizer(
        content,
        lowercase=False,
        keep_accents=True,
        description=description,
        origin=str(path),
        rows=source.rows,
    )


def _with_mask(description: Description, pieces: Collection[str]) -> Description:
    """The description with the id of the mask, the first after the pieces, where it has none."""
    tokens = description.tokens
    mask, added = tokens.named["mask_token"], tokens.added
    if mask.content in {*pieces, *(token.content for token in added.values())}:
        return description
    tokens = dataclasses.replace(tokens, added={**added, len(pieces): mask})
    return dataclasses.replace(description, tokens=tokens)
