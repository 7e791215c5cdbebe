"""Vectors of sentences that can be compared (Sentence-BERT, Reimers and Gurevych, 2019).

What comes out is a bare encoder; how its vectors are pooled stands in its `config.json`. It has no
pooler, which none of these poolings uses.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.sentence_transformers import SENTENCE_POOLING
from bert_jax.data.examples import TextExample
from bert_jax.data.labelled_batches import LabelledBatches
from bert_jax.data.pipeline import Batch
from bert_jax.data.readers.texts import TextOptions, read_texts
from bert_jax.data.records import open_records, shortest
from bert_jax.data.sequences import Sequences
from bert_jax.errors import UserError
from bert_jax.models.config import EncoderConfig, Head
from bert_jax.models.pooling import OF_TOKENS
from bert_jax.models.sentence_pairs import PairOutput, SentencePairs, pair_features
from bert_jax.options import from_keys, keys_of
from bert_jax.sharding.hosts import fetch
from bert_jax.tasks.base import sections
from bert_jax.tasks.base.chunks import encoded
from bert_jax.tasks.base.labelled_task import (
    LabelledOptions,
    LabelledTask,
    TrainedModel,
    model_tokenizer,
)
from bert_jax.tasks.base.labels import choose_labels
from bert_jax.tasks.base.predictor import BatchOptions, Model, Predictor
from bert_jax.tasks.base.splits import EvalSet, Splits, read_splits
from bert_jax.tasks.base.task import ModelInit, Sums, weighted_sums
from bert_jax.tasks.base.text_rows import TextEncoder
from bert_jax.tasks.classification.decoding import softmax
from bert_jax.tasks.similarity.decoding import (
    DEFAULT_POOLING,
    PairPredictor,
    cosine,
    stored_pooling,
)
from bert_jax.tasks.similarity.evaluators import metrics_for
from bert_jax.tasks.similarity.objectives import (
    ContrastiveObjective,
    CosineObjective,
    MultipleNegativesRanking,
    Objective,
    SoftmaxObjective,
)
from bert_jax.tokenization import Tokenizer

LOSSES = ("cosine", "contrastive", "softmax", "in_batch_negatives")


class PairAnswer(NamedTuple):
    """What is said of a pair.

    Attributes:
        vectors: of both texts, float32 [2, D].
        logits: scores of the labels, float32 [C]; None without classifier.
    """

    vectors: np.ndarray
    logits: np.ndarray | None


class SimilarityTask(LabelledTask[TextExample, PairAnswer]):
    """Pairs of texts whose vectors are to be near or far."""

    def __init__(
        self,
        splits: Splits[TextExample],
        model: TrainedModel,
        options: LabelledOptions,
        objective: Objective,
    ) -> None:
        """See `LabelledTask`.

        Args:
            splits: the pairs.
            model: what comes out: a bare encoder, with its pooling in the description.
            options: of all labelled tasks.
            objective: what is learned.

        Raises:
            UserError: a label is of the wrong kind.
        """
        super().__init__(splits, model, options)
        self._objective = objective
        self._pooling = stored_pooling(model.description)
        self.module = SentencePairs(
            self.description.config,
            model.execution,
            OF_TOKENS[self._pooling],
            labels=len(objective.labels),
        )
        self._targets = objective.targets(splits.train)

    def make_batches(self) -> LabelledBatches:
        """Each pair is an example of two rows, padded to one length."""
        examples = self.splits.train
        targets = self._targets
        encode = TextEncoder(self.tokenizer, self.description.config, self.options.length)
        texts = (text for example in examples for text in _texts(example))
        sequences = Sequences.of(row for (row,) in encoded(encode, texts))
        encode.report()
        rows = np.arange(2 * len(examples)).reshape(-1, 2)

        def make(chosen: np.ndarray, length: int) -> Batch:
            theirs = np.where(chosen[:, None] < 0, -1, rows[chosen])  # B2
            return {
                **sequences.pad(theirs, length, self.tokenizer),
                "labels": targets[chosen],
                "weights": (chosen >= 0).astype(np.float32),
            }

        return self.batches_of(sequences.lengths[rows].max(axis=1), make)

    def loss_sums(self, params: Any, batch: dict[str, jax.Array], dropout_key: Any = None) -> Sums:
        """The loss of the objective."""
        output: Any = self.forward(params, batch, dropout_key)
        weights = batch["weights"]
        losses = self._objective.losses(output, batch["labels"], weights > 0)
        return {"": weighted_sums(weights, {"loss": losses})}

    def predictor(self, model: Model) -> Predictor[tuple[str, str], PairAnswer]:
        """The vectors of each pair as a user gets them, and the classifier's scores."""
        options = BatchOptions(self.options.batch_size, self.options.length)
        head = fetch(model.params["classifier"]) if self._objective.labels else None
        return _PairClassifier(model, options, self._pooling, head)

    def predictor_input(self, example: TextExample) -> tuple[str, str]:
        return _texts(example)

    def has_labels(self, example: TextExample) -> bool:
        """Whether it has a label; pairs that belong together need none."""
        return example.label is not None or not self._objective.needs_labels

    def metrics(self, examples: list[TextExample], answers: list[PairAnswer]) -> dict[str, float]:
        """Those of `finetuning.pair_metrics`, and the mean loss where it is one."""
        vectors = np.stack([answer.vectors for answer in answers])
        scores = [answer.logits for answer in answers if answer.logits is not None]
        logits = np.stack(scores) if scores else None
        found = metrics_for(examples, self._objective.labels).of(vectors, logits)
        if not self._objective.judges(examples):
            return found
        output = PairOutput(jnp.asarray(vectors), None if logits is None else jnp.asarray(logits))
        targets = jnp.asarray(self._objective.targets(examples))
        losses = self._objective.losses(output, targets, jnp.ones(len(examples), bool))
        return {"loss": float(np.mean(jax.device_get(losses), dtype=np.float64)), **found}

    def metric_names(self, examples: list[TextExample]) -> Iterable[str]:
        """Those of `finetuning.pair_metrics`, and the loss where the labels have one."""
        labels = self._objective.labels
        vectors = np.zeros((len(examples), 2, 1), np.float32)
        logits = np.zeros((len(examples), len(labels)), np.float32) if labels else None
        names = metrics_for(examples, labels).of(vectors, logits)
        if not self._objective.judges(examples):
            return names
        self._objective.targets(examples)  # labels of the wrong kind are refused
        return "loss", *names

    def baseline_metrics(self, examples: list[TextExample]) -> dict[str, float]:
        """What needs no model, as `<metric>_<name>`."""
        return metrics_for(examples, self._objective.labels).baselines()

    def examples_as_text(self, count: int) -> str:
        """Label and both texts, one pair a line."""
        return "\n".join(
            "\t".join([str(one.label), *_texts(one)]) for one in self.splits.train[:count]
        )

    def write(self, directory: Path, part: EvalSet[TextExample], answers: list[PairAnswer]) -> None:
        """`<part>.jsonl`: the cosine of each pair, and the label that a classifier tells."""
        labels = self._objective.labels
        with open_records(directory / f"{part.name}.jsonl") as records:
            for example, answer in zip(part.examples, answers, strict=True):
                gold = {} if example.label is None else {"expected": example.label}
                told: dict[str, Any] = {"similarity": shortest(cosine(answer.vectors))}
                if answer.logits is not None:
                    told["label"] = labels[int(answer.logits.argmax())]
                    chances = map(shortest, softmax(answer.logits))
                    told["probabilities"] = dict(zip(labels, chances, strict=True))
                records.write({"id": example.id, **gold, **told})


