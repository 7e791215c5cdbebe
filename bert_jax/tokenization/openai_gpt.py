"""The BPE of GPT-1, run by the Rust library `tokenizers`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bert_jax.errors import UserError
from bert_jax.tokenization.bpe_files import read_bpe, write_bpe
from bert_jax.tokenization.definition import OTHER_MODEL, checked_steps
from bert_jax.tokenization.library import LetterBPETokenizer
from bert_jax.tokenization.source import BPE_FILE, LIBRARY, TokenizerSource
from bert_jax.tokenization.wordpiece import BertSwitches

if TYPE_CHECKING:
    import tokenizers

WORD_END = "</w>"
"""How a piece ends that ends a word."""

_SWITCHES = BertSwitches(do_lower_case=True, strip_accents=None, tokenize_chinese_chars=True)


class OpenAIGPTTokenizer(LetterBPETokenizer):
    """Lower-cases text, splits it as BERT does, and joins letters in the order of the merges.

    This is what Hugging Face's class does; OpenAI's program split text with spaCy and ftfy, which
    gives other ids for some texts. Accents are removed. Nothing is added to a text, unless the
    files set `add_bos_token` or `add_eos_token` and name the token. There is no padding:
    `padding_id` is 0, and what is computed for it must be masked.
    """

    _settings: ClassVar = {"end_of_word_suffix": WORD_END}
    _no_words = "the BPE of GPT-1", "which no merge makes", ", or train a new vocabulary"

    def _normalizer(self) -> "tokenizers.normalizers.Normalizer":
        return _SWITCHES.normalizer()

    def _complete(self, library: "tokenizers.Tokenizer") -> None:
        from tokenizers import decoders, pre_tokenizers

        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        library.decoder = decoders.BPEDecoder(suffix=WORD_END)

    def save(self, directory: str | Path, *, max_length: int | None = None) -> None:
        """Writes `vocab.json`, `merges.txt`, `tokenizer.json` and `tokenizer_config.json`.

        Hugging Face's `AutoTokenizer` reads them as an `OpenAIGPTTokenizer`, and returns the same
        ids and offsets.
        """
        rules = {"tokenizer_class": "OpenAIGPTTokenizer"}
        directory, definition = self._save(directory, rules, max_length)
        write_bpe(directory, definition["model"])


def load(source: TokenizerSource) -> OpenAIGPTTokenizer:
    """The tokenizer of some files: pieces with the rules of GPT-1's class, or as `LIBRARY`.

    Raises:
        UserError: a file is missing or damaged, or a `tokenizer.json` that says everything has
            other rules than GPT-1.
    """
    path, definition = source.path(BPE_FILE), source.definition
    source.check_no_arguments(path, "do not apply to GPT-1, which always lower-cases text")
    if source.kind == LIBRARY and definition is not None:
        _check_rules(path, definition)
    pieces, merges = read_bpe(source, WORD_END)
    described = source.describe(OpenAIGPTTokenizer.class_description, pieces)
    return OpenAIGPTTokenizer(pieces, merges, described, str(path), source.rows)


def _check_rules(path: Path, definition: Mapping[str, Any]) -> None:
    """Raises UserError if a `tokenizer.json` treats text in another way than GPT-1."""
    normalizer = checked_steps(path, definition, "normalizer", ("BertNormalizer",))
    splitter = checked_steps(path, definition, "pre_tokenizer", ("BertPreTokenizer",))
    known = json.loads(_SWITCHES.normalizer().__getstate__())
    if normalizer != [known] or len(splitter) != 1:
        raise UserError(
            f"{path}: the normalizer and pre_tokenizer are not those of GPT-1, which lower-cases "
            f"text and splits it as BERT: {OTHER_MODEL}"
        )
    for key in ("dropout", "continuing_subword_prefix", "fuse_unk", "byte_fallback"):
        if value := definition["model"].get(key):
            raise UserError(
                f"{path}: {key} of the BPE model is {value!r:.80}; GPT-1 has none: {OTHER_MODEL}"
            )
