"""Tags of words, and the entities that they spell (paper, figure 4, d; section 5.3)."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from bert_jax.data.readers.conll import OUTSIDE
from bert_jax.data.records import shortest
from bert_jax.data.windows.word_windows import WordWindow, WordWindows
from bert_jax.data.windows.words import Word, joined, split_words
from bert_jax.errors import UserError
from bert_jax.metrics.entities import detect_scheme, spans
from bert_jax.models.config import Head
from bert_jax.models.crf import CRFParams
from bert_jax.sharding.hosts import fetch
from bert_jax.tasks.base.predictor import BatchOptions, ExampleError, Model, Predictor, check_finite
from bert_jax.tasks.base.splits import label_names
from bert_jax.tasks.tagging.tag_decoding import Decoded, argmax_decode, possible, viterbi_decode
from bert_jax.tokenization import Encoding

Sentence = str | Sequence[str]
"""A text, which is split into words, or its words."""


@dataclasses.dataclass(frozen=True, slots=True)
class TaggedWord:
    """A word and its tag.

    Attributes:
        text: the word.
        tag: its label.
        score: the probability of the label; 0 where the tokenizer leaves nothing of the word, which
            is then outside of all entities.
        start: its first character in the text; of given words, in these joined by blanks.
        end: the character after its last.
    """

    text: str
    tag: str
    score: float
    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class Entity:
    """Words that are a name.

    Attributes:
        type: what of, as "PER".
        text: the part of the text, character by character.
        score: the mean of the scores of its words.
        start: its first character, as in `TaggedWord`.
        end: the character after its last.
        words: its first word, and the word after its last.
    """

    type: str
    text: str
    score: float
    start: int
    end: int
    words: tuple[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Tagging:
    """What a tagger says of a sentence.

    Attributes:
        words: all of them.
        entities: those that the tags spell, in their order; none where tags are no names of
            entities, such as parts of speech.
    """

    words: tuple[TaggedWord, ...]
    entities: tuple[Entity, ...]

    @property
    def tags(self) -> tuple[str, ...]:
        """The tag of each word."""
        return tuple(word.tag for word in self.words)


class TagPredictor(Predictor[Any, Tagging]):
    """The tags of each sentence.

    Nothing is cut off: of long sentences, windows are read, see `WordWindows`. Each word has the
    most probable tag, or with `use_crf` the tag on the most probable path that the scheme allows.
    """

    def __init__(self, model: Model, options: BatchOptions) -> None:
        """Raises UserError where the model does not tag words."""
        if model.description.head is not Head.TAGGING:
            raise UserError(
                f"this {model.description.class_name} does not tag words; give the directory of a "
                'model that does, and load it with load(path, task="tagging")'
            )
        self.options = options
        self._model = model
        self._rows = WordWindows(model.tokenizer, options.limit(model.config))
        self._labels = label_names(model.description)

    def prepare(self, example: Any, index: int) -> "_Split":
        return _split(example, index)

    def encode(self, examples: Sequence["_Split"]) -> list[list[Encoding]]:
        return [[*rows] for rows in self._rows([example.texts for example in examples])]

    def compute(self, batch: dict[str, jax.Array]) -> Any:
        return _logits(self._model.params, batch, module=self._model.module)

    def decode(self, example: "_Split", encodings: list[Encoding], outputs: list[Any]) -> Any:
        numbers, scores = _word_scores(encodings, outputs)
        return (example, numbers), scores

    def transform(self, decoded: Iterator[Any]) -> Iterator[Tagging]:
        if self._model.config.use_crf:
            crf_params = CRFParams(*fetch(CRFParams.from_params(self._model.params)))
            tagged = viterbi_decode(decoded, possible(crf_params, self._labels))
        else:
            tagged = argmax_decode(decoded)
        for (request, numbers), tags in tagged:
            yield _tagging(request, numbers, tags, self._labels)

    def characters(self, example: "_Split") -> int:
        return len(example.text)


def as_record(found: Tagging) -> dict[str, Any]:
    """A tagging as an object of JSON."""
    return {
        "words": [word.text for word in found.words],
        "tags": list(found.tags),
        "scores": [shortest(word.score) for word in found.words],
        "entities": [
            {**dataclasses.asdict(entity), "score": shortest(entity.score)}
            for entity in found.entities
        ],
    }


def entity_tags(tags: Sequence[str], labels: Sequence[str]) -> Sequence[str] | None:
    """Tags that can be read for entities; None where the labels of a model are no names of such.

    Where labels have no prefixes but one is O, neighbours of the same label are one entity.
    """
    if detect_scheme([labels]) is not None:
        return tags
    if OUTSIDE in labels:
        return [tag if tag == OUTSIDE else f"I-{tag}" for tag in tags]
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class _Split:
    """A sentence and its words."""

    text: str
    words: list[Word]

    @property
    def texts(self) -> list[str]:
        return [word.text for word in self.words]


def _split(sentence: Sentence, index: int) -> _Split:
    if isinstance(sentence, str):
        return _Split(sentence, split_words(sentence))
    if not isinstance(sentence, list | tuple) or not all(isinstance(w, str) for w in sentence):
        raise ExampleError(
            f"sentence {index} is {sentence!r:.80}; give a string or a list of words", index
        )
    return _Split(" ".join(sentence), joined(sentence))


def as_sentences(sentences: Iterable[Sentence]) -> Iterable[Sentence]:
    """The same sentences; one string is refused, since it is an iterable of characters."""
    if isinstance(sentences, str):
        raise UserError("the sentences are one string; give a list of strings")
    return sentences


def _word_scores(
    encodings: Sequence[Encoding], rows: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The words that have tokens, int64 [W], and their scores, float32 [W, C]."""
    windows = [row for row in encodings if isinstance(row, WordWindow)]
    numbers = np.concatenate([np.array(window.words, np.int64) for window in windows])
    scores = np.concatenate(
        [
            row[np.array(window.positions, np.int64)]
            for window, row in zip(windows, rows, strict=True)
        ]
    )
    return numbers, check_finite(scores, "the scores of a sentence")


def _tagging(
    sentence: _Split, numbers: np.ndarray, decoded: Decoded, labels: Sequence[str]
) -> Tagging:
    nothing = OUTSIDE if OUTSIDE in labels else labels[0]
    found = [(nothing, 0.0)] * len(sentence.words)
    for number, tag, score in zip(numbers.tolist(), *map(np.ndarray.tolist, decoded), strict=True):
        found[number] = labels[tag], score
    words = tuple(
        TaggedWord(word.text, tag, score, word.start, word.end)
        for word, (tag, score) in zip(sentence.words, found, strict=True)
    )
    return Tagging(words, _entities(sentence.text, words, labels))


def _entities(text: str, words: Sequence[TaggedWord], labels: Sequence[str]) -> tuple[Entity, ...]:
    tags = entity_tags([word.tag for word in words], labels)
    found = []
    for first, end, entity_type in spans(tags) if tags else ():
        inside = words[first:end]
        score = sum(word.score for word in inside) / len(inside)
        start, stop = inside[0].start, inside[-1].end
        found.append(Entity(entity_type, text[start:stop], score, start, stop, (first, end)))
    return tuple(found)


@functools.partial(jax.jit, static_argnames="module")
def _logits(params: Any, batch: dict[str, jax.Array], *, module: nn.Module) -> jax.Array:
    """A batch → float32 [B, T, C]."""
    found: Any = module.apply(
        {"params": params}, batch["input_ids"], batch["token_type_ids"], batch["attention_mask"]
    )
    return found
