"""AdamW and LAMB as used for BERT, with options for the variants of its successors."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bert_jax.errors import OptionError, require_at_least, require_between, require_one_of
from bert_jax.models.head import all_heads
from bert_jax.models.parameter_sharding import parameter_axes
from bert_jax.sharding.rules import MESH_AXES, ZERO_AXES, MeshAxes, match, match_tree, name_of
from bert_jax.tasks.base.train_spec import FreezeKeys
from bert_jax.training.layer_rates import apply_updates, rate_factors, stop_frozen_gradients
from bert_jax.training.schedule import (
    DECAY_STARTS,
    DECAYS,
    learning_rate,
    steps_of_warmup,
)

# The parameters with weight decay: not biases, not LayerNorm (google-research/bert,
# optimization.py, exclude_from_weight_decay). Parameters of other names say it in their `HEAD`.
_DECAY_RULES: tuple[tuple[str, bool], ...] = (
    (r"_norm/", False),
    (r"\bbias$", False),
    (r"(kernel|embedding)$", True),
)


@dataclasses.dataclass(frozen=True)
class OptimizerOptions(FreezeKeys):
    """The section `optimizer` of a config.

    Attributes:
        name: "adamw" or "lamb" (You et al., 2020, as implemented in albert/lamb_optimizer.py).
        learning_rate: peak learning rate.
        head_learning_rate: peak learning rate of the parameters outside the encoder, such as a
            classifier; 0: `learning_rate`.
        layer_decay: ratio of a layer's learning rate to the rate of the layer above, see
            `layer_rates.rate_factors`.
        freeze_encoder: whether only pooler and head are trained (feature-based: paper, section
            5.3).
        freeze_layers: N: the embeddings and the lowest N layers are frozen.
        warmup_steps, decay, decay_from: see `schedule.learning_rate`.
        warmup_ratio: warm-up as a fraction of all steps, instead of `warmup_steps`, for runs of any
            length.
        weight_decay: decoupled weight decay, scaled by the learning rate.
        beta1, beta2, epsilon: parameters of Adam.
        bias_correction: whether the moments are corrected for their start at 0. The original BERT
            does not correct ("mostly an oversight", google-research/bert#153); with few steps, as
            in fine-tuning, the correction helps (Mosbach et al., 2021).
        max_grad_norm: gradients are scaled down to this global norm; 0 for no clipping.
        shard_over_data: whether the data-parallel replicas (`mesh.data`) each hold a part of the
            moments and compute a part of the update, instead of all of it.
    """

    name: str = "adamw"
    learning_rate: float = 1e-4
    head_learning_rate: float = 0.0
    layer_decay: float = 1.0
    warmup_steps: int = 0
    warmup_ratio: float = 0.0
    decay: str = "linear"
    decay_from: str = "start"
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    bias_correction: bool = False
    max_grad_norm: float = 1.0
    shard_over_data: bool = False

    def __post_init__(self) -> None:
        require_one_of("optimizer.name", self.name, ("adamw", "lamb"))
        require_one_of("optimizer.decay", self.decay, DECAYS)
        require_one_of("optimizer.decay_from", self.decay_from, DECAY_STARTS)
        for key in ("learning_rate", "head_learning_rate", "weight_decay", "max_grad_norm"):
            require_between(f"optimizer.{key}", getattr(self, key), 0)
        for key in ("freeze_layers", "warmup_steps"):
            require_at_least(f"optimizer.{key}", getattr(self, key), 0)
        require_between("optimizer.warmup_ratio", self.warmup_ratio, 0, 1)
        if self.head_learning_rate and not self.learning_rate:
            raise OptionError(
                "optimizer.learning_rate",
                self.learning_rate,
                "it must be above 0 beside optimizer.head_learning_rate; to train the head alone, "
                "give its rate as optimizer.learning_rate, and optimizer.freeze_encoder=true",
            )
        for key in ("beta1", "beta2"):
            require_between(f"optimizer.{key}", getattr(self, key), 0, 1, without_high=True)
        require_between("optimizer.epsilon", self.epsilon, 0, without_low=True)
        require_between("optimizer.layer_decay", self.layer_decay, 0, 1, without_low=True)

    def schedule(self, steps: int) -> optax.Schedule:
        """The learning rate over `steps` steps."""
        return learning_rate(
            self.learning_rate,
            steps=steps,
            warmup_steps=steps_of_warmup(self.warmup_steps, self.warmup_ratio, steps),
            decay=self.decay,
            decay_from=self.decay_from,
        )

    def factors(self, params: Any) -> Any:
        """The factor of each parameter's learning rate, see `layer_rates`."""
        return rate_factors(
            params,
            layer_decay=self.layer_decay,
            head_factor=self.head_learning_rate / self.learning_rate
            if self.head_learning_rate
            else 1.0,
            frozen_layers=self.freeze_layers,
            freeze_encoder=self.freeze_encoder,
        )


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """Computes the next parameters from gradients.

    The learning rate is an argument, not a part of the computation: a program compiled for one rate
    serves all.

    Attributes:
        options: section `optimizer` of a config.
        schedule: learning rate as a function of the number of steps done.
    """

    options: OptimizerOptions
    schedule: optax.Schedule

    @property
    def mesh_axes(self) -> MeshAxes:
        """The table that maps moments, and the gradients for them, to the axes of a mesh."""
        return ZERO_AXES if self.options.shard_over_data else MESH_AXES

    def init(self, params: Any) -> Any:
        """The moments before the first step; an entirely frozen parameter has none."""
        return self._direction(params).init(params)

    def stop_frozen_gradients(self, params: Any) -> Any:
        """The parameters to differentiate at, see `layer_rates.stop_frozen_gradients`."""
        return stop_frozen_gradients(params, self.options.factors(params))

    def update(self, gradients: Any, state: Any, params: Any, rate: jax.Array) -> tuple[Any, Any]:
        """The next parameters and moments.

        Args:
            gradients: gradients at `stop_frozen_gradients(params)`.
            state: the current moments.
            params: the current parameters.
            rate: float32 scalar, the learning rate.
        """
        direction, state = self._direction(params).update(gradients, state, params)
        return apply_updates(params, direction, rate, self.options.factors(params)), state

    def _direction(self, params: Any) -> optax.GradientTransformation:
        """The chain: clip → Adam's direction → weight decay → (LAMB's trust ratio)."""
        options = self.options
        parts = []
        if options.max_grad_norm > 0:
            parts.append(optax.clip_by_global_norm(options.max_grad_norm))
        parts.append(adam_direction(options))
        parts.append(optax.add_decayed_weights(options.weight_decay, mask=decay_mask))
        if options.name == "lamb":
            parts.append(optax.stateless(_scale_by_trust_ratio))
        kinds = jax.tree.map(
            lambda factor: "learns" if factor.any() else "frozen", options.factors(params)
        )
        if "frozen" not in jax.tree.leaves(kinds):
            return optax.chain(*parts)
        return optax.partition(
            {"learns": optax.chain(*parts), "frozen": optax.set_to_zero()}, kinds
        )


def make_optimizer(options: OptimizerOptions, steps: int) -> Optimizer:
    """The optimizer of a training of `steps` steps.

    Raises:
        UserError: an option of the schedule is unknown or out of range.
    """
    return Optimizer(options, options.schedule(steps))


def decay_mask(params: Any) -> Any:
    """A tree of bool: the parameters with weight decay."""
    of_heads = (
        (rf"(^|/){pattern}$", decays)
        for head in all_heads().values()
        for pattern, decays in head.decay
    )
    return match_tree((*_DECAY_RULES, *of_heads), params)


def _scale_by_trust_ratio(updates: Any, params: Any) -> Any:
    """Scales the update of each weight matrix to the norm of that matrix.

    As in albert/lamb_optimizer.py: parameters without decay have no trust ratio either, and every
    layer has its own (our layers are stacked along the first axis).
    """

    def scaled(update: jax.Array, param: jax.Array) -> jax.Array:
        update_norm, param_norm = jnp.sqrt((update**2).sum()), jnp.sqrt((param**2).sum())
        defined = (update_norm > 0) & (param_norm > 0)
        return update * jnp.where(defined, param_norm / jnp.where(defined, update_norm, 1.0), 1.0)

    all_axes = parameter_axes()

    def choose(path: Any, decays: bool, update: jax.Array, param: jax.Array) -> jax.Array:
        if not decays:
            return update
        is_stacked = "layers" in match(all_axes, name_of(path))
        return jax.vmap(scaled)(update, param) if is_stacked else scaled(update, param)

    return jax.tree_util.tree_map_with_path(choose, decay_mask(params), updates, params)


class Moments(NamedTuple):
    """State of Adam without bias correction; both fields are trees like the parameters."""

    mu: Any
    nu: Any


def adam_direction(options: OptimizerOptions) -> optax.GradientTransformation:
    """Updates m / (sqrt(v) + epsilon), with or without bias correction."""
    if options.bias_correction:
        return optax.scale_by_adam(options.beta1, options.beta2, options.epsilon)

    def init(params: Any) -> Moments:
        return Moments(optax.tree.zeros_like(params), optax.tree.zeros_like(params))

    def update(updates: Any, state: Moments, params: Any = None) -> tuple[Any, Moments]:
        del params
        mu = optax.tree.update_moment(updates, state.mu, options.beta1, 1)
        nu = optax.tree.update_moment_per_elem_norm(updates, state.nu, options.beta2, 2)
        direction = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + options.epsilon), mu, nu)
        return direction, Moments(mu, nu)

    return optax.GradientTransformation(init, update)
