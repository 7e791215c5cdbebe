"""Config → task of pre-training, and `TRAIN`."""

import dataclasses
from typing import TypeVar

from bert_jax.errors import OptionError
from bert_jax.models.config import EncoderConfig
from bert_jax.tasks.base.corpora import Corpora, check_corpora, corpus_spec
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.train_spec import TaskConfig
from bert_jax.tasks.pretraining.task import CorpusData, DistillablePretrainingTask, PretrainingTask

Config = TaskConfig[CorpusData]

Made = TypeVar("Made", bound=PretrainingTask)


def make_task(
    cls: type[Made], head: str, config: Config, model_init: ModelInit, corpora: Corpora
) -> Made:
    """The task of a class for a model with a head.

    Raises:
        UserError: corpora, options and model do not fit together.
    """
    description = model_init.describe(corpora.tokenizer, head, num_labels=None)
    check_corpora(corpora, config.data.length, description.config)
    _check_objective(corpora, config.data.objective, description.config)
    return cls(config, corpora, description, model_init.execution)


def _check_objective(corpora: Corpora, objective: str, config: EncoderConfig) -> None:
    """Raises OptionError where corpora and model do not fit the objective."""
    supports_pairs = corpora.tokenizer.supports_pairs(config.type_vocab_size)
    if objective != "none" and not supports_pairs:
        raise OptionError(
            "model.type_vocab_size",
            config.type_vocab_size,
            f"{{data.objective={objective}}} has pairs of segments, each with a token "
            "type: set 2, or {data.objective=none}",
        )
    for corpus in corpora.by_prefix.values():
        if objective == "nsp" and len(corpus.splits["train"].document_offsets) < 3:
            raise OptionError(
                "data.objective",
                objective,
                "{data.objective=nsp} draws random next sentences from another one: separate "
                "documents by blank lines and prepare again, or use sop or none",
                problem=f"{corpus.path} has 1 document to train on",
            )


def _make(config: Config, model_init: ModelInit, corpora: Corpora) -> PretrainingTask:
    objective = config.data.objective
    head = "masked_lm" if objective == "none" else "pretraining"
    if head not in model_init.family.class_names:
        kind = model_init.family.model_type
        rule = f"models of the family {kind} have no head for pairs: set {{data.objective=none}}"
        raise OptionError("data.objective", objective, rule)
    made = PretrainingTask if config.data.span_boundary else DistillablePretrainingTask
    return make_task(made, head, config, model_init, corpora)


def _export_notes(data: CorpusData) -> tuple[str, ...]:
    note = "the exported model has no head of span boundaries; only checkpoints hold it"
    return (note,) if data.span_boundary else ()


TRAIN = dataclasses.replace(corpus_spec(CorpusData, _make), export_notes=_export_notes)
