"""What a config of a task of retrieval trains and evaluates."""

import functools
from collections.abc import Callable, Mapping
from typing import TypeVar

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Candidates, Example, Relevance
from bert_jax.models.config import EncoderConfig
from bert_jax.models.execution import Execution
from bert_jax.tasks.base.labelled_options import labelled_defaults, model_tokenizer
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.planning_tokenizer import planning_tokenizer
from bert_jax.tasks.base.ranked_task import DEFAULT_LENGTH
from bert_jax.tasks.base.retrieval.interaction import Interaction
from bert_jax.tasks.base.retrieval.options import RetrievalData
from bert_jax.tasks.base.retrieval.sets import read_collection, read_set
from bert_jax.tasks.base.retrieval.task import RetrievalTask
from bert_jax.tasks.base.retrieval.towers import DocumentEncoderOptions
from bert_jax.tasks.base.splits import EvalSet, Splits, read_splits
from bert_jax.tasks.base.train_spec import TaskConfig, TrainedPart, TrainSpec
from bert_jax.tokenization import Tokenizer

Data = TypeVar("Data", bound=RetrievalData)


def retrieval_spec(
    data: type[Data],
    make_interaction: Callable[[TaskConfig[Data], ModelInit, Tokenizer], Interaction],
    *,
    batch_size: int,
    task: type[RetrievalTask] = RetrievalTask,
    parts: Mapping[str, Callable[[TaskConfig[Data], ModelDescription, Execution], TrainedPart]]
    | None = None,
) -> TrainSpec[Data]:
    """What a config of a task of retrieval trains and evaluates.

    Args:
        data: dataclass of the section `data`.
        make_interaction: makes the kind of model, for its tokenizer.
        batch_size: default of `train.global_batch_size`.
        task: class of the task.
        parts: the models of two encoders that a run can export, see `TrainSpec.parts`; configs
            then have the section `DocumentEncoderOptions`. None: there is one encoder.
    """

    def create(config: TaskConfig[Data], model_init: ModelInit) -> RetrievalTask:
        tokenizer = model_tokenizer(model_init)
        interaction = make_interaction(config, model_init, tokenizer)
        directory = None
        if parts:
            directory = config.section(DocumentEncoderOptions).directory(tokenizer)
        read = functools.partial(read_set, config.data)
        splits = read_splits(config.data, read, with_train=not model_init.is_finished)
        return task(
            splits,
            interaction,
            config,
            model_init.execution,
            collection=read_collection(config.data, splits),
            document_encoder=directory,
        )

    def create_without_data(config: TaskConfig[Data], model_init: ModelInit) -> RetrievalTask:
        tokenizer = planning_tokenizer(model_init, "model.vocab_size", EncoderConfig.vocab_size)
        interaction = make_interaction(config, model_init, tokenizer)
        splits = _synthetic_splits(config.data)
        return task(splits, interaction, config, model_init.execution, collection={})

    return TrainSpec(
        data,
        create,
        create_without_data=create_without_data,
        has_data=lambda data: bool(data.train),
        sections={"document_encoder": DocumentEncoderOptions} if parts else {},
        defaults=labelled_defaults(
            optimizer={"learning_rate": 2e-5},
            train={"epochs": 1.0, "global_batch_size": batch_size},
        ),
        parts=parts or {},
    )


def _synthetic_splits(data: RetrievalData) -> Splits[Candidates]:
    """An example, for planning: every text is as long as it may be."""
    length = data.length or DEFAULT_LENGTH
    query, document = (" ".join(["a"] * count) for count in (data.query_length or length, length))
    documents = tuple(f"{number} {document}" for number in range(1 + data.negatives))
    scores = (1.0, *[0.0] * data.negatives)
    example = Example(Candidates(query, documents), Relevance(scores, scores))
    return Splits([example], [example], [EvalSet("validation", "", [example])], [])
