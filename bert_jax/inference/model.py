"""A loaded model: its parameters, its tokenizer and its predictions."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, overload

from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.hub import check_not_of_run
from bert_jax.checkpoints.parameters import LoadReport
from bert_jax.data.examples import Text
from bert_jax.errors import UserError
from bert_jax.files import as_path
from bert_jax.inference import generation, images, module_calls, ranking, resizing, vectors
from bert_jax.inference import index as indexes
from bert_jax.inference.engine import predict_examples
from bert_jax.inference.origin import Origin, load_again, parts_of
from bert_jax.process import say
from bert_jax.sharding.hosts import is_main_host
from bert_jax.tasks.attentions import AttentionMaps, AttentionsPredictOptions, AttentionsPredictor
from bert_jax.tasks.base.predictor import BatchOptions, Model, Predictor, not_one_string
from bert_jax.tasks.classification.predict import LabelPredictor, TextPrediction
from bert_jax.tasks.classification.zero_shot import TEMPLATE, CandidateLabels, ZeroShotPredictor
from bert_jax.tasks.fill_mask import FillMaskPredictOptions, MaskPrediction, MaskPredictor
from bert_jax.tasks.hidden_states import (
    HiddenStatesPredictOptions,
    HiddenStatesPredictor,
    TokenStates,
)
from bert_jax.tasks.multiple_choice import Choice, ChoicePredictor, best_choice, choice_inputs
from bert_jax.tasks.question_answering.predict import (
    Answer,
    AnswerOptions,
    AnswerPredictOptions,
    SpanPredictor,
    question_inputs,
)
from bert_jax.tasks.tagging.predict import TaggingPredictOptions, TagPredictor, Words
from bert_jax.tasks.tagging.tagged_words import Tagging

Answers = Answer | list[Answer]
"""The answer to a question, or with `top_k` above 1 the best ones."""


@dataclasses.dataclass(frozen=True, repr=False)
class LoadedModel(Model):
    """A model directory in memory. It can be pickled, as the call that loads its files again.

    A few texts are padded to few shapes, many are packed into shared rows; apart from rounding, a
    prediction does not depend on the other texts. Texts that are too long are cut, and a line on
    stderr counts them; sentences to tag and passages to answer from are read in windows.

    In all methods, `batch_size` is the maximum number of rows computed together, `max_length` the
    maximum number of tokens of a row (None: the limit in the model's files, at most its number of
    positions), B the number of texts, L the number of layers.

    Attributes:
        report: the parameters that the files had or lacked.
        origin: the call that has loaded the model; None for one that was made in memory. For the
            other attributes see `Model`.
    """

    report: LoadReport
    origin: Origin | None = dataclasses.field(default=None, compare=False)

    def __repr__(self) -> str:
        # One line: the parameters would be thousands.
        layers, width = self.config.num_hidden_layers, self.config.hidden_size
        return (
            f"LoadedModel({self.description.class_name}, {layers} layers of width {width}, "
            f"{self.tokenizer.vocab_size} pieces; {self.report})"
        )

    def __reduce__(self) -> tuple[Callable[..., Model], tuple[Any, ...]]:
        """The unpickled model is on the first device of its process, in a "spawn" pool, too.

        Raises:
            UserError: the model was changed in memory. On loading: its files have changed.
        """
        origin = self.origin
        if origin is None or [*map(id, parts_of(self))] != [*map(id, origin.parts)]:
            raise UserError(
                "this model was made or changed in memory, and only the files of a model can be "
                "pickled; save it, and pickle the model that is loaded from there"
            )
        return load_again, (origin.load, origin.directory, origin.states)

    def save(self, directory: str | Path) -> None:
        """Writes a model directory, as local files or in a bucket; see `model_directory.save`."""
        path = as_path(os.path.expanduser(directory))
        check_not_of_run(path)
        if self.changes and is_main_host():
            name = self.changes[-1]
            say(
                f"{path}: the model without what {name} changes: it returns another model, "
                f"model = model.{name}(…), and this one stays as it was"
            )
        others = {side: each.content for side, each in self.sides.items()}
        model_directory.save(path, *self.content, others)

    add_words = resizing.add_words
    extend_positions = resizing.extend_positions
    to_family = resizing.to_family
    keep_layers = resizing.keep_layers

    embed = vectors.embed
    sparse_vectors = vectors.sparse_vectors
    similarity = vectors.similarity
    search = vectors.search
    rank = ranking.rank
    generate = generation.generate
    alignments = generation.alignments
    index = indexes.index
    token_vectors = vectors.token_vectors
    classify_images = images.classify_images
    attention_rollout = images.attention_rollout

    inputs = module_calls.inputs
    next_sentence = module_calls.next_sentence

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
            combine: "sum", "mean" or "concatenate" (along D) of the layers; None: kept separate.
            batch_size: maximum number of texts computed together.
            max_length: maximum number of tokens of a text.

        Returns:
            For each text its tokens and float32 [T, D], [T, L · D] or [L, T, D] for L chosen
            layers.

        Raises:
            UserError: the layer or combination does not exist, or an element is not a text.
        """
        options = HiddenStatesPredictOptions(batch_size, max_length, layers=layers, combine=combine)
        predictor = HiddenStatesPredictor(self, options)
        return list(predict_examples(predictor, not_one_string(texts)))

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
            batch_size: maximum number of texts together; each has L · N · T² values.
            max_length: maximum number of tokens of a text.

        Returns:
            For each text its tokens and float32 [L, N, T, T] for L chosen layers.

        Raises:
            UserError: the layer does not exist, or an element is not a text.
        """
        options = AttentionsPredictOptions(batch_size, max_length, layers=layers)
        predictor = AttentionsPredictor(self, options)
        return list(predict_examples(predictor, not_one_string(texts)))

    # A string is an iterable of strings, too: the first signature that fits applies.
    @overload
    def fill_mask(  # type: ignore[overload-overlap]
        self,
        texts: str,
        top_k: int = 5,
        *,
        targets: Sequence[str] = (),
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[MaskPrediction]: ...

    @overload
    def fill_mask(
        self,
        texts: Iterable[Text],
        top_k: int = 5,
        *,
        targets: Sequence[str] = (),
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[list[MaskPrediction]]: ...

    def fill_mask(
        self,
        texts: str | Iterable[Text],
        top_k: int = 5,
        *,
        targets: Sequence[str] = (),
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[MaskPrediction] | list[list[MaskPrediction]]:
        """The most probable pieces for the first [MASK] of a text, or of each of several.

        Args:
            texts: one or several texts with the mask token, such as "Paris is the [MASK] of
                France.".
            top_k: number of predictions, the best first.
            targets: pieces, or words of one piece, that are compared; empty: the vocabulary.
            batch_size: maximum number of rows computed together; short texts share rows.
            max_length: longer texts are cut to this many tokens; None: they are refused.

        Returns:
            The predictions for one text; a list of such lists for several.

        Raises:
            UserError: a text has no mask or is too long, a target is no piece, or the model has no
                masked-LM head.
        """
        several = [texts] if isinstance(texts, str) else texts
        every = self.fill_masks(
            several, top_k, targets=targets, batch_size=batch_size, max_length=max_length
        )
        several_masks = sum(len(masks) > 1 for masks in every)
        if several_masks and is_main_host():
            say(
                f"{several_masks} of {len(every)} texts have several masks, of which the first is "
                "filled; fill_masks fills all"
            )
        return every[0][0] if isinstance(texts, str) else [masks[0] for masks in every]

    def fill_masks(
        self,
        texts: Iterable[Text],
        top_k: int = 5,
        *,
        targets: Sequence[str] = (),
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[list[list[MaskPrediction]]]:
        """The most probable pieces for every mask of every text; the other masks stay.

        For arguments and errors see `fill_mask`.

        Returns:
            The predictions for each mask of each text.
        """
        words = tuple(not_one_string(targets))
        options = FillMaskPredictOptions(batch_size, max_length, top_k=top_k, targets=words)
        predictor = MaskPredictor(self, options)
        return list(predict_examples(predictor, not_one_string(texts)))

    def classify(
        self,
        texts: Iterable[Text],
        *,
        raw_scores: bool = False,
        candidate_labels: Sequence[str] | None = None,
        template: str = TEMPLATE,
        multi_label: bool = False,
        batch_size: int = 32,
        max_length: int | None = None,
    ) -> list[TextPrediction]:
        """The label of each text with its score; of a model with a single output a number.

        That is the value of a regression, or a score with the activation that the files of a
        cross-encoder store (the sigmoid by default). With `raw_scores`, outputs stay as they are.

        With `candidate_labels`, a model of natural language inference chooses one of them, or with
        `multi_label` any number, see `tasks.classification.zero_shot`.

        Raises:
            UserError: the model has no classifier of texts, its labels or its activation are not
                known, an element is not a text, or candidate labels do not fit.
        """
        options = BatchOptions(batch_size, max_length)
        predictor: Predictor[Any, Any] = LabelPredictor(self, options, raw_scores=raw_scores)
        if candidate_labels is not None:
            labels = tuple(not_one_string(candidate_labels, "candidate_labels"))
            candidates = CandidateLabels(labels, template, multi_label)
            predictor = ZeroShotPredictor(self, options, candidates)
        return list(predict_examples(predictor, not_one_string(texts)))

    def tag(
        self, sentences: Iterable[Words], *, batch_size: int = 32, max_length: int | None = None
    ) -> list[Tagging]:
        """The tag of every word of each sentence, and the entities that the tags mark.

        A sentence is a string, which is split into words (see `Words`), or a list of words; its
        rows are windows.

        Raises:
            UserError: the model does not tag words, or an element is not a sentence.
        """
        options = TaggingPredictOptions(batch_size=batch_size, max_length=max_length)
        predictor = TagPredictor(self, options)
        return list(predict_examples(predictor, not_one_string(sentences, "sentences")))

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
    ) -> Answers | list[Answers]: ...

    def answer(
        self,
        question: str | Sequence[str],
        passage: str | Sequence[str] | None = None,
        top_k: int = 1,
        *,
        null_threshold: float | None = None,
        options: AnswerOptions | None = None,
    ) -> Answers | list[Answers]:
        """The answer to a question, a span of a passage.

        Args:
            question: one question, or a list.
            passage: one passage for all questions, or a list with one for each.
            top_k: number of answers to each question, the best first.
            null_threshold: the answer is "" if its score exceeds the score of the best span by more
                than this, or with the joint head if its logit does; None: the value in the
                model's `config.json`, or never.
            options: lengths of windows and answers; None: the defaults.

        Raises:
            UserError: the model does not answer questions, lists differ in length, or there is no
                passage.
        """
        common = vars(options or AnswerOptions())
        how = AnswerPredictOptions(**common, top_k=top_k, null_threshold=null_threshold)
        predictor = SpanPredictor(self, how)
        every: list[Answers] = []
        for prediction in predict_examples(predictor, question_inputs(question, passage)):
            best = prediction.answers()
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
            prompt: a beginning, a passage or a question; or a list of prompts.
            choices: two or more texts; for a list of prompts, a list of such lists.
            question: question about the prompt; "": none.
            batch_size: maximum number of rows computed together, one for each choice.
            max_length: maximum number of tokens of a row.

        Raises:
            UserError: the model does not score choices, or lists differ in length.
        """
        examples = choice_inputs(prompt, choices, question)
        predictor = ChoicePredictor(self, BatchOptions(batch_size, max_length))
        scores = list(predict_examples(predictor, examples))
        best = [*map(best_choice, (example.choices for example in examples), scores)]
        return best[0] if isinstance(prompt, str) else best
