"""Pre-training by replaced-token detection (ELECTRA: Clark et al., 2020).

    loss = mean over masked tokens of -log p(original token | masked text), the generator's
         + 50 · mean over tokens of  -log p(replaced or not | text of the generator)

The exported model is the discriminator. Corpus, masks and batches are made as in the task
`pretraining`.
"""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import optax

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.errors import OptionError, require_between
from bert_jax.models.execution import Execution
from bert_jax.models.heads.replaced_tokens import (
    ReplacedTokenOutput,
    ReplacedTokenPretraining,
    generator_config,
    generator_params,
)
from bert_jax.tasks.base.corpora import Corpora, corpus_spec
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.task import (
    ComputedModel,
    Sums,
    classification_sums,
    token_mask,
    weighted_sums,
)
from bert_jax.tasks.base.train_spec import TrainedPart
from bert_jax.tasks.pretraining.create import Config, make_task
from bert_jax.tasks.pretraining.task import CorpusData, PretrainingTask

_DISCRIMINATOR = "rtd"


@dataclasses.dataclass(frozen=True)
class ReplacedTokenOptions:
    """The section `replaced_tokens` of a config.

    Attributes:
        generator_size: width of the generator as a fraction of the discriminator's; the paper has
            1/4 for small and large models and 1/3 for base.
        generator_weight: factor of the generator's loss.
        discriminator_weight: factor of the discriminator's loss.
        temperature: divides the generator's logits before a word is drawn.
    """

    generator_size: float = 0.25
    generator_weight: float = 1.0
    discriminator_weight: float = 50.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        require_between(
            "replaced_tokens.generator_size", self.generator_size, 0, 1, without_low=True
        )
        require_between("replaced_tokens.generator_weight", self.generator_weight, 0, 1e6)
        require_between("replaced_tokens.discriminator_weight", self.discriminator_weight, 0, 1e6)
        require_between("replaced_tokens.temperature", self.temperature, 0, 1e6, without_low=True)


@dataclasses.dataclass(frozen=True)
class ReplacedTokensData(CorpusData):
    """The section `data` of a config: the keys of `pretraining`, with ELECTRA's rows and masks."""

    objective: str = "none"
    short_probability: float = 0.05
    masking: str = "token_with_replacement"
    mask_replace_prob: float = 0.85
    random_replace_prob: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, expected in (("span_boundary", False), ("objective", "none")):
            if (value := getattr(self, name)) != expected:
                rule = "replaced-token detection has no second objective: leave it out"
                raise OptionError(f"data.{name}", value, rule)


class ReplacedTokensTask(PretrainingTask):
    """Generator and discriminator on a corpus.

    Metrics: `mlm_loss`, `mlm_accuracy` and `mlm_perplexity` of the generator; `rtd_loss` and
    `rtd_accuracy` of the discriminator, and `rtd_recall`, the share of the replaced tokens that it
    finds.
    """

    best_metric = ("rtd_loss", False)  # lower is better

    @property
    def _replaced_tokens(self) -> ReplacedTokenOptions:
        return self._config.section(ReplacedTokenOptions)

    def make_module(self, execution: Execution) -> nn.Module:
        return ReplacedTokenPretraining(
            self.description.config,
            execution,
            generator_size=self._replaced_tokens.generator_size,
            temperature=self._replaced_tokens.temperature,
        )

    @property
    def computed_models(self) -> tuple[ComputedModel, ...]:
        config = self.description.config
        head = 2 * config.hidden_size * (config.hidden_size + 1)  # D → D → 1
        generator = generator_config(config, self._replaced_tokens.generator_size)
        return (
            ComputedModel(config, has_vocabulary_head=False, flops_per_token=head),
            ComputedModel(generator),
        )

    def loss_weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """Number of masked tokens, and of all tokens."""
        return super().loss_weights(batch) | {_DISCRIMINATOR: _is_token(batch).sum()}

    def loss(self, params: Any, outputs: ReplacedTokenOutput, batch: dict[str, jax.Array]) -> Sums:
        """Cross-entropies and numbers of correct predictions of both models."""
        logits, replaced = outputs.replaced_logits, outputs.replaced
        return {
            "mlm": classification_sums(
                outputs.prediction_logits, batch["masked_lm_ids"], batch["masked_lm_weights"]
            ),
            _DISCRIMINATOR: weighted_sums(
                _is_token(batch),
                {
                    "loss": optax.sigmoid_binary_cross_entropy(logits, replaced),
                    "accuracy": (logits > 0) == replaced,
                    "replaced": replaced,
                    "found": replaced & (logits > 0),
                },
            ),
        }

    def total_loss(self, losses: dict[str, Any]) -> Any:
        weights = self._replaced_tokens
        return (
            weights.generator_weight * losses["mlm"]
            + weights.discriminator_weight * losses[_DISCRIMINATOR]
        )

    def summary(self, metrics: dict[str, float]) -> dict[str, float]:
        """Adds the recall of replaced tokens."""
        metrics = super().summary(metrics)
        hits, replaced = metrics[f"{_DISCRIMINATOR}_found"], metrics[f"{_DISCRIMINATOR}_replaced"]
        return {**metrics, f"{_DISCRIMINATOR}_recall": hits / replaced if replaced else 0.0}


def _is_token(batch: dict[str, jax.Array]) -> jax.Array:
    """1 for tokens, 0 for padding and for rows without a weight: float32 [B, T]."""
    return token_mask(batch) * batch["masked_lm_weights"].max(axis=1, keepdims=True)


def _make(config: Config, model_init: ModelInit, corpora: Corpora) -> ReplacedTokensTask:
    return make_task(ReplacedTokensTask, "replaced_tokens", config, model_init, corpora)


def _generator(config: Config, description: ModelDescription, execution: Execution) -> TrainedPart:
    """The generator of a run, from the description of its discriminator."""
    size = config.section(ReplacedTokenOptions).generator_size
    architecture = generator_config(description.config, size)
    return TrainedPart(
        dataclasses.replace(description, config=architecture, head="masked_lm"),
        ReplacedTokenPretraining(description.config, execution, generator_size=size),
        generator_params,
    )


_NOTE = "the exported model is the discriminator; `export --part generator` writes the generator"

TRAIN = dataclasses.replace(
    corpus_spec(ReplacedTokensData, _make, {"replaced_tokens": ReplacedTokenOptions}),
    export_notes=lambda data: (_NOTE,),
    parts={"generator": _generator},
)
