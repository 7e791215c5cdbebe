"""StableAdamW: AdamW with a lower rate for a parameter whose gradients have suddenly grown.

For a parameter with gradient g and bias-corrected second moment v (Wortsman et al., 2023,
https://arxiv.org/abs/2304.13013, algorithm 2):

    RMS = sqrt(mean(g² / max(v, epsilon²)))
    rate of this parameter = rate / max(1, RMS)

for the step and for the weight decay, as optimi computes it, with which ModernBERT was trained. It
stands in for a limit of the global norm of the gradients. Each layer of a stacked parameter has its
own RMS, and so have query, key and value, which are one parameter in ModernBERT's code.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from bert_jax.sharding.rules import name_of


def stabilized(
    adam: optax.GradientTransformation,
    decay: optax.GradientTransformation,
    *,
    beta2: float,
    epsilon: float,
) -> optax.GradientTransformation:
    """The updates of Adam and weight decay, divided by max(1, RMS) of each parameter.

    Args:
        adam: `optax.scale_by_adam` with bias correction.
        decay: adds the decayed weights.
        beta2: the decay rate of the second moments of `adam`.
        epsilon: the epsilon of `adam`.
    """
    chain = optax.chain(adam, decay)

    def update(gradients: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        updates, state = chain.update(gradients, state, params)
        moments, _ = state
        squares = optax.tree.bias_correction(moments.nu, beta2, moments.count)

        def divided(path: Any, update: jax.Array, gradient: jax.Array, v: jax.Array) -> jax.Array:
            is_stacked = "layers" in name_of(path).split("/")
            own = tuple(range(int(is_stacked), update.ndim))
            ratios = gradient**2 / jnp.maximum(v, epsilon**2)
            root_mean_square = jnp.sqrt(ratios.mean(own, keepdims=True))
            return update / jnp.maximum(1.0, root_mean_square)

        return jax.tree_util.tree_map_with_path(divided, updates, gradients, squares), state

    return optax.GradientTransformation(chain.init, update)
