"""Config → task of pre-training: its keys, and `TRAIN`."""

import dataclasses
from typing import Any

from bert_jax.data.pretraining.corpus import (
    TOKENIZER_DIRECTORY,
    Corpus,
    synthetic_corpus,
    synthetic_tokenizer,
)
from bert_jax.data.pretraining.options import PrepareOptions, PretrainingOptions, VocabularyOptions
from bert_jax.data.pretraining.sources import SourceSpec, source_specs
from bert_jax.errors import OptionError, UserError, require_at_least, require_between
from bert_jax.options import keys_of
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.train_spec import TaskConfig, TrainSpec
from bert_jax.tasks.pretraining.task import BatchOptions, PretrainingTask
from bert_jax.tokenization import Tokenizer

_SOURCE, _PREPARE = keys_of(SourceSpec), keys_of(PrepareOptions)
_OF_A_SOURCE = ("format", "field", "paragraphs", "errors", "data_dir")


@dataclasses.dataclass(frozen=True)
class CorpusData(PretrainingOptions):
    """The section `data` of a config.

    Attributes:
        source: a text, or a list of texts and mappings, see `source_specs`.
        format, field, paragraphs, errors, data_dir: see `SourceSpec`.
        validation_fraction, sentences, language: see `PrepareOptions`.
        corpus: directory of the corpus.
        general_corpus: a second corpus that is evaluated only; "": none.
        packing: whether a row of a training batch holds several examples.
        evaluation_batches: maximum number of batches of an evaluation; 0: all.
    """

    source: Any = None
    format: str = _SOURCE["format"]
    field: str = _SOURCE["field"]
    paragraphs: str = _SOURCE["paragraphs"]
    errors: str = _SOURCE["errors"]
    data_dir: str | None = _SOURCE["data_dir"]
    validation_fraction: float = _PREPARE["validation_fraction"]
    sentences: str = _PREPARE["sentences"]
    language: str = _PREPARE["language"]
    corpus: str = ""
    general_corpus: str = ""
    packing: bool = False
    evaluation_batches: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        # More than a row has tokens, but the default may stay at short lengths.
        most = max(self.length, PretrainingOptions.max_predictions)
        require_at_least("data.max_predictions", self.max_predictions, 1, most)
        require_between(
            "data.validation_fraction", self.validation_fraction, 0, 1, without_high=True
        )
        require_at_least("data.evaluation_batches", self.evaluation_batches, 0)


Config = TaskConfig[CorpusData]


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


def open_corpus(config: Config, model_init: ModelInit) -> tuple[Corpus, Tokenizer]:
    """The corpus that a config names, and its tokenizer.

    Raises:
        UserError: there is none, or the model has another tokenizer.
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
        raise UserError(
            f"the model has another tokenizer than the corpus {data.corpus}; "
            "prepare the corpus with the directory of the model as tokenizer.path"
        )
    return corpus, tokenizer


def make_corpus(config: Config, model_init: ModelInit) -> tuple[Corpus, Tokenizer]:
    """A synthetic corpus for planning, whose batches have the shapes of any other, and a tokenizer.

    The vocabulary size is that of `tokenizer.path` or `init_from`, else `model.vocab_size`, else
    the size that `prepare` trains.
    """
    size = model_init.options.fields.get("vocab_size")
    tokenizer = model_init.tokenizer or synthetic_tokenizer(
        size or config.section(VocabularyOptions).vocab_size
    )
    return synthetic_corpus(tokenizer), tokenizer


def general_corpus(config: Config, tokenizer: Tokenizer) -> Corpus | None:
    """The corpus `data.general_corpus`, None without one.

    Raises:
        UserError: it cannot be read, or was prepared with another tokenizer.
    """
    if not config.data.general_corpus:
        return None
    corpus = Corpus.open(config.data.general_corpus)
    corpus.check_tokenizer(tokenizer)
    return corpus


def batch_options(config: Config) -> BatchOptions:
    """How many examples are in a batch."""
    # Evaluations have as many rows as a micro-batch of training.
    data, rows = config.data, config.train.global_batch_size
    rows_of_evaluation = rows // config.train.microbatches
    return BatchOptions(rows, rows_of_evaluation, data.evaluation_batches, data.packing)


def _task(
    config: Config,
    model_init: ModelInit,
    corpus: Corpus,
    tokenizer: Tokenizer,
    general: Corpus | None = None,
) -> PretrainingTask:
    options = config.data
    head = "masked_lm" if options.objective == "none" else "pretraining"
    if head not in model_init.family.class_names:
        kind = model_init.family.model_type
        rule = f"models of the family {kind} have no head for pairs: set data.objective=none"
        raise OptionError("data.objective", options.objective, rule)
    description = model_init.describe(tokenizer, head, num_labels=None)
    return PretrainingTask(
        corpus,
        tokenizer,
        options,
        description,
        model_init.execution,
        batch_options(config),
        general_corpus=general,
    )


def create(config: Config, model_init: ModelInit) -> PretrainingTask:
    """The task of a config, see `bert_jax.config`."""
    corpus, tokenizer = open_corpus(config, model_init)
    general = general_corpus(config, tokenizer)
    return _task(config, model_init, corpus, tokenizer, general)


def create_without_data(config: Config, model_init: ModelInit) -> PretrainingTask:
    """The task of a config without a corpus, for planning."""
    return _task(config, model_init, *make_corpus(config, model_init))


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
