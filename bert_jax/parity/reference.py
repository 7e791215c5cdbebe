"""Hugging Face's model of a directory: the one module that PyTorch and transformers may enter."""

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.errors import UserError, first_line
from bert_jax.families.family import Family, TensorNames
from bert_jax.models.config import Head
from bert_jax.parity.heads import (
    IGNORED_LABEL,
    OUTPUTS,
    ParityInput,
    linear_form,
    named_logits,
)
from bert_jax.parity.report import Computed


@dataclasses.dataclass(frozen=True)
class Reference:
    """A model of transformers, float32, without dropout, with its plainest attention.

    Attributes:
        family: of the model.
        head: of the model.
        config: its config, as it is written in `config.json`, with all defaults.
        tensors: its parameters by the names of the family's table; a decoder only if it is
            not the table of word embeddings.
        versions: of transformers and PyTorch, as "transformers 5.23.0, torch 2.13.0".
    """

    family: Family
    head: Head
    config: Mapping[str, Any]
    tensors: Mapping[str, np.ndarray]
    versions: str
    _model: Any

    def run(self, batch: ParityInput, dtype: str = "float32") -> Computed:
        """Everything that is compared, for one input, computed in float32 or float64."""
        import torch

        self._model.to(getattr(torch, dtype))  # back from float64, all bits are as they were
        tensors = {
            name: torch.from_numpy(value.astype(np.int64 if value.dtype.kind == "i" else dtype))
            for name, value in {**batch.features, **batch.labels}.items()
        }
        features = {name: tensors[name] for name in batch.features}
        labels = {name: tensors[name] for name in batch.labels}
        is_bare = self.head is Head.ENCODER
        self._model.zero_grad()
        output = self._model(
            **features, **({} if is_bare else labels), output_hidden_states=True, return_dict=True
        )
        losses = [linear_form(output, labels)] if is_bare else self._losses(output, labels)
        losses[-1].backward()
        logits = named_logits(self.head, output)
        names = OUTPUTS[self.head].losses
        return Computed(
            hidden_states=np.stack([state.detach().numpy() for state in output.hidden_states]),
            logits={name: value.detach().numpy() for name, value in logits.items()},
            losses={name: loss.item() for name, loss in zip(names, losses, strict=True)},
            gradients=_canonical(self._model, self.family.huggingface, gradients=True),
        )

    def _losses(self, output: Any, labels: Mapping[str, Any]) -> list[Any]:
        """The class's own loss and its parts, in the order of `Outputs.losses`."""
        from torch.nn.functional import cross_entropy

        if self.head is Head.MULTIPLE_CHOICE:
            score = output.logits.mean()
            return [output.loss, score, output.loss + score]
        if self.head is not Head.PRETRAINING:
            return [output.loss]
        words = cross_entropy(
            output.prediction_logits.flatten(0, 1),
            labels["labels"].flatten(),
            ignore_index=IGNORED_LABEL,
        )
        pair = cross_entropy(output.seq_relationship_logits, labels["next_sentence_label"])
        return [words, pair, output.loss]


def open_reference(
    directory: Path, family: Family, head: Head, *, add_pooling_layer: bool = True
) -> Reference:
    """Loads a model directory with transformers.

    Args:
        directory: the model directory; nothing is fetched.
        family: of the model.
        head: of the model.
        add_pooling_layer: for the bare encoder, whether it has a pooler.

    Raises:
        UserError: PyTorch or transformers is missing, or they cannot load the directory, or it
            lacks some of the model's tensors.
    """
    torch, transformers = import_reference()
    class_name = family.class_names[head]
    arguments = {} if head is not Head.ENCODER else {"add_pooling_layer": add_pooling_layer}
    with _quiet(transformers):
        try:
            model, information = getattr(transformers, class_name).from_pretrained(
                directory,
                dtype=torch.float32,
                attn_implementation="eager",
                local_files_only=True,
                output_loading_info=True,
                **arguments,
            )
        except Exception as error:  # whatever the library raises, it is about these files
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
    return Reference(
        family=family,
        head=head,
        config=model.config.to_dict(),
        tensors=_canonical(model, family.huggingface),
        versions=f"transformers {transformers.__version__}, torch {torch.__version__}",
        _model=model,
    )


def import_reference() -> tuple[Any, Any]:
    """PyTorch and transformers.

    Raises:
        UserError: one of them is not there.
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


def _canonical(model: Any, names: TensorNames, *, gradients: bool = False) -> dict[str, np.ndarray]:
    """Parameters or their gradients; what two names share comes once."""
    values: dict[str, np.ndarray] = {}
    for name, parameter in model.named_parameters():
        canonical = names.canonical(name)
        # An untied decoder has two biases, and computes with the one that has the other name.
        if canonical is None or (canonical in values and name == canonical):
            continue
        value = parameter.detach()
        if gradients:
            value = (
                parameter.new_zeros(parameter.shape) if parameter.grad is None else parameter.grad
            )
        values[canonical] = value.numpy()
    return values


@contextlib.contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No progress bars, no tables of keys, no warnings; afterwards all is as it was."""
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
