"""Byte-level BPE of RoBERTa and GPT-2, run by the Rust library `tokenizers`."""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from bert_jax.errors import UserError
from bert_jax.files import VOCABULARY_BYTES, read_limited
from bert_jax.tokenization.assembly import assemble_batch, check_texts
from bert_jax.tokenization.definition import (
    checked_merges,
    decoded_lines,
    limit_merges,
)
from bert_jax.tokenization.interface import FAIRSEQ, Encoding
from bert_jax.tokenization.library import LibraryTokenizer, copy_of, pieces_of
from bert_jax.tokenization.special_tokens import SpecialTokens, Token
from bert_jax.tokenization.template import FAIRSEQ_TEMPLATE, Template

if TYPE_CHECKING:
    import tokenizers

VOCABULARY_FILE = "vocab.json"
MERGES_FILE = "merges.txt"

# Space, tab, line feed and carriage return as the characters that stand for these bytes.
SPACE_MARKER = "Ġ"
WORD_MARKERS = (SPACE_MARKER, "ĉ", "Ċ", "č")


@dataclasses.dataclass(frozen=True, slots=True)
class ByteLevelSwitches:
    """How text is treated; names and defaults as in `tokenizer_config.json`.

    Attributes:
        add_prefix_space: whether a text that does not begin with a space is encoded as if it did.
        trim_offsets: whether the offsets of a piece leave out the space that it begins with.
    """

    add_prefix_space: bool = False
    trim_offsets: bool = True


