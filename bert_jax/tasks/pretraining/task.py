"""Pre-training: masked language model and next-sentence prediction (paper, section 3.1).

    loss = mean over masked tokens of  -log p(original token | masked text)
         + mean over sentence pairs of -log p(is next or random | masked text)

The first term is MLM, the second NSP; SOP ("in order or swapped") can replace NSP, or the second
term is left out. SpanBERT's span-boundary objective, SBO, is another term: the mean over tokens of
masked spans of -log p(original token | tokens next to the span, position in the span).
`data.pretraining` makes the batches, `models` the logits, this module the loss.
"""

import dataclasses
import functools
import math
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.pipeline import Batch, batches_in_order
from bert_jax.data.pretraining.batches import PretrainingBatches
from bert_jax.data.pretraining.corpus import Corpus
from bert_jax.data.pretraining.diagnostics import as_text, degenerate_targets, shown_share
from bert_jax.data.pretraining.options import PrepareOptions, PretrainingOptions
from bert_jax.data.pretraining.packing import PackedBatches
from bert_jax.data.pretraining.sources import SourceSpec
from bert_jax.errors import require_at_least, require_between
from bert_jax.metrics import baseline_warning
from bert_jax.models.execution import Execution
from bert_jax.models.heads.span_boundary import SpanBoundaryModel
from bert_jax.options import keys_of
from bert_jax.sharding.hosts import batch_share
from bert_jax.sharding.mesh import explain_out_of_memory
from bert_jax.tasks.base.predictor import Model
from bert_jax.tasks.base.summary import DataSummary, TokenCounts
from bert_jax.tasks.base.task import (
    Distillable,
    EvalResult,
    Evaluator,
    Predict,
    Sums,
    Task,
    classification_sums,
    mean_losses,
    with_rows,
)
from bert_jax.tasks.base.train_spec import TaskConfig
from bert_jax.tokenization import Tokenizer

_SOURCE, _PREPARE = keys_of(SourceSpec), keys_of(PrepareOptions)


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


# The labels and the weights of each term of the loss.
_TERMS = {
    "mlm": ("masked_lm_ids", "masked_lm_weights"),
    "nsp": ("next_sentence_labels", "next_sentence_weights"),
    "sbo": ("masked_lm_ids", "span_weights"),
}


