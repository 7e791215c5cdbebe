"""ALBERT's cleaning of text for SentencePiece; whether a vocabulary has upper case and accents."""

import re
import unicodedata
from collections.abc import Iterable, Sequence

# In the order of Hugging Face's `clean_up_tokenization`.
_SPACED = (
    *((f" {mark}", mark) for mark in (".", "?", "!", ",")),
    (" ' ", "'"),
    *((f" {ending}", ending) for ending in ("n't", "'m", "'s", "'ve", "'re")),
)


class TextCleaner:
    """Turns the quotes `` and '' into ", and on request removes accents and lower-cases.

    Source: `preprocess_text` in google-research/albert, tokenization.py, and Hugging Face's
    AlbertTokenizer where they differ: every Unicode mark is an accent, and letters are lower-cased
    one by one (a final Σ becomes σ). White space beyond ASCII becomes a space here, as U+0085 is a
    letter for SentencePiece; the rest of the white space it treats itself.

    Attributes:
        lowercase: whether text is lower-cased.
        keep_accents: whether accents are kept.
    """

    def __init__(self, *, lowercase: bool, keep_accents: bool) -> None:
        self.lowercase = lowercase
        self.keep_accents = keep_accents
        self._table = _CharacterTable(lowercase=lowercase, keep_accents=keep_accents)

    def clean(self, text: str) -> str:
        """The cleaned text."""
        text = text.replace("``", '"').replace("''", '"')
        changes = self.lowercase or not self.keep_accents or not text.isascii()
        return text.translate(self._table) if changes else text

    def clean_with_origins(self, text: str) -> tuple[str, Sequence[int]]:
        """The cleaned text, and for each of its characters its index in `text`."""
        if text.isascii() and "``" not in text and "''" not in text:
            return self.clean(text), range(len(text))
        cleaned: list[str] = []
        origins: list[int] = []
        for match in re.finditer(r"``|''|.", text, re.DOTALL):
            replacement = self.clean(match[0])
            cleaned.append(replacement)
            origins.extend([match.start()] * len(replacement))
        return "".join(cleaned), origins


def without_spaces_before_punctuation(text: str) -> str:
    """The text that Hugging Face's `clean_up_tokenization_spaces` makes of decoded pieces."""
    for before, after in _SPACED:
        text = text.replace(before, after)
    return text


def has_accents(pieces: Iterable[str]) -> bool:
    """Whether removing accents would change any piece; then the training text had accents."""
    cleaner = TextCleaner(lowercase=False, keep_accents=False)
    return any(cleaner.clean(piece) != piece for piece in pieces)


def looks_lowercased(pieces: Iterable[str]) -> bool:
    """Whether a vocabulary was trained on lower-cased text: no piece has an upper-case letter.

    Markers in brackets ("[CLS]", and "<S>" of bert-base-chinese) do not count. The result agrees
    with `validate_case_matches_checkpoint` of google-research/bert (tokenization.py).
    """
    return not any(
        piece != piece.lower() and piece[:1] + piece[-1:] not in ("[]", "<>") for piece in pieces
    )


class _CharacterTable(dict[int, str]):
    """A table for `str.translate`; the entry of a character is made at its first use."""

    def __init__(self, *, lowercase: bool, keep_accents: bool) -> None:
        super().__init__()
        self._lowercase = lowercase
        self._keep_accents = keep_accents

    def __missing__(self, code_point: int) -> str:
        cleaned = chr(code_point)
        if cleaned.isspace() and not cleaned.isascii():
            cleaned = " "
        if not self._keep_accents:
            decomposed = unicodedata.normalize("NFKD", cleaned)
            cleaned = "".join(c for c in decomposed if not unicodedata.category(c).startswith("M"))
        if self._lowercase:
            cleaned = "".join(character.lower() for character in cleaned)
        self[code_point] = cleaned
        return cleaned
