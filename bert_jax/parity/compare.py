"""Compares a model in bert_jax with the same model in Hugging Face's transformers."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.checkpoints import google_files
from bert_jax.checkpoints.config_file import problem_type
from bert_jax.checkpoints.hub import resolve
from bert_jax.checkpoints.parameters import (
    POSITION_EMBEDDINGS,
    WORD_EMBEDDINGS,
    decoder_tensor,
    to_tensors,
)
from bert_jax.checkpoints.sentence_transformers.entries import encoder_directory
from bert_jax.errors import UserError
from bert_jax.families.family import Family
from bert_jax.inference.loading import load
from bert_jax.inference.model import LoadedModel
from bert_jax.models.config import ENCODER_SCOPE, EncoderConfig
from bert_jax.models.encoder import Encoder, RequestedOutputs, abstract_params
from bert_jax.models.encoder_with_head import ClassifierOptions
from bert_jax.models.head import fields_of, find_head
from bert_jax.models.vectors import TEXT_VECTORS
from bert_jax.parity.causes import Case, causes_in_config, causes_in_rounding, causes_in_tensors
from bert_jax.parity.inputs import (
    FEATURES,
    ParityInput,
    make_inputs,
)
from bert_jax.parity.reference import Reference, import_reference, open_reference
from bert_jax.parity.report import (
    GRADIENT,
    HIDDEN_STATES,
    LOGITS,
    Difference,
    ParityReport,
    Values,
    difference,
    gradient_scales,
    named_values,
    states_of,
)

_STATES = RequestedOutputs(hidden_states=True)


def compare(directory: str | Path, reference: str | Path | None = None) -> ParityReport:
    """Compares a model in bert_jax with the same model in Hugging Face's transformers.

    Hidden states, logits, losses and all gradients, float32, without dropout. Outputs at padding
    are ignored; if a loss reads padding (question answering; the trigrams of MobileBERT), outputs
    there are compared, but not the gradient of its embedding, which PyTorch does not compute.

    Args:
        directory: model for bert_jax, any path that `inference.loading.load` takes.
        reference: model for transformers; None for the same directory. Another one tests a
            conversion.

    Raises:
        UserError: PyTorch or transformers is missing, one side cannot load its model completely, or
            the two are not the same model.
    """
    import_reference()
    model = load(directory)
    path = Path(directory)
    description = model.description
    head = description.head
    assert head is not None
    for key in find_head(head).output_keys:
        value, its = fields_of(model.config)[key], description.family.own_options[key]
        if value != its:
            raise UserError(
                f"{path} has {key} {value!r}, which the {description.class_name} of transformers "
                f"does not have; give a model with {key} {its!r}"
            )
    if reference is None and google_files.find(Path(os.path.expanduser(path))):
        raise UserError(f"{path}: transformers does not read Google's files; give --reference DIR")
    reference_path = encoder_directory(resolve(directory if reference is None else reference))
    if model.report.new:
        raise UserError(
            f"{path} lacks {', '.join(model.report.new)}, so there is nothing to compare a "
            f"{description.class_name} with; give the whole model"
        )
    reads_last = model.config.head_options(ClassifierOptions).of_last_token
    expected_model = open_reference(
        reference_path,
        description.family,
        head,
        add_pooling_layer=description.add_pooling_layer,
        padding_id=model.tokenizer.padding_id if reads_last else None,
    )
    names = description.family.huggingface
    params = {scope: tree for scope, tree in model.params.items() if scope != TEXT_VECTORS}
    tensors = to_tensors(params, names, model.module)
    decoder = decoder_tensor(names)
    _check_shapes(path, tensors, reference_path, expected_model.tensors, decoder)
    _check_problem_types(path, model, reference_path, expected_model)

    inputs = make_inputs(model.config, model.tokenizer, head, problem_type(description))
    computed = [compute(model, batch) for batch in inputs]
    expected = [expected_model.run(batch) for batch in inputs]
    differences = [
        difference
        for values in zip(inputs, computed, expected, strict=True)
        for difference in compare_values(description.family, head, model.config, *values)
    ]
    equal = sum(
        name in tensors and np.array_equal(tensors[name], tensor)
        for name, tensor in expected_model.tensors.items()
    )
    causes = []
    if not all(entry.agrees for entry in differences):
        states = [states_of(values) for values in expected]
        cases = [Case(*case) for case in zip(inputs, states, strict=True)]
        causes = _causes(model, tensors, expected_model, cases, differences)
    return ParityReport(
        model=str(path),
        reference=str(reference_path),
        architecture=description.class_name,
        versions=expected_model.versions,
        inputs={batch.name: batch.text for batch in inputs},
        differences=tuple(differences),
        equal_tensors=(equal, len(expected_model.tensors)),
        causes=tuple(causes),
    )


def compare_values(
    family: Family,
    head: str,
    config: EncoderConfig,
    batch: ParityInput,
    computed: Values,
    expected: Values,
) -> list[Difference]:
    """All differences from the reference, for one input.

    A tensor of only one side (an untied decoder) has the gradient 0 on the opposite side.
    """
    outputs, names = find_head(head).compared, family.huggingface
    real = batch.is_token
    per_token = () if outputs.reads_padding else outputs.per_token
    tables = [WORD_EMBEDDINGS, *([POSITION_EMBEDDINGS] if config.positions_after_padding else [])]
    reads_padding = outputs.reads_padding or config.trigram_input
    # PyTorch does not compute the gradients of padding's embeddings.
    padded = {names.rule(table).tensor for table in tables} if reads_padding else set()

    def kept(values: Values) -> dict[tuple[str, str], Any]:
        result: dict[tuple[str, str], Any] = dict(values)
        for quantity, name in values:
            if quantity == HIDDEN_STATES or (quantity == LOGITS and name in per_token):
                result[quantity, name] = result[quantity, name][real]
            elif quantity == GRADIENT and name in padded:
                result[quantity, name] = result[quantity, name].copy()
                result[quantity, name][config.pad_token_id] = 0
        return result

    left, right = kept(computed), kept(expected)
    scales = gradient_scales(
        {name: value for (quantity, name), value in (left | right).items() if quantity == GRADIENT}
    )
    return [
        difference(
            quantity,
            name,
            batch.name,
            left.get((quantity, name), np.zeros((), np.float32)),
            right.get((quantity, name), np.zeros((), np.float32)),
            scales[name] if quantity == GRADIENT else 1.0,
        )
        for quantity, name in left | right
    ]


def compute(model: LoadedModel, batch: ParityInput) -> Values:
    """All compared values for one input, at the highest precision of the device."""
    head = model.description.head
    assert head is not None
    compared = find_head(head).compared
    features: dict[str, Any] = {name: jnp.asarray(value) for name, value in batch.features.items()}
    labels = {name: jnp.asarray(value) for name, value in batch.labels.items()}

    def loss(params: Any) -> tuple[jax.Array, tuple[dict[str, jax.Array], dict[str, jax.Array]]]:
        output: Any = model.module.apply({"params": params}, **features)
        losses = compared.named_losses(output, labels, problem_type(model.description))
        return list(losses.values())[-1], (compared.named_logits(output), losses)

    # TPUs and GPUs would otherwise round the factors of a product to fewer bits.
    with jax.default_matmul_precision("highest"):
        gradients, (logits, losses) = jax.jit(jax.grad(loss, has_aux=True))(model.params)
    return named_values(
        hidden_states(model.config, model.params, batch),
        {name: np.asarray(value) for name, value in logits.items()},
        {name: float(value) for name, value in losses.items()},
        to_tensors(gradients, model.description.family.huggingface, model.module),
        _decoder_states(model, features) if compared.has_decoder else None,
    )


def hidden_states(config: EncoderConfig, params: Any, batch: ParityInput) -> np.ndarray:
    """Embeddings and outputs of the layers, [L + 1, B · K, T, D], for the parameters of any model.

    The config may differ from the config of the parameters if the number of values stays the same:
    another number of attention heads only splits the kernels differently.
    """
    module = Encoder(config, add_pooling_layer=False)
    rows: dict[str, Any] = {name: batch.rows(name) for name in FEATURES if name in batch.features}
    encoder = {name: params.get(ENCODER_SCOPE, params)[name] for name in ("embeddings", "encoder")}
    encoder = jax.tree.map(
        lambda value, expected: value.reshape(expected.shape), encoder, abstract_params(module)
    )

    def states(encoder: Any) -> jax.Array:
        output: Any = module.apply({"params": encoder}, **rows, encoder_outputs=_STATES)
        return output.hidden_states

    with jax.default_matmul_precision("highest"):
        return np.asarray(jax.jit(states)(encoder))


def _decoder_states(model: LoadedModel, features: Mapping[str, Any]) -> np.ndarray:
    """Embeddings and outputs of the decoder's layers, [L + 1, B, U, D]."""

    def states(params: Any) -> jax.Array:
        outputs: Any = model.module.apply({"params": params}, **features, encoder_outputs=_STATES)
        return outputs[-1].hidden_states

    with jax.default_matmul_precision("highest"):
        return np.asarray(jax.jit(states)(model.params))


