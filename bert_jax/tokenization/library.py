"""What all tokenizers have in common that the Rust library `tokenizers` runs."""

import abc
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bert_jax.errors import UserError
from bert_jax.tokenization.assembly import AssemblingTokenizer, check_texts
from bert_jax.tokenization.interface import (
    DEFAULT_TEMPLATE,
    TOKEN_KEYS,
    Pieces,
    SpecialIds,
    Template,
    find_special_ids,
)

if TYPE_CHECKING:
    import tokenizers
    from tokenizers import processors

VOCABULARY_FILES = ("vocab.txt", "vocab.json", "merges.txt", "*.model")
TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"


class LibraryTokenizer(AssemblingTokenizer):
    """A tokenizer of the library; a subclass for each kind says what differs.

    No call changes the result of another call, so threads may share an instance. Another process
    loads its own instance from a directory.

    Attributes:
        spelling: the five special tokens, in the order of the fields of `SpecialIds`.
    """

    spelling: tuple[str, ...]

    def __init__(
        self,
        library: "tokenizers.Tokenizer",
        origin: str,
        template: Template = DEFAULT_TEMPLATE,
    ) -> None:
        """Wraps a tokenizer of the library, which must not be changed elsewhere from then on.

        Args:
            library: its normaliser, word splitting, model and added tokens are used unchanged.
            origin: file to name in errors.
            template: positions of special tokens around texts.

        Raises:
            UserError: the vocabulary lacks a special token, or has gaps in its ids.
        """
        self.template = template
        self.special_ids = find_special_ids(library.token_to_id, [self.spelling], origin)
        ids = library.get_vocab(with_added_tokens=True)
        self.vocab_size = len(ids)
        if sorted(ids.values()) != list(range(self.vocab_size)):
            raise UserError(
                f"{origin}: {self.vocab_size} pieces need the ids 0 to {self.vocab_size - 1}, "
                "each once; number them so"
            )
        self._pieces = sorted(ids, key=lambda piece: ids[piece])
        # A `tokenizer.json` may have kept these from an earlier call.
        library.no_truncation()
        library.no_padding()
        self._complete(library)
        self._library = library
        self._sentence_library = self._for_sentences(library)

    @abc.abstractmethod
    def _complete(self, library: "tokenizers.Tokenizer") -> None:
        """Sets special tokens, decoder and post-processor, which a `tokenizer.json` may lack."""

    def _add_special_tokens(self, library: "tokenizers.Tokenizer") -> None:
        """Adds the special tokens that the files have not; the mask takes the space before it."""
        from tokenizers import AddedToken

        *others, mask = self.spelling
        tokens = [*map(AddedToken, others), AddedToken(mask, lstrip=True, normalized=False)]
        known = {token.content for token in library.get_added_tokens_decoder().values()}
        library.add_special_tokens([token for token in tokens if token.content not in known])

    def _for_sentences(self, library: "tokenizers.Tokenizer") -> "tokenizers.Tokenizer":
        """A copy that reads a literal "[SEP]" as text."""
        import tokenizers

        copy = tokenizers.Tokenizer.from_str(library.to_str())
        copy.encode_special_tokens = True
        return copy

    def to_pieces(self, texts: Sequence[str]) -> list[Pieces]:
        """See `AssemblingTokenizer.to_pieces`; those of Hugging Face's fast tokenizers."""
        return pieces_of(self._library, texts)

    def encode_sentences(self, sentences: Sequence[str]) -> list[list[int]]:
        check_texts(sentences)
        return self._encode_plain(sentences)

    def _encode_plain(self, texts: Sequence[str]) -> list[list[int]]:
        encoded = self._sentence_library.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encoded]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """See `Tokenizer.decode`; [UNK] counts as a special token."""
        return self._library.decode(
            [int(token_id) for token_id in ids], skip_special_tokens=skip_special_tokens
        )

    def id_to_token(self, token_id: int) -> str:
        return self._pieces[token_id]

    def token_to_id(self, token: str) -> int | None:
        return self._library.token_to_id(token)

    def _save(
        self,
        directory: str | Path,
        max_length: int | None,
        class_name: str,
        template: Template,
        rules: Mapping[str, object],
    ) -> Path:
        """Writes `tokenizer.json`, and `tokenizer_config.json` with the added tokens.

        Args:
            directory: see `Tokenizer.save`.
            max_length: see `Tokenizer.save`.
            class_name: Hugging Face's class.
            template: the template of that class; with another one, the class is that which reads
                everything from `tokenizer.json`.
            rules: further keys of the config.

        Returns:
            The directory.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        is_class = self.template.parts(pair=True) == template.parts(pair=True)
        _, _, cls, sep, _ = self.spelling
        content = self._library.to_str()
        config: dict[str, object] = self.settings.saved(max_length) | {
            "tokenizer_class": class_name if is_class else "PreTrainedTokenizerFast",
            **rules,
            **dict(zip(TOKEN_KEYS, self.spelling, strict=True)),
            "bos_token": cls,
            "eos_token": sep,
            "added_tokens_decoder": {
                str(token.pop("id")): token for token in json.loads(content)["added_tokens"]
            },
        }
        (directory / TOKENIZER_FILE).write_text(content, encoding="utf-8")
        (directory / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        return directory

    def _template_processor(
        self, library: "tokenizers.Tokenizer"
    ) -> "processors.TemplateProcessing":
        """The template for other readers of the saved tokenizer.json; bert_jax does not use it."""
        from tokenizers import processors

        names = [field.name for field in dataclasses.fields(SpecialIds)]
        tokens = dict(zip(names, self.spelling, strict=True)) | {"A": "$A", "B": "$B"}
        single, pair = (
            " ".join(f"{tokens[name]}:{type_id}" for name, type_id in self.template.parts(pair=two))
            for two in (False, True)
        )
        used = {tokens[name] for name, _ in self.template.parts(pair=True)} & set(self.spelling)
        return processors.TemplateProcessing(
            single=single,
            pair=pair,
            special_tokens=[(token, library.token_to_id(token)) for token in sorted(used)],
        )


def pieces_of(library: "tokenizers.Tokenizer", texts: Sequence[str]) -> list[Pieces]:
    encoded = library.encode_batch(list(texts), add_special_tokens=False)
    return [Pieces(e.ids, e.tokens, e.offsets, e.word_ids) for e in encoded]
