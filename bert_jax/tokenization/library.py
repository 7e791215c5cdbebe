"""The base classes of tokenizers that the Rust library `tokenizers` runs."""

import abc
import copy
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from bert_jax.errors import UserError
from bert_jax.tokenization.definition import check_unknown, library_errors
from bert_jax.tokenization.description import Description, SpecialTokens, Token
from bert_jax.tokenization.encoding import BARE_TEMPLATE, TEXTS, Encoding, Pieces, check_texts
from bert_jax.tokenization.interface import Tokenizer

if TYPE_CHECKING:
    import tokenizers
    from tokenizers import processors

TOKENIZER_FILE = "tokenizer.json"

# The class that reads everything from a `tokenizer.json`; its default leaves out token types.
LIBRARY_CLASS = "PreTrainedTokenizerFast"
_BETWEEN_WORDS = re.compile(r"(?<=\S) (?=\S)")
MODEL_INPUTS = ("input_ids", "token_type_ids", "attention_mask")


class LibraryTokenizer(Tokenizer):
    """A tokenizer of the library; a subclass for each kind says what differs.

    Attributes:
        class_description: special tokens and template of Hugging Face's class.
    """

    class_description: Description

    def __init__(
        self,
        library: "tokenizers.Tokenizer",
        description: Description | None = None,
        origin: str = "the vocabulary",
        rows: int | None = None,
    ) -> None:
        """Wraps a tokenizer of the library, which must not be changed elsewhere from then on.

        Args:
            library: its normaliser, word splitting, model and added tokens are used unchanged.
            description: special tokens and template; None: the class defaults.
            origin: file to name in errors.
            rows: number of ids of the model; None: unknown.

        Raises:
            UserError: see `Tokenizer._describe`, or two tokens have the same id.
        """
        self._use(library, description or self.class_description, origin, rows)

    def _use(
        self,
        library: "tokenizers.Tokenizer",
        description: Description,
        origin: str,
        rows: int | None = None,
    ) -> None:
        tokens = description.tokens
        ordered = tokens.ordered(library.get_vocab(with_added_tokens=True), rows)
        # Tokens of a `tokenizer.json` stay as they are.
        known = {token.content for token in library.get_added_tokens_decoder().values()}
        known.difference_update(token.content for token in tokens.added.values())
        # All in one call: each call takes linear time.
        library.add_tokens([token.for_library() for token in ordered if token.content not in known])
        ids = library.get_vocab(with_added_tokens=True)
        self._pieces = [""] * (max(ids.values(), default=-1) + 1)
        for piece, token_id in ids.items():
            if self._pieces[token_id]:
                raise UserError(
                    f"{origin}: {piece!r:.80} and {self._pieces[token_id]!r:.80} have the same id, "
                    f"{token_id}; copy the tokenizer's files again"
                )
            self._pieces[token_id] = piece
        self._library, self._origin = library, origin
        self._word_library = library
        self._describe(description, origin, rows)
        library.post_processor = self._template_processor()
        self._complete(library)
        self._sentence_library = self._for_sentences()

    def _with_added(self, description: Description) -> Self:
        definition = json.loads(self._library.to_str())
        if isinstance(definition["model"]["vocab"], dict):
            # The library numbers new tokens by the count of pieces: each id must have one.
            used = self._library.get_vocab(with_added_tokens=True).values()
            gaps = set(range(self.vocab_size)).difference(used)
            definition["model"]["vocab"] |= {f"[unused {i}]": i for i in sorted(gaps)}
        return self._changed(definition, description)

    def _changed(self, definition: dict[str, Any], description: Description) -> Self:
        """This tokenizer with another content of its `tokenizer.json`."""
        import tokenizers

        library, changed = tokenizers.Tokenizer.from_str(json.dumps(definition)), copy.copy(self)
        changed._use(library, description, "the vocabulary with the new words")
        return changed

    @abc.abstractmethod
    def _complete(self, library: "tokenizers.Tokenizer") -> None:
        """Sets the decoder, and what a subclass makes of the library.

        A subclass in which a word has other ids at the start of a text sets `_word_library`, a copy
        that puts a space before each text, as if it came from within a longer one.
        """

    def _for_sentences(self) -> "tokenizers.Tokenizer":
        """A copy of `_word_library` that reads a literal "[SEP]" as text."""
        copied = copy_of(self._word_library)
        copied.encode_special_tokens = True
        return copied

    @property
    def _between_words(self) -> re.Pattern[str] | None:
        """`word_breaks` where text is split at spaces before anything else."""
        added = self._library.get_added_tokens_decoder().values()
        return None if any(" " in token.content for token in added) else _BETWEEN_WORDS

    def to_pieces(self, texts: Sequence[str]) -> list[Pieces]:
        return self._pieces_of(self._library, texts)

    def _pieces_of(self, library: "tokenizers.Tokenizer", texts: Sequence[str]) -> list[Pieces]:
        with library_errors(self._origin):
            encoded = library.encode_batch(list(texts), add_special_tokens=False)
        return [Pieces(e.ids, e.tokens, e.offsets, e.word_ids) for e in encoded]

    def encode_words(self, texts: Sequence[str]) -> list[Encoding]:
        check_texts(texts)
        pieces = self._pieces_of(self._word_library, texts)
        return [self.join([text], add_special_tokens=False) for text in pieces]

    def encode_sentences(self, sentences: Sequence[str]) -> list[list[int]]:
        check_texts(sentences)
        return self._encode_plain(sentences)

    def _encode_plain(self, texts: Sequence[str]) -> list[list[int]]:
        with library_errors(self._origin):
            library = self._sentence_library
            encoded = library.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encoded]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of ids; [UNK] counts as a special token."""
        return self._library.decode(
            [int(token_id) for token_id in ids], skip_special_tokens=skip_special_tokens
        )

    def token_to_id(self, token: str) -> int | None:
        return self._library.token_to_id(token)

    def _save(
        self, directory: str | Path, rules: dict[str, Any], max_length: int | None
    ) -> tuple[Path, dict[str, Any]]:
        """Writes `tokenizer.json`, and `tokenizer_config.json` with the added tokens.

        For arguments see `_write_config`; returns the directory, and the content of the former.
        """
        content, description = self._library.to_str(), self.description
        definition = json.loads(content)
        complete = definition | description.library
        if complete != definition:
            content = json.dumps(complete)  # ASCII: a half surrogate stays what it is
        bare = self.template.without_token_types()
        if bare != self.class_description.template.without_token_types():
            rules["tokenizer_class"] = LIBRARY_CLASS
        rules["added_tokens_decoder"] = {
            str(token["id"]): {key: value for key, value in token.items() if key != "id"}
            for token in definition["added_tokens"]
        }
        class_name = description.class_name or rules["tokenizer_class"]
        if class_name == LIBRARY_CLASS and bare != self.template:
            inputs = description.others.get("model_input_names", list(MODEL_INPUTS))
            rules["model_input_names"] = inputs
        directory = self._write_config(directory, rules, max_length)
        (directory / TOKENIZER_FILE).write_text(content, encoding="utf-8")
        return directory, definition

    def _template_processor(self) -> "processors.TemplateProcessing":
        """The template for other readers of the saved tokenizer.json; bert_jax does not use it."""
        from tokenizers import processors

        used: dict[str, int] = {}

        def spelled(name: str) -> str:
            if name in TEXTS:
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


class LetterBPETokenizer(LibraryTokenizer):
    """BPE of letters, of which unknown ones have a piece: as of GPT-1 and Gemma."""

    class_description = Description(SpecialTokens({"unk_token": Token("<unk>")}), BARE_TEMPLATE)
    # Settings of the library's model beside pieces and merges.
    _settings: ClassVar[Mapping[str, Any]]
    # Pieces of which characters without a piece are made.
    _byte_pieces: ClassVar[Sequence[str]] = ()

    def __init__(
        self,
        vocabulary: Mapping[str, int],
        merges: Sequence[tuple[str, str]],
        description: Description | None = None,
        origin: str = "the vocabulary",
        rows: int | None = None,
    ) -> None:
        """A tokenizer with the rules of its class; for further arguments see `LibraryTokenizer`.

        `vocabulary` has the id of each piece, `merges` the pairs of pieces that are joined, the
        first one first.

        Raises:
            UserError: the piece for unknown letters is missing, or one for a byte.
        """
        import tokenizers
        from tokenizers import models

        description = description or self.class_description
        unknown = description.tokens.names["unk"]
        check_unknown(origin, unknown, vocabulary)
        if missing := [piece for piece in self._byte_pieces if piece not in vocabulary]:
            rule = "for a byte; copy the file again"
            raise UserError(f"{origin}: there is no piece {missing[0]} {rule}")
        library = tokenizers.Tokenizer(
            models.BPE(dict(vocabulary), list(merges), unk_token=unknown, **self._settings)
        )
        library.normalizer = self._normalizer()
        super().__init__(library, description, origin, rows)

    @abc.abstractmethod
    def _normalizer(self) -> "tokenizers.normalizers.Normalizer":
        """The normaliser of the library, which added tokens need."""

    def fingerprint(self) -> str:
        """A hash of class, vocabulary, merges and added tokens, equal for all files of `save`."""
        definition = json.loads(self._library.to_str())
        rules = [definition["model"]["merges"], definition["added_tokens"]]
        return self._digest([type(self).__name__.removesuffix("Tokenizer"), rules, self._pieces])


def copy_of(library: "tokenizers.Tokenizer") -> "tokenizers.Tokenizer":
    """A copy that can be changed without changing the original."""
    import tokenizers

    return tokenizers.Tokenizer.from_str(library.to_str())
