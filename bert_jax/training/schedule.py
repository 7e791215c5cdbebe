"""The learning rate over the steps: a linear warm-up, then a decay."""

import jax.numpy as jnp
import optax

from bert_jax.errors import OptionError, require_one_of
from bert_jax.training_options import DECAY_STARTS, DECAYS


def learning_rate(
    peak: float,
    *,
    steps: int,
    warmup_steps: int,
    decay: str = "linear",
    decay_from: str = "start",
    decay_ratio: float = 1.0,
) -> optax.Schedule:
    """Warm-up from 0 to the peak, then a decay; the first three end at 0 after `steps`.

    With t the step and w the warm-up, the decays are

        linear                 peak · (1 - x)
        cosine                 peak · (1 + cos(π x)) / 2
        one_minus_sqrt         peak · (1 - sqrt(x))
        inverse_sqrt           peak · sqrt(w / t), with w at least 1
        constant_inverse_sqrt  the same after w steps at the peak, without a rise
        constant               peak

    where x = t / steps for `decay_from="start"`: google-research/bert lets the decay run from step
    0, so the rate falls at the end of the warm-up to what it would have been without one
    (optimization.py, create_optimizer). `decay_from="warmup"` is Hugging Face's:
    x = (t - w) / (steps - w), no fall.

    With `decay_ratio` r < 1 the rate stays at the peak until the last r · steps steps, in which x
    rises from 0 to 1: warm-up, stable, decay (Hu et al., 2024, section 4.1; ModernBERT's last phase
    falls by one_minus_sqrt).

    Vaswani et al. (2017, section 5.3), D^-0.5 · min(t^-0.5, t · w^-1.5) for a model of D units, is
    inverse_sqrt with the peak (D · w)^-0.5. T5's pre-training (Raffel et al., 2020, section 3.1.2),
    1 / sqrt(max(t, 10,000)), is constant_inverse_sqrt with w = 10,000 and the peak 0.01; its
    fine-tuning is constant at 0.001.

    Args:
        peak: highest learning rate.
        steps: steps of the whole training.
        warmup_steps: w; before step w the rate is peak · t / w.
        decay: one of `DECAYS`.
        decay_from: "start" or "warmup", for linear, cosine and one_minus_sqrt.
        decay_ratio: the share of all steps in which these three fall, at the end.

    Raises:
        UserError: a name is unknown, or the warm-up is longer than the training.
    """
    require_one_of("optimizer.decay", decay, DECAYS)
    require_one_of("optimizer.decay_from", decay_from, DECAY_STARTS)
    if not 0 <= warmup_steps <= steps:
        rule = f"it must lie between 0 and {{train.steps}}, {steps}; "
        rule += "or give {optimizer.warmup_ratio}"
        raise OptionError("optimizer.warmup_steps", warmup_steps, rule)
    start = 0 if decay_from == "start" else warmup_steps
    start = max(start, steps - round(decay_ratio * steps))
    length = max(1, steps - start)
    if decay == "linear":
        after = optax.linear_schedule(peak, 0.0, length, transition_begin=start)
    elif decay == "cosine":
        after = _delayed(optax.cosine_decay_schedule(peak, length), start)
    elif decay == "one_minus_sqrt":
        after = _delayed(_one_minus_sqrt(peak, length), start)
    elif decay in ("inverse_sqrt", "constant_inverse_sqrt"):
        after = _inverse_sqrt(peak, max(1, warmup_steps))
    else:
        after = optax.constant_schedule(peak)
    if warmup_steps == 0 or decay == "constant_inverse_sqrt":
        return after
    warmup = optax.linear_schedule(0.0, peak, warmup_steps)
    # join_schedules counts each part from its own beginning; `after` counts from step 0.
    return optax.join_schedules([warmup, _delayed(after, -warmup_steps)], [warmup_steps])


def steps_of_warmup(steps: int, ratio: float, all_steps: int) -> int:
    """The length of the warm-up, which a config sets in steps or as a fraction of all steps."""
    return steps or round(ratio * all_steps)


def _delayed(schedule: optax.Schedule, steps: int) -> optax.Schedule:
    return lambda count: schedule(count - steps)


def _one_minus_sqrt(peak: float, length: int) -> optax.Schedule:
    return lambda count: peak * (1 - jnp.sqrt(jnp.clip(count / length, 0, 1)))


def _inverse_sqrt(peak: float, warmup_steps: int) -> optax.Schedule:
    return lambda count: peak * jnp.sqrt(warmup_steps / jnp.maximum(count, warmup_steps))
