"""Training of cross-encoders: a classifier with one output reads a query and a document."""

import dataclasses
from typing import Any

import jax
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.sentence_transformers.cross_encoder import stored_as
from bert_jax.data.examples import Example, texts_of
from bert_jax.data.pipeline import Batch
from bert_jax.data.readers.ranking import read_candidates
from bert_jax.errors import require_at_least, require_between, require_one_of
from bert_jax.tasks.base.labelled_options import (
    labelled_defaults,
    labelled_options,
    model_tokenizer,
)
from bert_jax.tasks.base.labelled_task import TrainingRows, encode_in_chunks
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.ranked_task import RankedData, RankedTask
from bert_jax.tasks.base.splits import read_splits
from bert_jax.tasks.base.task import Sums, weighted_sums
from bert_jax.tasks.base.text_rows import TextEncoder
from bert_jax.tasks.base.train_spec import TaskConfig, TrainSpec
from bert_jax.tasks.ranking.evaluator import CrossEncoderEvaluator
from bert_jax.tasks.ranking.objectives import LOSSES, Objective, find_objective
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True)
class RankingData(RankedData):
    """The section `data` of a config; "binary_cross_entropy" takes all negatives.

    Attributes:
        loss: one of `LOSSES`, see `objectives`.
        positive_weight: the weight of a relevant document in "binary_cross_entropy".
    """

    loss: str = LOSSES[0]
    positive_weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("data.loss", self.loss, LOSSES)
        require_at_least("data.negatives", self.negatives, 1)
        require_between("data.positive_weight", self.positive_weight, 0, without_low=True)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class RankingTask(RankedTask):
    """Queries with their documents; a batch has the rows of a query together, [B, K, T].

    Attributes:
        objective: the loss.
        data: options of the documents and the metrics.

    Raises:
        UserError: see `LabelledTask`; or the model cannot tell a query from a document.
    """

    objective: Objective
    data: RankingData

    def __post_init__(self) -> None:
        type_vocab_size = self.description.config.type_vocab_size
        self.tokenizer.check_pairs(type_vocab_size, "a query with its document")
        super().__post_init__()
        # The one place where sentence-transformers reads the length of a cross-encoder.
        limited = dataclasses.replace(
            self.tokenizer.description, model_max_length=self.options.length
        )
        self.tokenizer = self.tokenizer.with_description(limited)

    def make_evaluator(self) -> CrossEncoderEvaluator:
        return CrossEncoderEvaluator(self.splits, self.options, self.description, self.data)

    def make_rows(self) -> TrainingRows:
        """An example has a row for each of its documents; `exists`, bool [B, K], has these."""
        ranking = self.ranking
        texts = [" ".join(texts_of(text)) for text in ranking.texts]
        lists = (
            Example(
                [(texts[query], texts[document]) for document in documents if document >= 0],
                location=ranking.locations[query],
            )
            for query, documents in zip(ranking.queries, ranking.documents, strict=True)
        )
        encode = TextEncoder(self.tokenizer, self.description.config, self.options.length)
        rows = self.several_rows_each(encode_in_chunks(encode.groups, lists), ranking.grades)

        def make(chosen: np.ndarray, length: int) -> Batch:
            batch = rows.make(chosen, length)
            batch["exists"] = batch["attention_mask"].max(axis=-1) > 0
            return batch if ranking.scores is None else batch | {"scores": ranking.scores[chosen]}

        return dataclasses.replace(rows, make=make)

    def loss_weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return {"": (batch["weights"] * self.objective.counts(batch)).sum()}

    def loss(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> Sums:
        losses = self.objective.losses(outputs[..., 0], batch)
        return {"": weighted_sums(batch["weights"], {"loss": losses})}


def create(config: TaskConfig[RankingData], model_init: ModelInit) -> RankingTask:
    """The task of a config."""
    data, tokenizer = config.data, model_tokenizer(model_init)
    objective = find_objective(data.loss, data.positive_weight)
    splits = read_splits(
        data,
        lambda source, split, report: read_candidates(source, data, split=split, report=report),
        with_train=not model_init.is_finished,
    )
    return RankingTask(
        splits=splits,
        tokenizer=tokenizer,
        description=_description(model_init, tokenizer, objective),
        execution=model_init.execution,
        options=labelled_options(config, data.metrics[0]),
        objective=objective,
        data=data,
    )


def _description(
    model_init: ModelInit, tokenizer: Tokenizer, objective: Objective
) -> ModelDescription:
    """A classifier with one output; a cross-encoder that is trained further keeps its head."""
    base, stored = model_init.description, stored_as(objective.activation)
    if base is None or base.head != "classification" or base.config.num_labels != 1:
        return model_init.describe(tokenizer, "classification", num_labels=1, other=stored)
    return model_init.describe(
        tokenizer,
        "classification",
        num_labels=1,
        labels=base.labels,
        problem_type=base.problem_type,
        other=base.other if model_init.is_finished else {**base.other, **stored},
    )


TRAIN = TrainSpec(
    RankingData,
    create,
    defaults=labelled_defaults(
        optimizer={"learning_rate": 2e-5}, train={"epochs": 1.0, "global_batch_size": 32}
    ),
)