def _check_shapes(
    path: Path,
    tensors: Mapping[str, np.ndarray],
    reference_path: Path,
    reference_tensors: Mapping[str, np.ndarray],
    decoder: str,
) -> None:
    """Checks shapes; one side may lack a decoder, which `causes_in_tensors` explains."""
    for name in sorted({*tensors, *reference_tensors} - {decoder}):
        shape, expected = (
            str(side[name].shape) if name in side else "missing"
            for side in (tensors, reference_tensors)
        )
        if shape != expected:
            raise UserError(
                f"{name} is {shape} in {path} and {expected} in {reference_path}; "
                "give two copies of one model"
            )


def _check_problem_types(
    path: Path, model: LoadedModel, reference_path: Path, reference: Reference
) -> None:
    described = model.description
    expected = dataclasses.replace(described, problem_type=reference.config.get("problem_type"))
    kind, reference_kind = problem_type(described), problem_type(expected)
    if find_head(reference.head).compared.reads_problem_type and kind != reference_kind:
        raise UserError(
            f"problem_type is {kind} in {path} and {reference_kind} in {reference_path}, so their "
            "losses differ; make both config.json say the same"
        )


def _fields_of(reference: Reference) -> dict[str, Any]:
    """The fields of `EncoderConfig` that the reference's config states."""
    family, stated = reference.family, reference.config
    fields = {name: stated[key] for name, key in family.file_fields().items() if key in stated}
    act = fields["hidden_act"]
    return fields | {"hidden_act": family.activation_names.get(act, act)}


def _causes(
    model: LoadedModel,
    tensors: Mapping[str, np.ndarray],
    reference: Reference,
    cases: list[Case],
    differences: list[Difference],
) -> list[str]:
    """The causes; weights first: while they differ, other configs explain nothing."""
    decoder = decoder_tensor(model.description.family.huggingface)
    if causes := causes_in_tensors(tensors, reference.tensors, model.description.dtype, decoder):
        return causes
    known: dict[tuple[EncoderConfig, str], np.ndarray] = {}

    def states_with(config: EncoderConfig, batch: ParityInput) -> np.ndarray:
        # Every new config is compiled, which takes far longer than its computation.
        if (config, batch.name) not in known:
            known[config, batch.name] = hidden_states(config, model.params, batch)
        return known[config, batch.name]

    stated = _fields_of(reference)
    if causes := causes_in_config(model.config, vars(model.config) | stated, states_with, cases):
        return causes
    own: list[Difference] = []
    for case in cases:
        exact, rounded = reference.run(case.batch, "float64"), reference.run(case.batch)
        own += compare_values(
            reference.family, reference.head, model.config, case.batch, rounded, exact
        )
    return causes_in_rounding(differences, own)
