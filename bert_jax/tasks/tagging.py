"""A tag for every word: names in texts, parts of speech (paper, section 5.3; CoNLL-2003)."""

import dataclasses
import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.labelled.batches import LabelledBatches
from bert_jax.data.labelled.conll import as_columns, read_blocks
from bert_jax.data.labelled.examples import TaggedSentence
from bert_jax.data.labelled.sequences import Sequences
from bert_jax.data.labelled.tagged import TaggedOptions, read_tagged
from bert_jax.data.lines import STDIN, open_lines
from bert_jax.data.pipeline import Batch
from bert_jax.data.word_windows import SPECIALS, WordWindow, WordWindows
from bert_jax.errors import UserError
from bert_jax.files import write_atomically
from bert_jax.finetuning import sections
from bert_jax.finetuning.splits import Part, Splits, read_splits
from bert_jax.finetuning.tags import TagSet, find_tag_set
from bert_jax.finetuning.task import LabelledOptions, LabelledTask, TrainedModel, model_tokenizer
from bert_jax.inference.model import LoadedModel
from bert_jax.inference.records import open_records
from bert_jax.inference.tag_decoding import possible
from bert_jax.inference.tagging import Tagging, as_record, entity_tags, taggings
from bert_jax.metrics.confusion import ConfusionMatrix
from bert_jax.metrics.entities import EntityCounts, convert, detect_scheme
from bert_jax.models import crf
from bert_jax.models.heads import gather_positions
from bert_jax.training.task import Foundation, Sums

CLASS_WEIGHTS = ("", "balanced")


@dataclasses.dataclass(frozen=True, slots=True)
class _Row:
    """A training row: a sentence, or a window of a long one.

    Attributes:
        window: its tokens, and the words that are learned here.
        labels: their tags, int32 [W].
        before: the tag of the word before them that is learned in the window before; -1: none.
        after: likewise of the word behind them.
    """

    window: WordWindow
    labels: np.ndarray
    before: int
    after: int


