"""Tags of words, and the entities that they mark (paper, figure 4d; section 5.3)."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from bert_jax.data.examples import Example, Examples, Sentence
from bert_jax.data.outputs import float32_repr, to_json
from bert_jax.data.readers.columns import TextOptions
from bert_jax.data.readers.conll import CONLL, CONLL_ENDINGS, ColumnOptions, with_tag_column
from bert_jax.data.readers.lines import uncompressed_name
from bert_jax.data.readers.tables import FORMATS, format_of
from bert_jax.data.readers.tagged import SentenceParser, TaggedOptions, open_sentences
from bert_jax.data.windows.words import (
    Word,
    WordWindow,
    WordWindows,
    has_unspaced,
    join_words,
    piece_words,
    split_words,
)
from bert_jax.errors import OptionError, require_one_of
from bert_jax.metrics.entities import OUTSIDE, Scheme, spans
from bert_jax.metrics.tag_names import TagNames
from bert_jax.models.crf import CRFParams
from bert_jax.models.heads.tagging import TaggingOptions
from bert_jax.options import from_keys
from bert_jax.process import say
from bert_jax.sharding.hosts import fetch, is_main_host
from bert_jax.tasks.base.labels import label_names
from bert_jax.tasks.base.predict_spec import (
    InputReader,
    OutputFile,
    PredictOptions,
    PredictSpec,
    without_columns,
)
from bert_jax.tasks.base.predictor import (
    EncodedExample,
    ExampleError,
    Model,
    Predictor,
    RequestEncoder,
    check_finite,
    check_head,
    is_sequence_of_texts,
)
from bert_jax.tasks.base.text_rows import map_valid, text_error
from bert_jax.tasks.tagging.tagged_words import Entity, TaggedWord, Tagging
from bert_jax.tasks.tagging.tags import (
    Decoded,
    argmax_decode,
    mask_invalid_transitions,
    viterbi_decode,
)
from bert_jax.tokenization import Encoding
from bert_jax.tokenization.wordpiece import WordPieceTokenizer

DOCCANO = "doccano"

Words = str | Sequence[str]
"""A sentence: a text, which is split into words, or its words.

