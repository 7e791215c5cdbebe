"""ELMo's input: words that are spelled by the bytes of their UTF-8.

No vocabulary is needed. A word is begin of word, its bytes, end of word, and padding up to
`LENGTH`. A sentence is begun and ended by the words `<S>` and `</S>`, which have a character of
their own each. Source: allenai/bilm-tf, bilm/data.py (UnicodeCharsVocabulary).
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np

from bert_jax.errors import UserError
from bert_jax.tokenization.description import Description, SpecialTokens, Token
from bert_jax.tokenization.encoding import Pieces, Template, check_texts
from bert_jax.tokenization.interface import Tokenizer
from bert_jax.tokenization.source import TokenizerSource

LENGTH = 50
"""Y, the most characters of a word, its begin and end included; longer words are cut."""

# Bytes are 1 to 256; 0 is no character.
_BEGIN_SENTENCE, _END_SENTENCE, _BEGIN_WORD, _END_WORD, _PADDING = range(257, 262)

# All words have the id of the last one: the model reads their characters.
_PIECES = ["<pad>", "<S>", "</S>", "<word>"]
_WORD = re.compile(r"\S+")


class CharacterTokenizer(Tokenizer):
    """Each word, as separated by white space, is one token: text is split into words beforehand.

    The ids tell padding, `<S>`, `</S>` and words apart, and nothing else; `token_arrays` has what a
    model reads.
    """

    class_description = Description(
        SpecialTokens(
            {
                "pad_token": Token("<pad>"),
                "cls_token": Token("<S>"),
                "sep_token": Token("</S>"),
            }
        ),
        Template(single="cls A sep", pair="cls A sep cls B sep"),
    )

    def __init__(
        self,
        description: Description | None = None,
        origin: str = "the characters",
        rows: int | None = None,
    ) -> None:
        """Takes special tokens and template, the file to name in errors, and the model's ids."""
        self._pieces = _PIECES
        self._describe(description or self.class_description, origin, rows)

    def to_pieces(self, texts: Sequence[str]) -> list[Pieces]:
        return [self._pieces_of(text) for text in texts]

    def _pieces_of(self, text: str) -> Pieces:
        found = list(_WORD.finditer(text))
        words = [match[0] for match in found]
        ids = [self.token_to_id(word) for word in words]
        return Pieces(ids, words, [match.span() for match in found], [*range(len(words))])

    def token_arrays(self, tokens: Sequence[str]) -> dict[str, np.ndarray]:
        """`characters`, int32 [T, Y], of T words."""
        spelled = np.full((len(tokens), LENGTH), _PADDING, np.int32)
        ends = {"<S>": [_BEGIN_SENTENCE], "</S>": [_END_SENTENCE]}
        for row, token in zip(spelled, tokens, strict=True):
            inside = ends.get(token) or [byte + 1 for byte in token.encode()[: LENGTH - 2]]
            row[: len(inside) + 2] = [_BEGIN_WORD, *inside, _END_WORD]
        return {"characters": spelled}

    def encode_sentences(self, sentences: Sequence[str]) -> list[list[int]]:
        check_texts(sentences)
        return [pieces.ids for pieces in self.to_pieces(sentences)]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> NoReturn:
        """Raises UserError: ids do not say which words they were."""
        raise UserError(
            "the tokenizer has no ids of single words, so no text can be made of ids; take the "
            "tokens of the encoding"
        )

    def token_to_id(self, token: str) -> int:
        """The id of an end of sentence, or else that of all words."""
        return _PIECES.index(token) if token in _PIECES[1:3] else 3

    def with_words(self, words: Sequence[str], *, whole: bool = False) -> NoReturn:
        """Raises UserError: every word is known."""
        raise UserError("words: the tokenizer spells every word by its characters; add none")

    def _with_added(self, description: Description) -> Self:
        added = [token.content for token in description.tokens.all()]
        raise UserError(f"the tokenizer spells every word, and takes no tokens such as {added[-1]}")

    def fingerprint(self) -> str:
        """A hash of the kind of tokenizer, as there is no other."""
        return self._digest(["Characters", LENGTH])

    def save(self, directory: str | Path, *, max_length: int | None = None) -> None:
        """Writes `tokenizer_config.json`."""
        rules: dict[str, Any] = {"tokenizer_class": "ElmoTokenizer"}
        self._write_config(directory, rules, max_length)


def load(source: TokenizerSource) -> CharacterTokenizer:
    """The tokenizer of a directory, of which `tokenizer_config.json` is read, if it is there.

    Raises:
        UserError: see `Tokenizer._describe`; or an argument changes how text is treated.
    """
    source.check_no_arguments(source.config_path, "do not apply to ELMo, which reads all bytes")
    described = source.describe(CharacterTokenizer.class_description, _PIECES)
    return CharacterTokenizer(described, str(source.config_path), source.rows)
