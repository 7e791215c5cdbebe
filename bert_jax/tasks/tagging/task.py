"""A tag for every word: names in texts, parts of speech (paper, section 5.3; CoNLL-2003)."""

import dataclasses
import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax.data.examples import Example, Sentence
from bert_jax.data.padding import Sequences
from bert_jax.data.pipeline import Batch
from bert_jax.data.readers.conll import CONLL, add_tag_column, as_columns
from bert_jax.data.readers.rows import Report
from bert_jax.data.readers.tagged import TaggedOptions, read_tagged
from bert_jax.data.windows.words import WordWindow, WordWindows
from bert_jax.errors import OptionError
from bert_jax.metrics.classification import ConfusionMatrix
from bert_jax.metrics.entities import OUTSIDE, EntityCounts
from bert_jax.metrics.tag_names import TagNames
from bert_jax.models import crf
from bert_jax.models.heads.tagging import TaggingOptions
from bert_jax.models.layers import gather_positions
from bert_jax.tasks.base.distillable import Distillable
from bert_jax.tasks.base.labelled_evaluator import LabelledEvaluator
from bert_jax.tasks.base.labelled_options import (
    ClassData,
    config_keys,
    labelled_defaults,
    labelled_options,
    model_tokenizer,
)
from bert_jax.tasks.base.labelled_task import LabelledTask, TrainingRows, encode_in_chunks
from bert_jax.tasks.base.labels import balanced_weights
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.splits import EvalSet, read_splits
from bert_jax.tasks.base.task import Content, Sums, classification_sums, weighted_sums
from bert_jax.tasks.base.train_spec import TaskConfig, TrainSpec
from bert_jax.tasks.tagging.predict import PREDICT
from bert_jax.tasks.tagging.tagged_words import Tagging
from bert_jax.tasks.tagging.tags import TagSet, find_tag_set, mask_invalid_transitions, with_tags
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True)
class TaggingData(ClassData, TaggedOptions):
    """The section `data` of a config.

    Attributes:
        scheme: scheme of the tags that the model learns, "iob2" or "bioes".
    """

    scheme: str = "iob2"


class TaggedRow(NamedTuple):
    """The labels of a sentence, or of a window of a long one.

    Attributes:
        positions: position in the row of the first token of each of W words, int32 [W].
        labels: label numbers of these words, int32 [W].
        before: label number of the preceding word, which the window before learns; -1: none.
        after: label number of the following word, which the window after learns; -1: none.
    """

    positions: np.ndarray
    labels: np.ndarray
    before: int
    after: int


def tagged_rows(
    examples: Sequence[Example[Sentence]],
    tag_set: TagSet,
    tokenizer: Tokenizer,
    length: int,
    *,
    balanced: bool = False,
) -> TrainingRows:
    """Each sentence is an example, and each window of one that is too long for one row.

    Beside the tokens a batch has `word_positions` int32 [B, W], the positions of the first tokens
    of words; `labels` int32 [B, W] of these words, -1 after the last one; `weights` float32 [B, W],
    0 after the last word; `label_before` and `label_after` int32 [B], see `TaggedRow`. W is T
    without the special tokens.

    Args:
        examples: tagged sentences; `tag_set` knows all their tags.
        tag_set: tags of the model.
        tokenizer: tokenizer of the model.
        length: maximum number of tokens per row.
        balanced: whether every tag has the same weight in the loss; otherwise every word.
    """
    rows: list[TaggedRow] = []
    with config_keys():
        windows = WordWindows(tokenizer, length)

    def encodings() -> Iterator[WordWindow]:
        encoded = encode_in_chunks(windows, examples, lambda example: example.input.words)
        for example, own in zip(examples, encoded, strict=True):
            rows.extend(_tagged_rows(example, own, tag_set))
            yield from own

    sequences = Sequences.from_encodings(encodings(), tokenizer)
    counts = np.zeros(len(tag_set.labels), np.int64)
    for row in rows:
        np.add.at(counts, row.labels, 1)
    label_weights = balanced_weights(counts) if balanced else np.ones(len(counts), np.float32)

    def make(chosen: np.ndarray, length: int) -> Batch:
        shape = len(chosen), max(length - tokenizer.num_special_tokens(pair=False), 1)  # BW
        positions, labels = np.zeros(shape, np.int32), np.full(shape, -1, np.int32)
        beside = np.full((2, len(chosen)), -1, np.int32)
        for index, number in enumerate(chosen.tolist()):
            if number >= 0:
                row = rows[number]
                positions[index, : len(row.labels)] = row.positions
                labels[index, : len(row.labels)] = row.labels
                beside[:, index] = row.before, row.after
        return {
            **sequences.pad(chosen, length, tokenizer),
            "word_positions": positions,
            "labels": labels,
            "weights": np.where(labels < 0, np.float32(0), label_weights[labels]),
            "label_before": beside[0],
            "label_after": beside[1],
        }

    return TrainingRows(sequences, sequences.lengths, make)


