"""Corpora of a config: how they are prepared, opened and checked, and what a task makes of them."""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from bert_jax.data.pretraining.corpus import TOKENIZER_DIRECTORY, Corpus, synthetic_corpus
from bert_jax.data.pretraining.options import PrepareOptions, VocabularyOptions
from bert_jax.data.pretraining.sources import SourceSpec, source_specs
from bert_jax.errors import OptionError, UnreachableError, require_at_least, require_between
from bert_jax.families.family import Family
from bert_jax.files import as_path, is_there
from bert_jax.models.config import EncoderConfig
from bert_jax.options import keys_of
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.planning_tokenizer import planning_tokenizer
from bert_jax.tasks.base.task import Task
from bert_jax.tasks.base.train_spec import TaskConfig, TrainSpec
from bert_jax.tokenization import Tokenizer

_SOURCE, _PREPARE = keys_of(SourceSpec), keys_of(PrepareOptions)
_SOURCE_FIELDS = ("format", "field", "paragraphs", "errors", "data_dir")


@dataclasses.dataclass(frozen=True)
class CorpusOptions:
    """The keys of section `data` of a task that learns from a corpus.

    Attributes:
        source: a text, or a list of texts and mappings, see `source_specs`.
        format, field, paragraphs, errors, data_dir: see `SourceSpec`.
        validation_fraction, sentences, language: see `PrepareOptions`.
        corpus: directory of the corpus.
        general_corpus: a second corpus that is evaluated only; "": none.
        evaluation_batches: maximum number of batches of an evaluation; 0: all.
        length: tokens of a row, as the options of the objective say.
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
    evaluation_batches: int = 0
    length: int = 128

    def __post_init__(self) -> None:
        require_between(
            "data.validation_fraction", self.validation_fraction, 0, 1, without_high=True
        )
        require_at_least("data.evaluation_batches", self.evaluation_batches, 0)


Data = TypeVar("Data", bound=CorpusOptions)


@dataclasses.dataclass(frozen=True)
class Corpora:
    """Corpora and their tokenizer.

    Attributes:
        by_prefix: by the prefix of their metrics: "" the corpus; "general_" another one, whose
            validation documents are also evaluated: what a model forgets that learns from a special
            corpus.
        tokenizer: tokenizer of all.
        is_synthetic: whether they are made for planning, with any tokens.
    """

    by_prefix: Mapping[str, Corpus]
    tokenizer: Tokenizer
    is_synthetic: bool = False


def corpus_spec(
    data: type[Data],
    make: Callable[[TaskConfig[Data], ModelInit, Corpora], Task],
    sections: Mapping[str, type] = MappingProxyType({}),
) -> TrainSpec[Data]:
    """What a config of a task that learns from a corpus trains and evaluates.

    Args:
        data: dataclass of the section `data`.
        make: makes the task of a config, for a model and corpora with their tokenizer.
        sections: see `TrainSpec`, beside `tokenizer`.
    """
    return TrainSpec(
        data,
        lambda config, model_init: make(config, model_init, _open_corpora(config, model_init)),
        sections={"tokenizer": VocabularyOptions, **sections},
        prepare_options=_prepare_options,
        create_without_data=lambda config, model_init: make(
            config, model_init, _synthetic_corpora(config, model_init)
        ),
        has_data=lambda data: bool(data.corpus),
    )


def _prepare_options(config: TaskConfig[Data]) -> PrepareOptions:
    """The options of `bert-jax prepare`, from the sections `data` and `tokenizer`."""
    data = config.data
    return PrepareOptions(
        source_specs(data.source, {name: getattr(data, name) for name in _SOURCE_FIELDS}),
        config.tokenizer_path or None,
        config.section(VocabularyOptions),
        data.validation_fraction,
        data.sentences,
        data.language,
        config.seed,
    )


def _open_corpora(config: TaskConfig[Data], model_init: ModelInit) -> Corpora:
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
        return Corpora({"": corpus}, tokenizer)
    general = Corpus.open(data.general_corpus)
    general.check_tokenizer(tokenizer)
    return Corpora({"": corpus, "general_": general}, tokenizer)


def _synthetic_corpora(config: TaskConfig[Data], model_init: ModelInit) -> Corpora:
    """A synthetic corpus for planning, with batches of the usual shapes, and a tokenizer.

    The vocabulary is as large as in `tokenizer.path` or `init_from`, else `model.vocab_size`, else
    as in the corpus, else as `prepare` trains.
    """
    if not (model_init.tokenizer or model_init.options.fields.get("vocab_size")):
        tokenizer = _corpus_tokenizer(config.data.corpus, model_init.family)
        model_init = dataclasses.replace(model_init, tokenizer=tokenizer)
    size = config.section(VocabularyOptions).vocab_size
    tokenizer = planning_tokenizer(model_init, "tokenizer.vocab_size", size)
    return Corpora({"": synthetic_corpus(tokenizer)}, tokenizer, is_synthetic=True)


def _corpus_tokenizer(directory: str, family: Family) -> Tokenizer | None:
    """The tokenizer of a corpus; None if there is no corpus yet, or it cannot be reached."""
    path = as_path(directory) / TOKENIZER_DIRECTORY
    try:
        return family.load_tokenizer(path) if directory and is_there(path) else None
    except UnreachableError:
        return None


def check_corpora(corpora: Corpora, length: int, config: EncoderConfig) -> None:
    """Raises OptionError where corpora, length of the rows and model do not fit together."""
    if length > config.max_length:
        raise OptionError(
            "data.length",
            length,
            f"the model has {config.max_length} positions: lower it, or raise "
            "{model.max_position_embeddings}",
        )
    words = corpora.tokenizer.vocab_size
    if config.vocab_size < words:
        raise OptionError(
            "model.vocab_size",
            config.vocab_size,
            f"the corpus has a vocabulary of {words}: leave it out to use that size",
        )
    for corpus in corpora.by_prefix.values():
        if not len(corpus.splits["validation"].tokens):
            rule = "prepare it from at least 2 documents with {data.validation_fraction} above 0"
            problem = f"{corpus.path} has no validation documents"
            raise OptionError("data.corpus", str(corpus.path), rule, problem)
