"""Vectors of sentences that can be compared (Sentence-BERT, Reimers and Gurevych, 2019).

The result is a bare encoder whose `config.json` names the pooling of its vectors. It has no pooler,
which none of these poolings uses.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.sentence_transformers import SENTENCE_POOLING
from bert_jax.data.examples import TextExample
from bert_jax.data.labelled_batches import LabelledBatches
from bert_jax.data.padding import Sequences
from bert_jax.data.pipeline import Batch
from bert_jax.data.readers.texts import TextOptions, read_texts
from bert_jax.errors import OptionError
from bert_jax.models.config import EncoderConfig, Head
from bert_jax.models.pooling import OF_TOKENS, PairOutput, SentencePairs, pair_features
from bert_jax.options import from_keys, keys_of
from bert_jax.sharding.hosts import fetch
from bert_jax.tasks.base.labelled_task import (
    LabelledOptions,
    LabelledTask,
    TrainedModel,
    labelled_defaults,
    labelled_options,
    model_tokenizer,
)
from bert_jax.tasks.base.predictor import BatchOptions, Model, Predictor, encode_in_chunks
from bert_jax.tasks.base.splits import Splits, choose_labels, read_splits
from bert_jax.tasks.base.task import ModelInit, Sums, TrainingTask, weighted_sums
from bert_jax.tasks.base.text_rows import TextEncoder
from bert_jax.tasks.similarity.evaluators import find_evaluator
from bert_jax.tasks.similarity.objectives import (
    ContrastiveObjective,
    CosineObjective,
    MultipleNegativesRanking,
    Objective,
    SoftmaxObjective,
)
from bert_jax.tasks.similarity.predict import (
    DEFAULT_POOLING,
    PREDICT,
    PairPrediction,
    PairPredictor,
    stored_pooling,
)
from bert_jax.tokenization import Tokenizer

LOSSES = ("cosine", "contrastive", "softmax", "in_batch_negatives")


class SimilarityTask(LabelledTask[TextExample, PairPrediction]):
    """Pairs of texts whose vectors the training moves together or apart."""

    PREDICT = PREDICT

    def __init__(
        self,
        splits: Splits[TextExample],
        model: TrainedModel,
        options: LabelledOptions,
        objective: Objective,
    ) -> None:
        """For splits and options see `LabelledTask`.

        Args:
            splits: the pairs.
            model: the result: a bare encoder, with its pooling in the description.
            options: of all labelled tasks.
            objective: the loss and its labels.

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
        # Each pair is an example of two rows, padded to one length.
        examples = self.splits.train
        targets = self._targets
        encode = TextEncoder(self.tokenizer, self.description.config, self.options.length)
        texts = (text for example in examples for text in _texts(example))
        sequences = Sequences.of(row for (row,) in encode_in_chunks(encode, texts))
        encode.report()
        rows = np.arange(2 * len(examples)).reshape(-1, 2)

        def make(chosen: np.ndarray, length: int) -> Batch:
            of_chosen = np.where(chosen[:, None] < 0, -1, rows[chosen])  # B2
            return {
                **sequences.pad(of_chosen, length, self.tokenizer),
                "labels": targets[chosen],
                "weights": (chosen >= 0).astype(np.float32),
            }

        return self.batches_of(sequences.lengths[rows].max(axis=1), make)

    def loss_sums(self, params: Any, batch: dict[str, jax.Array], dropout_key: Any = None) -> Sums:
        output: Any = self.forward(params, batch, dropout_key)
        weights = batch["weights"]
        losses = self._objective.losses(output, batch["labels"], weights > 0)
        return {"": weighted_sums(weights, {"loss": losses})}

    def predictor(self, model: Model) -> Predictor[tuple[str, str], PairPrediction]:
        """That of users, and the scores of the classifier that is trained."""
        options = BatchOptions(self.options.batch_size, self.options.length)
        labels = self._objective.labels
        head = fetch(model.params["classifier"]) if labels else None
        return _PairClassifier(model, options, self._pooling, labels, head)

    def predictor_input(self, example: TextExample) -> tuple[str, str]:
        return _texts(example)

    def label_of(self, example: TextExample) -> Any:
        return example.label

    def has_labels(self, example: TextExample) -> bool:
        return example.label is not None or not self._objective.needs_labels

    def metrics(
        self, examples: list[TextExample], predictions: list[PairPrediction]
    ) -> dict[str, float]:
        """Those of the evaluator, and the mean loss where it is defined for the labels."""
        vectors = np.stack([prediction.vectors for prediction in predictions])
        scores = [prediction.logits for prediction in predictions if prediction.logits is not None]
        logits = np.stack(scores) if scores else None
        metrics = find_evaluator(examples, self._objective.labels).metrics(vectors, logits)
        if not self._objective.can_evaluate(examples):
            return metrics
        output = PairOutput(jnp.asarray(vectors), None if logits is None else jnp.asarray(logits))
        targets = jnp.asarray(self._objective.targets(examples))
        losses = self._objective.losses(output, targets, jnp.ones(len(examples), bool))
        return {"loss": float(np.mean(jax.device_get(losses), dtype=np.float64)), **metrics}

    def metric_names(self, examples: list[TextExample]) -> Iterable[str]:
        names = find_evaluator(examples, self._objective.labels).metric_names
        if not self._objective.can_evaluate(examples):
            return names
        self._objective.targets(examples)  # labels of the wrong kind are refused
        return "loss", *names

    def baseline_metrics(self, examples: list[TextExample]) -> dict[str, float]:
        return find_evaluator(examples, self._objective.labels).baselines()

    def examples_as_text(self, count: int) -> str:
        """Label and both texts, one pair a line."""
        return "\n".join(
            "\t".join([str(example.label), *_texts(example)])
            for example in self.splits.train[:count]
        )