class _PairClassifier(PairPredictor):
    """Vectors of pairs, and the scores of a classifier that reads them, if there is one."""

    def __init__(self, model: Model, options: BatchOptions, pooling: str | None, head: Any) -> None:
        super().__init__(model, options, pooling=pooling)
        self._head = head

    def transform(self, decoded: Iterator[np.ndarray]) -> Iterator[PairAnswer]:
        for vectors in decoded:
            logits = None
            if self._head is not None:
                features = np.asarray(pair_features(*vectors))
                logits = features @ self._head["kernel"] + self._head["bias"]
            yield PairAnswer(vectors, logits)


def defaults() -> dict[str, dict[str, Any]]:
    """The keys of this task, by section; those of `TextOptions` are keys of `data`.

    `loss` is one of `LOSSES`, see `finetuning.pair_objectives`, where `margin`, `scale` and
    `label_range` are explained; `label_range` () is 0 to 1, of STS-B 0 to 5. `pooling` is "mean",
    "cls" or "max"; "": that of the model, else the mean.
    """
    return sections.defaults(
        {
            **keys_of(TextOptions),
            "loss": "cosine",
            "pooling": "",
            "labels": (),
            "label_range": (),
            "margin": ContrastiveObjective.margin,
            "scale": MultipleNegativesRanking.scale,
        },
        optimizer={"learning_rate": 2e-5},
        train={"epochs": 1.0, "global_batch_size": 16},
    )


