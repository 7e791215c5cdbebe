"""What all tokenizers have in common that the Rust library `tokenizers` runs."""

import abc
import copy
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bert_jax.errors import UserError
from bert_jax.tokenization.assembly import AssemblingTokenizer, check_texts
from bert_jax.tokenization.interface import Pieces, SpecialIds, check_vocabulary_size
from bert_jax.tokenization.special_tokens import SpecialTokens, Token, add_tokens
from bert_jax.tokenization.template import Template

if TYPE_CHECKING:
    import tokenizers
    from tokenizers import processors

VOCABULARY_FILES = ("vocab.txt", "vocab.json", "merges.txt", "*.model")
TOKENIZER_FILE = "tokenizer.json"

# The class that reads everything from a `tokenizer.json`; its default leaves out token types.
LIBRARY_CLASS = "PreTrainedTokenizerFast"
MODEL_INPUTS = ("input_ids", "token_type_ids", "attention_mask")


class LibraryTokenizer(AssemblingTokenizer):
    """A tokenizer of the library; a subclass for each kind says what differs.

    No call changes the result of another call, so threads may share an instance. Another process
    loads its own instance from a directory.

    Attributes:
        class_template: template of Hugging Face's class.
        class_tokens: special tokens of the class.
    """

    class_template: Template
    class_tokens: SpecialTokens

    def __init__(
        self,
        library: "tokenizers.Tokenizer",
        origin: str,
        template: Template | None = None,
        tokens: SpecialTokens | None = None,
        rows: int | None = None,
    ) -> None:
        """Wraps a tokenizer of the library, which must not be changed elsewhere from then on.

        Args:
            library: its normaliser, word splitting, model and added tokens are used unchanged.
            origin: file to name in errors.
            template: positions of special tokens around texts; None: those of the class.
            tokens: special and added tokens; None: those of the class.
            rows: number of ids of the model; None: unknown.

        Raises:
            UserError: the vocabulary lacks a special token of the template, or two tokens have
                the same id.
        """
        self.template = template or self.class_template
        self._use(library, origin, tokens or self.class_tokens, rows)

    def _use(
        self,
        library: "tokenizers.Tokenizer",
        origin: str,
        tokens: SpecialTokens,
        rows: int | None = None,
    ) -> None:
        add_tokens(library, tokens, origin, rows)
        ids = library.get_vocab(with_added_tokens=True)
        self.vocab_size = max(ids.values(), default=-1) + 1
        check_vocabulary_size(origin, self.vocab_size, rows)
        # Ids without a piece, and all but the last id of a piece, are never used.
        self._pieces = [""] * self.vocab_size
        for piece, token_id in ids.items():
            if self._pieces[token_id]:
                raise UserError(
                    f"{origin}: {piece!r:.80} and {self._pieces[token_id]!r:.80} have the same id, "
                    f"{token_id}; copy the tokenizer's files again"
                )
            self._pieces[token_id] = piece
        self.special_ids = SpecialIds(*(ids.get(name or "") for name in tokens.names))
        # A `tokenizer.json` may have kept these from an earlier call.
        library.no_truncation()
        library.no_padding()
        self._library, self._tokens = library, tokens
        self.check_template(origin, tokens.names)
        self._complete(library)
        self._sentence_library = self._for_sentences(library)

    def _with_tokens(self, tokens: Sequence[Token]) -> Self:
        """See `AssemblingTokenizer`."""
        import tokenizers

        definition = json.loads(self._library.to_str())
        if isinstance(definition["model"]["vocab"], dict):
            # The library numbers new tokens by the count of pieces: each id must have one.
            used = self._library.get_vocab(with_added_tokens=True).values()
            gaps = set(range(self.vocab_size)).difference(used)
            definition["model"]["vocab"] |= {f"[unused {i}]": i for i in sorted(gaps)}
        library = tokenizers.Tokenizer.from_str(json.dumps(definition))
        changed = copy.copy(self)
        more = dataclasses.replace(self._tokens, extra=(*self._tokens.extra, *tokens))
        changed._use(library, "the vocabulary with the new words", more)
        return changed

    @abc.abstractmethod
    def _complete(self, library: "tokenizers.Tokenizer") -> None:
        """Sets decoder and post-processor, and what a subclass makes of the library."""

    def _for_sentences(self, library: "tokenizers.Tokenizer") -> "tokenizers.Tokenizer":
        """A copy that reads a literal "[SEP]" as text."""
        copied = copy_of(library)
        copied.encode_special_tokens = True
        return copied

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

    def token_to_id(self, token: str) -> int | None:
        return self._library.token_to_id(token)

    def _save(
        self,
        directory: str | Path,
        max_length: int | None,
        class_name: str,
        rules: Mapping[str, object],
    ) -> Path:
        """Writes `tokenizer.json`, and `tokenizer_config.json` with the added tokens.

        Args:
            directory: see `Tokenizer.save`.
            max_length: see `Tokenizer.save`.
            class_name: Hugging Face's class, for a tokenizer whose files named none.
            rules: further keys of the config.

        Returns:
            The directory.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        content = self._library.to_str()
        definition = json.loads(content)
        complete = definition | self.settings.library
        if complete != definition:
            content = json.dumps(complete)  # ASCII: a half surrogate stays what it is
        bare = self.template.without_token_types()
        if bare != self.class_template.without_token_types():
            class_name = LIBRARY_CLASS
        added = {str(token.pop("id")): token for token in definition["added_tokens"]}
        rules = {**rules, "added_tokens_decoder": added}
        if (self.settings.class_name or class_name) == LIBRARY_CLASS and bare != self.template:
            inputs = self.settings.others.get("model_input_names", list(MODEL_INPUTS))
            rules["model_input_names"] = inputs
        self._write_config(directory, class_name, rules, max_length)
        (directory / TOKENIZER_FILE).write_text(content, encoding="utf-8")
        return directory

    def _template_processor(self) -> "processors.TemplateProcessing":
        """The template for other readers of the saved tokenizer.json; bert_jax does not use it."""
        from tokenizers import processors

        used: dict[str, int] = {}

        def spelled(name: str) -> str:
            if name in ("A", "B"):
                return f"${name}"
            token_id = self.template_id(name)
            used[self._pieces[token_id]] = token_id
            return self._pieces[token_id]

        single, pair = (
            [f"{spelled(name)}:{type_id}" for name, type_id in self.template.parts(pair=two)]
            for two in (False, True)
        )
        return processors.TemplateProcessing(
            single=single, pair=pair, special_tokens=sorted(used.items())
        )


def copy_of(library: "tokenizers.Tokenizer") -> "tokenizers.Tokenizer":
    import tokenizers

    return tokenizers.Tokenizer.from_str(library.to_str())


def pieces_of(library: "tokenizers.Tokenizer", texts: Sequence[str]) -> list[Pieces]:
    encoded = library.encode_batch(list(texts), add_special_tokens=False)
    return [Pieces(e.ids, e.tokens, e.offsets, e.word_ids) for e in encoded]
