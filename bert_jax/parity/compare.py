"""One comparison: the same inputs through our model and through Hugging Face's."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bert_jax.checkpoints import google_files
from bert_jax.checkpoints.hub import resolve
from bert_jax.checkpoints.parameters import DECODER, WORD_EMBEDDINGS, to_tensors
from bert_jax.errors import UserError
from bert_jax.families.family import Family
from bert_jax.inference.loading import load
from bert_jax.inference.model import LoadedModel
from bert_jax.models.config import EncoderConfig, Head
from bert_jax.parity.causes import Case, causes_in_config, causes_in_rounding, causes_in_tensors
from bert_jax.parity.heads import OUTPUTS, settled_problem_type
from bert_jax.parity.inputs import ParityInput, make_inputs
from bert_jax.parity.ours import hidden_states, run
from bert_jax.parity.quantities import (
    GRADIENT,
    HIDDEN_STATES,
    LOGITS,
    LOSS,
    Computed,
    Difference,
    difference,
    gradient_scales,
)
from bert_jax.parity.reference import Reference, import_reference, open_reference
from bert_jax.parity.report import ParityReport


def compare(directory: str | Path, reference: str | Path | None = None) -> ParityReport:
    """Compares what we make of a model with what Hugging Face's transformers makes of it.

    Hidden states, logits, losses and all gradients, float32, without dropout. What stands at
    padding is left out, for nobody reads it; where a loss does (question answering), the logits
    are compared, but not the gradient of the embedding of padding: PyTorch does not compute it.

    Args:
        directory: the model as we read it; whatever `inference.loading.load` takes.
        reference: the model as transformers reads it; None for the same directory. Another one
            tells whether a conversion was right.

    Raises:
        UserError: PyTorch or transformers is missing, one side cannot load its model or finds it
            incomplete, or the two are not the same model.
    """
    import_reference()
    model = load(directory)
    path = Path(directory)
    if reference is None and google_files.find(path.expanduser()):
        raise UserError(f"{path}: transformers does not read Google's files; give --reference DIR")
    reference_path = resolve(directory if reference is None else reference)
    description = model.description
    head = description.head
    assert head is not None
    if model.report.new:
        raise UserError(
            f"{path} lacks {', '.join(model.report.new)}, so there is nothing to compare a "
            f"{description.class_name} with; give the whole model"
        )
    theirs = open_reference(
        reference_path,
        description.family,
        head,
        add_pooling_layer=description.add_pooling_layer,
    )
    names = description.family.huggingface
    tensors = to_tensors(model.params, names, model.module)
    decoder = names.rule(DECODER).tensor
    _check_shapes(path, tensors, reference_path, theirs.tensors, decoder)
    _check_problem_types(path, model, reference_path, theirs)

    inputs = make_inputs(
        model.config,
        model.tokenizer.special_ids,
        head,
        _problem_type(model),
    )
    differences: list[Difference] = []
    cases: list[Case] = []
    for given in inputs:
        expected = theirs.run(given)
        found = run(model, given)
        differences += compare_computed(
            description.family, head, model.config, given, found, expected
        )
        cases.append(Case(given, expected.hidden_states))
    equal = sum(
        name in tensors and np.array_equal(tensors[name], tensor)
        for name, tensor in theirs.tensors.items()
    )
    agrees = all(entry.agrees for entry in differences)
    return ParityReport(
        model=str(path),
        reference=str(reference_path),
        architecture=description.class_name,
        versions=theirs.versions,
        inputs={given.name: given.text for given in inputs},
        differences=tuple(differences),
        equal_tensors=(equal, len(theirs.tensors)),
        causes=() if agrees else tuple(_causes(model, tensors, theirs, cases, differences)),
    )


def compare_computed(
    family: Family,
    head: Head,
    config: EncoderConfig,
    given: ParityInput,
    found: Computed,
    expected: Computed,
) -> list[Difference]:
    """Every difference between our numbers and the reference's, for one input."""
    outputs = OUTPUTS[head]
    real = given.rows("attention_mask").astype(bool)  # RT
    places = ["embeddings", *(f"layer {n}" for n in range(len(expected.hidden_states) - 1))]
    entries = [
        difference(HIDDEN_STATES, place, given.name, ours[real], theirs[real])
        for place, ours, theirs in zip(
            places, found.hidden_states, expected.hidden_states, strict=True
        )
    ]
    for name, theirs in expected.logits.items():
        kept = real if name in outputs.per_token and not outputs.reads_padding else ...
        entries.append(difference(LOGITS, name, given.name, found.logits[name][kept], theirs[kept]))
    for name, loss in expected.losses.items():
        entries.append(difference(LOSS, name, given.name, found.losses[name], loss))
    gradients = found.gradients
    if outputs.reads_padding:
        gradients = _without_padding(
            gradients, family.huggingface.rule(WORD_EMBEDDINGS).tensor, config.pad_token_id
        )
    return entries + _gradients(given.name, gradients, expected.gradients)


