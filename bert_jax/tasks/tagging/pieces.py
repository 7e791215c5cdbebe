"""Labels of the pieces of texts, and the entities that Hugging Face's pipeline makes of them.

The rules are those of `TokenClassificationPipeline` of transformers 5. Unlike there, a text that is
too long is not cut; tags of BIOES mark entities, too; and any white space separates words.
"""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from bert_jax.data.windows import Range, max_context_ranges, window_ranges
from bert_jax.errors import OptionError, require_between
from bert_jax.metrics.entities import OUTSIDE
from bert_jax.metrics.tag_names import TagNames
from bert_jax.tasks.base.predictor import (
    BatchOptions,
    EncodedExample,
    ExampleError,
    Model,
    Predictor,
    RequestEncoder,
    check_finite,
    check_head,
    softmax,
)
from bert_jax.tasks.base.text_rows import map_valid, text_error
from bert_jax.tokenization import Encoding
from bert_jax.tokenization.wordpiece import WordPieceTokenizer

Strategy = Literal["none", "simple", "first", "average", "max"]
"""How labels of pieces become those of words: not at all ("none", "simple"), the label of the first
piece, the best one of the mean of the scores, or that of the piece with the largest score."""


@dataclasses.dataclass(frozen=True, slots=True)
class Labelled:
    """A piece, a word or an entity.

    Attributes:
        label: its label; of an entity, its type.
        score: probability of the label; of an entity, the mean.
        start: first character in the text.
        end: one past the last character.
    """

    label: str
    score: float
    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class ScoredPiece:
    """A piece of a text, and how probable each label is.

    Attributes:
        token: the piece as in the vocabulary; if that lacks it, as in the text.
        position: its position in a row of the whole text, or of its window.
        start: first character in the text.
        end: one past the last character.
        continues: whether it belongs to the word of the piece before it.
        scores: probability of each label, float64 [C].
    """

    token: str
    position: int
    start: int
    end: int
    continues: bool
    scores: np.ndarray


