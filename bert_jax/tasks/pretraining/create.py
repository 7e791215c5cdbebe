"""Config → task of pre-training: its corpora, and `TRAIN`."""

from collections.abc import Mapping
from typing import TypeVar

from bert_jax.data.pretraining.corpus import (
    TOKENIZER_DIRECTORY,
    Corpus,
    synthetic_corpus,
    synthetic_tokenizer,
)
from bert_jax.data.pretraining.options import PrepareOptions, PretrainingOptions, VocabularyOptions
from bert_jax.data.pretraining.sources import source_specs
from bert_jax.errors import OptionError
from bert_jax.models.config import EncoderConfig
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.train_spec import TaskConfig, TrainSpec
from bert_jax.tasks.pretraining.task import CorpusData, DistillablePretrainingTask, PretrainingTask
from bert_jax.tokenization import Tokenizer

_OF_A_SOURCE = ("format", "field", "paragraphs", "errors", "data_dir")

Config = TaskConfig[CorpusData]
Corpora = tuple[Mapping[str, Corpus], Tokenizer]
"""Corpora by the prefix of their metrics, see `PretrainingTask`, and their tokenizer."""

Made = TypeVar("Made", bound=PretrainingTask)


def prepare_options(config: Config) -> PrepareOptions:
    """The options of `bert-jax prepare`, from the sections `data` and `tokenizer`."""
    data = config.data
    return PrepareOptions(
        source_specs(data.source, {name: getattr(data, name) for name in _OF_A_SOURCE}),
        config.tokenizer_path or None,
        config.section(VocabularyOptions),
        data.validation_fraction,
        data.sentences,
        data.language,
        config.seed,
    )


def open_corpora(config: Config, model_init: ModelInit) -> Corpora:
    """The corpora that a config names.

    Raises:
        UserError: one cannot be read, or was prepared with another tokenizer than the model's.
    """
    data = config.data
    if not data.corpus:
        rule = "make one with `bert-jax prepare` and give its directory"
        raise OptionError("data.corpus", data.corpus, rule)
    corpus = Corpus.open(data.corpus)
    tokenizer = model_init.family.load_tokenizer(corpus.path / TOKENIZER_DIRECTORY)
    if config.tokenizer_path:
        corpus.check_tokenizer(model_init.family.load_tokenizer(config.tokenizer_path))
    if model_init.tokenizer and model_init.tokenizer.fingerprint() != tokenizer.fingerprint():
        rule = "prepare the corpus with the directory of the model as {tokenizer.path}"
        problem = f"the model has another tokenizer than the corpus {data.corpus}"
        raise OptionError("data.corpus", data.corpus, rule, problem)
    if not data.general_corpus:
        return {"": corpus}, tokenizer
    general = Corpus.open(data.general_corpus)
    general.check_tokenizer(tokenizer)
    return {"": corpus, "general_": general}, tokenizer


def synthetic_corpora(config: Config, model_init: ModelInit) -> Corpora:
    """A synthetic corpus for planning, with batches of the usual shapes, and a tokenizer.

    The vocabulary is as large as in `tokenizer.path` or `init_from`, else `model.vocab_size`, else
    as `prepare` trains.
    """
    size = model_init.options.fields.get("vocab_size")
    tokenizer = model_init.tokenizer or synthetic_tokenizer(
        size or config.section(VocabularyOptions).vocab_size
    )
    return {"": synthetic_corpus(tokenizer)}, tokenizer


def make_task(
    cls: type[Made],
    head: str,
    config: Config,
    model_init: ModelInit,
    corpora: Corpora,
) -> Made:
    """The task of a class for a model with a head.

    Raises:
        UserError: corpora, options and model do not fit together.
    """
    by_prefix, tokenizer = corpora
    description = model_init.describe(tokenizer, head, num_labels=None)
    for corpus in by_prefix.values():
        _check_corpus(corpus, tokenizer, config.data, description.config)
    return cls(config, by_prefix, tokenizer, description, model_init.execution)


def _check_corpus(
    corpus: Corpus, tokenizer: Tokenizer, options: PretrainingOptions, config: EncoderConfig
) -> None:
    """Raises OptionError where corpus, options and model do not fit together."""
    if options.length > config.max_length:
        raise OptionError(
            "data.length",
            options.length,
            f"the model has {config.max_length} positions: lower it, or raise "
            "{model.max_position_embeddings}",
        )
    if config.vocab_size < tokenizer.vocab_size:
        raise OptionError(
            "model.vocab_size",
            config.vocab_size,
            f"the corpus has a vocabulary of {tokenizer.vocab_size}: leave it out to use that size",
        )
    supports_pairs = tokenizer.supports_pairs(config.type_vocab_size)
    if options.objective != "none" and not supports_pairs:
        raise OptionError(
            "model.type_vocab_size",
            config.type_vocab_size,
            f"{{data.objective={options.objective}}} has pairs of segments, each with a token "
            "type: set 2, or {data.objective=none}",
        )
    if options.objective == "nsp" and len(corpus.splits["train"].document_offsets) < 3:
        raise OptionError(
            "data.objective",
            options.objective,
            "{data.objective=nsp} draws random next sentences from another one: separate documents "
            "by blank lines and prepare again, or use sop or none",
            problem=f"{corpus.path} has 1 document to train on",
        )
    if not len(corpus.splits["validation"].tokens):
        rule = "prepare it from at least 2 documents with {data.validation_fraction} above 0"
        problem = f"{corpus.path} has no validation documents"
        raise OptionError("data.corpus", str(corpus.path), rule, problem)


def _task(config: Config, model_init: ModelInit, corpora: Corpora) -> PretrainingTask:
    objective = config.data.objective
    head = "masked_lm" if objective == "none" else "pretraining"
    if head not in model_init.family.class_names:
        kind = model_init.family.model_type
        rule = f"models of the family {kind} have no head for pairs: set {{data.objective=none}}"
        raise OptionError("data.objective", objective, rule)
    made = PretrainingTask if config.data.span_boundary else DistillablePretrainingTask
    return make_task(made, head, config, model_init, corpora)


def create(config: Config, model_init: ModelInit) -> PretrainingTask:
    """The task of a config."""
    return _task(config, model_init, open_corpora(config, model_init))


def create_without_data(config: Config, model_init: ModelInit) -> PretrainingTask:
    """The task of a config without a corpus, for planning."""
    return _task(config, model_init, synthetic_corpora(config, model_init))


def _export_notes(data: CorpusData) -> tuple[str, ...]:
    note = "the exported model has no head of span boundaries; only checkpoints hold it"
    return (note,) if data.span_boundary else ()


TRAIN = TrainSpec(
    CorpusData,
    create,
    sections={"tokenizer": VocabularyOptions},
    prepare_options=prepare_options,
    create_without_data=create_without_data,
    has_data=lambda data: bool(data.corpus),
    export_notes=_export_notes,
)
