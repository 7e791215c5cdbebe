"""A loaded model: its parameters, its tokenizer and its predictions."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import flax.linen as nn
import numpy as np
from jax.sharding import Mesh

from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.parameters import LoadReport
from bert_jax.data.readers.texts import Text
from bert_jax.errors import OptionError
from bert_jax.files import as_path
from bert_jax.inference import search, surgery
from bert_jax.inference.streams import Progress, predict_examples
from bert_jax.models.config import EncoderConfig
from bert_jax.tasks.attentions import AttentionMaps, AttentionsPredictor
from bert_jax.tasks.base.predictor import BatchOptions, not_one_string
from bert_jax.tasks.classification.predict import LabelPredictor, TextPrediction
from bert_jax.tasks.embed import EmbeddingPredictor
from bert_jax.tasks.fill_mask import MaskPrediction, MaskPredictor
from bert_jax.tasks.hidden_states import HiddenStatesPredictor, TokenStates
from bert_jax.tasks.multiple_choice import (
    Choice,
    ChoicePredictor,
    best_choice,
    choice_examples,
)
from bert_jax.tasks.question_answering.predict import (
    Answer,
    AnswerOptions,
    SpanPredictor,
    best_answers,
    question_examples,
    stored_threshold,
)
from bert_jax.tasks.similarity.predict import Match
from bert_jax.tasks.tagging.predict import Tagging, TagPredictor, Words
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True, repr=False)
class LoadedModel:
    """A model directory in memory.

    Texts are computed in batches of like length, padded to few shapes; a prediction does not depend
    on the other texts beyond rounding. Texts that are too long are cut, and a line on stderr counts
    them; sentences to tag and passages to answer from are read in windows.

    In all methods, `batch_size` is the most texts computed together, `max_length` the most tokens
    of a text (None: as many as the model takes), B the number of texts, L of layers.

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
        # One line: the parameters would be thousands.
        layers, width = self.config.num_hidden_layers, self.config.hidden_size
        return (
            f"LoadedModel({self.description.class_name}, {layers} layers of width {width}, "
            f"{self.tokenizer.vocab_size} pieces; {self.report})"
        )

    def save(self, directory: str | Path) -> None:
        """Writes a model directory that `transformers` loads, here or in a bucket."""
        path = as_path(directory).expanduser()
        model_directory.save(path, self.description, self.params, self.tokenizer)

    def add_words(self, words: Sequence[str]) -> "LoadedModel":
        """A model with more words as single pieces, see `inference.surgery`."""
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
        """One vector for each text, float32 [B, D].

        Args:
            texts: strings, or pairs of strings.
            pooling: "mean" or "max" over all tokens; "cls", the vector of [CLS]; "pooler", the
                output of the pooler.
            normalize: whether vectors are scaled to length 1.
            batch_size: see the class.
            max_length: likewise.
            progress: whether a bar is shown on stderr.

        Raises:
            UserError: the pooling is unknown, the model has no pooler, or an element is not a text.
        """
        texts = list(not_one_string(texts))
        vectors = np.empty((len(texts), self.config.hidden_size), np.float32)
        predictor = EmbeddingPredictor(
            self, BatchOptions(batch_size, max_length), pooling=pooling, normalize=normalize
        )
        with Progress(lambda: len(texts), enabled=progress) as bar:
            embeddings = predict_examples(self, predictor, texts, advance=bar.advance)
            for row, vector in enumerate(embeddings):
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
        """The hidden states of some layers: the feature-based approach of the paper (table 7).

        Args:
            texts: strings, or pairs of strings.
            layers: 0 the embeddings, 1 … L the layers; -1 is the last.
            combine: "sum", "mean" or "concatenate" (along D) of the layers; None: not combined.
            batch_size: see the class.
            max_length: likewise.

        Returns:
            For each text its tokens and float32 [T, D], [T, L · D] or [L, T, D], L as chosen.

        Raises:
            UserError: there is no such layer or combination, or an element is not a text.
        """
        options = BatchOptions(batch_size, max_length)
        predictor = HiddenStatesPredictor(self, options, layers=layers, combine=combine)
        return list(predict_examples(self, predictor, not_one_string(texts)))

    def attentions(
        self,
        texts: Iterable[Text],
        layers: Sequence[int] | None = None,
        *,
        batch_size: int = 8,
        max_length: int | None = None,
    ) -> list[AttentionMaps]:
        """The attention weights between the tokens of each text, in some layers.

        Args:
            texts: strings, or pairs of strings.
            layers: 1 … L, or from the end; None for all.
            batch_size: small, since each text has L · N · T² numbers.
            max_length: see the class.

        Returns:
            For each text its tokens and float32 [L, N, T, T], L as chosen.

        Raises:
            UserError: there is no such layer, or an element is not a text.
        """
        options = BatchOptions(batch_size, max_length)
        predictor = AttentionsPredictor(self, options, layers=layers)
        return list(predict_examples(self, predictor, not_one_string(texts)))

    def similarity(
        self,
        texts: Iterable[str],
        others: Iterable[str] | None = None,
        *,
        pooling: str | None = None,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> np.ndarray:
        """The cosine of every text with every other, float32 [texts, others], from -1 to 1.

        Args:
            texts: strings.
            others: strings; None: the same ones.
            pooling: see `embed`; None: as the model was trained, else the mean.
            batch_size: see the class.
            max_length: likewise.

        Raises:
            UserError: the pooling is unknown, or an element is not a text.
        """
        options = BatchOptions(batch_size, max_length)
        return search.similarity(self, texts, others, pooling, options)

    def search(
        self,
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
            query: a string.
            texts: read once; only the best are kept.
            top_k: the number of matches.
            pooling: as in `similarity`.
            batch_size: see the class.
            max_length: likewise.

        Raises:
            UserError: `top_k` is below 1, or as `similarity`.
        """
        options = BatchOptions(batch_size, max_length)
        return search.search(self, query, texts, top_k, pooling, options)

    # A string is an iterable of strings, too: the first signature that fits applies.
    @overload
    def fill_mask(  # type: ignore[overload-overlap]
        self, texts: str, top_k: int = 5, *, batch_size: int = 32, max_length: int | None = None
    ) -> list[MaskPrediction]: ...

    @overload
    def fill_mask(
        self,
        texts: Iterable[Text],
        top_k: int = 5,
        *,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[list[MaskPrediction]]: ...

    def fill_mask(
        self,
        texts: str | Iterable[Text],
        top_k: int = 5,
        *,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[MaskPrediction] | list[list[MaskPrediction]]:
        """The most probable pieces for the first [MASK] of a text, or of each of several.

        Args:
            texts: a text with the mask token, as "Paris is the [MASK] of France."; or several.
            top_k: the number of predictions, the best first.
            batch_size: the most texts computed together.
            max_length: longer texts are cut to so many tokens; None: they are refused.

        Returns:
            The predictions for one text; a list of such lists for several.

        Raises:
            UserError: a text has no mask or is too long, or the model has no
                masked-language-model head.
        """
        single = isinstance(texts, str)
        every = self._mask_predictions(
            [texts] if isinstance(texts, str) else texts, top_k, batch_size, max_length
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
    ) -> list[list[list[MaskPrediction]]]:
        """The most probable pieces for every mask of every text, the other masks in place.

        Arguments and errors are those of `fill_mask`.

        Returns:
            For each text, for each of its masks, the predictions.
        """
        return list(self._mask_predictions(not_one_string(texts), top_k, batch_size, max_length))

    def _mask_predictions(
        self, texts: Iterable[Text], top_k: int, batch_size: int, max_length: int | None
    ) -> Iterator[list[list[MaskPrediction]]]:
        predictor = MaskPredictor(self, BatchOptions(batch_size, max_length), top_k=top_k)
        return predict_examples(self, predictor, texts)

    def classify(
        self, texts: Iterable[Text], *, batch_size: int = 32, max_length: int | None = None
    ) -> list[TextPrediction]:
        """The label of each text with its score, or of a regression the value.

        Raises:
            UserError: the model has no classifier of texts, or an element is not a text.
        """
        predictor = LabelPredictor(self, BatchOptions(batch_size, max_length))
        return list(predict_examples(self, predictor, not_one_string(texts)))

    def tag(
        self, sentences: Iterable[Words], *, batch_size: int = 32, max_length: int | None = None
    ) -> list[Tagging]:
        """The tag of every word of each sentence, and the entities that the tags mark.

        Long sentences are read in windows: nothing is cut off.

        Args:
            sentences: strings, which are split into words, or lists of words.
            batch_size: the most windows computed together.
            max_length: the most tokens of a window.

        Raises:
            UserError: the model does not tag words, or an element is not a sentence.
        """
        predictor = TagPredictor(self, BatchOptions(batch_size, max_length))
        return list(predict_examples(self, predictor, not_one_string(sentences, "sentences")))

    @overload
    def answer(
        self, question: str, passage: str, *, null_threshold: float | None = None
    ) -> Answer: ...

    @overload
    def answer(
        self,
        question: str | Sequence[str],
        passage: str | Sequence[str],
        top_k: int = 1,
        *,
        null_threshold: float | None = None,
        options: AnswerOptions | None = None,
    ) -> Answer | list[Answer] | list[Answer | list[Answer]]: ...

    def answer(
        self,
        question: str | Sequence[str],
        passage: str | Sequence[str],
        top_k: int = 1,
        *,
        null_threshold: float | None = None,
        options: AnswerOptions | None = None,
    ) -> Answer | list[Answer] | list[Answer | list[Answer]]:
        """The part of a passage that answers a question.

        Args:
            question: one, or a list.
            passage: one for all questions, or a list with one for each.
            top_k: the number of answers to each question, the best first.
            null_threshold: the answer is "" if its score is higher by this; None: the value in the
                model's `config.json`, or never.
            options: lengths of windows and answers; None: the defaults.

        Raises:
            UserError: the model does not answer questions, or lists differ in length.
        """
        if top_k < 1:
            raise OptionError("top_k", top_k, "it must be at least 1")
        options = options or AnswerOptions()
        options = dataclasses.replace(options, n_best=max(top_k, options.n_best))
        if null_threshold is None:
            null_threshold = stored_threshold(self.description)
        predictor = SpanPredictor(self, options)
        every: list[Answer | list[Answer]] = []
        for spans in predict_examples(self, predictor, question_examples(question, passage)):
            best = best_answers(spans, null_threshold, top_k)
            every.append(best[0] if top_k == 1 else best)
        return every[0] if isinstance(question, str) and isinstance(passage, str) else every

    # A string is a sequence of strings, too: the first signature that fits applies.
    @overload
    def choose(  # type: ignore[overload-overlap]
        self, prompt: str, choices: Sequence[str], question: str = ""
    ) -> Choice: ...

    @overload
    def choose(
        self,
        prompt: Sequence[str],
        choices: Sequence[Sequence[str]],
        question: str | Sequence[str] = "",
        *,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[Choice]: ...

    def choose(
        self,
        prompt: str | Sequence[str],
        choices: Sequence[str] | Sequence[Sequence[str]],
        question: str | Sequence[str] = "",
        *,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> Choice | list[Choice]:
        """The choice that fits a prompt best.

        Args:
            prompt: a beginning, a passage or a question; or a list of them.
            choices: two or more; for a list of prompts, a list of such lists.
            question: about the prompt; "": there is none.
            batch_size: see the class.
            max_length: likewise.

        Raises:
            UserError: the model does not score choices, or lists differ in length.
        """
        examples = choice_examples(prompt, choices, question)
        predictor = ChoicePredictor(self, BatchOptions(batch_size, max_length))
        scores = predict_examples(self, predictor, examples)
        best = [
            best_choice(example.choices, logits)
            for example, logits in zip(examples, scores, strict=True)
        ]
        return best[0] if isinstance(prompt, str) else best
