"""What can be asked of a model with a head: each method asks one room of this folder.

The rooms read iterators and answer in constant memory; here the answers are collected.
"""

from collections.abc import Iterable, Sequence
from typing import overload

from bert_jax.inference.interface import Model, Text, as_list
from bert_jax.tasks.classification import decoding as classification
from bert_jax.tasks.classification.decoding import Prediction
from bert_jax.tasks.fill_mask import MaskPrediction, fillings
from bert_jax.tasks.multiple_choice import decoding as choosing
from bert_jax.tasks.multiple_choice.decoding import Choice
from bert_jax.tasks.question_answering import answering
from bert_jax.tasks.question_answering.answering import Answer, AnswerOptions
from bert_jax.tasks.tagging import decoding as tagging
from bert_jax.tasks.tagging.decoding import Sentence, Tagging


class HeadAbilities:
    """The methods of a `LoadedModel` that need a head; another head is refused in one line.

    Texts go through the model in batches of like length, padded to few shapes; an answer does not
    depend on the other texts beyond rounding. Longer texts than the model takes are cut, and a line
    on stderr says how many; sentences to tag and passages to answer from are read in windows.
    """

    # A string is an iterable of strings, too: the first signature that fits is meant.
    @overload
    def fill_mask(  # type: ignore[overload-overlap]
        self: Model,
        texts: str,
        top_k: int = 5,
        *,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[MaskPrediction]: ...

    @overload
    def fill_mask(
        self: Model,
        texts: Iterable[Text],
        top_k: int = 5,
        *,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[list[MaskPrediction]]: ...

    def fill_mask(
        self: Model,
        texts: str | Iterable[Text],
        top_k: int = 5,
        *,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[MaskPrediction] | list[list[MaskPrediction]]:
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
    ) -> list[list[list[MaskPrediction]]]:
        """The most probable pieces for every mask of every text, the other masks in place.

        Arguments and errors are those of `fill_mask`.

        Returns:
            For each text, for each of its masks, the proposals.
        """
        found = fillings(
            self, as_list(texts), top_k=top_k, batch_size=batch_size, max_length=max_length
        )
        return list(found)

    def classify(
        self: Model,
        texts: Iterable[Text],
        *,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[Prediction]:
        """The label of each text with its score, or of a regression the value.

        Args:
            texts: n strings, or pairs of strings.
            batch_size: the most texts computed together.
            max_length: the most tokens of a text; None for as many as the model takes.

        Raises:
            UserError: the model has no classifier of texts, or something is no text.
        """
        found = classification.logits(
            self, as_list(texts), batch_size=batch_size, max_length=max_length
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