class ByteLevelBPETokenizer(LibraryTokenizer):
    """Splits text by GPT-2's pattern, and joins the bytes of each part in the order of the merges.

    A space belongs to the piece after it, where it is written as "Ġ". So "world" at the start of a
    text has another id than " world", unless `add_prefix_space` is set. Nothing is normalised, and
    nothing is unknown if the vocabulary has all bytes. `<mask>` takes the space before it.

    Attributes:
        switches: how text is treated.
    """

    class_template = FAIRSEQ_TEMPLATE
    class_tokens = SpecialTokens.of(FAIRSEQ, mask_takes_space=True)
    # As in fairseq, punctuation without a space before it belongs to the word before it.
    _word_markers = WORD_MARKERS

    def __init__(
        self,
        vocabulary: Mapping[str, int],
        merges: Sequence[tuple[str, str]],
        switches: ByteLevelSwitches = ByteLevelSwitches(),
        *,
        origin: str = "the vocabulary",
        template: Template | None = None,
        tokens: SpecialTokens | None = None,
        rows: int | None = None,
    ) -> None:
        """A tokenizer with the rules of RoBERTa; further arguments are those of `LibraryTokenizer`.

        `vocabulary` has the id of each piece, `merges` the pairs of pieces that are joined, the
        first one first.

        Raises:
            UserError: a special token is missing.
        """
        import tokenizers
        from tokenizers import models

        unknown = (tokens or self.class_tokens).names[1]
        # Without it, the library drops bytes that have no piece.
        model = models.BPE(
            vocab=dict(vocabulary),
            merges=list(merges),
            unk_token=unknown if unknown in vocabulary else None,
        )
        self.switches = switches
        super().__init__(tokenizers.Tokenizer(model), origin, template, tokens, rows)

    def _complete(self, library: "tokenizers.Tokenizer") -> None:
        from tokenizers import decoders

        library.decoder = decoders.ByteLevel()
        self._set_prefix_space(library, self.switches.add_prefix_space)
        added = library.get_added_tokens_decoder().items()
        self._added_words = {token_id for token_id, token in added if not token.special}
        self._word_library = copy_of(library)
        self._set_prefix_space(self._word_library, True)

    def _set_prefix_space(self, library: "tokenizers.Tokenizer", add_prefix_space: bool) -> None:
        from tokenizers import processors

        library.pre_tokenizer = _splitter(add_prefix_space=add_prefix_space)
        trimming = processors.ByteLevel(
            add_prefix_space=add_prefix_space, trim_offsets=self.switches.trim_offsets
        )
        library.post_processor = processors.Sequence([trimming, self._template_processor()])

    def _for_sentences(self, library: "tokenizers.Tokenizer") -> "tokenizers.Tokenizer":
        """See `LibraryTokenizer`; sentences are parts of a text, where a space is before each."""
        copy = super()._for_sentences(library)
        self._set_prefix_space(copy, True)
        return copy

    def encode_words(self, texts: Sequence[str]) -> list[Encoding]:
        """See `Tokenizer.encode_words`: as with `add_prefix_space`."""
        check_texts(texts)
        firsts = pieces_of(self._word_library, texts)
        return assemble_batch(self, firsts, None, None, "longest_first", False)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """See `Tokenizer.decode`. A space before the first word is kept.

        An added word is text: the library would take its letters for bytes.
        """
        parts = []
        for is_word, group in itertools.groupby(map(int, ids), lambda i: i in self._added_words):
            if is_word:
                parts += [self._pieces[token_id] for token_id in group]
            else:
                parts.append(super().decode(list(group), skip_special_tokens=skip_special_tokens))
        return "".join(parts)

    def readable_token(self, token_id: int) -> str:
        """See `Tokenizer.readable_token`: "Ġcafé", where the piece is "ĠcafÃ©".

        Bytes that are no text by themselves stay as they are in the vocabulary.
        """
        text = self.decode([token_id], skip_special_tokens=False)
        is_text = text.isprintable() and "\ufffd" not in text
        return text.replace(" ", SPACE_MARKER) if is_text else self.id_to_token(token_id)

    def _with_pieces(self, words: Sequence[str]) -> Self:
        """See `AssemblingTokenizer`.

        The words become "added tokens" that are found only where no letter or digit is next to
        them, so all other words keep their ids. The space before such a word stays a piece of its
        own, "Ġ", which keeps `decode` exact.
        """
        for word in words:
            _check_whole(word)
        forms = self.encode_batch(
            [*words, *(f" {word}" for word in words)], add_special_tokens=False
        )
        added = [
            Token(word, single_word=True, special=False)
            for word, *of_word in zip(words, forms, forms[len(words) :], strict=False)
            # A piece of bytes may look like a word: "Ã©" is how "é" is written.
            if all(len(form) > 1 for form in of_word) and self.token_to_id(word) is None
        ]
        return self._with_tokens(added)

    def fingerprint(self) -> str:
        """See `Tokenizer.fingerprint`; all files that `save` writes give the same one."""
        definition = json.loads(self._library.to_str())
        rules = [
            self.switches.add_prefix_space,
            definition["model"]["merges"],
            definition["added_tokens"],
        ]
        content = json.dumps(["ByteLevelBPE", rules, self._pieces], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def save(self, directory: str | Path, *, max_length: int | None = None) -> None:
        """Writes `vocab.json`, `merges.txt`, `tokenizer.json` and `tokenizer_config.json`.

        Hugging Face's `AutoTokenizer` reads them, as a `RobertaTokenizer` if the template is that
        of RoBERTa, and returns the same ids and offsets.
        """
        _, _, cls, sep, _ = self._tokens.names
        rules = {**dataclasses.asdict(self.switches), "bos_token": cls, "eos_token": sep}
        directory = self._save(directory, max_length, "RobertaTokenizer", rules)
        model = json.loads(self._library.to_str())["model"]
        ordered = dict(sorted(model["vocab"].items(), key=lambda item: item[1]))
        lines = ["#version: 0.2", *(" ".join(merge) for merge in model["merges"])]
        for name, content in {
            VOCABULARY_FILE: json.dumps(ordered, ensure_ascii=False),
            MERGES_FILE: "".join(f"{line}\n" for line in lines),
        }.items():
            (directory / name).write_bytes(content.encode())


def read_switches(definition: Mapping[str, Any]) -> ByteLevelSwitches:
    """The switches of a `tokenizer.json` that `definition.read_bpe` admits."""
    post = definition.get("post_processor") or {}
    steps = post.get("processors", [post]) if isinstance(post, dict) else []
    return ByteLevelSwitches(
        add_prefix_space=bool(definition["pre_tokenizer"].get("add_prefix_space")),
        trim_offsets=any(isinstance(step, dict) and step.get("trim_offsets") for step in steps),
    )


def read_merges(path: Path, vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """Reads a `merges.txt`: two pieces a line, after a line that begins with "#version".

    Args:
        path: path of the file.
        vocabulary: ids of all pieces.

    Raises:
        UserError: the file cannot be read, a line does not fit the vocabulary, or many merges are
            missing.
    """
    remedy = f"give the {MERGES_FILE} that was made with the {VOCABULARY_FILE} beside it"
    data = read_limited(path, VOCABULARY_BYTES, remedy=remedy)
    limit_merges(path, data.count(b"\n"), vocabulary, remedy)
    numbered = (
        (f":{number}: the merge", line.split(" "))
        for number, line in enumerate(decoded_lines(path, data), start=1)
        if line and not (number == 1 and line.startswith("#version"))
    )
    return checked_merges(path, numbered, vocabulary, remedy, is_ended=data.endswith(b"\n"))


def _splitter(*, add_prefix_space: bool) -> "tokenizers.pre_tokenizers.ByteLevel":
    from tokenizers import pre_tokenizers

    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=True)


def _check_whole(word: str) -> None:
    """Raises UserError for what is never a single word of text."""
    parts = [part for part, _ in _splitter(add_prefix_space=False).pre_tokenize_str(word)]
    if not word.strip():
        raise UserError(f"words: nothing is left of {word!r}; remove it")
    if len(parts) > 1 or word != word.strip():
        raise UserError(
            f"words: {word!r:.80} is always split, at a space or between letters, digits and "
            "other characters, so it would never be found; give words that stay whole"
        )