The words of a text are its pieces where the tokenizer knows no words (SentencePiece, byte-level
BPE), and in scripts without spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese).
"""


@dataclasses.dataclass(frozen=True)
class TaggingPredictOptions(PredictOptions, TextOptions, ColumnOptions):
    """The options of `bert-jax predict`, for words in columns, lists of words and texts.

    Attributes:
        scheme: scheme of the predicted tags, "iob1", "iob2" or "bioes"; "": the model's.
    """

    FORMATS = (CONLL, *FORMATS)
    REQUEST = ("scheme",)

    scheme: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        ColumnOptions.__post_init__(self)
        require_one_of("scheme", self.scheme, ("", *get_args(Scheme)))

    def word_options(self, form: str = "") -> TaggedOptions:
        """The options of the reader of words; a format for anything else becomes ""."""
        known = form if form in TaggedOptions.FORMATS else ""
        own = {"format": known, "cut_words": TaggedOptions.cut_words}
        return from_keys(TaggedOptions, vars(self) | own)


def _open(
    source: str | Path, options: TaggingPredictOptions
) -> AbstractContextManager[Examples[Any]]:
    """Opens CoNLL columns, lists of words or texts in JSON lines, tables, or lines of text."""
    is_conll = uncompressed_name(source).endswith(CONLL_ENDINGS)
    form = options.format or (CONLL if is_conll else format_of(source))
    if not form and options.output_format == CONLL:
        form = CONLL
        say(
            f"{source}: read as words in columns, which --output has; if it is text, add "
            "--input-format text"
        )
    texts = dataclasses.replace(options, format="" if form == CONLL else form)
    with_lines = options.output_format == CONLL
    return open_sentences(source, options.word_options(form), texts, with_lines=with_lines)


class TagPredictor(Predictor[Any, Tagging]):
    """The tags of each sentence: a text, a list of words, or a sentence of a CoNLL file.

    Nothing is cut off: long sentences are read in windows, see `WordWindows`. Each word has the
    most probable tag, or with `use_crf` the tag on the most probable allowed path.
    """

    def __init__(self, model: Model, options: TaggingPredictOptions) -> None:
        """Raises UserError where the model does not tag words, or in no scheme if one is given."""
        check_head(model, PREDICT.heads, "tag words")
        super().__init__(model, options)
        self._rows = WordWindows(model.tokenizer, self.limit)
        # Whether the tokenizer splits texts into words as `split_words` does.
        self._has_words = isinstance(model.tokenizer, WordPieceTokenizer)
        self._labels = label_names(model.description)
        self._names = _names_of(self._labels)
        self.encoder(options)  # which checks the scheme
        scheme = self._names.scheme
        if options.output_format == CONLL and scheme and not options.scheme:
            # A file that has tags may have them in another one.
            other = "iob2" if scheme == "iob1" else "iob1"
            say(f"tags are in {scheme.upper()}, as the model's; for another scheme: "
                f"--option scheme={other}")  # fmt: skip

    def encoder(self, request: TaggingPredictOptions) -> RequestEncoder:
        if request.scheme and self._names.scheme is None:
            problem = f"the tags of this model have no scheme: {', '.join(self._labels):.80}"
            raise OptionError("scheme", request.scheme, "leave {scheme} out", problem)
        return super().encoder(request)

    def encode(self, examples: Sequence[Any]) -> list[EncodedExample | ExampleError]:
        return map_valid((_error(each) or each for each in examples), self._encoded)

    def _encoded(self, examples: list[Any]) -> Iterator[EncodedExample]:
        sentences = map(_sentence, examples)
        texts = [each for each in sentences if isinstance(each, str) and self._has_pieces(each)]
        tokens = iter(self.model.tokenizer.encode_batch(texts, add_special_tokens=False))
        split = [self._split(example, tokens) for example in examples]
        given = [[word.text for word in each.words] for each in split if each.tokens is None]
        windows = iter(self._rows(given))
        for sentence in split:
            rows = (
                next(windows)
                if sentence.tokens is None
                else self._rows.from_tokens(sentence.tokens, sentence.words, sentence.text)
            )
            yield _EncodedSentence(rows, sentence=sentence)

    def _has_pieces(self, text: str) -> bool:
        """Whether pieces of a text are its words."""
        return not self._has_words or has_unspaced(text)

    def _split(self, example: Any, tokens: Iterator[Encoding]) -> "_Split":
        """The words of an example; `tokens` has the next one that `_has_pieces`."""
        if isinstance(example, Sentence) and example.text:
            spans = zip(example.words, example.spans, strict=True)
            return _Split(example.text, [Word(word, *span) for word, span in spans])
        sentence = _sentence(example)
        if not isinstance(sentence, str):
            return _Split(" ".join(sentence), join_words(sentence))
        if not self._has_pieces(sentence):
            return _Split(sentence, split_words(sentence))
        own = next(tokens)
        words = piece_words(sentence, own, whole=self._has_words)
        return _Split(sentence, words, own if words else None)

    def decode(self, example: Any, encoded: Any, outputs: list[Any]) -> Any:
        request: Any = encoded.request or self.options
        return encoded.sentence, request.scheme, *_word_scores(encoded.rows, outputs)

    def predictions(self, decoded: list[Any]) -> Iterator[Tagging]:
        sentences = (scores for *_, scores in decoded)
        if self.model.config.head_options(TaggingOptions).use_crf:
            crf_params = CRFParams(*fetch(CRFParams.from_params(self.model.params)))
            tagged = viterbi_decode(sentences, mask_invalid_transitions(crf_params, self._labels))
        else:
            tagged = argmax_decode(sentences)
        for (sentence, scheme, numbers, _), tags in zip(decoded, tagged, strict=True):
            tagging = _tagging(sentence, numbers, tags, self._labels, self._names)
            if scheme:
                own = [self._names.tags[label] for label in tagging.tags]
                tagging = tagging.with_tags(self._names.convert(own, cast(Scheme, scheme)))
            yield tagging

    def characters(self, example: Any) -> int:
        sentence = _sentence(example)
        length = super().characters(sentence)
        return length if isinstance(sentence, str) or not length else length + len(sentence) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class _Split:
    """A sentence and its words; where pieces are words, also the tokens of the text."""

    text: str
    words: list[Word]
    tokens: Encoding | None = None


@dataclasses.dataclass(frozen=True)
class _EncodedSentence(EncodedExample):
    sentence: _Split = dataclasses.field(kw_only=True)


@functools.cache
def _names_of(labels: tuple[str, ...]) -> TagNames:
    """What the labels of a model stand for; one line says it once, unless it is plain."""
    names = TagNames.from_labels(labels)
    if names.marks_entities and not names.is_plain and is_main_host():
        say(f"labels of the model: {names.as_text(names.scheme)}")
    return names


def _error(example: Any) -> ExampleError | None:
    """Why a sentence cannot be encoded; None if it can."""
    sentence = _sentence(example)
    texts = (sentence,) if isinstance(sentence, str) else sentence
    if not is_sequence_of_texts(texts):
        rule = "give a string or a list of words"
        return ExampleError(f"{sentence!r:.80} is not a sentence; {rule}")
    return text_error(*texts)


def _sentence(example: Any) -> Any:
    return example.words if isinstance(example, Sentence) else example


def _word_scores(
    windows: Sequence[WordWindow], rows: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the words that have tokens, int64 [W], and their scores, float32 [W, C]."""
    numbers = np.array([word for window in windows for word in window.words], np.int64)
    pairs = zip(windows, rows, strict=True)
    scores = np.concatenate([row[np.array(each.positions, np.int64)] for each, row in pairs])
    return numbers, check_finite(scores, "the scores of a sentence")


