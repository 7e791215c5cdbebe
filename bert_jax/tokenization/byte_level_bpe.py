"""Byte-level BPE of RoBERTa and GPT-2, run by the Rust library `tokenizers`."""

import dataclasses
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from bert_jax.errors import UserError
from bert_jax.tokenization.bpe_files import Merge, read_bpe, write_bpe
from bert_jax.tokenization.definition import OTHER_MODEL, checked_steps
from bert_jax.tokenization.description import FAIRSEQ, Description, SpecialTokens, Token
from bert_jax.tokenization.encoding import BARE_TEMPLATE, FAIRSEQ_TEMPLATE
from bert_jax.tokenization.interface import GPT2
from bert_jax.tokenization.library import LibraryTokenizer, copy_of
from bert_jax.tokenization.source import BPE_FILE, LIBRARY, TokenizerSource

if TYPE_CHECKING:
    import tokenizers

END_OF_TEXT = "<|endoftext|>"
"""The special token of GPT-2."""

# The characters that encode the bytes of space, tab, line feed and carriage return.
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
    text has another id than " world", unless `add_prefix_space` is set. Nothing is normalised, but
    for NFC where the files say so (ModernBERT), and nothing is unknown if the vocabulary has all
    bytes. `<mask>` takes the space before it.

    Attributes:
        switches: how text is treated.
    """

    class_description = Description(
        SpecialTokens.from_names(FAIRSEQ, mask_takes_space=True), FAIRSEQ_TEMPLATE
    )
    # As in fairseq, punctuation without a space before it belongs to the word before it.
    _word_markers = WORD_MARKERS
    _class_name = "RobertaTokenizer"

    def __init__(
        self,
        vocabulary: Mapping[str, int],
        merges: Sequence[Merge],
        switches: ByteLevelSwitches = ByteLevelSwitches(),
        description: Description | None = None,
        origin: str = "the vocabulary",
        rows: int | None = None,
        *,
        composes: bool = False,
    ) -> None:
        """A tokenizer with the rules of RoBERTa; for further arguments see `LibraryTokenizer`.

        `vocabulary` has the id of each piece, `merges` the pairs of pieces that are joined, the
        first one first; `composes` is whether text is normalised to NFC.

        Raises:
            UserError: a special token is missing.
        """
        import tokenizers
        from tokenizers import models, normalizers

        description = description or self.class_description
        names = description.tokens.names
        unknown = names["unk"] if names["unk"] != names["eos"] else None
        # Without it, as in GPT-2, the library drops bytes that have no piece.
        model = models.BPE(
            vocab=dict(vocabulary),
            merges=list(merges),
            unk_token=unknown if unknown in vocabulary else None,
        )
        self.switches = switches
        library = tokenizers.Tokenizer(model)
        if composes:
            library.normalizer = normalizers.NFC()
        super().__init__(library, description, origin, rows)

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

    @property
    def word_breaks(self) -> re.Pattern[str] | None:
        return self._between_words

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of ids; a space before the first word is kept.

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
        """The piece with its bytes as text: "Ġcafé", where the vocabulary has "ĠcafÃ©".

        Bytes that are not text by themselves stay as they are in the vocabulary.
        """
        text = self.decode([token_id], skip_special_tokens=False)
        is_text = text.isprintable() and "\ufffd" not in text
        return text.replace(" ", SPACE_MARKER) if is_text else self.id_to_token(token_id)

    def _with_pieces(self, words: Sequence[str]) -> Self:
        """A copy with the words as "added tokens".

        They match only where no letter or digit is next to them, so all other words keep their ids.
        The space before such a word stays a separate piece, "Ġ", which keeps `decode` exact.
        """
        for word in words:
            _check_whole(word)
        forms = self.encode_batch(
            [*words, *(f" {word}" for word in words)], add_special_tokens=False
        )
        added = [
            Token(word, single_word=True, special=False)
            for word, *both in zip(words, forms, forms[len(words) :], strict=False)
            # A piece of bytes may look like a word: "Ã©" is how "é" is written.
            if all(len(form) > 1 for form in both) and self.token_to_id(word) is None
        ]
        return self._with_tokens(added)

    def fingerprint(self) -> str:
        """A hash of vocabulary, merges, added tokens and rules, equal for all files of `save`."""
        definition = json.loads(self._library.to_str())
        rules = [
            self.switches.add_prefix_space,
            definition["model"]["merges"],
            definition["added_tokens"],
            *filter(None, [definition["normalizer"]]),
        ]
        return self._digest(["ByteLevelBPE", rules, self._pieces])

    def save(self, directory: str | Path, *, max_length: int | None = None) -> None:
        """Writes `vocab.json`, `merges.txt`, `tokenizer.json` and `tokenizer_config.json`.

        Hugging Face's `AutoTokenizer` reads them, as a `RobertaTokenizer` (or `GPT2Tokenizer`) if
        the template is RoBERTa's (or GPT-2's), and returns the same ids and offsets.
        """
        rules = {
            "tokenizer_class": self._class_name,
            **dataclasses.asdict(self.switches),
        }
        directory, definition = self._save(directory, rules, max_length)
        write_bpe(directory, definition["model"])


class GPT2Tokenizer(ByteLevelBPETokenizer):
    """Byte-level BPE of GPT-2: only <|endoftext|>, which begins and ends texts, is special.

    Nothing is added to a text, unless the files set `add_bos_token` or `add_eos_token`. There is no
    padding: `padding_id` is 0, and what is computed for it must be masked.
    """

    class_description = Description(
        SpecialTokens(dict.fromkeys(("unk_token", "bos_token", "eos_token"), Token(END_OF_TEXT))),
        BARE_TEMPLATE,
    )
    _class_name = "GPT2Tokenizer"


def load(source: TokenizerSource) -> ByteLevelBPETokenizer:
    """The tokenizer of some files: pieces with the rules of RoBERTa's class, or as `LIBRARY`.

    Raises:
        UserError: a file is missing or damaged, or has rules that are not supported.
    """
    path, definition = source.path(BPE_FILE), source.definition
    source.check_no_arguments(path, "do not apply to byte-level BPE, which encodes text as it is")
    pieces, merges = read_bpe(source)
    stated = None if definition is None else _checked_rules(path, definition)
    switches = ByteLevelSwitches(
        add_prefix_space=bool(source.switch("add_prefix_space")),
        trim_offsets=bool(source.switch("trim_offsets", True)),
    )
    if source.kind == LIBRARY and stated is not None:
        switches = stated
    kind = ByteLevelBPETokenizer
    if source.kind == GPT2:
        kind = GPT2Tokenizer
        is_trimmed = stated is not None and stated.trim_offsets and not source.sets_ends
        switches = dataclasses.replace(switches, trim_offsets=is_trimmed)
    described = source.describe(kind.class_description, pieces)
    # Only a class that reads everything from the file takes its normaliser.
    known = ("NFC",) if source.kind == LIBRARY else ()
    composes = bool(definition and checked_steps(path, definition, "normalizer", known))
    return kind(pieces, merges, switches, described, str(path), source.rows, composes=composes)


def _checked_rules(path: Path, definition: Mapping[str, Any]) -> ByteLevelSwitches:
    """The switches of a `tokenizer.json`.

    Raises:
        UserError: model or text splitting differ from RoBERTa.
    """
    model = definition["model"]
    for key in (
        *("dropout", "continuing_subword_prefix", "end_of_word_suffix"),
        *("fuse_unk", "byte_fallback", "ignore_merges"),
    ):
        if model.get(key):
            raise UserError(
                f"{path}: {key} of the BPE model is {model[key]!r:.80}; byte-level BPE as in "
                f"RoBERTa has none: {OTHER_MODEL}"
            )
    splitter = checked_steps(path, definition, "pre_tokenizer", ("ByteLevel",))
    if len(splitter) != 1 or splitter[0].get("use_regex", True) is not True:
        raise UserError(
            f"{path}: the pre_tokenizer of the BPE model is {definition.get('pre_tokenizer')!r:.80}"
            f"; only one ByteLevel with use_regex is supported, as in RoBERTa: {OTHER_MODEL}"
        )
    post = definition.get("post_processor") or {}
    steps = post.get("processors", [post]) if isinstance(post, dict) else []
    steps = steps if isinstance(steps, list) else []
    return ByteLevelSwitches(
        add_prefix_space=bool(splitter[0].get("add_prefix_space")),
        trim_offsets=any(isinstance(step, dict) and step.get("trim_offsets") for step in steps),
    )


def _splitter(*, add_prefix_space: bool) -> "tokenizers.pre_tokenizers.ByteLevel":
    from tokenizers import pre_tokenizers

    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=True)


def _check_whole(word: str) -> None:
    """Raises UserError for a string that is never a single word of a text."""
    parts = [part for part, _ in _splitter(add_prefix_space=False).pre_tokenize_str(word)]
    if not word.strip():
        raise UserError(f"words: nothing is left of {word!r}; remove it")
    if len(parts) > 1 or word != word.strip():
        raise UserError(
            f"words: {word!r:.80} is always split, at a space or between letters, digits and "
            "other characters, so it would never match; give words that stay whole"
        )
