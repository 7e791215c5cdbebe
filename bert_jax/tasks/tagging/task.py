"""A tag for every word: names in texts, parts of speech (paper, section 5.3; CoNLL-2003)."""

import dataclasses
import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from ml_collections import ConfigDict

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import TaggedSentence
from bert_jax.data.labelled_batches import LabelledBatches
from bert_jax.data.readers.conll import as_columns
from bert_jax.data.readers.tagged import TaggedOptions, read_tagged
from bert_jax.errors import UserError
from bert_jax.files import write_atomically
from bert_jax.metrics.classification import ConfusionMatrix
from bert_jax.metrics.entities import EntityCounts
from bert_jax.models import crf
from bert_jax.models.config import Head
from bert_jax.models.layers import gather_positions
from bert_jax.options import from_keys, keys_of
from bert_jax.tasks.base.labelled_task import (
    LabelledOptions,
    LabelledTask,
    TrainedModel,
    is_balanced,
    labelled_defaults,
    labelled_options,
    model_tokenizer,
)
from bert_jax.tasks.base.predictor import BatchOptions, Model, Predictor
from bert_jax.tasks.base.splits import EvalSet, Splits, read_splits
from bert_jax.tasks.base.task import ModelInit, Sums, weighted_sums
from bert_jax.tasks.tagging.decoding import Tagging, TagPredictor, entity_tags
from bert_jax.tasks.tagging.files import tagged_file
from bert_jax.tasks.tagging.predict import PREDICT
from bert_jax.tasks.tagging.rows import TaggedRows
from bert_jax.tasks.tagging.tag_decoding import possible
from bert_jax.tasks.tagging.tags import TagSet, find_tag_set


class TaggingTask(LabelledTask[TaggedSentence, Tagging]):
    """The first token of each word has its label; the others have none.

    With `model.use_crf` the labels of a row are learned as a path through a chain; of a long
    sentence each window, given the labels beside it. Paths that the scheme does not allow have no
    share in the probability, neither here nor when words are tagged.
    """

    PREDICT = PREDICT

    def __init__(
        self,
        splits: Splits[TaggedSentence],
        model: TrainedModel,
        options: LabelledOptions,
        tag_set: TagSet,
        files: TaggedOptions,
        *,
        balanced: bool = False,
    ) -> None:
        """See `LabelledTask`.

        Args:
            splits: the examples.
            model: what is trained.
            options: of all labelled tasks.
            tag_set: the tags and their scheme.
            files: how the files of the examples are read.
            balanced: whether every tag is to have the same weight in the loss; else every word.

        Raises:
            UserError: tags are to be balanced in the loss of a chain, which has no terms to weigh.
        """
        if balanced and model.description.config.use_crf:
            raise UserError(
                "data.class_weights: with model.use_crf the loss is that of whole paths; leave one "
                "of them out"
            )
        super().__init__(splits, model, options)
        self._tag_set = tag_set
        self._files = files
        self._balanced = balanced

    @functools.cached_property
    def rows(self) -> TaggedRows:
        """The training rows."""
        return TaggedRows(
            [example for example in self.splits.train if example.words],
            self._tag_set,
            self.tokenizer,
            self.options.length,
            balanced=self._balanced,
        )

    @property
    def examples_per_epoch(self) -> int:
        """The rows: sentences, and windows of those that are too long for one."""
        return len(self.rows)

    def make_batches(self) -> LabelledBatches:
        """See `TaggedRows.batch`."""
        return self.batches_of(self.rows.lengths, self.rows.batch)

    @functools.cached_property
    def _lexicon(self) -> tuple[dict[str, str], str] | None:
        """The commonest tag of each training word, and of all; None without training sentences."""
        by_word: defaultdict[str, Counter[str]] = defaultdict(Counter)
        total: Counter[str] = Counter()
        for example in self.splits.train:
            gold = self._gold(example)
            total.update(gold)
            for word, tag in zip(example.words, gold, strict=True):
                by_word[word][tag] += 1
        if not total:
            return None
        lexicon = {word: tags.most_common(1)[0][0] for word, tags in by_word.items()}
        return lexicon, total.most_common(1)[0][0]

    def loss_sums(self, params: Any, batch: dict[str, jax.Array], dropout_key: Any = None) -> Sums:
        """The loss, and the words whose tag is right."""
        logits: Any = self.forward(params, batch, dropout_key)
        scores = gather_positions(logits, batch["word_positions"])  # BWC
        labels, weights = batch["labels"], batch["weights"]
        if self.description.config.use_crf:
            chain = possible(crf.CRFParams.from_params(params), self._tag_set.labels)
            chain = chain.between(batch["label_before"], batch["label_after"])
            # A row's loss is that of all its words, which weigh 1 each.
            loss = -crf.log_likelihood(scores, labels, labels >= 0, chain).sum()
            found = crf.viterbi(*jax.lax.stop_gradient((scores, labels >= 0, chain)))
        else:
            losses = optax.softmax_cross_entropy_with_integer_labels(scores, labels.clip(0))
            loss = (weights * losses).sum()
            found = scores.argmax(axis=-1)
        return {"": {"loss": loss, **weighted_sums(weights, {"accuracy": found == labels})}}

    def predictor(self, model: Model) -> Predictor[Any, Tagging]:
        """The predictor of users."""
        return TagPredictor(model, BatchOptions(self.options.batch_size, self.options.length))

    def predictor_input(self, example: TaggedSentence) -> Sequence[str]:
        return example.words

    def label_of(self, example: TaggedSentence) -> tuple[str, ...] | None:
        return example.tags

    def metrics(self, examples: list[TaggedSentence], answers: list[Tagging]) -> dict[str, float]:
        """F1, precision and recall of entities as conlleval has them, and the accuracy of tags.

        All words count, also those of which the tokenizer leaves nothing. Tags that are no names of
        entities have an accuracy alone.
        """
        return self._scores(examples, [found.tags for found in answers])

    def metric_names(self, examples: list[TaggedSentence]) -> Iterable[str]:
        """Those of entities, or the accuracy alone."""
        return self._scores(examples, [self._gold(example) for example in examples])

    def baseline_metrics(self, examples: list[TaggedSentence]) -> dict[str, float]:
        """`<metric>_lexicon`: each word has the commonest of its tags in the training sentences.

        A word that is not among these has the tag that is the commonest of all.
        """
        if not self._lexicon:
            return {}
        lexicon, commonest = self._lexicon
        tags = [[lexicon.get(word, commonest) for word in example.words] for example in examples]
        return {f"{name}_lexicon": one for name, one in self._scores(examples, tags).items()}

    def examples_as_text(self, count: int) -> str:
        """Words and tags in columns."""
        return "".join(
            as_columns(example.words, self._gold(example)) for example in self.splits.train[:count]
        )

    def write(self, directory: Path, part: EvalSet[TaggedSentence], answers: list[Tagging]) -> None:
        """`<part>.jsonl`, `<part>.conll`, and reports where there are tags to compare with.

        In columns, tags are in the scheme of their file, if that has any.
        """
        super().write(directory, part, answers)
        tags: list[Sequence[str]] = [found.tags for found in answers]
        if not all(map(self.has_labels, part.examples)):
            self._write_columns(directory, part, tags)
            return
        self._write_columns(directory, part, self._tag_set.comparable(part.examples, tags)[1])
        counts, matrix = self._counts(part.examples, tags), self._confusion(part.examples, tags)
        text = matrix.as_text()
        if counts:
            text = f"{counts.as_text()}\n\nBy tag, as the model has them:\n\n{text}"
        write_atomically(directory / f"{part.name}.report.txt", text.encode())
        matrix.draw(directory / f"{part.name}.confusion.png")

    def _write_columns(
        self, directory: Path, part: EvalSet[TaggedSentence], tags: Sequence[Sequence[str]]
    ) -> None:
        text = tagged_file(part, tags, self._files)
        write_atomically(directory / f"{part.name}.conll", text.encode())

    def _gold(self, example: TaggedSentence) -> list[str]:
        return self._tag_set.translate(example.tags or ())

    def _scores(
        self, examples: Sequence[TaggedSentence], tags: Sequence[Sequence[str]]
    ) -> dict[str, float]:
        counts = self._counts(examples, tags)
        if counts is None:
            return {"accuracy": self._confusion(examples, tags).accuracy}
        precision, recall, f1 = counts.overall
        return {"f1": f1, "precision": precision, "recall": recall, "accuracy": counts.accuracy}

    def _counts(
        self, examples: Sequence[TaggedSentence], tags: Sequence[Sequence[str]]
    ) -> EntityCounts | None:
        """Counts of entities; None where the tags name none."""
        labels = self._tag_set.labels
        if entity_tags((), labels) is None:
            return None
        gold, found = self._tag_set.comparable(examples, tags)
        if self._tag_set.scheme is None:  # tags without prefixes
            gold = [entity_tags(of_one, labels) or () for of_one in gold]
            found = [entity_tags(of_one, labels) or () for of_one in found]
        return EntityCounts.of(gold, found)

    def _confusion(
        self, examples: Sequence[TaggedSentence], tags: Sequence[Sequence[str]]
    ) -> ConfusionMatrix:
        number = {label: number for number, label in enumerate(self._tag_set.labels)}
        gold = [number[tag] for example in examples for tag in self._gold(example)]
        found = [number[tag] for of_one in tags for tag in of_one]
        return ConfusionMatrix(self._tag_set.labels, np.array(gold), np.array(found))


