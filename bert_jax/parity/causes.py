"""The causes of differences between two models: weights are compared, then other configs tried."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from bert_jax.errors import listed
from bert_jax.models.activations import ACTIVATIONS, GATED_ACTIVATIONS
from bert_jax.models.config import EncoderConfig
from bert_jax.parity.inputs import ParityInput
from bert_jax.parity.report import HIDDEN_STATES, TOLERANCES, Difference

# BERT's value, and the defaults of Flax, PyTorch and some converters.
EPSILONS = (1e-12, 1e-6, 1e-5, 1e-7)

# Two programs round differently: the ratio of their rounding errors may be this large.
_ROUNDING = 10

# A wrong field explains the whole difference; another value of a correct field reduces or increases
# it slightly by chance.
_LESS = 4


class Case(NamedTuple):
    """An input and the reference's hidden states, [L + 1, B · K, T, D]."""

    batch: ParityInput
    hidden_states: np.ndarray


# Fields of the config that change the hidden states but no parameter, in the order of the trials:
# field, its name in a cause, usual values besides the reference's, and the hidden states that must
# become equal. The embeddings have passed a LayerNorm but no activation and no attention: they
# depend only on the epsilon, which is identified even if another field is wrong.
_FIELDS: tuple[tuple[str, str, tuple[Any, ...], slice], ...] = (
    ("layer_norm_eps", "epsilon", EPSILONS, slice(0, 1)),
    ("hidden_act", "activation", ("gelu", "gelu_new", "relu", "silu", "tanh"), slice(None)),
    ("layer_norm_eps", "epsilon", EPSILONS, slice(None)),
    ("num_attention_heads", "attention heads", (), slice(None)),
)


def causes_in_tensors(
    tensors: Mapping[str, np.ndarray],
    reference: Mapping[str, np.ndarray],
    dtype: str,
    decoder: str,
) -> list[str]:
    """The differences of the weights; empty if both are bitwise equal.

    Args:
        tensors: parameters of the model by Hugging Face's names; a decoder only if untied.
        reference: parameters of the reference, by the same names.
        dtype: dtype of the model's tensors on disk.
        decoder: name of the decoder.
    """
    causes: list[str] = []
    if (decoder in tensors) != (decoder in reference):
        own, tied = ("model", "reference") if decoder in tensors else ("reference", "model")
        causes.append(
            f"missing tie: the {tied} scores words with its word embeddings, the {own} with "
            f"{decoder}, a separate table (tie_word_embeddings in config.json)"
        )
    shared = [name for name in reference if name in tensors]
    unequal = [name for name in shared if not np.array_equal(tensors[name], reference[name])]
    rounded = [name for name in unequal if _is_rounded(tensors[name], reference[name], dtype)]
    matrices = [name for name in unequal if tensors[name].ndim == 2]
    transposed = [name for name in matrices if np.array_equal(tensors[name], reference[name].T)]
    rest = [name for name in unequal if name not in {*rounded, *transposed}]
    if transposed:
        causes.append(f"transposed kernel: {listed(transposed)}")
    if rounded:
        causes.append(f"precision: the model's file holds {dtype}; rounded are {listed(rounded)}")
    if rest:
        distances = {name: float(np.abs(tensors[name] - reference[name]).max()) for name in rest}
        most = max(distances, key=lambda name: distances[name])
        causes.append(
            f"other weights: {listed(rest)}; the largest distance is {distances[most]:.1e}, "
            f"in {most}"
        )
    return causes


def causes_in_config(
    config: EncoderConfig,
    reference_config: Mapping[str, Any],
    states_with: Callable[[EncoderConfig, ParityInput], np.ndarray],
    cases: Sequence[Case],
) -> list[str]:
    """The fields of the config that must change to make the hidden states equal to the reference's.

    Args:
        config: config of the model.
        reference_config: config of the reference; its values are tried first.
        states_with: computes the model's hidden states with another config, [L + 1, B · K, T, D].
        cases: the inputs that were compared.

    Returns:
        The causes; empty if the hidden states agree unchanged, or with no config that was tried.
    """

    def gap(case: Case, config: EncoderConfig, chosen: slice = slice(None)) -> float:
        """The largest difference at real tokens."""
        real = case.batch.is_token
        states = states_with(config, case.batch)[chosen] - case.hidden_states[chosen]
        return float(np.abs(states)[:, real].max())

    worst = max(cases, key=lambda case: gap(case, config))
    causes = []
    for field, name, usual, chosen in _FIELDS:
        unchanged = gap(worst, config, chosen)
        if unchanged <= TOLERANCES[HIDDEN_STATES]:
            continue
        own = getattr(config, field)
        gaps = {
            value: gap(worst, dataclasses.replace(config, **{field: value}), chosen)
            for value in dict.fromkeys((reference_config[field], *usual))
            if value != own and _is_possible(config, field, value)
        }
        best = min(gaps, key=lambda value: gaps[value], default=own)
        if gaps.get(best, np.inf) <= min(TOLERANCES[HIDDEN_STATES], unchanged / _LESS):
            config = dataclasses.replace(config, **{field: best})
            causes.append(
                f"{name}: config.json of the model says {own}, the reference computes with {best} "
                f"({field})"
            )
    return causes


def causes_in_rounding(differences: Iterable[Difference], own: Iterable[Difference]) -> list[str]:
    """Whether weights that amplify rounding explain all differences above a tolerance.

    Args:
        differences: differences between model and reference; not all of them agree.
        own: differences of the reference in float32 from itself in float64, for at least these
            inputs.
    """
    rounding = {(one.quantity, one.name, one.input_name): one.error for one in own}
    wrong = [
        (one, rounding.get((one.quantity, one.name, one.input_name), 0.0))
        for one in differences
        if not one.agrees
    ]
    if not all(one.error <= _ROUNDING * rounded for one, rounded in wrong):
        return []
    most, rounded = max(wrong, key=lambda pair: pair[0].error)
    return [
        f"rounding: {most.name} ({most.input_name}) is {most.error:.1e} from the reference, and "
        f"the reference in float32 is {rounded:.1e} from itself in float64; these weights amplify "
        "it"
    ]


def _is_possible(config: EncoderConfig, field: str, value: Any) -> bool:
    """Whether bert_jax supports this value, with the same parameters."""
    if field == "hidden_act":
        kinds = (ACTIVATIONS, GATED_ACTIVATIONS)
        return next((value in kind for kind in kinds if config.hidden_act in kind), False)
    if field == "num_attention_heads":  # all together keep their width
        return config.attention_head_size is None and config.hidden_size % value == 0
    return True


def _is_rounded(tensor: np.ndarray, reference: np.ndarray, dtype: str) -> bool:
    if dtype == "float32":
        return False
    rounded = reference.astype(np.dtype(getattr(ml_dtypes, dtype, dtype))).astype(np.float32)
    return np.array_equal(tensor, rounded)
