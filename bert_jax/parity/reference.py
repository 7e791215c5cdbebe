"""Hugging Face's model of a directory: the only module that imports PyTorch and transformers."""

import contextlib
import dataclasses
import functools
import inspect
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.checkpoints.parameters import WORD_EMBEDDINGS, decoder_tensor
from bert_jax.errors import UserError, first_line
from bert_jax.families.family import Family, TensorNames
from bert_jax.models.comparison import IGNORED_LABEL, linear_form
from bert_jax.models.head import find_head
from bert_jax.parity.inputs import IMAGES, ParityInput
from bert_jax.parity.report import Values, named_values


@dataclasses.dataclass(frozen=True)
class Reference:
    """A model of transformers, float32, without dropout, with its simplest attention.

    Attributes:
        family: family of the model.
        head: head of the model.
        config: its config in the form of `config.json`, with all defaults.
        tensors: its parameters by the names of the family's table; a decoder only if it is
            not the table of word embeddings.
        versions: versions of the libraries, such as "transformers 5.23.0, torch 2.13.0".
    """

    family: Family
    head: str
    config: Mapping[str, Any]
    tensors: Mapping[str, np.ndarray]
    versions: str
    _model: Any

    def run(self, batch: ParityInput, dtype: str = "float32") -> Values:
        """All compared values for one input, computed in float32 or float64."""
        import torch

        self._model.to(getattr(torch, dtype))  # back from float64, the values are bitwise the same
        tensors = {
            name: torch.from_numpy(value.astype(np.int64 if value.dtype.kind == "i" else dtype))
            for name, value in {**batch.features, **batch.labels}.items()
        }
        # Models without token types do not take any.
        features = {name: tensors[name] for name in batch.features if name in self._arguments}
        if IMAGES in features:
            features |= self._images(features[IMAGES])
        labels = {name: tensors[name] for name in batch.labels}
        compared = find_head(self.head).compared
        is_bare, has_decoder = compared.loss is None, compared.has_decoder
        self._model.zero_grad()
        output = self._model(
            **features,
            **({} if is_bare else {self._argument(name): value for name, value in labels.items()}),
            output_hidden_states=True,
            return_dict=True,
        )
        if "sop_logits" in output:
            output.seq_relationship_logits = output.sop_logits
        if is_bare:
            losses = [linear_form(output, labels)]
        elif compared.losses_of_class is None:
            losses = [output.loss]
        else:

            def cross_entropy(logits: Any, labels: Any) -> Any:
                return torch.nn.functional.cross_entropy(
                    logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED_LABEL
                )

            losses = compared.losses_of_class(output, labels, cross_entropy)
        losses[-1].backward()
        logits = compared.named_logits(output)
        return named_values(
            _stacked(output.encoder_hidden_states if has_decoder else output.hidden_states),
            {name: value.detach().numpy() for name, value in logits.items()},
            {name: loss.item() for name, loss in zip(compared.losses, losses, strict=True)},
            _canonical(self._model, self.family.huggingface, gradients=True),
            _stacked(output.decoder_hidden_states) if has_decoder else None,
        )

    def _images(self, pixel_values: Any) -> dict[str, Any]:
        """The arguments for images [B, height, width, channels]: channels come first."""
        size = self.config["image_size"]
        own = [size, size] if isinstance(size, int) else list(size)
        is_other = list(pixel_values.shape[1:3]) != own
        return {IMAGES: pixel_values.permute(0, 3, 1, 2), "interpolate_pos_encoding": is_other}

    @functools.cached_property
    def _arguments(self) -> Collection[str]:
        return inspect.signature(self._model.forward).parameters

    def _argument(self, label: str) -> str:
        """The name of an argument for labels; ALBERT names its second task differently."""
        is_order = label == "next_sentence_label" and "sentence_order_label" in self._arguments
        return "sentence_order_label" if is_order else label


