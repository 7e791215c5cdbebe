"""The causes of differences between two models: weights are compared, then other configs tried."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from bert_jax.errors import listed
from bert_jax.models.config import ACTIVATIONS, EncoderConfig
from bert_jax.parity.heads import ParityInput
from bert_jax.parity.report import HIDDEN_STATES, TOLERANCES, Difference

# BERT's value, and the defaults of Flax, PyTorch and some converters.
EPSILONS = (1e-12, 1e-6, 1e-5, 1e-7)

# Two programs round differently: one may be this many times as far from the truth as the other.
_ROUNDING = 10

# A wrong field explains the whole difference; another value of a correct field reduces or increases
# it slightly by chance.
_LESS = 4


class Case(NamedTuple):
    """An input and the reference's hidden states, [L + 1, R, T, D]."""

    batch: ParityInput
    hidden_states: np.ndarray


class _Switch(NamedTuple):
    """A field of the config that changes the hidden states but no parameter.

    Attributes:
        field: name of the field.
        cause: name of the field in a cause.
        usual: values to try in addition to the one in the reference's config.
        states: hidden states that must become equal.
    """

    field: str
    cause: str
    usual: tuple[Any, ...]
    states: slice


# Activations that published models have, each under one of its names.
_USUAL_ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu", "tanh")

# In this order. The embeddings have passed a LayerNorm but no activation and no attention: they
# depend only on the epsilon, so that it is found even if another field is wrong.
_SWITCHES = (
    _Switch("layer_norm_eps", "epsilon", EPSILONS, slice(0, 1)),
    _Switch("hidden_act", "activation", _USUAL_ACTIVATIONS, slice(None)),
    _Switch("layer_norm_eps", "epsilon", EPSILONS, slice(None)),
    _Switch("num_attention_heads", "attention heads", (), slice(None)),
)


def causes_in_tensors(
    tensors: Mapping[str, np.ndarray],
    reference: Mapping[str, np.ndarray],
    dtype: str,
    decoder: str,
) -> list[str]:
    """The differences of the weights; empty if they are bitwise those of the reference.

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
    transposed = [name for name in unequal if _is_transposed(tensors[name], reference[name])]
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
    states_of: Callable[[EncoderConfig, ParityInput], np.ndarray],
    cases: Sequence[Case],
) -> list[str]:
    """The fields of the config that must change to make the hidden states equal to the reference's.

    Args:
        config: config of the model.
        reference_config: config of the reference; its values are tried first.
        states_of: computes the model's hidden states with another config, [L + 1, R, T, D].
        cases: the inputs that were compared.

    Returns:
        The causes; empty if the hidden states agree unchanged, or with no config that was tried.
    """
    case = _worst_case(config, states_of, cases)
    causes = []
    for switch in _SWITCHES:
        gap = _gap(switch, config, states_of, case)
        if gap <= TOLERANCES[HIDDEN_STATES]:
            continue
        own = getattr(config, switch.field)
        gaps = {
            value: _gap(
                switch, dataclasses.replace(config, **{switch.field: value}), states_of, case
            )
            for value in dict.fromkeys((reference_config[switch.field], *switch.usual))
            if value != own and _is_possible(config, switch.field, value)
        }
        best = min(gaps, key=lambda value: gaps[value], default=own)
        if gaps.get(best, np.inf) <= min(TOLERANCES[HIDDEN_STATES], gap / _LESS):
            config = dataclasses.replace(config, **{switch.field: best})
            causes.append(
                f"{switch.cause}: config.json of the model says {own}, the reference computes "
                f"with {best} ({switch.field})"
            )
    return causes


def causes_in_rounding(differences: Iterable[Difference], own: Iterable[Difference]) -> list[str]:
    """Whether weights that amplify rounding explain all differences above a tolerance.

    Args:
        differences: differences between model and reference; not all of them agree.
        own: differences of the reference in float32 from itself in float64, for at least these
            inputs.
    """
    rounding = {_place(entry): entry.error for entry in own}
    wrong = [entry for entry in differences if not entry.agrees]
    if not all(entry.error <= _ROUNDING * rounding.get(_place(entry), 0.0) for entry in wrong):
        return []
    most = max(wrong, key=lambda entry: entry.error)
    return [
        f"rounding: {most.name} ({most.input_name}) is {most.error:.1e} from the reference, and "
        f"the reference in float32 is {rounding[_place(most)]:.1e} from itself in float64; these "
        "weights amplify it"
    ]


def _place(entry: Difference) -> tuple[str, str, str]:
    return entry.quantity, entry.name, entry.input_name


def _worst_case(
    config: EncoderConfig,
    states_of: Callable[[EncoderConfig, ParityInput], np.ndarray],
    cases: Sequence[Case],
) -> Case:
    """The input with the largest distance between hidden states."""
    everything = _SWITCHES[-1]
    return max(cases, key=lambda case: _gap(everything, config, states_of, case))


def _gap(
    switch: _Switch,
    config: EncoderConfig,
    states_of: Callable[[EncoderConfig, ParityInput], np.ndarray],
    case: Case,
) -> float:
    """The largest difference at real tokens."""
    real = case.batch.rows("attention_mask").astype(bool)
    states = states_of(config, case.batch)[switch.states]
    return float(np.abs(states - case.hidden_states[switch.states])[:, real].max())


def _is_possible(config: EncoderConfig, field: str, value: Any) -> bool:
    """Whether bert_jax supports this value: it does not have all activations."""
    if field == "hidden_act":
        return value in ACTIVATIONS
    return field != "num_attention_heads" or config.hidden_size % value == 0


def _is_rounded(tensor: np.ndarray, reference: np.ndarray, dtype: str) -> bool:
    if dtype == "float32":
        return False
    rounded = reference.astype(np.dtype(getattr(ml_dtypes, dtype, dtype))).astype(np.float32)
    return np.array_equal(tensor, rounded)


def _is_transposed(tensor: np.ndarray, reference: np.ndarray) -> bool:
    return tensor.ndim == 2 and np.array_equal(tensor, reference.T)
