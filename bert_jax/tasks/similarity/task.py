"""Vectors of sentences that can be compared (Sentence-BERT, Reimers and Gurevych, 2019).

The result is a bare encoder, with the files of sentence-transformers that say how its vectors are
made. It has no pooler, since none of these poolings uses one.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Example, Pair
from bert_jax.data.readers.candidate_columns import negatives_among
from bert_jax.data.readers.columns import TextOptions
from bert_jax.data.readers.texts import read_texts
from bert_jax.errors import OptionError, UserError, require_between, require_one_of
from bert_jax.models.execution import Execution
from bert_jax.models.heads.text_vectors import TOKEN_POOLINGS
from bert_jax.models.sentence_pairs import PairOutput, SentencePairs
from bert_jax.sharding.hosts import fetch
from bert_jax.tasks.base.distillable import Distillable
from bert_jax.tasks.base.labelled_evaluator import LabelledEvaluator, example_losses
from bert_jax.tasks.base.labelled_options import (
    LabelledData,
    labelled_defaults,
    labelled_options,
    model_tokenizer,
)
from bert_jax.tasks.base.labelled_task import LabelledTask, TrainingRows, encode_in_chunks
from bert_jax.tasks.base.labels import choose_labels, class_of
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.predictor import Model, Predictor
from bert_jax.tasks.base.splits import EvalSet, read_splits
from bert_jax.tasks.base.task import Sums, weighted_sums
from bert_jax.tasks.base.text_rows import TextEncoder
from bert_jax.tasks.base.train_spec import TaskConfig, TrainSpec
from bert_jax.tasks.embed import TextPreparation, stored_length
from bert_jax.tasks.similarity.objectives import (
    ContrastiveObjective,
    CosentObjective,
    CosineObjective,
    MultipleNegativesRanking,
    Objective,
    SoftmaxObjective,
)
from bert_jax.tasks.similarity.pair_metrics import PairMetrics, find_metrics
from bert_jax.tasks.similarity.predict import (
    PREDICT,
    PairPrediction,
    PairPredictor,
    checked_pair,
    two_views,
)
from bert_jax.tokenization import Tokenizer

LOSSES = ("cosine", "contrastive", "softmax", "in_batch_negatives", "cosent")


@dataclasses.dataclass(frozen=True)
class SimilarityData(LabelledData, TextOptions):
    """The section `data` of a config.

    Attributes:
        loss: one of `LOSSES`.
        pooling: one of `TOKEN_POOLINGS`, or several with commas; "": the pooling of the model.
        label_range: the lowest and the highest label; (): 0 and 1, for STS-B 0 and 5.
        margin, scale: see `objectives`.
    """

    loss: str = "cosine"
    pooling: str = ""
    label_range: tuple[float, ...] = ()
    margin: float = ContrastiveObjective.margin
    scale: float = MultipleNegativesRanking.scale

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("data.loss", self.loss, LOSSES)
        for name in filter(None, self.pooling.split(",")):
            require_one_of("data.pooling", name, TOKEN_POOLINGS)
        require_between("data.margin", self.margin, 0, 2, without_low=True)  # 2: opposite vectors
        require_between("data.scale", self.scale, 0, without_low=True)
        _ = self.lowest_and_highest

    @property
    def lowest_and_highest(self) -> tuple[float, float]:
        """The lowest and the highest label; raises OptionError if `label_range` is no range."""
        is_scored = self.layout is not None and self.layout.regression
        try:
            low, high = self.label_range or ((0, 5) if is_scored else (0, 1))
            for label in (low, high):
                require_between("data.label_range", label)
            is_range = low < high
        except (ValueError, OptionError):  # not two, or not numbers
            is_range = False
        if not is_range:
            rule = "give the least and the greatest label, as {data.label_range=0,5}"
            raise OptionError("data.label_range", self.label_range, rule)
        return float(low), float(high)


@dataclasses.dataclass(frozen=True, eq=False)
class SimilarityEvaluator(LabelledEvaluator[Pair, PairPrediction]):
    """The metrics of a `PairMetrics`, and the mean loss.

    Attributes:
        objective: loss and its labels.
    """

    PREDICT = PREDICT

    objective: Objective

    def predictor(self, model: Model) -> Predictor[Pair, PairPrediction]:
        """The predictor of `bert-jax predict`, with the scores of the trained classifier added."""
        labels = self.objective.labels
        head = fetch(model.params["classifier"]) if labels else None
        return PairPredictor(model, self.predict_options, labels=labels, head=head)

    def is_labelled(self, eval_set: EvalSet[Pair]) -> bool:
        return not self.objective.needs_labels or super().is_labelled(eval_set)

    def metrics(
        self, examples: list[Example[Pair]], predictions: list[PairPrediction]
    ) -> dict[str, float]:
        """The metrics of the vectors, and the mean loss if it is defined for the labels."""
        vectors = np.stack([prediction.vectors for prediction in predictions])
        scores = [prediction.logits for prediction in predictions if prediction.logits is not None]
        logits = np.stack(scores) if scores else None
        metrics = self._pair_metrics(examples).metrics(vectors, logits)
        if not self.objective.can_evaluate(examples):
            return metrics
        targets = self.objective.targets(examples)
        output = PairOutput(jnp.asarray(vectors), None if logits is None else jnp.asarray(logits))
        counted = np.ones(len(examples), bool)
        losses = example_losses(self.objective.losses, output, targets, counted)
        return {"loss": float(np.mean(jax.device_get(losses), dtype=np.float64)), **metrics}

    def metric_names(self, examples: list[Example[Pair]]) -> Iterable[str]:
        names = self._pair_metrics(examples).metric_names
        if not self.objective.can_evaluate(examples):
            return names
        self.objective.targets(examples)  # labels of the wrong kind are refused
        return "loss", *names

    def baseline_metrics(self, examples: list[Example[Pair]]) -> dict[str, float]:
        return self._pair_metrics(examples).baselines()

    def _pair_metrics(self, examples: list[Example[Pair]]) -> PairMetrics:
        return find_metrics(examples, self.objective.labels, self.description.vectors.similarity)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class SimilarityTask(LabelledTask[Pair], Distillable):
    """Pairs of texts; training moves their vectors together or apart.

    The model is a bare encoder, with its pooling in the description.

    Attributes:
        objective: loss and its labels.

    Raises:
        UserError: see `LabelledTask`; or a label is of the wrong kind.
    """

    score_kind = "vectors"

    objective: Objective

    def __post_init__(self) -> None:
        self.global_loss = self.objective.is_global
        vectors = self.description.vectors
        self._prepare = TextPreparation(vectors, vectors.prompt(None), self.tokenizer)
        super().__post_init__()
        self._targets = self.objective.targets(self.splits.train)

    def make_module(self, execution: Execution) -> nn.Module:
        length = self._prepare.prompt_length(self.options.length)
        pool = self.description.vectors.pool(length)
        labels = len(self.objective.labels)
        return SentencePairs(self.description.config, execution, pool, labels=labels)

    def stored_length(self) -> int | None:
        return stored_length(self.description, self.tokenizer)

    def make_evaluator(self) -> SimilarityEvaluator:
        return SimilarityEvaluator(self.splits, self.options, self.description, self.objective)

    def make_rows(self) -> TrainingRows:
        """Each pair is an example of two rows, padded to one length."""
        encode = TextEncoder(
            self.tokenizer, self.description.config, self.options.length, prepare=self._prepare
        )
        encoded = encode_in_chunks(encode.groups, self.splits.train)
        return self.several_rows_each(encoded, self._targets)

    def reading_report(self) -> tuple[str, ...]:
        unread = dict.fromkeys(name for file in self.splits.files for name in file.unread)
        return tuple(
            f"the column {name!r} is not read: a pair has no negatives; task retrieval learns them"
            for name in negatives_among(tuple(unread))
        )

    def loss(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> Sums:
        weights = batch["weights"]
        losses = self.objective.losses(outputs, batch["labels"], weights > 0)
        return {"": weighted_sums(weights, {"loss": losses})}

    def scores(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> jax.Array:
        return outputs.vectors  # B2X

    def module_of(self, description: ModelDescription, execution: Execution) -> nn.Module:
        vectors = description.vectors.chosen(None, None)
        if vectors.prompt(None) != self._prepare.prompt:
            problem = "teacher and student have different default prompts"
            raise UserError(f"{problem}; give them the same one")
        length = 0 if vectors.include_prompt else self.module.text_vectors.prompt_length
        return SentencePairs(description.config, execution, vectors.pool(length))

    def examples_as_text(self, count: int) -> str:
        """Label and both texts, one pair a line."""
        return "\n".join(
            "\t".join([str(example.label), *example.input]) for example in self.splits.train[:count]
        )


def create(config: TaskConfig[SimilarityData], model_init: ModelInit) -> SimilarityTask:
    """The task of a config.

    Raises:
        UserError: the data and the options do not fit together.
    """
    data = config.data
    tokenizer = model_tokenizer(model_init)
    description = _description(data, model_init, tokenizer)
    if not model_init.is_finished:
        _check_training(config, description)
    splits = read_splits(
        data,
        lambda source, split, report: map(
            two_views if split == "train" and data.loss == "in_batch_negatives" else checked_pair,
            read_texts(
                source,
                data,
                regression=data.loss != "softmax",
                one_class=True,
                needs_labels=split == "train" and data.loss != "in_batch_negatives",
                report=report,
            ),
        ),
        with_train=not model_init.is_finished,
    )
    objective = _objective(data, splits.all_train, model_init)
    if not model_init.is_finished:
        splits = dataclasses.replace(splits, train=objective.select(splits.train))
    similarity = description.vectors.similarity
    pair_metrics = find_metrics(splits.validation[0].examples, objective.labels, similarity)
    return SimilarityTask(
        splits=splits,
        tokenizer=tokenizer,
        description=description,
        execution=model_init.execution,
        options=labelled_options(config, pair_metrics.metric_names[0]),
        objective=objective,
    )


def _check_training(config: TaskConfig[SimilarityData], description: ModelDescription) -> None:
    """Raises OptionError if the options would train nothing, or another loss than requested."""
    layers = description.config.num_hidden_layers
    frozen = config.optimizer
    is_frozen = frozen.freeze_encoder or frozen.freeze_layers == layers
    if is_frozen and not description.vectors.has_parameters:
        key = "freeze_encoder" if frozen.freeze_encoder else "freeze_layers"
        raise OptionError(
            f"optimizer.{key}",
            getattr(frozen, key),
            "that leaves nothing to train, since task similarity trains an encoder alone: freeze "
            "fewer layers with {optimizer.freeze_layers}",
        )


def _objective(
    data: SimilarityData, examples: list[Example[Pair]], model_init: ModelInit
) -> Objective:
    match data.loss:
        case "cosine":
            return CosineObjective(data.lowest_and_highest)
        case "contrastive":
            return ContrastiveObjective(data.margin)
        case "in_batch_negatives":
            return MultipleNegativesRanking(data.scale, data.lowest_and_highest)
        case "cosent":
            return CosentObjective(data.scale)
    if model_init.is_finished:
        return SoftmaxObjective()  # a finished model has no classifier
    # Classes that only validation examples have count.
    used = set(map(class_of, examples))
    return SoftmaxObjective(choose_labels(used, model_init, data.names))


def _description(
    data: SimilarityData, model_init: ModelInit, tokenizer: Tokenizer
) -> ModelDescription:
    """A bare encoder without pooler; vectors are made as by the initial model."""
    base = model_init.description
    vectors = base.vectors if base else model_init.family.vectors
    vectors = vectors.chosen(data.pooling or None, None)
    vectors.width(model_init.architecture(tokenizer).hidden_size)  # a named pooling may not fit
    if not vectors.pools_tokens:
        rule = "set {data.pooling=cls} or another, since the pooler is not trained"
        problem = "the initial model makes vectors with its pooler"
        raise OptionError("data.pooling", data.pooling, rule, problem)
    return model_init.describe(tokenizer, "encoder", add_pooling_layer=False, vectors=vectors)


TRAIN = TrainSpec(
    SimilarityData,
    create,
    defaults=labelled_defaults(
        optimizer={"learning_rate": 2e-5}, train={"epochs": 1.0, "global_batch_size": 16}
    ),
)
