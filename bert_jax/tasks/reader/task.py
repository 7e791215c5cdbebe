"""Training of a reader: which passage has an answer, and where (DPR, section 6.1)."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.examples import Candidates, Example, Text, texts_of
from bert_jax.data.readers.candidate_columns import RankingOptions
from bert_jax.data.readers.open_questions import read_passages
from bert_jax.data.windows.passages import PassageWindow, token_span
from bert_jax.errors import OptionError, UserError, listed, require_at_least
from bert_jax.metrics.answers import find_answers, has_answer
from bert_jax.metrics.squad import score_v1
from bert_jax.models.attention_inputs import MASK_VALUE
from bert_jax.tasks.base.labelled_evaluator import LabelledEvaluator
from bert_jax.tasks.base.labelled_options import (
    LabelledData,
    config_keys,
    labelled_defaults,
    labelled_options,
    model_tokenizer,
)
from bert_jax.tasks.base.labelled_task import LabelledTask, TrainingRows, encode_in_chunks
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.predictor import EncodedExample
from bert_jax.tasks.base.splits import read_splits
from bert_jax.tasks.base.task import Sums, weighted_sums
from bert_jax.tasks.base.train_spec import TaskConfig, TrainSpec
from bert_jax.tasks.reader.predict import DEFAULT_LENGTH, HEAD, PREDICT, PassageRows, ReadAnswer

# Places of answers that the loss of a question takes, as in DPR.
_MOST_SPANS = 10


@dataclasses.dataclass(frozen=True)
class ReaderData(LabelledData, RankingOptions):
    """The section `data` of a config.

    A passage is a positive if it has an answer, whatever its label, see `metrics.answers`.

    Attributes:
        passages: passages of a question in training, K: the first positive, then the first others
            that are no positives. An evaluation reads all.
        titles: see `RankingOptions`; "pair": a title is read before the text.
    """

    passages: int = 24
    titles: str = "pair"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least("data.passages", self.passages, 1)


class ReaderEvaluator(LabelledEvaluator[Candidates, ReadAnswer | None]):
    """A prediction is the best span of the most relevant passage."""

    PREDICT = PREDICT

    def metrics(
        self, examples: list[Example[Candidates]], predictions: list[ReadAnswer | None]
    ) -> dict[str, float]:
        """`exact_match` and `f1` of SQuAD 1.1, in percent, and `passage_accuracy`.

        The latter is the share of questions with an answer in the chosen passage.
        """
        gold = {str(number): each.label or ("",) for number, each in enumerate(examples)}
        read = {str(number): each for number, each in enumerate(predictions)}
        texts = {number: each.span.text if each else "" for number, each in read.items()}
        chosen = [
            each is not None and has_answer(example.label, _text(example, each.passage))
            for example, each in zip(examples, predictions, strict=True)
        ]
        return {**score_v1(gold, texts), "passage_accuracy": sum(chosen) / len(chosen)}

    def metric_names(self, examples: list[Example[Candidates]]) -> Iterable[str]:
        return "exact_match", "f1", "passage_accuracy"

    def baseline_metrics(self, examples: list[Example[Candidates]]) -> dict[str, float]:
        """`passage_accuracy_first`: always the first passage, as the search has ranked them."""
        first = [has_answer(each.label, _text(each, 0)) for each in examples]
        return {"passage_accuracy_first": sum(first) / len(first)}

    def expected(self, example: Example[Candidates]) -> list[str]:
        return list(example.label)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class ReaderTask(LabelledTask[Candidates]):
    """A batch has the passages of a question together, [B, K, T], the one with an answer first.

    Attributes:
        passages: number of passages of a question.
    """

    unit = "questions"
    default_length = DEFAULT_LENGTH

    passages: int

    def make_evaluator(self) -> ReaderEvaluator:
        return ReaderEvaluator(self.splits, self.options, self.description)

    @functools.cached_property
    def _examples(self) -> list[Example[Candidates]]:
        """The questions with a positive."""
        examples = (_with_passages(each, self.passages) for each in self.splits.train)
        return [example for example in examples if example is not None]

    def reading_report(self) -> tuple[str, ...]:
        used = {example.location for example in self._examples}
        left = [each.location for each in self.splits.train if each.location not in used]
        what = f"of {len(self.splits.train)} training questions have no passage with an answer"
        return (f"{len(left)} {what}: left out ({listed(left)})",) if left else ()

    def make_rows(self) -> TrainingRows:
        """`labels`, int32 [B, 10, 2], has the answers' positions, see `_answer_positions`."""
        examples = self._examples
        if not examples:
            problem = "no training question has a passage with an answer"
            raise OptionError("data.train", None, "give another file as {data.train}", problem)
        with config_keys():
            encode = PassageRows(self.tokenizer, self.options.length)
        # The last one is for rows of padding.
        labels = np.full((len(examples) + 1, _MOST_SPANS, 2), -1, np.int32)

        def encoded() -> Iterator[EncodedExample]:
            rows = encode_in_chunks(encode, examples)
            for number, (example, each) in enumerate(zip(examples, rows, strict=True)):
                labels[number] = _answer_positions(example, each.rows[0])
                yield each

        return self.several_rows_each(encoded(), labels)

    def class_counts(self, examples: Iterable[Example[Candidates]]) -> dict[str, int]:
        return {}

    def loss_weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return dict.fromkeys(("relevance", "span"), batch["weights"].sum())

    def loss(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> Sums:
        """Cross-entropy of the positive among the passages, and of the answer in the positive.

        The latter is the negative logarithm of the marginal likelihood: of the probability of all
        positions of answers. All tokens of the row compete, also the question's, but not padding.
        """
        exists = batch["attention_mask"] > 0  # BKT
        relevance = jnp.where(exists.any(axis=-1), outputs.relevance_logits, MASK_VALUE)  # BK
        spans = batch["labels"]
        is_span = spans[..., 0] >= 0

        def likelihoods(logits: jax.Array, positions: jax.Array) -> jax.Array:
            scores = jax.nn.log_softmax(jnp.where(exists[:, 0], logits[:, 0], MASK_VALUE))  # BT
            return jnp.take_along_axis(scores, positions.clip(0), axis=-1)

        span_scores = likelihoods(outputs.start_logits, spans[..., 0]) + likelihoods(
            outputs.end_logits, spans[..., 1]
        )
        marginal = jax.nn.logsumexp(jnp.where(is_span, span_scores, MASK_VALUE), axis=-1)
        losses = {
            "relevance": {
                "loss": -jax.nn.log_softmax(relevance)[:, 0],
                "accuracy": relevance.argmax(axis=-1) == 0,
            },
            # An answer may be behind the end of the row.
            "span": {"loss": jnp.where(is_span.any(axis=-1), -marginal, 0)},
        }
        return {part: weighted_sums(batch["weights"], values) for part, values in losses.items()}

    def examples_as_text(self, count: int) -> str:
        """Question, first answer, and the passage with an answer, one question a line."""
        return "\n".join(
            "\t".join([each.input.query, each.label[0], _text(each, 0)])
            for each in self._examples[:count]
        )


def _with_passages(example: Example[Candidates], count: int) -> Example[Candidates] | None:
    """The question with the first passage that has an answer, before `count` - 1 that have none.

    None if no passage has an answer.

    Raises:
        UserError: the answers are unknown.
    """
    if example.label is None:
        problem = f"{example.location}: the question has no answers to train on"
        raise UserError(f"{problem}; give them as 'answers'")
    positive: Text | None = None
    negatives: list[Text] = []
    for passage in example.input.documents:
        if len(negatives) == count - 1 and positive is not None:
            break
        if has_answer(example.label, texts_of(passage)[-1]):
            positive = passage if positive is None else positive
        elif len(negatives) < count - 1:
            negatives.append(passage)
    if positive is None:
        return None
    chosen = Candidates(example.input.query, (positive, *negatives))
    return dataclasses.replace(example, input=chosen)


def _answer_positions(example: Example[Candidates], window: PassageWindow) -> np.ndarray:
    """The positions of the answers in the row of a question's first passage.

    Returns:
        int32 [10, 2], the first and the last token of each; -1 where there are fewer.
    """
    text = _text(example, 0)
    tokens = (token_span(window.passage, *span) for span in find_answers(example.label, text))
    spans = dict.fromkeys(map(window.answer_positions, tokens))
    spans.pop((0, 0), None)  # behind the end of the row
    positions = np.full((_MOST_SPANS, 2), -1, np.int32)
    for index, span in enumerate([*spans][:_MOST_SPANS]):
        positions[index] = span
    return positions


def _text(example: Example[Candidates], passage: int) -> str:
    """A passage without its title."""
    return texts_of(example.input.documents[passage])[-1]


def create(config: TaskConfig[ReaderData], model_init: ModelInit) -> ReaderTask:
    """The task of a config."""
    data, tokenizer = config.data, model_tokenizer(model_init)
    splits = read_splits(
        data,
        lambda source, split, report: read_passages(source, data, report),
        with_train=not model_init.is_finished,
    )
    description = model_init.describe(tokenizer, HEAD)
    return ReaderTask(
        splits=splits,
        tokenizer=tokenizer,
        description=description,
        execution=model_init.execution,
        options=labelled_options(config, "exact_match"),
        passages=data.passages,
    )


TRAIN = TrainSpec(
    ReaderData,
    create,
    defaults=labelled_defaults(
        optimizer={"learning_rate": 1e-5, "warmup_ratio": 0.0}, train={"global_batch_size": 16}
    ),
)
