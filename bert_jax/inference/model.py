"""A loaded model: its parameters, its tokenizer, and what can be asked of it."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flax.linen as nn
from jax.sharding import Mesh

from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.parameters import LoadReport
from bert_jax.files import as_path
from bert_jax.inference import surgery
from bert_jax.inference.encoder_abilities import EncoderAbilities
from bert_jax.inference.head_abilities import HeadAbilities
from bert_jax.models.config import EncoderConfig
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True, repr=False)
class LoadedModel(EncoderAbilities, HeadAbilities):
    """A model directory in memory, and what can be asked of it, see its bases.

    Attributes:
        config: the architecture.
        module: the Linen module; `module.apply({"params": params}, input_ids, …)`.
        params: its parameters, float32, on the mesh.
        tokenizer: text to ids.
        description: what its `config.json` says.
        report: which parameters the files had.
        mesh: the devices that it is computed on.
    """

    config: EncoderConfig
    module: nn.Module
    params: Any
    tokenizer: Tokenizer
    description: ModelDescription
    report: LoadReport
    mesh: Mesh

    def __repr__(self) -> str:
        """One line; the parameters would be thousands."""
        layers, width = self.config.num_hidden_layers, self.config.hidden_size
        return (
            f"LoadedModel({self.description.architecture}, {layers} layers of width {width}, "
            f"{self.tokenizer.vocab_size} pieces; {self.report})"
        )

    def save(self, directory: str | Path) -> None:
        """Writes a model directory that `transformers` loads, here or in a bucket."""
        place = as_path(directory).expanduser()
        model_directory.save(place, self.description, self.params, self.tokenizer)

    def add_words(self, words: Sequence[str]) -> "LoadedModel":
        """A model that knows more words as pieces of their own, see `inference.surgery`."""
        return surgery.add_words(self, words)

    def extend_positions(self, length: int) -> "LoadedModel":
        """A model that takes texts of `length` tokens, see `inference.surgery`."""
        return surgery.extend_positions(self, length)
