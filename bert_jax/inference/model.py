"""A loaded model: its parameters, its tokenizer, and what can be asked of it."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, overload

import flax.linen as nn
import numpy as np
from jax.sharding import Mesh

from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.parameters import LoadReport
from bert_jax.errors import UserError
from bert_jax.inference import classification, features, surgery
from bert_jax.inference.classification import Outcome
from bert_jax.inference.features import AttentionMaps, TokenStates
from bert_jax.inference.filling import Filling, fillings
from bert_jax.inference.interface import Text
from bert_jax.inference.progress import Progress
from bert_jax.models.config import BertConfig
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True, repr=False)
class LoadedModel:
    """A model directory in memory.

    Texts go through it in batches of like length, padded to few shapes; an answer does not depend
    on the other texts beyond rounding. Longer texts than the model takes are cut, and a line on
    stderr says how many. For inputs that do not fit in memory there are `features` and `filling`:
    the same answers as iterators.

    Attributes:
        config: the architecture.
        module: the Linen module; `module.apply({"params": params}, input_ids, …)`.
        params: its parameters, float32, on the mesh.
        tokenizer: text to ids.
        description: what its `config.json` says.
        report: which parameters the files had.
        mesh: the devices that it is computed on.
    """

    config: BertConfig
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
        """Writes a model directory that `transformers` loads."""
        directory = Path(directory).expanduser()
        model_directory.save(directory, self.description, self.params, self.tokenizer)

    def add_words(self, words: Sequence[str]) -> "LoadedModel":
        """A model that knows more words as pieces of their own, see `inference.surgery`."""
        return surgery.add_words(self, words)

    def extend_positions(self, length: int) -> "LoadedModel":
        """A model that takes texts of `length` tokens, see `inference.surgery`."""
        return surgery.extend_positions(self, length)

    def embed(
        self,
        texts: Iterable[Text],
        pooling: str = "mean",
        *,
        normalize: bool = False,
        batch_size: int = 32,
        max_length: int | None = None,
        progress: bool = False,
    ) -> np.ndarray:
        """One vector for each text, float32 [n, D].

        Args:
            texts: n strings, or pairs of strings.
            pooling: "mean", "max" over the tokens, [CLS] and [SEP] among them; "cls", the vector of
                [CLS]; "pooler", what the pooler makes of it (a model without one has none).
            normalize: whether vectors are brought to length 1.
            batch_size: the most texts computed together.
            max_length: the most tokens of a text; None for as many as the model takes.
            progress: whether a bar is shown on stderr.

        Raises:
            UserError: the pooling is unknown, the model has no pooler, or something is no text.
        """
        texts = _as_list(texts)
        vectors = np.empty((len(texts), self.config.hidden_size), np.float32)
        with Progress(lambda: len(texts), enabled=progress) as bar:
            found = features.embeddings(
                self,
                texts,
                pooling=pooling,
                normalize=normalize,
                batch_size=batch_size,
                max_length=max_length,
                advance=bar.advance,
            )
            for row, vector in enumerate(found):
                vectors[row] = vector
        return vectors

    def hidden_states(
        self,
        texts: Iterable[Text],
        layers: Sequence[int] = (-1,),
        combine: str | None = None,
        *,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[TokenStates]:
        """The hidden states of chosen layers: the feature-based approach of the paper.

        The rows of its table 7: layers (0,) are the embeddings, (-2,) the second-to-last layer,
        (-1,) the last, (-4, -3, -2, -1) with "sum" or "concatenate" the last four.

        Args:
            texts: strings, or pairs of strings.
            layers: 0 the embeddings, 1 … L the layers; -1 is the last, -2 the one before it.
            combine: "sum", "mean" or "concatenate" (along D) of the layers; None leaves them apart.
            batch_size: the most texts computed together.
            max_length: the most tokens of a text; None for as many as the model takes.

        Returns:
            For each text its tokens and float32 [T, D], [T, K · D] or [K, T, D].

        Raises:
            UserError: there is no such layer or combination, or something is no text.
        """
        return list(
            features.hidden_states(
                self,
                _as_list(texts),
                layers=layers,
                combine=combine,
                batch_size=batch_size,
                max_length=max_length,
            )
        )

    def attentions(
        self,
        texts: Iterable[Text],
        layers: Sequence[int] | None = None,
        *,
        batch_size: int = 8,
        max_length: int | None = None,
    ) -> list[AttentionMaps]:
        """Where each token looks, in chosen layers.

        Args:
            texts: strings, or pairs of strings.
            layers: 1 … L, or from the end; None for all.
            batch_size: the most texts computed together; L · N · T² numbers for each.
            max_length: the most tokens of a text; None for as many as the model takes.

        Returns:
            For each text its tokens and float32 [K, N, T, T].

        Raises:
            UserError: there is no such layer, or something is no text.
        """
        return list(
            features.attentions(
                self, _as_list(texts), layers=layers, batch_size=batch_size, max_length=max_length
            )
        )

    # A string is an iterable of strings, too: the first signature that fits is meant.
    @overload
    def fill_mask(  # type: ignore[overload-overlap]
        self, texts: str, top_k: int = 5, *, batch_size: int = 32, max_length: int | None = None
    ) -> list[Filling]: ...

    @overload
    def fill_mask(
        self,
        texts: Iterable[Text],
        top_k: int = 5,
        *,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[list[Filling]]: ...

    def fill_mask(
        self,
        texts: str | Iterable[Text],
        top_k: int = 5,
        *,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[Filling] | list[list[Filling]]:
        """The most probable pieces for the first [MASK] of a text, or of each of several.

        Args:
            texts: has the mask token, as "Paris is the [MASK] of France."; or many such texts.
            top_k: how many proposals, the best first.
            batch_size: the most texts computed together.
            max_length: longer texts are cut to so many tokens; None: they are refused.

        Returns:
            The proposals for one text; a list of such lists for many.

        Raises:
            UserError: a text has no mask or is too long, or the model has no
                masked-language-model head.
        """
        single = isinstance(texts, str)
        every = self.fill_masks(
            [texts] if isinstance(texts, str) else texts,
            top_k,
            batch_size=batch_size,
            max_length=max_length,
        )
        first = [of_text[0] for of_text in every]
        return first[0] if single else first

    def fill_masks(
        self,
        texts: Iterable[Text],
        top_k: int = 5,
        *,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[list[list[Filling]]]:
        """The most probable pieces for every mask of every text, the other masks in place.

        Arguments and errors are those of `fill_mask`.

        Returns:
            For each text, for each of its masks, the proposals.
        """
        found = fillings(
            self, _as_list(texts), top_k=top_k, batch_size=batch_size, max_length=max_length
        )
        return list(found)


    def classify(
        self,
        texts: Iterable[Text],
        *,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[Outcome]:
        """The label of each text with its score, or of a regression the value.

        Args:
            texts: n strings, or pairs of strings.
            batch_size: the most texts computed together.
            max_length: the most tokens of a text; None for as many as the model takes.

        Raises:
            UserError: the model has no classifier of texts, or something is no text.
        """
        found = classification.logits(
            self, _as_list(texts), batch_size=batch_size, max_length=max_length
        )
        return [classification.outcome(self.description, scores) for scores in found]


def _as_list(texts: Iterable[Text]) -> list[Text]:
    """Refuses one string, which is also a list of letters."""
    if isinstance(texts, str):
        raise UserError("the texts are one string; give a list of strings")
    return list(texts)