def create(config: ConfigDict, model_init: ModelInit) -> SimilarityTask:
    """The task of a config, see `bert_jax.config`."""
    data = config.data
    if data.loss not in LOSSES:
        raise UserError(f"data.loss {data.loss!r} is unknown; known are {', '.join(LOSSES)}")
    tokenizer = model_tokenizer(model_init)
    description = _description(data, model_init, tokenizer)
    if not model_init.is_finished:
        _check_training(config, description.config)
    options = from_keys(TextOptions, data)
    splits = read_splits(
        data,
        lambda source, split: _pairs(
            read_texts(
                source,
                options,
                regression=data.loss != "softmax",
                needs_labels=split == "train" and data.loss != "in_batch_negatives",
            )
        ),
        with_train=not model_init.is_finished,
    )
    objective = _objective(data, options, splits.given, model_init)
    splits = dataclasses.replace(splits, train=objective.select(splits.train))
    best = metrics_for(splits.validation[0].examples, objective.labels).best
    return SimilarityTask(
        splits,
        TrainedModel(tokenizer, description, model_init.execution),
        sections.labelled_options(config, (best, True)),
        objective,
    )


def _check_training(config: ConfigDict, encoder: EncoderConfig) -> None:
    """Raises UserError for what would train nothing, or something else than it says."""
    train, optimizer = config.train, config.optimizer
    if config.data.loss == "in_batch_negatives" and train.microbatches > 1:
        raise UserError(
            f"train.microbatches is {train.microbatches}, but with data.loss=in_batch_negatives "
            "all pairs of a batch are compared; set it to 1 (model.remat=full saves memory, too)"
        )
    if optimizer.freeze_encoder or optimizer.freeze_layers == encoder.num_hidden_layers:
        key = "freeze_encoder" if optimizer.freeze_encoder else "freeze_layers"
        raise UserError(
            f"optimizer.{key} leaves nothing to train: an encoder is all that comes out of task "
            "similarity; freeze fewer layers with optimizer.freeze_layers"
        )


def _pairs(examples: Iterable[TextExample]) -> Iterator[TextExample]:
    """The same examples, which all must have two texts."""
    for example in examples:
        if example.pair is None:
            raise UserError(
                f"{example.place}: there is one text, and no pair to compare it with; set "
                "data.text_column and data.pair_column"
            )
        yield example


def _texts(example: TextExample) -> tuple[str, str]:
    return example.text, str(example.pair)


def _objective(
    data: ConfigDict, options: TextOptions, given: list[TextExample], model_init: ModelInit
) -> Objective:
    label_range = tuple(map(float, data.label_range))
    if not label_range:
        is_scored = options.layout is not None and options.layout.regression
        label_range = (0.0, 5.0) if is_scored else (0.0, 1.0)
    if len(label_range) != 2 or label_range[0] >= label_range[1]:
        raise UserError(
            f"data.label_range is {data.label_range}; give the least and the greatest label, as "
            "data.label_range=0,5"
        )
    if data.loss == "cosine":
        return CosineObjective(label_range)
    if data.loss == "contrastive":
        return ContrastiveObjective(data.margin)
    if data.loss == "in_batch_negatives":
        return MultipleNegativesRanking(data.scale, label_range)
    if model_init.is_finished:
        return SoftmaxObjective()  # the classifier is no part of the model that came out
    named = tuple(map(str, data.labels)) or (options.layout.classes if options.layout else ())
    # A class that is only validation is a class.
    return SoftmaxObjective(choose_labels({str(one.label) for one in given}, model_init, named))


def _description(data: ConfigDict, model_init: ModelInit, tokenizer: Tokenizer) -> ModelDescription:
    """A bare encoder without pooler, and how its vectors are pooled."""
    base = model_init.description
    pooling = data.pooling or (stored_pooling(base) if base else DEFAULT_POOLING)
    if pooling not in OF_TOKENS:
        raise UserError(f"data.pooling {pooling!r} is unknown; known are {', '.join(OF_TOKENS)}")
    config = dataclasses.replace(
        model_init.architecture(tokenizer), num_labels=EncoderConfig.num_labels
    )
    return ModelDescription(
        config,
        Head.ENCODER,
        add_pooling_layer=False,
        other={SENTENCE_POOLING: pooling},
    )