def open_reference(
    directory: Path,
    family: Family,
    head: str,
    *,
    add_pooling_layer: bool = True,
    padding_id: int | None = None,
) -> Reference:
    """Loads a model directory with transformers.

    Args:
        directory: the model directory; nothing is downloaded.
        family: family of the model.
        head: head of the model.
        add_pooling_layer: for the bare encoder, whether it has a pooler.
        padding_id: the id before which GPT's classifiers find the last token, whatever the files
            say; None: as the files say.

    Raises:
        UserError: PyTorch or transformers is missing or cannot load the directory, or it lacks
            tensors of the model.
    """
    torch, transformers = import_reference()
    class_name = family.class_names[head]
    model_class = getattr(transformers, class_name, None)
    if model_class is None:
        version = transformers.__version__
        raise UserError(
            f"{directory}: transformers {version} has no {class_name} to compare it with; give a "
            "model of a class that it has"
        )
    arguments = {}
    if "add_pooling_layer" in inspect.signature(model_class).parameters:
        arguments["add_pooling_layer"] = add_pooling_layer
    with _quiet(transformers):
        try:
            model, information = model_class.from_pretrained(
                directory,
                dtype=torch.float32,
                attn_implementation="eager",
                local_files_only=True,
                output_loading_info=True,
                **arguments,
            )
        except Exception as error:  # any error of the library concerns these files
            raise UserError(
                f"transformers cannot load {directory} as {class_name}: {first_line(error)}; "
                "give --reference a directory that it loads"
            ) from error
    if missing := sorted(information["missing_keys"]):
        raise UserError(
            f"{directory}: to transformers, {missing[0]} is missing ({len(missing)} tensors in "
            f"all), so there is nothing to compare a {class_name} with; give the whole model"
        )
    model.eval()
    if padding_id is not None:
        model.config.pad_token_id = padding_id
    _buffers_as_parameters(model, family.huggingface)
    return Reference(
        family=family,
        head=head,
        config=model.config.to_dict(),
        tensors=_canonical(model, family.huggingface),
        versions=f"transformers {transformers.__version__}, torch {torch.__version__}",
        _model=model,
    )


def import_reference() -> tuple[Any, Any]:
    """Imports PyTorch and transformers.

    Raises:
        UserError: one of them is not installed.
    """
    try:
        import torch
        import transformers
    except ImportError as error:
        raise UserError(
            f"parity computes with PyTorch and transformers too, and {error.name or error} cannot "
            "be imported; pip install torch transformers"
        ) from error
    return torch, transformers


def _buffers_as_parameters(model: Any, names: TensorNames) -> None:
    """Buffers that are parameters here, such as the bias of BART's logits, have gradients, too."""
    import torch

    known = {rule.tensor for rule in names.rules}
    for name, buffer in list(model.named_buffers()):
        if names.canonical(name) in known:
            scope, _, own = name.rpartition(".")
            module = model.get_submodule(scope)
            delattr(module, own)
            module.register_parameter(own, torch.nn.Parameter(buffer))


def _stacked(states: Any) -> np.ndarray:
    """The hidden states of encoder or decoder, [L + 1, B · K, T, D]."""
    return np.stack([state.detach().numpy() for state in states])


def _canonical(model: Any, names: TensorNames, *, gradients: bool = False) -> dict[str, np.ndarray]:
    """Parameters or their gradients, without duplicates under a second name."""
    import torch
    from transformers.core_model_loading import revert_weight_conversion

    tensors = {name: parameter.detach() for name, parameter in model.named_parameters()}
    if gradients:
        for name, parameter in model.named_parameters():
            is_unused = parameter.grad is None
            tensors[name] = torch.zeros_like(parameter) if is_unused else parameter.grad
    values: dict[str, np.ndarray] = {}
    # Some classes name and split their parameters otherwise than their files.
    for name, tensor in revert_weight_conversion(model, tensors).items():
        canonical = names.canonical(name)
        # An untied decoder has two biases, and computes with the alias.
        if canonical is None or (canonical in values and name == canonical):
            continue
        values[canonical] = tensor.numpy()
    # A tied table has its first name in the model's class.
    words, decoder = names.tensor_of(WORD_EMBEDDINGS), decoder_tensor(names)
    if words and words not in values:
        values[words] = values.pop(decoder)
    return values


@contextlib.contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Disables progress bars, tables of keys and warnings inside the block."""
    logging = transformers.utils.logging
    verbosity, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if had_bars:
            logging.enable_progress_bar()