class TaggingTask(LabelledTask[TaggedSentence, Tagging]):
    """The first token of each word has its label; the others have none.

    With `model.use_crf` the labels of a row are learned as a path through a chain; of a long
    sentence each window, given the labels beside it. Paths that the scheme does not allow have no
    share in the probability, neither here nor when words are tagged.
    """

    def __init__(
        self,
        splits: Splits[TaggedSentence],
        model: TrainedModel,
        options: LabelledOptions,
        tag_set: TagSet,
        files: TaggedOptions,
        *,
        class_weights: str = "",
    ) -> None:
        """See `LabelledTask`.

        Args:
            splits: the examples.
            model: what is trained.
            options: of all labelled tasks.
            tag_set: the tags and their scheme.
            files: how the files of the examples are read.
            class_weights: "balanced": every tag has the same weight in the loss.
        """
        super().__init__(splits, model, options)
        self._tag_set = tag_set
        self._files = files
        self._class_weights = class_weights

    @property
    def examples_per_epoch(self) -> int:
        """The rows: sentences, and windows of those that are too long for one."""
        return len(self._rows)

    @functools.cached_property
    def _rows(self) -> list[_Row]:
        examples = [example for example in self.splits.train if example.words]
        encode = WordWindows(self.tokenizer, self.options.length)
        encoded = encode([example.words for example in examples])
        return [
            row
            for example, windows in zip(examples, encoded, strict=True)
            for row in _labelled(example, windows, self._tag_set)
        ]

    def make_batches(self) -> LabelledBatches:
        """Each window of a sentence is one row."""
        sequences = Sequences.of(row.window for row in self._rows)
        by_label = self._weights()

        def make(chosen: np.ndarray, length: int) -> Batch:
            shape = len(chosen), max(length - SPECIALS, 1)  # BW
            positions, labels = np.zeros(shape, np.int32), np.full(shape, -1, np.int32)
            beside = np.full((2, len(chosen)), -1, np.int32)
            for place, number in enumerate(chosen.tolist()):
                if number >= 0:
                    row = self._rows[number]
                    positions[place, : len(row.labels)] = row.window.positions
                    labels[place, : len(row.labels)] = row.labels
                    beside[:, place] = row.before, row.after
            return {
                **sequences.pad(chosen, length, self.tokenizer),
                "word_positions": positions,
                "labels": labels,
                "weights": np.where(labels < 0, np.float32(0), by_label[labels]),
                "label_before": beside[0],
                "label_after": beside[1],
            }

        return LabelledBatches(
            sequences.lengths,
            make,
            batch_size=self.options.batch_size,
            seed=self.options.seed,
            most=self.options.length,
        )

    def weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """The words of a batch, by the weights of their tags."""
        return {"": batch["weights"].sum()}

    def sums(self, params: Any, batch: dict[str, jax.Array], dropout_key: Any = None) -> Sums:
        """The loss, and the words whose tag is right."""
        logits: Any = self.module.apply(
            {"params": params},
            batch["input_ids"],
            batch["token_type_ids"],
            batch["attention_mask"],
            deterministic=dropout_key is None,
            rngs=None if dropout_key is None else {"dropout": dropout_key},
        )
        scores = gather_positions(logits, batch["word_positions"])  # BWC
        labels, weights = batch["labels"], batch["weights"]
        if not self.description.config.use_crf:
            losses = optax.softmax_cross_entropy_with_integer_labels(scores, labels.clip(0))
            correct = scores.argmax(axis=-1) == labels
            return {"": {"loss": (weights * losses).sum(), "accuracy": (weights * correct).sum()}}
        chain = _beside(
            possible(crf.Chain.of(params), self._tag_set.labels),
            batch["label_before"],
            batch["label_after"],
        )
        mask = labels >= 0
        loss = -crf.log_likelihood(scores, labels, mask, chain).sum()
        paths = crf.viterbi(*jax.lax.stop_gradient((scores, mask, chain)))
        return {"": {"loss": loss, "accuracy": (weights * (paths == labels)).sum()}}

    def answers(
        self, model: LoadedModel, examples: Iterable[TaggedSentence]
    ) -> Iterator[Tagging]:
        """The tags of each sentence."""
        return taggings(
            model,
            (example.words for example in examples),
            batch_size=self.options.batch_size,
            max_length=self.options.length,
        )

    def has_labels(self, example: TaggedSentence) -> bool:
        """Whether its words have tags."""
        return example.tags is not None

    def metrics(
        self, examples: list[TaggedSentence], answers: list[Tagging]
    ) -> dict[str, float]:
        """F1, precision and recall of entities as conlleval has them, and accuracy of tags.

        All words count, also those of which the tokenizer leaves nothing. Tags that are no names of
        entities have an accuracy alone.
        """
        return self._scores(examples, [found.tags for found in answers])

    def baselines(self) -> dict[str, float]:
        """`<metric>_lexicon`: each word has the commonest of its tags in the training sentences.

        What is not among these words has the tag of the commonest word.
        """
        by_word: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for example in self.splits.train:
            for word, tag in zip(example.words, self._gold(example), strict=True):
                by_word[word][tag] += 1
        total: Counter[str] = sum(by_word.values(), Counter())
        commonest = total.most_common(1)[0][0] if total else self._tag_set.labels[0]
        lexicon = {word: tags.most_common(1)[0][0] for word, tags in by_word.items()}
        found: dict[str, float] = {}
        parts = self.splits.development
        for part in parts if lexicon else []:
            if all(map(self.has_labels, part.examples)):
                guesses = [
                    [lexicon.get(word, commonest) for word in example.words]
                    for example in part.examples
                ]
                prefix = f"{part.name}_" if len(parts) > 1 else ""
                for name, value in self._scores(part.examples, guesses).items():
                    found[f"{prefix}{name}_lexicon"] = value
        return found

    def examples_as_text(self, count: int) -> str:
        """Words and tags in columns."""
        return "".join(
            as_columns(example.words, self._gold(example)) for example in self.splits.train[:count]
        )

    def write(self, directory: Path, part: Part[TaggedSentence], answers: list[Tagging]) -> None:
        """`<part>.jsonl`, `<part>.conll`, and reports where there are tags to compare with.

        The columns are those of the file that the sentences are from, line by line, with the tags
        as a further column, in the scheme of the file if it has one.
        """
        with open_records(directory / f"{part.name}.jsonl") as records:
            for example, found in zip(part.examples, answers, strict=True):
                gold = {} if example.tags is None else {"expected": example.tags}
                records.write({"id": example.id, **gold, **as_record(found)})
        columns = self._as_file(part, self._in_files_scheme(part.examples, answers))
        write_atomically(directory / f"{part.name}.conll", columns.encode())
        if not all(map(self.has_labels, part.examples)):
            return
        tags = [found.tags for found in answers]
        matrix = ConfusionMatrix.of(
            self._tag_set.labels,
            *(
                np.concatenate([self._tag_set.numbers(of_one) for of_one in sentences])
                for sentences in (map(self._gold, part.examples), tags)
            ),
        )
        counts = self._counts(part.examples, tags)
        text = f"{counts.as_text()}\n\n{matrix.as_text()}" if counts else matrix.as_text()
        write_atomically(directory / f"{part.name}.report.txt", text.encode())
        matrix.draw(directory / f"{part.name}.confusion.png")

    def _gold(self, example: TaggedSentence) -> list[str]:
        return self._tag_set.translate(example.tags or ())

    def _counts(
        self, examples: Sequence[TaggedSentence], tags: Iterable[Sequence[str]]
    ) -> EntityCounts | None:
        """Counts of entities; None where the tags name none."""
        labels = self._tag_set.labels
        gold = [entity_tags(self._gold(example), labels) for example in examples]
        found = [entity_tags(of_one, labels) for of_one in tags]
        if None in gold:
            return None
        return EntityCounts.of(filter(None.__ne__, gold), filter(None.__ne__, found))
