"""A loaded model: its parameters, its tokenizer, and what can be asked of it."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jax.sharding import Mesh

from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.parameters import LoadReport
from bert_jax.errors import UserError
from bert_jax.models.config import BertConfig
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True)
class Filling:
    """One word that the model proposes for a mask.

    Attributes:
        token: the piece, as it stands in the vocabulary.
        token_id: its id.
        score: its probability.
        text: the text with the mask replaced, decoded.
    """

    token: str
    token_id: int
    score: float
    text: str


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """A model directory in memory.

    Attributes:
        config: the architecture.
        module: the Linen module; `module.apply({"params": params}, input_ids, …)`.
        params: its parameters, float32.
        tokenizer: text to ids.
    """

    config: BertConfig
    module: nn.Module
    params: Any
    tokenizer: Tokenizer
    description: ModelDescription
    report: LoadReport
    mesh: Mesh

    def save(self, directory: str | Path) -> None:
        """Writes a model directory that `transformers` loads."""
        model_directory.save(Path(directory), self.description, self.params, self.tokenizer)

    def fill_mask(self, text: str, top_k: int = 5) -> list[Filling]:
        """The most probable pieces for the first [MASK] of a text.

        Args:
            text: has the mask token, as "Paris is the [MASK] of France.".
            top_k: how many proposals, the best first.

        Raises:
            UserError: there is no mask, or the text is longer than the position table.
        """
        (encoding,) = self.tokenizer.encode_batch([text])
        mask_id = self.tokenizer.special_ids.mask
        if mask_id not in encoding.ids:
            mask = self.tokenizer.id_to_token(mask_id)
            raise UserError(f"the text has no {mask}: {text[:80]!r}")
        if len(encoding) > self.config.max_position_embeddings:
            raise UserError(
                f"the text has {len(encoding)} tokens, the model takes "
                f"{self.config.max_position_embeddings}; shorten it"
            )
        position = encoding.ids.index(mask_id)
        logits = self._word_logits(encoding.ids, position)
        probabilities = np.asarray(jax.nn.softmax(logits))
        best = np.argsort(-probabilities, kind="stable")[:top_k]
        return [self._filling(encoding.ids, position, int(word), probabilities) for word in best]

    def _word_logits(self, ids: Sequence[int], position: int) -> jax.Array:
        output: Any = self.module.apply(
            {"params": self.params},
            jnp.asarray([ids]),
            masked_lm_positions=jnp.asarray([[position]]),
        )
        return output.prediction_logits[0, 0, : self.tokenizer.vocab_size]

    def _filling(
        self, ids: list[int], position: int, word: int, probabilities: np.ndarray
    ) -> Filling:
        filled = [*ids[:position], word, *ids[position + 1 :]]
        return Filling(
            token=self.tokenizer.id_to_token(word),
            token_id=word,
            score=float(probabilities[word]),
            text=self.tokenizer.decode(filled),
        )