class PretrainingTask(Task):
    """MLM and NSP (or SOP, or only MLM, or with SBO) on a corpus.

    Metrics: `mlm_loss`, `mlm_accuracy`, `mlm_perplexity`, and loss and accuracy of `nsp` (NSP or
    SOP) and `sbo`, if the objective has them.

    Attributes:
        reads_pairs: whether a row has two texts, for NSP or SOP.
    """

    best_metric = ("mlm_loss", False)  # lower is better
    derived_metrics = ("mlm_perplexity",)  # of mlm_loss

    def __init__(
        self,
        config: TaskConfig[CorpusData],
        corpora: Mapping[str, Corpus],
        tokenizer: Tokenizer,
        description: ModelDescription,
        execution: Execution,
    ) -> None:
        """Plans the examples of both splits.

        Args:
            config: sizes of the batches; length, objective and masking of the examples.
            corpora: by the prefix of their metrics: "" the corpus; "general_" another one, whose
                validation documents are also evaluated: what a model forgets that learns from a
                special corpus.
            tokenizer: tokenizer of the corpora.
            description: contents of the exported model directory.
            execution: dtype and kernels.
        """
        options, corpus = config.data, corpora[""]
        self._config = config
        self._corpora = corpora
        self.tokenizer = tokenizer
        self.description = description
        self.module = self.make_module(execution)
        self.reads_pairs = options.objective in ("nsp", "sop")
        self._examples = PretrainingBatches(corpus.splits["train"], tokenizer, options)
        self._train = PackedBatches(self._examples) if options.packing else self._examples
        self._validation = {
            prefix: PretrainingBatches(
                each.splits["validation"], tokenizer, options, weighted=False
            )
            for prefix, each in corpora.items()
        }

    def make_module(self, execution: Execution) -> nn.Module:
        """The module that is trained."""
        data = self._config.data
        if not data.span_boundary:
            return self.description.make_module(execution)
        return SpanBoundaryModel(
            self.description.config, execution, max_targets=data.max_span_targets
        )

    @property
    def examples_per_epoch(self) -> int:
        """Rows of an epoch; with packing, each has several examples."""
        return self._train.rows_per_epoch

    def fingerprints(self) -> dict[str, str]:
        return {
            f"{prefix}corpus": corpus.manifest.fingerprint
            for prefix, corpus in self._corpora.items()
        }

    def train_batches(
        self, start: int, stop: int, *, host: int, hosts: int
    ) -> Generator[Batch, None, None]:
        rows = self._config.train.global_batch_size // hosts
        return batches_in_order(
            lambda number: self._train.batch(number, rows, host=host, hosts=hosts), start, stop
        )

    def batch_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        return with_rows(self._train.batch(0, 1), self._config.train.global_batch_size)

    def evaluation_batches(
        self,
        *,
        host: int,
        hosts: int,
        divisor: int = 1,
        examples: PretrainingBatches | None = None,
    ) -> Generator[Batch, None, None]:
        """This host's rows of the batches of an evaluation, the same examples and masks every time.

        Args:
            host: index of this host's part of each batch, see `sharding.hosts.batch_share`.
            hosts: number of equal parts.
            divisor: the number of rows of a batch is a multiple of it; padding has the weight 0.
            examples: the examples; None: the validation examples of the corpus.
        """
        examples = examples or self._validation[""]
        # As many rows as a micro-batch of training; never packed, so that each example counts once.
        rows = self._config.train.global_batch_size // self._config.train.microbatches
        own = -(-rows // divisor) * divisor // hosts
        columns = np.arange(host * own, (host + 1) * own)
        batches = -(-examples.examples_per_epoch // rows)
        batches = min(batches, self._config.data.evaluation_batches or batches)
        return batches_in_order(
            lambda number: examples.evaluation_batch(number, rows, columns), 0, batches
        )

    @property
    def evaluator(self) -> Evaluator:
        return LossEvaluator(self, self.best_metric, self._validation)

    def loss_weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """Number of masked tokens, of labelled pairs, and of tokens of spans with boundaries."""
        return {
            term: batch[weights].sum() for term, (_, weights) in _TERMS.items() if weights in batch
        }

    def loss(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> Sums:
        """Cross-entropies and numbers of correct predictions of all heads."""
        logits: dict[str, Any] = {
            "mlm": _word_logits(outputs),
            "nsp": getattr(outputs, "seq_relationship_logits", None),
            "sbo": getattr(outputs, "span_logits", None),
        }
        return {
            term: classification_sums(logits[term], batch[labels], batch[weights])
            for term, (labels, weights) in _TERMS.items()
            if weights in batch
        }

    def summary(self, metrics: dict[str, float]) -> dict[str, float]:
        """Adds the perplexity of the masked words."""
        # e^20 is beyond any vocabulary; the cap keeps a diverging run's log finite.
        return {**metrics, "mlm_perplexity": math.exp(min(metrics["mlm_loss"], 20.0))}

    def examples_as_text(self, count: int) -> str:
        """The first rows of the run: tokens, targets and labels."""
        return as_text(self._train.batch(0, count), self.tokenizer, self._config.data.objective)

    @functools.cached_property
    def data_summary(self) -> DataSummary:
        corpus = self._corpora[""]
        counts, train = corpus.manifest.splits, corpus.splits["train"]
        unknown = counts["train"].unknown_tokens / max(counts["train"].tokens, 1)
        return DataSummary(
            unit="documents",
            train=counts["train"].documents,
            validation={"validation": counts["validation"].documents},
            test={},
            tokens=TokenCounts.of(train.document_tokens, unknown),
            epoch_share=shown_share(train, self.tokenizer, self._config.data),
            reading=tuple(
                degenerate_targets(
                    train, self._examples, packing=isinstance(self._train, PackedBatches)
                )
            ),
        )


def _word_logits(outputs: Any) -> jax.Array:
    """The logits of the masked words, [B, P, V]; with a second head, a field of the outputs."""
    return getattr(outputs, "prediction_logits", outputs)


class DistillablePretrainingTask(PretrainingTask, Distillable):
    """Pre-training with the heads that a teacher has too: all but SBO."""

    score_kind = "classes"
    scores_tokens = True

    def scores(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> jax.Array:
        return _word_logits(outputs)

    def score_weights(self, batch: dict[str, jax.Array]) -> jax.Array:
        return batch["masked_lm_weights"]


@dataclasses.dataclass(frozen=True)
class LossEvaluator(Evaluator):
    """The means of losses and metrics over validation batches; nothing is written or kept.

    Attributes:
        task: the task that makes the batches and computes the losses.
        best_metric: see `Evaluator`.
        sets: examples by the prefix of their metrics: "" for the corpus, with all metrics, and
            "general_" for a general corpus, with the metrics of masked tokens.
    """

    task: PretrainingTask
    best_metric: tuple[str, bool]
    sets: Mapping[str, PretrainingBatches]

    def evaluate(self, model: Model, predict: Predict, directory: Path | None) -> EvalResult:
        metrics: dict[str, float] = {}
        for prefix, examples in self.sets.items():
            means = self._means(examples, model)
            names = ("mlm_loss", "mlm_accuracy") if prefix else means
            metrics |= {f"{prefix}{name}": means[name] for name in names}
        return EvalResult(metrics, model.description)

    def _means(self, examples: PretrainingBatches, model: Model) -> dict[str, float]:
        task, mesh = self.task, model.mesh
        share, divisor = batch_share(mesh), mesh.shape["data"] * mesh.shape["fsdp"]
        batches = task.evaluation_batches(
            host=share.index, hosts=share.count, divisor=divisor, examples=examples
        )
        rule = "lower {train.global_batch_size} or raise {train.microbatches}"
        work = "a batch of the evaluation, with the rows of a micro-batch"
        with explain_out_of_memory(work, "train.global_batch_size", rule):
            return mean_losses(task, model.params, batches, mesh)

    def baseline_warning(self, metrics: Mapping[str, float], baselines: Mapping[str, float]) -> str:
        """As for other tasks, by the accuracies: the best metric is a loss."""
        of = {"mlm_accuracy": {"mlm_accuracy_most_frequent": baselines["mlm_most_frequent"]}}
        if self.task.reads_pairs:
            of["nsp_accuracy"] = {"nsp_accuracy_majority": baselines["nsp_majority"]}
        worse = (baseline_warning((name, True), metrics[name], known) for name, known in of.items())
        return "; ".join(filter(None, worse))

    def baselines(self) -> dict[str, float]:
        """Validation accuracy of two constant answers.

        `mlm_most_frequent`: always the most frequent masked token; `nsp_majority`: always the more
        frequent label, if there are labels.
        """
        tokens = np.zeros(self.task.tokenizer.vocab_size)
        labels = np.zeros(2)
        for batch in self.task.evaluation_batches(host=0, hosts=1):
            tokens += np.bincount(
                batch["masked_lm_ids"].ravel(), batch["masked_lm_weights"].ravel(), len(tokens)
            )
            if "next_sentence_labels" in batch:
                labels += np.bincount(
                    batch["next_sentence_labels"], batch["next_sentence_weights"], len(labels)
                )
        accuracies = {"mlm_most_frequent": float(tokens.max() / max(tokens.sum(), 1))}
        if labels.any():
            accuracies["nsp_majority"] = float(labels.max() / labels.sum())
        return accuracies
