"""AdamW and LAMB as used for BERT, Adafactor as for T5, StableAdamW as for ModernBERT."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bert_jax.models.head import all_heads
from bert_jax.models.parameter_sharding import parameter_axes
from bert_jax.sharding.rules import MESH_AXES, ZERO_AXES, MeshAxes, match, match_tree, name_of
from bert_jax.training.adafactor import adafactor_direction
from bert_jax.training.layer_rates import apply_updates, rate_factors, stop_frozen_gradients
from bert_jax.training.schedule import learning_rate, steps_of_warmup
from bert_jax.training.stable_adamw import stabilized
from bert_jax.training_options import OptimizerOptions

# The parameters with weight decay: not biases, not LayerNorm (google-research/bert,
# optimization.py, exclude_from_weight_decay). Parameters of other names say it in their `HEAD`.
_DECAY_RULES: tuple[tuple[str, bool], ...] = (
    (r"_norm/", False),
    (r"\bbias$", False),
    (r"embeddings/(cls_token|distillation_token|position_embeddings)$", False),  # as DeiT's
    (r"(kernel|embedding)$", True),
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
        """The parameters to differentiate at: constants where they are frozen."""
        return stop_frozen_gradients(params, self.factors(params))

    def update(self, gradients: Any, state: Any, params: Any, rate: jax.Array) -> tuple[Any, Any]:
        """The next parameters and moments.

        Args:
            gradients: gradients at `stop_frozen_gradients(params)`.
            state: the current moments.
            params: the current parameters.
            rate: float32 scalar, the learning rate.
        """
        direction, state = self._direction(params).update(gradients, state, params)
        return apply_updates(params, direction, rate, self.factors(params)), state

    def factors(self, params: Any) -> Any:
        """The factor of each parameter's learning rate: 0 where it is frozen."""
        options = self.options
        return rate_factors(
            params,
            layer_decay=options.layer_decay,
            head_factor=options.head_learning_rate / options.learning_rate
            if options.head_learning_rate
            else 1.0,
            frozen_layers=options.freeze_layers,
            freeze_encoder=options.freeze_encoder,
        )

    def _direction(self, params: Any) -> optax.GradientTransformation:
        """The chain: clip → direction of the optimizer → weight decay → (trust ratio)."""
        options = self.options
        parts = []
        if options.max_grad_norm > 0:
            parts.append(optax.clip_by_global_norm(options.max_grad_norm))
        is_factored = options.name == "adafactor"
        direction = adafactor_direction() if is_factored else adam_direction(options)
        decay = optax.add_decayed_weights(options.weight_decay, mask=decay_mask)
        if options.name == "stable_adamw":
            beta2, epsilon = options.beta2, options.epsilon
            parts.append(stabilized(direction, decay, beta2=beta2, epsilon=epsilon))
        else:
            parts += [direction, decay]
        if options.name == "lamb":
            parts.append(optax.stateless(_scale_by_trust_ratio))
        kinds = jax.tree.map(
            lambda factor: "learns" if factor.any() else "frozen", self.factors(params)
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
    schedule = learning_rate(
        options.learning_rate,
        steps=steps,
        warmup_steps=steps_of_warmup(options.warmup_steps, options.warmup_ratio, steps),
        decay=options.decay,
        decay_from=options.decay_from,
        decay_ratio=options.decay_ratio,
    )
    return Optimizer(options, schedule)


def decay_mask(params: Any) -> Any:
    """A tree of bool: the parameters with weight decay."""
    head_rules = (
        (rf"(^|/){pattern}$", decays)
        for head in all_heads().values()
        for pattern, decays in head.decay
    )
    return match_tree((*_DECAY_RULES, *head_rules), params)


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
