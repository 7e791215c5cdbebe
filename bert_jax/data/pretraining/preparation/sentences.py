"""Paragraphs to sentences."""

import re
from collections.abc import Iterator

from bert_jax.errors import UserError

MODES = ("split", "lines")

PIECE_CHARACTERS = 8192
"""The longest sentence in characters, and how much text the splitter sees at a time.

A sentence of so many characters has far more tokens than a model has positions. The bound keeps
memory constant for a line of any length, and the splitter linear (measured with sentencex 1.0.32:
262,144 characters of Chinese take 6.3 s at once and 0.2 s in such pieces).
"""

_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")


def check_mode(mode: str, language: str) -> None:
    """Raises UserError for values that `split_sentences` does not know."""
    if mode not in MODES:
        raise UserError(f"data.sentences: {mode!r} is unknown; known are {', '.join(MODES)}")
    if not _LANGUAGE.fullmatch(language):
        raise UserError(
            f"data.language: {language!r} is not a language code such as 'en', 'de' or 'zh-hant'"
        )


def split_sentences(paragraph: str, mode: str = "split", language: str = "en") -> list[str]:
    """The sentences of a paragraph, stripped of white space, empty ones left out.

    Args:
        paragraph: text without line ends that UTF-8 can write.
        mode: "split" by the rules of the `sentencex` library, or "lines": the paragraph is one
            sentence.
        language: code of the language for "split"; one that sentencex has no rules for is split
            by the rules of its fallback, in the end English.

    Returns:
        Sentences of at most `PIECE_CHARACTERS` characters; a longer one is cut at white space, or
        anywhere where it has none.
    """
    pieces = _pieces(paragraph, language if mode == "split" else None)
    return [sentence for piece in pieces if (sentence := piece.strip())]


def _pieces(paragraph: str, language: str | None) -> Iterator[str]:
    """Sentences, or pieces of one where `language` is None."""
    import sentencex

    start = 0
    while start < len(paragraph):
        window = paragraph[start : start + PIECE_CHARACTERS]
        is_last = start + PIECE_CHARACTERS >= len(paragraph)
        sentences = [window] if language is None else sentencex.segment(language, window)
        if not is_last and len(sentences) > 1:
            # The last one may go on beyond the window, so the next window begins with it.
            sentences = sentences[:-1]
        elif not is_last:
            sentences = [window[: window.rfind(" ", 1) + 1] or window]
        yield from sentences
        start += sum(map(len, sentences))
