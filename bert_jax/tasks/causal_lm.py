"""Pre-training of a causal language model (GPT: Radford et al., 2018).

    loss = mean over tokens of -log p(token | tokens before it)

`data.pretraining.causal` makes the batches; a model of another task, such as a classifier, starts
from the result by `init_from`.
"""

import dataclasses
from typing import Any

import jax

from bert_jax.data.pretraining.causal import CausalExamples, CausalOptions
from bert_jax.data.pretraining.corpus import CorpusSplit
from bert_jax.tasks.base.corpora import Corpora, CorpusOptions, check_corpora, corpus_spec
from bert_jax.tasks.base.corpus_task import CorpusTask, TokenEvaluator
from bert_jax.tasks.base.generation_description import describe_generating
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.task import ComputedModel, Evaluator, Sums, classification_sums
from bert_jax.tasks.base.token_losses import perplexity
from bert_jax.tasks.base.train_spec import TaskConfig


@dataclasses.dataclass(frozen=True)
class CausalData(CausalOptions, CorpusOptions):
    """The section `data` of a config."""

    def __post_init__(self) -> None:
        CausalOptions.__post_init__(self)
        CorpusOptions.__post_init__(self)


class CausalTask(CorpusTask[CausalData, CausalExamples]):
    """The next token, at every token of a corpus.

    Metrics: `loss`, `accuracy` and `perplexity` of a token; an evaluation predicts every token of
    the validation documents once.
    """

    best_metric = ("loss", False)  # lower is better
    derived_metrics = ("perplexity",)  # of loss
    general_metrics = ("loss", "accuracy", "perplexity")

    def make_examples(self, split: CorpusSplit, *, weighted: bool) -> CausalExamples:
        ids = self.tokenizer.special_ids
        return CausalExamples(
            split,
            self._config.data,
            separator_id=ids.eos,
            padding_id=ids.pad or 0,
            weighted=weighted,
        )

    @property
    def computed_models(self) -> tuple[ComputedModel, ...]:
        config = self.description.config
        logit_flops = 2.0 * config.hidden_size * config.vocab_size
        return (ComputedModel(config, has_vocabulary_head=False, flops_per_token=logit_flops),)

    @property
    def evaluator(self) -> Evaluator:
        return TokenEvaluator(self, self.best_metric, self._validation, ("labels", "weights"))

    def loss_weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """The number of predicted tokens."""
        return {"": batch["weights"].sum()}

    def loss(self, params: Any, outputs: jax.Array, batch: dict[str, jax.Array]) -> Sums:
        return {"": classification_sums(outputs, batch["labels"], batch["weights"])}

    def summary(self, metrics: dict[str, float]) -> dict[str, float]:
        """Adds the perplexity of a token."""
        return {**metrics, "perplexity": perplexity(metrics["loss"])}

    def examples_as_text(self, count: int) -> str:
        """The first rows of the run as tokens."""
        batch = self._train.batch(0, count)
        ids, weights = batch["input_ids"], batch["weights"]
        return "\n\n".join(
            f"example {number}: {int(weights[number].sum())} predicted tokens\n  "
            + " ".join(self.tokenizer.readable_token(int(token)) for token in row)
            for number, row in enumerate(ids)
        )


def _make(config: TaskConfig[CausalData], model_init: ModelInit, corpora: Corpora) -> CausalTask:
    description = describe_generating(model_init, corpora.tokenizer, "causal_lm")
    check_corpora(corpora, config.data.length, description.config)
    return CausalTask(config, corpora, description, model_init.execution)


TRAIN = corpus_spec(CausalData, _make)