def _without_padding(
    gradients: Mapping[str, np.ndarray], words: str, pad_token_id: int
) -> dict[str, np.ndarray]:
    """As PyTorch has it, whose table of embeddings gives padding no gradient."""
    table = gradients[words].copy()
    table[pad_token_id] = 0
    return {**gradients, words: table}


def _gradients(
    input_name: str, found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> list[Difference]:
    """A tensor that only one side has (an untied decoder) has the gradient 0 on the other."""
    none = np.zeros((), np.float32)
    scales = gradient_scales({**found, **expected})
    return [
        difference(
            GRADIENT,
            name,
            input_name,
            found.get(name, none),
            expected.get(name, none),
            scales[name],
        )
        for name in scales
    ]


def _check_shapes(
    path: Path,
    ours: Mapping[str, np.ndarray],
    reference_path: Path,
    theirs: Mapping[str, np.ndarray],
    decoder: str,
) -> None:
    """Only a decoder may be on one side alone: a missing tie is something that we explain."""
    for name in sorted({*ours, *theirs} - {decoder}):
        found, expected = (
            str(side[name].shape) if name in side else "missing" for side in (ours, theirs)
        )
        if found != expected:
            raise UserError(
                f"{name} is {found} in {path} and {expected} in {reference_path}; "
                "give two copies of one model"
            )


def _check_problem_types(
    path: Path, model: LoadedModel, reference_path: Path, reference: Reference
) -> None:
    ours = _problem_type(model)
    theirs = settled_problem_type(reference.config.get("problem_type"), model.config.num_labels)
    if model.description.head is Head.CLASSIFICATION and ours != theirs:
        raise UserError(
            f"problem_type is {ours} in {path} and {theirs} in {reference_path}, so their losses "
            "are two; make both config.json say the same"
        )


def _problem_type(model: LoadedModel) -> str:
    return settled_problem_type(model.description.problem_type, model.config.num_labels)


def _causes(
    model: LoadedModel,
    tensors: Mapping[str, np.ndarray],
    reference: Reference,
    cases: list[Case],
    differences: list[Difference],
) -> list[str]:
    """Weights first: while they differ, an experiment with the config says nothing."""
    decoder = model.description.family.huggingface.rule(DECODER).tensor
    if found := causes_in_tensors(tensors, reference.tensors, model.description.dtype, decoder):
        return found
    known: dict[tuple[EncoderConfig, str], np.ndarray] = {}

    def states_of(config: EncoderConfig, given: ParityInput) -> np.ndarray:
        # Every new config is compiled, which takes far longer than to compute it.
        if (config, given.name) not in known:
            known[config, given.name] = hidden_states(config, model.params, given)
        return known[config, given.name]

    if found := causes_in_config(model.config, reference.config, states_of, cases):
        return found
    own: list[Difference] = []
    for given in (case.given for case in cases):
        exact, rounded = reference.run(given, "float64"), reference.run(given)
        own += compare_computed(
            reference.family, reference.head, model.config, given, rounded, exact
        )
    return causes_in_rounding(differences, own)
