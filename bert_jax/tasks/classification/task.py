"""Classes or a number for texts and pairs of texts (paper, section 4.1): GLUE, and users' files."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np

from bert_jax.data.examples import Example, Text, texts_of
from bert_jax.data.readers.columns import TextOptions
from bert_jax.data.readers.texts import read_texts
from bert_jax.errors import OptionError, UserError, require_between
from bert_jax.models.encoder_with_head import ClassifierOptions
from bert_jax.sharding.mesh import host_memory
from bert_jax.tasks.base.distillable import Distillable
from bert_jax.tasks.base.labelled_evaluator import LabelledEvaluator, example_losses
from bert_jax.tasks.base.labelled_options import (
    ClassData,
    labelled_defaults,
    labelled_options,
    model_tokenizer,
)
from bert_jax.tasks.base.labelled_task import LabelledTask, TrainingRows, encode_in_chunks
from bert_jax.tasks.base.labels import choose_labels, example_weights
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.predict_spec import PredictSpec
from bert_jax.tasks.base.predictor import Model, Predictor
from bert_jax.tasks.base.splits import EvalSet, read_splits
from bert_jax.tasks.base.task import ComputedModel, Content, Sums, weighted_sums
from bert_jax.tasks.base.text_rows import TextEncoder
from bert_jax.tasks.base.train_spec import TaskConfig, TrainSpec
from bert_jax.tasks.classification.language_model import (
    OutputsWithNextTokens,
    check_language_model,
    with_next_tokens,
)
from bert_jax.tasks.classification.predict import (
    PREDICT,
    ClassificationPredictor,
    TextPrediction,
    to_prediction,
)
from bert_jax.tasks.classification.problems import (
    MultiLabel,
    Problem,
    Regression,
    SingleLabel,
    drop_unknown_labels,
    has_lists,
    infer_problem_type,
    labels_of,
    vector_names,
)
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True)
class ClassificationData(ClassData, TextOptions):
    """The section `data` of a config.

    Attributes:
        problem_type: Hugging Face's name of the problem, see `problems`; "": as the labels are.
        language_model_weight: λ, the weight of the loss of a causal model's next tokens, see
            `language_model`; 0: there is none.
    """

    problem_type: str = ""
    language_model_weight: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_between("data.language_model_weight", self.language_model_weight, 0)


@dataclasses.dataclass(frozen=True, eq=False)
class ClassificationEvaluator(LabelledEvaluator[Any, np.ndarray]):
    """A prediction is the scores of the labels, float32 [C].

    Attributes:
        problem: problem type with its labels.
        submissions: names of a benchmark's submission files, by names of the test files.
    """

    PREDICT: ClassVar[PredictSpec[Any, Any]] = PREDICT
    lower_is_better = ("loss", "mean_squared_error")

    problem: Problem
    submissions: Mapping[str, str]

    def predictor(self, model: Model) -> Predictor[Any, np.ndarray]:
        return ClassificationPredictor(model, self.options.batches)

    def metrics(
        self, examples: list[Example[Any]], predictions: list[np.ndarray]
    ) -> dict[str, float]:
        """The metrics of the problem type, and the mean loss."""
        targets = self.problem.targets(examples)
        scores = np.stack(predictions)
        losses = jax.device_get(example_losses(self.problem.losses, scores, targets))
        loss = float(np.mean(losses, dtype=np.float64))
        return {"loss": loss, **self.problem.metrics(self.problem.decide(scores), targets)}

    def metric_names(self, examples: list[Example[Any]]) -> Iterable[str]:
        return "loss", *self._majority_metrics(examples)

    def baseline_metrics(self, examples: list[Example[Any]]) -> dict[str, float]:
        """`<metric>_majority`: metrics of the best constant prediction."""
        metrics = self._majority_metrics(examples)
        return {f"{name}_majority": value for name, value in metrics.items()}

    def _majority_metrics(self, examples: list[Example[Any]]) -> dict[str, float]:
        targets = self.problem.targets(examples)
        decision = self.problem.decide(self.problem.majority(targets)[None])
        return self.problem.metrics(decision.repeat(len(targets), axis=0), targets)

    def as_output(self, prediction: np.ndarray) -> TextPrediction:
        return to_prediction(self.description, prediction)

    def further_files(self, eval_set: EvalSet[Any]) -> Iterable[str]:
        submission = self.submissions.get(Path(eval_set.source).name)
        return (submission,) if submission else ()

    def reports(
        self, examples: list[Example[Any]], predictions: list[np.ndarray]
    ) -> Mapping[str, Content]:
        decisions = self.problem.decide(np.stack(predictions))
        return self.problem.reports(decisions, self.problem.targets(examples))


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class ClassificationTask(LabelledTask[Text], Distillable):
    """Texts and pairs of texts.

    Attributes:
        problem: problem type with its labels.
        submissions: names of a benchmark's submission files, by names of the test files.
        language_model_weight: see `ClassificationData`.

    Raises:
        UserError: see `LabelledTask`; or `balanced` is set but the labels are not classes; or the
            scores of an evaluation would take too much memory.
    """

    problem: Problem
    submissions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    language_model_weight: float = 0.0

    def __post_init__(self) -> None:
        splits, problem = self.splits, self.problem
        if self.balanced and not isinstance(problem, SingleLabel):
            raise OptionError(
                "data.class_weights", "balanced", "that is for texts that have one label each"
            )
        for eval_set in (*splits.validation, *splits.test):
            _check_memory(eval_set.source, len(eval_set.examples), problem.outputs)
        if isinstance(problem, MultiLabel):  # a target for each label, as in an evaluation
            _check_memory("the training texts", len(splits.train), problem.outputs)
        super().__post_init__()
        self.positive_class = problem.positive_class

    @property
    def computed_models(self) -> tuple[ComputedModel, ...]:
        config = self.description.config
        has_logits = self.language_model_weight > 0
        logit_flops = 2.0 * config.hidden_size * config.vocab_size if has_logits else 0.0
        (model,) = super().computed_models
        return (dataclasses.replace(model, flops_per_token=logit_flops),)

    def make_evaluator(self) -> ClassificationEvaluator:
        return ClassificationEvaluator(
            self.splits, self.options, self.description, self.problem, self.submissions
        )

    def make_rows(self) -> TrainingRows:
        examples = self.splits.train
        targets = self.problem.targets(examples)
        encode = TextEncoder(self.tokenizer, self.description.config, self.options.length)
        rows = encode_in_chunks(encode, examples)
        weights = example_weights(targets, balanced=self.balanced)
        return self.one_row_each(rows, labels=targets, weights=weights)

    def reading_report(self) -> tuple[str, ...]:
        labels = [example.label for example in self.splits.train]
        if not all(isinstance(label, tuple) and len(label) == 1 for label in labels):
            return ()
        key = "data.problem_type=single_label_classification"
        return (f"every training text has one label, in a list: {key} learns one class of each",)

    def forward(
        self, params: Any, batch: dict[str, jax.Array], dropout_key: jax.Array | None = None
    ) -> Any:
        """Logits, with the loss of the next tokens where it has a weight."""
        if not self.language_model_weight:
            return super().forward(params, batch, dropout_key)
        return with_next_tokens(self.module, params, self.inputs(batch), dropout_key)

    def loss(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> Sums:
        logits = self.scores(params, outputs, batch)
        values = {"loss": self.problem.losses(logits, batch["labels"])}
        if isinstance(outputs, OutputsWithNextTokens):
            values["next_token_cross_entropy"] = outputs.next_tokens
            values["loss"] += self.language_model_weight * outputs.next_tokens
        correct = self.problem.correct(logits, batch["labels"])
        if correct is not None:
            values["accuracy"] = correct
        return {"": weighted_sums(batch["weights"], values)}

    @property
    def score_kind(self) -> str:
        return self.problem.score_kind

    def scores(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> jax.Array:
        return outputs.logits if isinstance(outputs, OutputsWithNextTokens) else outputs

    def examples_as_text(self, count: int) -> str:
        """Label, text and pair, one example a line."""
        chosen = self.splits.train[:count]
        return "\n".join(
            "\t".join([str(example.label), *texts_of(example.input)]) for example in chosen
        )


def create(config: TaskConfig[ClassificationData], model_init: ModelInit) -> ClassificationTask:
    """The task of a config.

    Raises:
        UserError: the data and the options do not fit together.
    """
    data = config.data
    tokenizer = model_tokenizer(model_init)
    kind = infer_problem_type(data.problem_type, data, model_init)
    # Otherwise the form of the labels decides between one class and several.
    is_certain = bool(data.problem_type) or model_init.is_finished
    layout = data.layout
    splits = read_splits(
        data,
        lambda source, split, report: read_texts(
            source,
            data,
            regression=kind is Regression,
            one_class=kind is SingleLabel and is_certain,
            needs_labels=split == "train",
            report=report,
        ),
        with_train=not model_init.is_finished,
        default_names=layout.files if layout else None,
    )
    if kind is SingleLabel and not is_certain and has_lists(splits.all_train):
        kind = MultiLabel
    # A finished model is only evaluated.
    evaluated = [example for eval_set in splits.validation for example in eval_set.examples]
    examples = evaluated if model_init.is_finished else splits.all_train
    named = data.names or vector_names(examples)
    present = labels_of(examples)
    labels = () if kind is Regression else choose_labels(present, model_init, named)
    problem = kind(labels)
    splits = dataclasses.replace(
        splits, test=[drop_unknown_labels(eval_set, problem) for eval_set in splits.test]
    )
    if kind is not Regression and len(labels) < 2 and not model_init.is_finished:
        raise UserError(
            f"the training examples have {len(labels)} label ({', '.join(labels)}); "
            "give examples of two or more"
        )
    description = model_init.describe(
        tokenizer,
        "classification",
        num_labels=problem.outputs,
        labels=labels,
        problem_type=problem.problem_type,
    )
    if description.config.head_options(ClassifierOptions).of_last_token:
        description = dataclasses.replace(description, other=_padding_of(tokenizer))
    check_language_model(description.config, data.language_model_weight)
    return ClassificationTask(
        splits=splits,
        tokenizer=tokenizer,
        description=description,
        execution=model_init.execution,
        options=labelled_options(config, layout.metric if layout else problem.best_metric),
        problem=problem,
        balanced=bool(data.class_weights),
        submissions=layout.test if layout else {},
        language_model_weight=data.language_model_weight,
    )


def _padding_of(tokenizer: Tokenizer) -> dict[str, int]:
    """The field of `config.json` by which transformers finds the last token of a text.

    GPT's tokenizers have no padding: it is the end of a text (GPT-2), which no text contains, or
    else the unknown token (GPT).
    """
    special = tokenizer.special_ids
    known = [each for each in (special.pad, special.eos, special.unk) if each is not None]
    return {"pad_token_id": known[0]} if known else {}


def _check_memory(source: str, texts: int, labels: int) -> None:
    """Raises OptionError if scores, of which metrics need copies, take over 1/4 of the memory."""
    needed, available = 4 * texts * labels, host_memory()
    if needed > available // 4:
        raise OptionError(
            "data.label_column",
            None,
            "use fewer texts; or, if another column has the labels, set {data.label_column}",
            problem=f"{source}: {texts:,} texts by {labels:,} labels take "
            f"{needed / 2**30:,.1f} GiB of this machine's {available / 2**30:,.1f} GiB",
        )


TRAIN = TrainSpec(ClassificationData, create, defaults=labelled_defaults())