class PiecePredictor(Predictor[str, list[list[ScoredPiece]]]):
    """The pieces of each text: a list for each window whose entities are found alone.

    By default that is one list, in which each piece has its scores from the window where it has
    most context. With an overlap of windows, see `encoder_of_windows`, each window has its own.
    """

    def __init__(self, model: Model, options: BatchOptions) -> None:
        """Raises UserError where the model does not tag words."""
        check_head(model, ("tagging",), "tag words")
        super().__init__(model, options)
        self._capacity = self.limit - model.tokenizer.num_special_tokens(pair=False)
        if self._capacity < 1:
            raise OptionError("max_length", self.limit, "it leaves no space for text")

    def encode(self, examples: Sequence[Any]) -> list[EncodedExample | ExampleError]:
        return self._encoded(examples, None)

    def encoder_of_windows(self, overlap: int) -> RequestEncoder:
        """Reads texts in windows as transformers does with `stride`.

        Args:
            overlap: tokens that two windows share.

        Raises:
            OptionError: the overlap leaves a window no token of its own, or the tokenizer cuts
                texts on the left.
        """
        require_between("stride", overlap, 0, self._capacity - 1)
        if self.model.tokenizer.truncation_side != "right":
            raise OptionError("stride", overlap, "leave {stride} out: texts are cut on the left")
        step = self._capacity - overlap

        def encode(examples: Sequence[Any]) -> list[EncodedExample | ExampleError]:
            return self._encoded(examples, step)

        return RequestEncoder(encode, self.text_limit)

    def _encoded(
        self, examples: Sequence[Any], step: int | None
    ) -> list[EncodedExample | ExampleError]:
        """`step`: tokens from the start of a window to the next; None: half a window."""

        def encode(texts: list[str]) -> list[EncodedExample | ExampleError]:
            tokens = self.model.tokenizer.encode_batch(texts, add_special_tokens=False)
            return [self._windows(each, step) for each in tokens]

        return map_valid((text_error(text) or text for text in examples), encode)

    def _windows(self, tokens: Encoding, step: int | None) -> EncodedExample | ExampleError:
        capacity, starts = self._capacity, range(len(tokens) + 1)  # each token is a unit
        if step is not None and self.most_tokens is not None:
            count = 1 + max(0, -(-(len(tokens) - capacity) // step))
            total = len(tokens) + (count - 1) * (capacity - step)
            if total > self.most_tokens:  # before there are any
                rule = f"and at most {self.most_tokens:,} are read; lower stride"
                return ExampleError(f"it has {total:,} tokens in {count:,} windows, {rule}")
        ranges = window_ranges(starts, capacity, step or capacity - capacity // 2)
        reads = ranges if step else max_context_ranges(starts, ranges)
        rows = [self.model.tokenizer.join([tokens.part(first, last)]) for first, last in ranges]
        return _EncodedText(rows, ranges=ranges, reads=reads, in_windows=step is not None)

    def decode(self, example: str, encoded: Any, outputs: list[Any]) -> list[list[ScoredPiece]]:
        windows = [
            self._scored(example, row, logits, whole, read, in_window=encoded.in_windows)
            for row, logits, whole, read in zip(
                encoded.rows, outputs, encoded.ranges, encoded.reads, strict=True
            )
        ]
        return windows if encoded.in_windows else [list(itertools.chain(*windows))]

    def _scored(
        self, text: str, row: Encoding, logits: Any, whole: Range, read: Range, *, in_window: bool
    ) -> list[ScoredPiece]:
        """The pieces `read` of a row that has the pieces `whole` of the text."""
        (begin,) = self.model.tokenizer.template.text_starts([whole[1] - whole[0]])
        scores = softmax(check_finite(np.array(logits), "the scores of a text"))
        unknown = self.model.tokenizer.special_ids.unk
        in_words = isinstance(self.model.tokenizer, WordPieceTokenizer)
        pieces = []
        for index in range(*read):
            place = index - whole[0] + begin
            token, (start, end) = row.tokens[place], row.offsets[place]
            # Some tokenizers count the space before a word as the first character of its piece.
            start += len(text[start:end]) - (len(text[start:end].lstrip()) or end - start)
            if row.ids[place] == unknown:
                token, continues = text[start:end], False
            elif in_words:
                continues = len(token) != end - start
            else:
                beside = text[start - 1 : start + 1]
                continues = start > 0 and not any(map(str.isspace, beside))
            position = place if in_window else index + begin
            pieces.append(ScoredPiece(token, position, start, end, continues, scores[place]))
        return pieces


@dataclasses.dataclass(frozen=True)
class _EncodedText(EncodedExample):
    """Windows of a text: their pieces, those that are read in them, and whether each is alone."""

    ranges: Sequence[Range] = dataclasses.field(kw_only=True)
    reads: Sequence[Range] = dataclasses.field(kw_only=True)
    in_windows: bool = dataclasses.field(kw_only=True)


def label_pieces(pieces: Sequence[ScoredPiece], labels: Sequence[str]) -> list[Labelled]:
    """The best label of each piece; `labels` are those of the model."""
    return [_labelled([piece], piece.scores, labels) for piece in pieces]


def entities(
    windows: Sequence[Sequence[ScoredPiece]],
    labels: Sequence[str],
    strategy: Strategy,
    ignored: Collection[str] = (OUTSIDE,),
) -> list[Labelled]:
    """The entities of a text, and what is outside of them unless "O" is ignored.

    Of entities of several windows that overlap, the longest is kept, of equal ones that with the
    better score.

    Args:
        windows: the prediction of a `PiecePredictor`.
        labels: the labels of the model.
        strategy: how labels of pieces become those of words.
        ignored: types that are left out.
    """
    names = TagNames.from_labels(labels)
    found = [
        entity
        for pieces in windows
        for entity in group(_words(pieces, labels, strategy), names)
        if entity.label not in ignored
    ]
    return found if len(windows) == 1 else _without_overlaps(found)


def group(words: Sequence[Labelled], names: TagNames) -> list[Labelled]:
    """Neighbours with the same type as one entity, unless the later one begins another.

    Words that are outside of all entities have the type "O".
    """
    tags = [names.tags[word.label] for word in words]
    if names.scheme == "bioes":
        tags = names.convert(tags, "iob2")
    groups: list[tuple[str, list[Labelled]]] = []
    for word, tag in zip(words, tags, strict=True):
        prefix, name = names.split(tag)
        if groups and groups[-1][0] == (name or OUTSIDE) and prefix != "B":
            groups[-1][1].append(word)
        else:
            groups.append((name or OUTSIDE, [word]))
    return [
        Labelled(name, sum(one.score for one in own) / len(own), own[0].start, own[-1].end)
        for name, own in groups
    ]


_WORD_SCORES: Mapping[str, Callable[[Sequence[np.ndarray]], np.ndarray]] = {
    "first": lambda scores: scores[0],
    "average": lambda scores: np.mean(scores, axis=0),
    "max": lambda scores: max(scores, key=np.max),
}


def _words(
    pieces: Sequence[ScoredPiece], labels: Sequence[str], strategy: Strategy
) -> list[Labelled]:
    if strategy not in _WORD_SCORES:
        return label_pieces(pieces, labels)
    words: list[list[ScoredPiece]] = []
    for piece in pieces:
        if words and piece.continues:
            words[-1].append(piece)
        else:
            words.append([piece])
    scores = _WORD_SCORES[strategy]
    return [_labelled(word, scores([each.scores for each in word]), labels) for word in words]


def _labelled(pieces: Sequence[ScoredPiece], scores: np.ndarray, labels: Sequence[str]) -> Labelled:
    best = int(scores.argmax())
    return Labelled(labels[best], float(scores[best]), pieces[0].start, pieces[-1].end)


def _without_overlaps(found: Iterable[Labelled]) -> list[Labelled]:
    kept: list[Labelled] = []
    for entity in sorted(found, key=lambda each: each.start):
        if kept and entity.start < kept[-1].end:
            kept[-1] = max(kept[-1], entity, key=lambda each: (each.end - each.start, each.score))
        else:
            kept.append(entity)
    return kept