class _PairClassifier(PairPredictor):
    """Vectors of pairs, and the scores of the classifier that reads them, if there is one."""

    def __init__(
        self,
        model: Model,
        options: BatchOptions,
        pooling: str | None,
        labels: tuple[str, ...],
        head: Any,
    ) -> None:
        super().__init__(model, options, pooling=pooling)
        self._labels, self._head = labels, head

    def transform(self, decoded: Iterator[PairPrediction]) -> Iterator[PairPrediction]:
        for prediction in decoded:
            if self._head is None:
                yield prediction
                continue
            features = np.asarray(pair_features(*prediction.vectors))
            logits = features @ self._head["kernel"] + self._head["bias"]
            yield PairPrediction(prediction.vectors, logits, self._labels)


def defaults() -> dict[str, dict[str, Any]]:
    """The keys of this task, by section; those of `TextOptions` are keys of `data`.

    `loss` is one of `LOSSES`; for it, `margin`, `scale` and `label_range` see `objectives`.
    `label_range` () is 0 to 1, of STS-B 0 to 5. `pooling` is "mean", "cls" or "max"; "": that of
    the model, else the mean.
    """
    return labelled_defaults(
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
    """The task of a config.

    Raises:
        UserError: the data and the options do not fit together.
    """
    data = config.data
    if data.loss not in LOSSES:
        raise OptionError("loss", data.loss, f"known are {', '.join(LOSSES)}")
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
    objective = _objective(data, options, splits.all_train, model_init)
    splits = dataclasses.replace(splits, train=objective.select(splits.train))
    best = find_evaluator(splits.validation[0].examples, objective.labels).best
    return SimilarityTask(
        splits,
        TrainedModel(tokenizer, description, model_init.execution),
        labelled_options(config, best),
        objective,
    )


def _check_training(config: ConfigDict, encoder: EncoderConfig) -> None:
    """Raises UserError where nothing or something else than the config says would be trained."""
    train, optimizer = config.train, config.optimizer
    if config.data.loss == "in_batch_negatives" and train.microbatches > 1:
        raise OptionError(
            "microbatches",
            train.microbatches,
            "with {loss=in_batch_negatives} all pairs of a batch are compared: set it to 1 "
            "({remat=full} saves memory, too)",
        )
    if optimizer.freeze_encoder or optimizer.freeze_layers == encoder.num_hidden_layers:
        key = "freeze_encoder" if optimizer.freeze_encoder else "freeze_layers"
        raise OptionError(
            key,
            optimizer[key],
            "that leaves nothing to train, since task similarity trains an encoder alone: freeze "
            "fewer layers with {freeze_layers}",
        )


def _pairs(examples: Iterable[TextExample]) -> Iterator[TextExample]:
    """The same examples, which all must have two texts."""
    for example in examples:
        if example.pair is None:
            raise OptionError(
                "text_column",
                None,
                "set {text_column} and {pair_column}",
                problem=f"{example.place}: there is no second text to compare the first one with",
            )
        yield example


def _texts(example: TextExample) -> tuple[str, str]:
    return example.text, str(example.pair)


def _objective(
    data: ConfigDict, options: TextOptions, examples: list[TextExample], model_init: ModelInit
) -> Objective:
    is_scored = options.layout is not None and options.layout.regression
    try:
        low, high = map(float, data.label_range or ((0, 5) if is_scored else (0, 1)))
        is_range = -math.inf < low < high < math.inf
    except (TypeError, ValueError):  # not two, or no numbers
        is_range = False
    if not is_range:
        rule = "give the least and the greatest label, as {label_range=0,5}"
        raise OptionError("label_range", data.label_range, rule)
    if data.loss == "cosine":
        return CosineObjective((low, high))
    if data.loss == "contrastive":
        return ContrastiveObjective(data.margin)
    if data.loss == "in_batch_negatives":
        return MultipleNegativesRanking(data.scale, (low, high))
    if model_init.is_finished:
        return SoftmaxObjective()  # a finished model has no classifier
    named = tuple(map(str, data.labels)) or (options.layout.classes if options.layout else ())
    # A class of the validation examples alone is a class, too.
    used = {str(example.label) for example in examples}
    return SoftmaxObjective(choose_labels(used, model_init, named))


def _description(data: ConfigDict, model_init: ModelInit, tokenizer: Tokenizer) -> ModelDescription:
    """A bare encoder without pooler, and how its vectors are pooled."""
    base = model_init.description
    pooling = data.pooling or (stored_pooling(base) if base else DEFAULT_POOLING)
    if pooling not in OF_TOKENS:
        raise OptionError("pooling", pooling, f"known are {', '.join(OF_TOKENS)}")
    return model_init.describe(
        tokenizer, Head.ENCODER, add_pooling_layer=False, other={SENTENCE_POOLING: pooling}
    )


TRAIN = TrainingTask(create, defaults)