def _tagged_rows(
    example: Example[Sentence], windows: Sequence[WordWindow], tag_set: TagSet
) -> Iterator[TaggedRow]:
    tags = example.label or ()
    # A word without tokens is not learned; an entity that began with it begins at the next word.
    read = [tags[word] for window in windows for word in window.words]
    labels = np.append(tag_set.numbers(read), np.int32(-1))  # after the last, and so before 0
    start = 0
    for window in windows:
        end = start + len(window.words)
        positions = np.array(window.positions, np.int32)
        yield TaggedRow(positions, labels[start:end], int(labels[start - 1]), int(labels[end]))
        start = end


# The metrics of tags that mark entities.
_METRICS = ("f1", "precision", "recall", "accuracy")


def _metric_names(labels: tuple[str, ...]) -> tuple[str, ...]:
    return _METRICS if TagNames.from_labels(labels).marks_entities else ("accuracy",)


@dataclasses.dataclass(frozen=True, eq=False)
class TaggingEvaluator(LabelledEvaluator[Sentence, Tagging]):
    """Entities as conlleval counts them, or the accuracy of tags that mark none.

    Attributes:
        tag_set: tags and their scheme.
    """

    PREDICT = PREDICT

    tag_set: TagSet

    def metrics(
        self, examples: list[Example[Sentence]], predictions: list[Tagging]
    ) -> dict[str, float]:
        """F1, precision and recall of entities, computed as in conlleval, and the accuracy of tags.

        All words count, also those without tokens. Tags that mark no entities have an accuracy
        only.
        """
        return self._scores(examples, [tagging.tags for tagging in predictions])

    def metric_names(self, examples: list[Example[Sentence]]) -> Iterable[str]:
        return _metric_names(self.tag_set.labels)

    def baseline_metrics(self, examples: list[Example[Sentence]]) -> dict[str, float]:
        """`<metric>_lexicon`: each word has its most common tag in the training sentences.

        A word that does not occur in them has the most common tag of all words.
        """
        if not self._lexicon:
            return {}
        lexicon, most_common = self._lexicon
        tags = [[lexicon.get(word, most_common) for word in row.input.words] for row in examples]
        return {f"{name}_lexicon": value for name, value in self._scores(examples, tags).items()}

    @functools.cached_property
    def _lexicon(self) -> tuple[dict[str, str], str] | None:
        """The most common tag of each training word, and of all words; None without sentences."""
        by_word: defaultdict[str, Counter[str]] = defaultdict(Counter)
        total: Counter[str] = Counter()
        for example in self.splits.train:
            gold = self.tag_set.translate(example.label or ())
            total.update(gold)
            for word, tag in zip(example.input.words, gold, strict=True):
                by_word[word][tag] += 1
        if not total:
            return None
        lexicon = {word: tags.most_common(1)[0][0] for word, tags in by_word.items()}
        return lexicon, total.most_common(1)[0][0]

    def set_files(
        self, eval_set: EvalSet[Sentence], predictions: list[Tagging]
    ) -> Iterator[tuple[str, Content]]:
        """`<set>.jsonl`, reports, and `<set>.conll`: the file's lines with one more column.

        All tags are in the scheme of the file, if it has one.
        """
        written = eval_set
        if self.is_labelled(eval_set):
            made = [tagging.tags for tagging in predictions]
            gold, tags = self.tag_set.comparable(eval_set.examples, made)
            predictions = [each.with_tags(own) for each, own in zip(predictions, tags, strict=True)]
            pairs = zip(eval_set.examples, gold, strict=True)
            examples = [dataclasses.replace(each, label=tuple(own)) for each, own in pairs]
            written = dataclasses.replace(eval_set, examples=examples)
        yield from super().set_files(written, predictions)
        tags = [tagging.tags for tagging in predictions]
        yield f"{eval_set.name}.{CONLL}", add_tag_column(eval_set.examples, tags)

    def reports(
        self, examples: list[Example[Sentence]], predictions: list[Tagging]
    ) -> Mapping[str, Content]:
        tags = [tagging.tags for tagging in predictions]
        counts = self._counts(examples, tags)
        matrix = self._confusion(examples, tags)
        text = matrix.as_text()
        if counts:
            scheme = self.tag_set.scheme_of_gold(examples)
            named = f" in {scheme.upper()}, the scheme of the file" if scheme else ""
            text = f"{counts.as_text()}\n\nBy tag{named}:\n\n{text}"
        return {"report.txt": text, "confusion.png": matrix.draw}

    def _scores(
        self, examples: Sequence[Example[Sentence]], tags: Sequence[Sequence[str]]
    ) -> dict[str, float]:
        counts = self._counts(examples, tags)
        if counts is None:
            return {"accuracy": self._confusion(examples, tags).accuracy}
        precision, recall, f1 = counts.overall
        return dict(zip(_METRICS, (f1, precision, recall, counts.accuracy), strict=True))

    def _counts(
        self, examples: Sequence[Example[Sentence]], tags: Sequence[Sequence[str]]
    ) -> EntityCounts | None:
        """Counts of entities; None if the tags mark none."""
        names = self.tag_set.names
        if not names.marks_entities:
            return None
        sides = self.tag_set.comparable(examples, tags)
        return EntityCounts.from_tags(*(map(names.entity_tags, side) for side in sides))

    def _confusion(
        self, examples: Sequence[Example[Sentence]], tags: Sequence[Sequence[str]]
    ) -> ConfusionMatrix:
        """Gold and predicted tags of the words, in the scheme of the gold ones."""
        gold, predicted = (
            [tag for sentence in side for tag in sentence]
            for side in self.tag_set.comparable(examples, tags)
        )
        labels, present = tuple(dict.fromkeys(self.tag_set.tags)), {*gold, *predicted}
        if not present <= {*labels}:  # of another scheme
            labels = (OUTSIDE, *sorted(present - {OUTSIDE}))
        numbers = {label: number for number, label in enumerate(labels)}
        sides = [np.array([numbers[tag] for tag in side], np.int64) for side in (gold, predicted)]
        return ConfusionMatrix(labels, sides[0], sides[1], unit="words")


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class TaggingTask(LabelledTask[Sentence], Distillable):
    """The first token of each word has its label; further tokens have none.

    With `model.use_crf` the labels of a row are learned as a path of a conditional random field;
    for a long sentence the path of each window, with the neighbouring labels fixed. Paths that the
    scheme does not allow have probability 0, in training as in prediction.

    Attributes:
        tag_set: tags and their scheme.

    Raises:
        OptionError: `balanced` is set with a CRF, where the loss has no term per tag to weight.
    """

    score_kind = "classes"
    scores_tokens = True
    reads_pairs = False
    unit = "sentences"

    tag_set: TagSet

    def __post_init__(self) -> None:
        if self.balanced and self.description.config.head_options(TaggingOptions).use_crf:
            rule = "leave out one of {data.class_weights} and {model.use_crf}"
            problem = "with a CRF the loss is of whole paths, which have no classes"
            raise OptionError("data.class_weights", self.balanced, rule, problem)
        super().__post_init__()

    def make_evaluator(self) -> TaggingEvaluator:
        return TaggingEvaluator(self.splits, self.options, self.description, self.tag_set)

    def make_rows(self) -> TrainingRows:
        """See `tagged_rows`."""
        examples = [example for example in self.splits.train if example.input.words]
        return tagged_rows(
            *(examples, self.tag_set, self.tokenizer, self.options.length), balanced=self.balanced
        )

    def loss(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> Sums:
        """The loss, and the number of words with the correct tag."""
        scores = self.scores(params, outputs, batch)
        labels, weights = batch["labels"], batch["weights"]
        if self.description.config.head_options(TaggingOptions).use_crf:
            crf_params = mask_invalid_transitions(
                crf.CRFParams.from_params(params), self.tag_set.labels
            )
            crf_params = crf_params.between(batch["label_before"], batch["label_after"])
            # The loss of a row is the sum over its words, which weigh 1 each.
            loss = -crf.log_likelihood(scores, labels, labels >= 0, crf_params).sum()
            tags = crf.viterbi(*jax.lax.stop_gradient((scores, labels >= 0, crf_params)))
            return {"": {"loss": loss, **weighted_sums(weights, {"accuracy": tags == labels})}}
        return {"": classification_sums(scores, labels.clip(0), weights)}

    def scores(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> jax.Array:
        """Scores of the tags of each word; with a CRF, without transition scores."""
        return gather_positions(outputs, batch["word_positions"])  # BWC

    def examples_as_text(self, count: int) -> str:
        """Words and tags in columns."""
        return "".join(
            as_columns(example.input.words, self.tag_set.translate(example.label or ()))
            for example in self.splits.train[:count]
        )


def create(config: TaskConfig[TaggingData], model_init: ModelInit) -> TaggingTask:
    """The task of a config."""
    data = config.data
    tokenizer = model_tokenizer(model_init)
    files: list[tuple[str, list[Example[Sentence]]]] = []

    def read(source: str, split: str, report: Report) -> list[Example[Sentence]]:
        needs_tags = split == "train"
        sentences = list(read_tagged(source, data, needs_tags=needs_tags, report=report))
        files.append((source, sentences))
        return sentences

    splits = read_splits(data, read, with_train=not model_init.is_finished)
    evaluated = model_init.description if model_init.is_finished else None
    splits = with_tags(splits, files, (*data.names, *(evaluated.labels if evaluated else ())))
    tag_set = find_tag_set(splits.all_train, model_init, data.scheme, data.names)
    for eval_set in splits.validation:
        tag_set.check(eval_set.examples)
    test = [tag_set.drop_unknown_tags(eval_set) for eval_set in splits.test]
    description = model_init.describe(
        tokenizer, "tagging", num_labels=len(tag_set.labels), labels=tag_set.labels
    )
    return TaggingTask(
        splits=dataclasses.replace(splits, test=test),
        tokenizer=tokenizer,
        description=description,
        execution=model_init.execution,
        options=labelled_options(config, _metric_names(tag_set.labels)[0]),
        tag_set=tag_set,
        balanced=bool(data.class_weights),
    )


TRAIN = TrainSpec(TaggingData, create, defaults=labelled_defaults())