def defaults() -> dict[str, dict[str, Any]]:
    """The keys of this task, by section; those of `TaggedOptions` are keys of `data`."""
    return labelled_defaults(
        {
            **keys_of(TaggedOptions),
            "scheme": "iob2",
            "labels": (),
            "class_weights": "",
        }
    )


def create(config: ConfigDict, model_init: ModelInit) -> TaggingTask:
    """The task of a config, see `bert_jax.config`."""
    data = config.data
    tokenizer = model_tokenizer(model_init)
    files = from_keys(TaggedOptions, data)
    splits = read_splits(
        data,
        lambda source, split: read_tagged(source, files, needs_tags=split == "train"),
        with_train=not model_init.is_finished,
    )
    told = list(splits.train)
    if (
        not data.validation and not model_init.is_finished
    ):  # validation examples are from there, too
        told += [example for part in splits.validation for example in part.examples]
    tag_set = find_tag_set(told, model_init, data.scheme, tuple(map(str, data.labels)))
    for part in splits.validation:
        tag_set.check(part.examples)
    splits = dataclasses.replace(
        splits, test=[tag_set.drop_unknown_tags(part) for part in splits.test]
    )
    architecture = model_init.architecture(tokenizer)
    description = ModelDescription(
        dataclasses.replace(architecture, num_labels=len(tag_set.labels)),
        Head.TAGGING,
        labels=tag_set.labels,
    )
    metric = "accuracy" if entity_tags((), tag_set.labels) is None else "f1"
    return TaggingTask(
        splits,
        TrainedModel(tokenizer, description, model_init.execution),
        labelled_options(config, (metric, True)),
        tag_set,
        files,
        balanced=is_balanced(data.class_weights),
    )