def _tagging(
    sentence: _Split, numbers: np.ndarray, decoded: Decoded, labels: Sequence[str], names: TagNames
) -> Tagging:
    outside = next((label for label in labels if names.tags[label] == OUTSIDE), labels[0])
    tags = [(outside, 0.0)] * len(sentence.words)
    for number, tag, score in zip(numbers.tolist(), *map(np.ndarray.tolist, decoded), strict=True):
        tags[number] = labels[tag], score
    words = tuple(
        TaggedWord(word.text, tag, score, word.start, word.end)
        for word, (tag, score) in zip(sentence.words, tags, strict=True)
    )
    return Tagging(words, _entities(sentence.text, words, names))


def _entities(text: str, words: Sequence[TaggedWord], names: TagNames) -> tuple[Entity, ...]:
    tags = names.entity_tags(names.tags[word.tag] for word in words)
    entities = []
    for first, end, entity_type in spans(tags) if names.marks_entities else ():
        inside = words[first:end]
        score = sum(word.score for word in inside) / len(inside)
        start, stop = inside[0].start, inside[-1].end
        entities.append(Entity(entity_type, text[start:stop], score, start, stop, (first, end)))
    return tuple(entities)


def to_record(sentence: Words | Sentence, tagging: Tagging) -> dict[str, Any]:
    """Words with tags and scores, and the entities, as the fields of a JSON line."""
    return {
        "words": [word.text for word in tagging.words],
        "tags": list(tagging.tags),
        "scores": [float32_repr(word.score) for word in tagging.words],
        "entities": [
            {**dataclasses.asdict(entity), "score": float32_repr(entity.score)}
            for entity in tagging.entities
        ],
    }


def _columns(example: Example[Any], tagging: Tagging) -> str:
    """Words and tags in columns; a sentence of a CoNLL file gets the tags as one more column."""
    words = Sentence(tuple(word.text for word in tagging.words))
    sentence = example.input if isinstance(example.input, Sentence) else words
    return with_tag_column(sentence, None, tagging.tags)


def _offsets(example: Example[Any], tagging: Tagging) -> str:
    """A text with its entities by their characters, as doccano and spaCy read them."""
    sentence = _sentence(example.input)
    own = example.input.text if isinstance(example.input, Sentence) else ""
    text = own or (sentence if isinstance(sentence, str) else " ".join(sentence))
    entities = [[entity.start, entity.end, entity.type] for entity in tagging.entities]
    return to_json({"id": example.id, "text": text, "label": entities}) + "\n"


PREDICT = PredictSpec(
    InputReader(lambda options: SentenceParser(options.word_options(), options), _open),
    TaggingPredictOptions,
    TagPredictor,
    to_record,
    {CONLL: without_columns(OutputFile(_columns)), DOCCANO: without_columns(OutputFile(_offsets))},
    endings={".txt": CONLL, **dict.fromkeys(CONLL_ENDINGS, CONLL)},
    heads=("tagging",),
)
