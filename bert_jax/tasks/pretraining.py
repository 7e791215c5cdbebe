"""Pre-training: masked language model and next-sentence prediction (paper, section 3.1).

    loss = mean over masked tokens of  -log p(original token | masked text)
         + mean over sentence pairs of -log p(is next or random | masked text)

The first term is MLM, the second NSP; SOP ("in order or swapped") takes the place of NSP, or there
is no second term. `data.pretraining` makes the batches, `models` the logits; here is the loss.
"""

import dataclasses
import math
from collections.abc import Generator
from typing import Any

import jax
import numpy as np
import optax
from ml_collections import ConfigDict

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.pipeline import Batch, batches_in_order
from bert_jax.data.pretraining.batches import PretrainingBatches, PretrainingOptions
from bert_jax.data.pretraining.corpus import (
    TOKENIZER_DIRECTORY,
    Corpus,
    synthetic_corpus,
    synthetic_tokenizer,
)
from bert_jax.data.pretraining.packing import PackedBatches
from bert_jax.data.pretraining.preparation.prepare import PrepareOptions
from bert_jax.data.pretraining.preparation.vocabulary import VocabularyOptions
from bert_jax.data.pretraining.readable import as_text
from bert_jax.data.pretraining.sources import SourceSpec, source_specs
from bert_jax.errors import OptionError
from bert_jax.models.config import EncoderConfig, Head
from bert_jax.models.execution import Execution
from bert_jax.options import from_keys, keys_of
from bert_jax.tasks.base.task import ModelInit, Sums, Task, TrainingTask, weighted_sums, with_rows
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True)
class EvaluationOptions:
    """The batches of an evaluation.

    Attributes:
        rows: examples of a batch, over all hosts.
        batches: the most batches; 0 for all.
    """

    rows: int
    batches: int = 0

    def __post_init__(self) -> None:
        if self.batches < 0:
            raise OptionError("evaluation_batches", self.batches, "it must be 0 (all) or more")


