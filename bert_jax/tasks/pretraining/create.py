"""Config → task of pre-training: its keys, their ranges, and `TRAIN`."""

from typing import Any

from ml_collections import ConfigDict

from bert_jax.data.pretraining.corpus import (
    TOKENIZER_DIRECTORY,
    Corpus,
    synthetic_corpus,
    synthetic_tokenizer,
)
from bert_jax.data.pretraining.options import PretrainingOptions
from bert_jax.data.pretraining.preparation.options import PrepareOptions, VocabularyOptions
from bert_jax.data.pretraining.sources import SourceSpec, source_specs
from bert_jax.errors import OptionError, require_at_least, require_between
from bert_jax.models.config import Head
from bert_jax.options import from_keys, keys_of
from bert_jax.tasks.base.task import ModelInit, TrainSpec
from bert_jax.tasks.pretraining.task import BatchOptions, PretrainingTask
from bert_jax.tokenization import Tokenizer


def defaults() -> dict[str, dict[str, Any]]:
    """The keys of this task, by section.

    Section `tokenizer` has the keys of `VocabularyOptions`; `data` those of `PrepareOptions`, of
    the sources and of `PretrainingOptions`; `data.packing` puts several examples in a row, and
    `data.general_corpus` is a second corpus that is evaluated only.
    """
    return {
        "tokenizer": keys_of(VocabularyOptions),
        "data": {
            "source": None,  # a text, or a list of texts and mappings: see `source_specs`
            **keys_of(SourceSpec, omit=("source", "weight")),
            **keys_of(PrepareOptions, omit=("sources", "tokenizer", "vocabulary", "seed")),
            "corpus": "",
            "general_corpus": "",
            **keys_of(PretrainingOptions, omit=("seed",)),
            "packing": False,
            "evaluation_batches": 0,
        },
    }


def prepare_options(config: ConfigDict) -> PrepareOptions:
    """The options of `bert-jax prepare`, from the sections `data` and `tokenizer`."""
    data = config.data
    per_source = {name: data[name] for name in keys_of(SourceSpec, omit=("source", "weight"))}
    return from_keys(
        PrepareOptions,
        data,
        sources=source_specs(data.source, per_source),
        tokenizer=config.tokenizer.path or None,
        vocabulary=from_keys(VocabularyOptions, config.tokenizer),
        seed=config.seed,
    )


def check_options(config: ConfigDict) -> None:
    """Raises OptionError where a key of the task is out of range; reads no file."""
    data = config.data
    from_keys(PretrainingOptions, data, seed=config.seed)
    # More than a row has tokens, but the default may stay at short lengths.
    most = max(data.length, PretrainingOptions.max_predictions)
    require_at_least("data.max_predictions", data.max_predictions, 1, most)
    require_between("data.validation_fraction", data.validation_fraction, 0, 1, without_high=True)
    BatchOptions(1, 1, data.evaluation_batches)
    from_keys(VocabularyOptions, config.tokenizer)


def has_data(config: ConfigDict) -> bool:
    """Whether the config names a corpus; `create_without_data` needs none."""
    return bool(config.data.corpus)


def open_corpus(config: ConfigDict, model_init: ModelInit) -> tuple[Corpus, Tokenizer]:
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
    if config.tokenizer.path:
        corpus.check_tokenizer(model_init.family.load_tokenizer(config.tokenizer.path))
    if model_init.tokenizer and model_init.tokenizer.fingerprint() != tokenizer.fingerprint():
        raise OptionError(
            "tokenizer.path",
            config.tokenizer.path,
            "prepare the corpus with the directory of the model as tokenizer.path",
            problem=f"the model has another tokenizer than the corpus {data.corpus}",
        )
    return corpus, tokenizer


def make_corpus(config: ConfigDict, model_init: ModelInit) -> tuple[Corpus, Tokenizer]:
    """A synthetic corpus for planning, whose batches have the shapes of any other, and a tokenizer.

    The vocabulary size is that of `tokenizer.path` or `init_from`, else `model.vocab_size`, else
    the size that `prepare` trains.
    """
    tokenizer = model_init.tokenizer or synthetic_tokenizer(
        config.model.vocab_size or config.tokenizer.vocab_size
    )
    return synthetic_corpus(tokenizer), tokenizer


def general_corpus(config: ConfigDict, tokenizer: Tokenizer) -> Corpus | None:
    """The corpus `data.general_corpus`, None without one.

    Raises:
        UserError: it cannot be read, or was prepared with another tokenizer.
    """
    if not config.data.general_corpus:
        return None
    corpus = Corpus.open(config.data.general_corpus)
    corpus.check_tokenizer(tokenizer)
    return corpus


def batch_options(config: ConfigDict) -> BatchOptions:
    """How many examples are in a batch."""
    train, data = config.train, config.data
    # Evaluations have as many rows as a micro-batch of training.
    evaluation_rows = train.global_batch_size // train.microbatches
    return BatchOptions(
        train.global_batch_size, evaluation_rows, data.evaluation_batches, data.packing
    )


def _task(
    config: ConfigDict,
    model_init: ModelInit,
    corpus: Corpus,
    tokenizer: Tokenizer,
    general: Corpus | None = None,
) -> PretrainingTask:
    options = from_keys(PretrainingOptions, config.data, seed=config.seed)
    head = Head.MASKED_LM if options.objective == "none" else Head.PRETRAINING
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


def create(config: ConfigDict, model_init: ModelInit) -> PretrainingTask:
    """The task of a config, see `bert_jax.config`."""
    corpus, tokenizer = open_corpus(config, model_init)
    general = general_corpus(config, tokenizer)
    return _task(config, model_init, corpus, tokenizer, general)


def create_without_data(config: ConfigDict, model_init: ModelInit) -> PretrainingTask:
    """The task of a config without a corpus, for planning."""
    return _task(config, model_init, *make_corpus(config, model_init))


def _export_notes(config: ConfigDict) -> tuple[str, ...]:
    note = "the exported model has no head of span boundaries; only checkpoints hold it"
    return (note,) if config.data.span_boundary else ()


TRAIN = TrainSpec(
    create,
    defaults,
    prepare_options,
    create_without_data,
    has_data,
    check_options,
    export_notes=_export_notes,
)
