"""What can be asked of any encoder: each method asks one room of this folder.

The rooms read iterators and answer in constant memory; here the answers are collected.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from bert_jax.inference import features
from bert_jax.inference.features import AttentionMaps, TokenStates
from bert_jax.inference.interface import Model, Text, as_list
from bert_jax.inference.progress import Progress
from bert_jax.tasks.similarity import decoding as similarity
from bert_jax.tasks.similarity.decoding import Match


class EncoderAbilities:
    """The methods of a `LoadedModel` that need no head.

    Texts go through the model in batches of like length, padded to few shapes; an answer does not
    depend on the other texts beyond rounding. Longer texts than the model takes are cut, and a line
    on stderr says how many.
    """

    def embed(
        self: Model,
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
        texts = as_list(texts)
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
        self: Model,
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
                as_list(texts),
                layers=layers,
                combine=combine,
                batch_size=batch_size,
                max_length=max_length,
            )
        )

    def attentions(
        self: Model,
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
                self, as_list(texts), layers=layers, batch_size=batch_size, max_length=max_length
            )
        )

    def similarity(
        self: Model,
        texts: Iterable[str],
        others: Iterable[str] | None = None,
        *,
        pooling: str | None = None,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> np.ndarray:
        """The cosine of every text with every other, float32 [n, m], from -1 to 1.

        Args:
            texts: n strings.
            others: m strings; None: the same ones.
            pooling: see `embed`; None: as the model was trained, else the mean.
            batch_size: the most texts computed together.
            max_length: the most tokens of a text; None for as many as the model takes.

        Raises:
            UserError: the pooling is unknown, or something is no text.
        """
        return similarity.similarity(
            self, texts, others, pooling=pooling, batch_size=batch_size, max_length=max_length
        )

    def search(
        self: Model,
        query: str,
        texts: Iterable[str],
        top_k: int = 10,
        *,
        pooling: str | None = None,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[Match]:
        """The texts that are nearest to a query, the nearest first.

        Args:
            query: what is looked for.
            texts: read once; only the best are kept.
            top_k: how many.
            pooling: as in `similarity`.
            batch_size: the most texts computed together.
            max_length: the most tokens of a text; None for as many as the model takes.

        Raises:
            UserError: `top_k` is below 1, or as `similarity`.
        """
        return similarity.search(
            self, query, texts, top_k, pooling=pooling, batch_size=batch_size, max_length=max_length
        )
