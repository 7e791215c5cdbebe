"""What can be asked of a loaded model: each method asks one room of this folder.

The rooms read iterators and answer in constant memory; here the answers are collected.
"""

from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np

from bert_jax.errors import UserError
from bert_jax.inference import (
    answering,
    choosing,
    classification,
    features,
    similarity,
    tagging,
)
from bert_jax.inference.answering import Answer, AnswerOptions
from bert_jax.inference.choosing import Choice
from bert_jax.inference.classification import Outcome
from bert_jax.inference.features import AttentionMaps, TokenStates
from bert_jax.inference.filling import Filling, fillings
from bert_jax.inference.interface import Model, Text
from bert_jax.inference.progress import Progress
from bert_jax.inference.similarity import Match
from bert_jax.inference.tagging import Sentence, Tagging


class Abilities:
    """The methods of a `LoadedModel` that answer.

    Texts go through the model in batches of like length, padded to few shapes; an answer does not
    depend on the other texts beyond rounding. Longer texts than the model takes are cut, and a line
    on stderr says how many; sentences to tag and passages to answer from are read in windows.
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
                _as_list(texts),
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
                self, _as_list(texts), layers=layers, batch_size=batch_size, max_length=max_length
            )
        )

    # A string is an iterable of strings, too: the first signature that fits is meant.
    @overload
    def fill_mask(  # type: ignore[overload-overlap]
        self: Model,
        texts: str,
        top_k: int = 5,
        *,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[Filling]: ...

    @overload
    def fill_mask(
        self: Model,
        texts: Iterable[Text],
        top_k: int = 5,
        *,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[list[Filling]]: ...

    def fill_mask(
        self: Model,
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
        every = fillings(
            self,
            [texts] if isinstance(texts, str) else texts,
            top_k=top_k,
            batch_size=batch_size,
            max_length=max_length,
        )
        first = [of_text[0] for of_text in every]
        return first[0] if single else first

    def fill_masks(
        self: Model,
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
        self: Model,
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

    def tag(
        self: Model,
        sentences: Iterable[Sentence],
        *,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[Tagging]:
        """The tag of every word of each sentence, and the entities that the tags spell.

        Long sentences are read in windows: nothing is cut off.

        Args:
            sentences: n strings, which are split into words, or lists of words.
            batch_size: the most windows computed together.
            max_length: the most tokens of a window; None for as many as the model takes.

        Raises:
            UserError: the model does not tag words, or something is no sentence.
        """
        found = tagging.taggings(self, sentences, batch_size=batch_size, max_length=max_length)
        return list(found)

    @overload
    def answer(
        self: Model, question: str, passage: str, *, null_threshold: float | None = None
    ) -> Answer: ...

    @overload
    def answer(
        self: Model,
        question: str | Sequence[str],
        passage: str | Sequence[str],
        top_k: int = 1,
        *,
        null_threshold: float | None = None,
        options: AnswerOptions | None = None,
    ) -> Answer | list[Answer] | list[Answer | list[Answer]]: ...

    def answer(
        self: Model,
        question: str | Sequence[str],
        passage: str | Sequence[str],
        top_k: int = 1,
        *,
        null_threshold: float | None = None,
        options: AnswerOptions | None = None,
    ) -> Answer | list[Answer] | list[Answer | list[Answer]]:
        """The part of a passage that answers a question; see `inference.answering.answer`.

        Args:
            question: one, or a list.
            passage: one for all questions, or a list with one for each.
            top_k: how many answers to each question, the best first.
            null_threshold: the answer is "" if its score is so much better; None: as the model's
                `config.json` says, or never.
            options: lengths of windows and answers, None: the usual ones.

        Raises:
            UserError: the model does not answer questions, or lists differ in length.
        """
        return answering.answer(
            self,
            question,
            passage,
            top_k,
            null_threshold=null_threshold,
            options=options or AnswerOptions(),
        )

    # A string is a sequence of strings, too: the first signature that fits is meant.
    @overload
    def choose(  # type: ignore[overload-overlap]
        self: Model, prompt: str, choices: Sequence[str], question: str = ""
    ) -> Choice: ...

    @overload
    def choose(
        self: Model,
        prompt: Sequence[str],
        choices: Sequence[Sequence[str]],
        question: str | Sequence[str] = "",
        *,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[Choice]: ...

    def choose(
        self: Model,
        prompt: str | Sequence[str],
        choices: Sequence[str] | Sequence[Sequence[str]],
        question: str | Sequence[str] = "",
        *,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> Choice | list[Choice]:
        """The choice that fits a prompt best; see `inference.choosing.choose`.

        Args:
            prompt: a beginning, a passage or a question; or a list of them.
            choices: two or more; for a list of prompts, a list of such lists.
            question: asked about the prompt, if there is one besides.
            batch_size: the most choices computed together.
            max_length: the most tokens of a prompt with a choice.

        Raises:
            UserError: the model does not score choices, or lists differ in length.
        """
        return choosing.choose(
            self, prompt, choices, question, batch_size=batch_size, max_length=max_length
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


def _as_list(texts: Iterable[Text]) -> list[Text]:
    """Refuses one string, which is also a list of letters."""
    if isinstance(texts, str):
        raise UserError("the texts are one string; give a list of strings")
    return list(texts)
