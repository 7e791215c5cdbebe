"""Pre-training: masked language model and next-sentence prediction (paper, section 3.1).

    loss = mean over masked tokens of  -log p(original token | masked text)
         + mean over sentence pairs of -log p(is next or random | masked text)

The first term is MLM, the second NSP; SOP ("in order or swapped") can replace NSP, or the second
term is left out. SpanBERT's span-boundary objective, SBO, is another term: the mean over tokens of
masked spans of -log p(original token | tokens next to the span, position in the span).
`data.pretraining` makes the batches, `models` the logits, this module the loss.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.pretraining.batches import PretrainingBatches
from bert_jax.data.pretraining.corpus import CorpusSplit
from bert_jax.data.pretraining.diagnostics import as_text, degenerate_targets, shown_share
from bert_jax.data.pretraining.options import PretrainingOptions
from bert_jax.data.pretraining.packing import PackedBatches
from bert_jax.errors import require_at_least
from bert_jax.metrics import baseline_warning
from bert_jax.models.execution import Execution
from bert_jax.models.heads.span_boundary import SpanBoundaryModel
from bert_jax.tasks.base.corpora import Corpora, CorpusOptions
from bert_jax.tasks.base.corpus_task import CorpusTask, LossEvaluator, label_counts
from bert_jax.tasks.base.distillable import Distillable
from bert_jax.tasks.base.task import Evaluator, Sums, classification_sums
from bert_jax.tasks.base.token_losses import perplexity
from bert_jax.tasks.base.train_spec import TaskConfig


@dataclasses.dataclass(frozen=True)
class CorpusData(PretrainingOptions, CorpusOptions):
    """The section `data` of a config.

    Attributes:
        packing: whether a row of a training batch holds several examples.
    """

    packing: bool = False

    def __post_init__(self) -> None:
        PretrainingOptions.__post_init__(self)
        CorpusOptions.__post_init__(self)
        # More than a row has tokens, but the default may stay at short lengths.
        most = max(self.length, PretrainingOptions.max_predictions)
        require_at_least("data.max_predictions", self.max_predictions, 1, most)


# The labels and the weights of each term of the loss.
_TERMS = {
    "mlm": ("masked_lm_ids", "masked_lm_weights"),
    "nsp": ("next_sentence_labels", "next_sentence_weights"),
    "sbo": ("masked_lm_ids", "span_weights"),
}


class PretrainingTask(CorpusTask[CorpusData, PretrainingBatches]):
    """MLM and NSP (or SOP, or only MLM, or with SBO) on a corpus.

    Metrics: `mlm_loss`, `mlm_accuracy`, `mlm_perplexity`, and loss and accuracy of `nsp` (NSP or
    SOP) and `sbo`, if the objective has them.

    Attributes:
        reads_pairs: whether a row has two texts, for NSP or SOP.
    """

    best_metric = ("mlm_loss", False)  # lower is better
    derived_metrics = ("mlm_perplexity",)  # of mlm_loss
    general_metrics = ("mlm_loss", "mlm_accuracy")

    def __init__(
        self,
        config: TaskConfig[CorpusData],
        corpora: Corpora,
        description: ModelDescription,
        execution: Execution,
    ) -> None:
        """See `CorpusTask`."""
        super().__init__(config, corpora, description, execution)
        self.reads_pairs = config.data.objective in ("nsp", "sop")

    def make_examples(self, split: CorpusSplit, *, weighted: bool) -> PretrainingBatches:
        data = self._config.data
        options = data if weighted else data.for_validation
        return PretrainingBatches(split, self.tokenizer, options, weighted=weighted)

    def make_rows(self, examples: PretrainingBatches) -> PretrainingBatches | PackedBatches:
        return PackedBatches(examples) if self._config.data.packing else examples

    def make_module(self, execution: Execution) -> nn.Module:
        data = self._config.data
        if not data.span_boundary:
            return super().make_module(execution)
        return SpanBoundaryModel(
            self.description.config, execution, max_targets=data.max_span_targets
        )

    @property
    def evaluator(self) -> Evaluator:
        return PretrainingEvaluator(self, self.best_metric, self._validation)

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
        return {**metrics, "mlm_perplexity": perplexity(metrics["mlm_loss"])}

    def examples_as_text(self, count: int) -> str:
        """The first rows of the run: tokens, targets and labels."""
        return as_text(self._train.batch(0, count), self.tokenizer, self._config.data.objective)

    def epoch_share(self) -> float:
        return shown_share(self._corpora[""].splits["train"], self.tokenizer, self._config.data)

    def degenerate_targets(self) -> tuple[str, ...]:
        train, is_packed = self._corpora[""].splits["train"], self._config.data.packing
        return tuple(degenerate_targets(train, self._examples, packing=is_packed))


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
class PretrainingEvaluator(LossEvaluator):
    """The mean losses, and what constant answers reach."""

    task: PretrainingTask

    def baseline_warning(self, metrics: Mapping[str, float], baselines: Mapping[str, float]) -> str:
        """As for other tasks, by the accuracies: the best metric is a loss."""
        names = ("mlm_accuracy", *(["nsp_accuracy"] if self.task.reads_pairs else []))
        worse = (baseline_warning((name, True), metrics[name], baselines) for name in names)
        return "; ".join(filter(None, worse))

    def baselines(self) -> dict[str, float]:
        """Validation accuracy of two constant answers.

        `mlm_accuracy_most_frequent`: always the most frequent masked token;
        `nsp_accuracy_majority`: always the more frequent label, if there are labels.
        """
        batches = self.task.evaluation_batches(host=0, hosts=1)
        counts = label_counts(batches, {name: _TERMS[name] for name in ("mlm", "nsp")})
        names = {"mlm": "mlm_accuracy_most_frequent", "nsp": "nsp_accuracy_majority"}
        return {names[term]: float(n.max() / max(n.sum(), 1)) for term, n in counts.items()}