class PretrainingTask(Task):
    """MLM and NSP (or SOP, or MLM alone) on a corpus.

    Metrics: `mlm_loss`, `mlm_accuracy`, `nsp_loss`, `nsp_accuracy`, and `mlm_perplexity`.
    """

    best_metric = ("mlm_loss", False)  # lower is better
    derived_metrics = ("mlm_perplexity",)  # of mlm_loss

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: Tokenizer,
        options: PretrainingOptions,
        description: ModelDescription,
        execution: Execution,
        *,
        global_batch_size: int,
        evaluation: EvaluationOptions,
        packing: bool = False,
    ) -> None:
        """Plans the examples of both splits.

        Args:
            corpus: the documents.
            tokenizer: that of the corpus.
            options: length, objective and masking of the examples.
            description: of the model.
            execution: dtype and kernels.
            global_batch_size: rows of a training batch, over all hosts.
            evaluation: the batches of an evaluation. They are never packed, so that each example
                counts once for any batch size.
            packing: whether a row of a training batch has several examples.

        Raises:
            UserError: corpus, options and model do not fit together.
        """
        self.tokenizer = tokenizer
        self.description = description
        self.module = description.make_module(execution)
        self._objective = options.objective
        self._global_batch_size = global_batch_size
        self._evaluation = evaluation
        _check_corpus(corpus, tokenizer, options, description.config)
        train, validation = corpus.splits["train"], corpus.splits["validation"]
        examples = PretrainingBatches(train, tokenizer, options)
        self._train = PackedBatches(examples) if packing else examples
        self._validation = PretrainingBatches(validation, tokenizer, options, weighted=False)

    def check(self) -> None:
        """Every corpus has the labels of pre-training."""

    @property
    def examples_per_epoch(self) -> int:
        """Rows of an epoch; with packing, each has several examples."""
        return self._train.rows_per_epoch

    def train_batches(
        self, start: int, stop: int, *, host: int, hosts: int
    ) -> Generator[Batch, None, None]:
        rows = self._global_batch_size // hosts
        return batches_in_order(
            lambda number: self._train.batch(number, rows, host=host, hosts=hosts), start, stop
        )

    def batch_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        return with_rows(self._train.batch(0, 1), self._global_batch_size)

    def evaluation_batches(
        self, *, host: int, hosts: int, divisor: int = 1
    ) -> Generator[Batch, None, None]:
        """This host's rows of validation batches, the same examples and masks every time.

        Batches are padded to a multiple of `divisor` rows; the weights of padding rows are 0.
        """
        rows = self._evaluation.rows
        own = -(-rows // divisor) * divisor // hosts
        columns = np.arange(host * own, (host + 1) * own)
        batches = -(-self._validation.examples_per_epoch // rows)
        if self._evaluation.batches:
            batches = min(batches, self._evaluation.batches)
        return batches_in_order(
            lambda number: self._validation.evaluation_batch(number, rows, columns), 0, batches
        )

    def loss_weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """Number of masked tokens, and of labelled pairs."""
        return {
            "mlm": batch["masked_lm_weights"].sum(),
            "nsp": batch["next_sentence_weights"].sum(),
        }

    def loss_sums(self, params: Any, batch: dict[str, jax.Array], dropout_key: Any = None) -> Sums:
        """Cross-entropies and correct answers of both heads."""
        output: Any = self.module.apply(
            {"params": params},
            batch["input_ids"],
            batch["token_type_ids"],
            # Unpacked batches have the mask, packed ones positions and segments.
            batch.get("attention_mask"),
            batch.get("position_ids"),
            segment_ids=batch.get("segment_ids"),
            masked_lm_positions=batch["masked_lm_positions"],
            next_sentence_positions=batch.get("next_sentence_positions"),
            deterministic=dropout_key is None,
            rngs=None if dropout_key is None else {"dropout": dropout_key},
        )
        return {
            "mlm": _classification_sums(
                output.prediction_logits, batch["masked_lm_ids"], batch["masked_lm_weights"]
            ),
            "nsp": _classification_sums(
                output.seq_relationship_logits,
                batch["next_sentence_labels"],
                batch["next_sentence_weights"],
            ),
        }

    def summary(self, metrics: dict[str, float]) -> dict[str, float]:
        """Adds the perplexity of the masked words."""
        # e^20 is beyond any vocabulary; the cap keeps a diverging run's log finite.
        return {**metrics, "mlm_perplexity": math.exp(min(metrics["mlm_loss"], 20.0))}

    def examples_as_text(self, count: int) -> str:
        """The first rows of the run, see `as_text`."""
        return as_text(self._train.batch(0, count), self.tokenizer, self._objective)

    def baselines(self) -> dict[str, float]:
        """Validation accuracy of two constant answers.

        `mlm_most_frequent`: always the most frequent masked token; `nsp_majority`: always the more
        frequent label.
        """
        tokens = np.zeros(self.tokenizer.vocab_size)
        labels = np.zeros(2)
        for batch in self.evaluation_batches(host=0, hosts=1):
            tokens += np.bincount(
                batch["masked_lm_ids"].ravel(), batch["masked_lm_weights"].ravel(), len(tokens)
            )
            labels += np.bincount(
                batch["next_sentence_labels"], batch["next_sentence_weights"], len(labels)
            )
        return {
            "mlm_most_frequent": float(tokens.max() / max(tokens.sum(), 1)),
            "nsp_majority": float(labels.max() / max(labels.sum(), 1)),
        }


def _check_corpus(
    corpus: Corpus, tokenizer: Tokenizer, options: PretrainingOptions, config: EncoderConfig
) -> None:
    """Raises OptionError where corpus, options and model do not fit together."""
    if options.length > config.max_length:
        raise OptionError(
            "length",
            options.length,
            f"the model has {config.max_length} positions: lower it, or raise "
            "{max_position_embeddings}",
        )
    if config.vocab_size < tokenizer.vocab_size:
        raise OptionError(
            "vocab_size",
            config.vocab_size,
            f"the corpus has a vocabulary of {tokenizer.vocab_size}: leave it out to use that size",
        )
    if options.objective == "nsp" and len(corpus.splits["train"].document_offsets) < 3:
        raise OptionError(
            "objective",
            options.objective,
            "{objective=nsp} draws random next sentences from another one: separate documents "
            "by blank lines and prepare again, or use sop or none",
            problem=f"{corpus.path} has 1 document to train on",
        )
    if not len(corpus.splits["validation"].tokens):
        raise OptionError(
            "validation_fraction",
            None,
            "prepare it from at least 2 documents with {validation_fraction} above 0",
            problem=f"{corpus.path} has no validation documents",
        )


def _classification_sums(
    logits: jax.Array, labels: jax.Array, weights: jax.Array
) -> dict[str, jax.Array]:
    """float32 [..., C], int [...], float32 [...] → weighted sums of loss and correct answers."""
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    correct = logits.argmax(axis=-1) == labels
    return weighted_sums(weights, {"loss": losses, "accuracy": correct})


def defaults() -> dict[str, dict[str, Any]]:
    """The keys of this task, by section.

    `tokenizer` are those of `VocabularyOptions`; `data` those of `PrepareOptions`, of the sources,
    and of `PretrainingOptions`; `data.packing` puts several examples in a row.
    """
    return {
        "tokenizer": keys_of(VocabularyOptions),
        "data": {
            "source": None,  # a text, or a list of texts and mappings: see `source_specs`
            **keys_of(SourceSpec, omit=("source", "weight")),
            **keys_of(PrepareOptions, omit=("sources", "tokenizer", "vocabulary", "seed")),
            "corpus": "",
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


def has_data(config: ConfigDict) -> bool:
    """Whether the config names a corpus; `create_without_data` needs none."""
    return bool(config.data.corpus)


def create(config: ConfigDict, model_init: ModelInit) -> PretrainingTask:
    """The task of a config, see `bert_jax.config`."""
    data = config.data
    if not data.corpus:
        rule = "make one with `bert-jax prepare` and give its directory"
        raise OptionError("corpus", data.corpus, rule)
    corpus = Corpus.open(data.corpus)
    tokenizer = model_init.family.load_tokenizer(corpus.path / TOKENIZER_DIRECTORY)
    if config.tokenizer.path:
        corpus.check_tokenizer(model_init.family.load_tokenizer(config.tokenizer.path))
    if model_init.tokenizer and model_init.tokenizer.fingerprint() != tokenizer.fingerprint():
        raise OptionError(
            "path",
            config.tokenizer.path,
            "prepare the corpus with the directory of the model as {path}",
            problem=f"the model has another tokenizer than the corpus {data.corpus}",
        )
    return _task(config, model_init, corpus, tokenizer)


def create_without_data(config: ConfigDict, model_init: ModelInit) -> PretrainingTask:
    """The task of a config without a corpus, for planning: a synthetic one has the same shapes.

    The vocabulary is that of `tokenizer.path` or `init_from`, else of `model.vocab_size`, else of
    the size that `prepare` trains.
    """
    tokenizer = model_init.tokenizer or synthetic_tokenizer(
        config.model.vocab_size or config.tokenizer.vocab_size
    )
    return _task(config, model_init, synthetic_corpus(tokenizer), tokenizer)


def _task(
    config: ConfigDict, model_init: ModelInit, corpus: Corpus, tokenizer: Tokenizer
) -> PretrainingTask:
    data = config.data
    options = from_keys(PretrainingOptions, data, seed=config.seed)
    return PretrainingTask(
        corpus,
        tokenizer,
        options,
        model_init.describe(tokenizer, Head.PRETRAINING, num_labels=None),
        model_init.execution,
        global_batch_size=config.train.global_batch_size,
        # As many rows as a micro-batch of training.
        evaluation=EvaluationOptions(
            config.train.global_batch_size // config.train.microbatches, data.evaluation_batches
        ),
        packing=data.packing,
    )


TRAIN = TrainingTask(create, defaults, prepare_options, create_without_data, has_data)
