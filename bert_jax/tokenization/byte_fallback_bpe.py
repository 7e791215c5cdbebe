"""BPE of characters with pieces for bytes, as of Gemma and mmBERT, run by the library `tokenizers`.

All of it is in a `tokenizer.json`. Source: Hugging Face transformers, models/gemma.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bert_jax.errors import UserError
from bert_jax.tokenization.bpe_files import read_bpe
from bert_jax.tokenization.definition import OTHER_MODEL, checked_steps
from bert_jax.tokenization.library import LIBRARY_CLASS, LetterBPETokenizer, copy_of
from bert_jax.tokenization.sentencepiece import WORD_MARKER
from bert_jax.tokenization.source import BPE_FILE, TokenizerSource

if TYPE_CHECKING:
    import tokenizers

# A space is the letter "▁", and a text is one word: so no space is left at which it is split.
_NORMALIZER: Mapping[str, Any] = {
    "type": "Replace",
    "pattern": {"String": " "},
    "content": WORD_MARKER,
}
_SPLITTER: Mapping[str, Any] = {
    "type": "Split",
    "pattern": {"String": " "},
    "behavior": "MergedWithPrevious",
    "invert": False,
}


class ByteFallbackBPETokenizer(LetterBPETokenizer):
    """Joins the characters of a text in the order of the merges; each space is "▁".

    A character without a piece becomes its bytes in UTF-8, "<0xE2>". A space belongs to the piece
    after it: "world" at the start of a text has another id than " world". `encode_words` puts a
    space before the first word, too.
    """

    _word_markers = (WORD_MARKER,)
    _settings: ClassVar = {"fuse_unk": True, "byte_fallback": True}
    _byte_pieces: ClassVar = tuple(f"<0x{byte:02X}>" for byte in range(256))
    _no_words = "BPE with pieces for bytes", "which no merge makes", ""

    def _normalizer(self) -> "tokenizers.normalizers.Normalizer":
        from tokenizers import normalizers

        return normalizers.Replace(" ", WORD_MARKER)

    def _complete(self, library: "tokenizers.Tokenizer") -> None:
        from tokenizers import decoders, normalizers, pre_tokenizers

        library.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        library.decoder = decoders.Sequence(
            [decoders.Replace(WORD_MARKER, " "), decoders.ByteFallback(), decoders.Fuse()]
        )
        self._word_library = copy_of(library)
        self._word_library.normalizer = normalizers.Sequence(
            [normalizers.Prepend(WORD_MARKER), normalizers.Replace(" ", WORD_MARKER)]
        )

    def save(self, directory: str | Path, *, max_length: int | None = None) -> None:
        """Writes `tokenizer.json` and `tokenizer_config.json`.

        Hugging Face's `AutoTokenizer` reads them, and returns the same ids and offsets.
        """
        self._save(directory, {"tokenizer_class": LIBRARY_CLASS}, max_length)


def load(source: TokenizerSource) -> ByteFallbackBPETokenizer:
    """The tokenizer of a `tokenizer.json`, which says everything.

    Raises:
        UserError: it is damaged, or has other rules than Gemma's.
    """
    path, definition = source.path(BPE_FILE), source.definition
    assert definition is not None
    source.check_no_arguments(path, "do not apply to Gemma's BPE, which encodes text as it is")
    model = definition["model"]
    for key, value in {
        **dict.fromkeys(("dropout", "continuing_subword_prefix", "end_of_word_suffix")),
        "fuse_unk": True,
        "ignore_merges": False,
    }.items():
        if (model.get(key) or False) != (value or False):
            raise UserError(
                f"{path}: {key} of the BPE model is {model.get(key)!r:.80}; with byte_fallback "
                f"only {value!r} is supported: {OTHER_MODEL}"
            )
    for key, known in (("normalizer", _NORMALIZER), ("pre_tokenizer", _SPLITTER)):
        if checked_steps(path, definition, key, (known["type"],)) != [known]:
            raise UserError(
                f"{path}: the {key} is {definition.get(key)!r:.80}; of BPE with byte_fallback only "
                f"Gemma's is supported, in which a space is {WORD_MARKER}: {OTHER_MODEL}"
            )
    pieces, merges = read_bpe(source)
    described = source.describe(ByteFallbackBPETokenizer.class_description, pieces)
    return ByteFallbackBPETokenizer(pieces, merges, described, str(path), source.rows)
