"""Classes of images: folders of classes, lists of files, prepared data sets."""

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
import optax

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import ImageFile
from bert_jax.data.images.augmentation import AugmentationOptions
from bert_jax.data.images.batches import TrainingImages
from bert_jax.data.images.options import ImageFileOptions
from bert_jax.data.images.reading import read_images
from bert_jax.data.padding import Sequences
from bert_jax.data.pipeline import Batch, Batches, batches_in_order
from bert_jax.errors import OptionError, UserError, require_between, require_one_of
from bert_jax.tasks.base.distillable import Distillable
from bert_jax.tasks.base.image_rows import image_processor, image_size
from bert_jax.tasks.base.labelled_options import ClassData, labelled_defaults, labelled_options
from bert_jax.tasks.base.labelled_task import LabelledTask, TrainingRows
from bert_jax.tasks.base.labels import choose_labels, example_weights
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.predictor import Model
from bert_jax.tasks.base.splits import read_splits
from bert_jax.tasks.base.summary import TokenCounts
from bert_jax.tasks.base.task import Sums, weighted_sums
from bert_jax.tasks.base.train_spec import TaskConfig, TrainSpec
from bert_jax.tasks.classification.problems import SingleLabel, drop_unknown_labels, labels_of
from bert_jax.tasks.classification.task import ClassificationEvaluator
from bert_jax.tasks.image_classification.predict import (
    HEADS,
    PREDICT,
    ImageScoresPredictor,
    logits_of,
)
from bert_jax.tokenization.image_processing import FILTERS, ImageProcessing
from bert_jax.tokenization.image_processor import ImageProcessor

_TOP = 5
_SPLIT_FOLDERS = {
    "train": ("train",),
    "validation": ("validation", "val", "valid"),
    "test": ("test",),
}


@dataclasses.dataclass(frozen=True)
class ImageClassificationData(ClassData, ImageFileOptions, AugmentationOptions):
    """The section `data` of a config.

    Attributes:
        labels: names of the classes in the order of their numbers; (): those of the data.
        label_smoothing: share of a target that all classes get alike (Szegedy et al., 2016).
        image_mean, image_std: of each colour, which images are normalised by; (): as the model's
            files say, and 0.5 of a new model.
        resample: the filter by which images are resized, a name of Pillow; "": as the model's files
            say, and bilinear of a new model.
    """

    labels: tuple[str, ...] = ()
    label_smoothing: float = 0.0
    image_mean: tuple[float, ...] = ()
    image_std: tuple[float, ...] = ()
    resample: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        AugmentationOptions.__post_init__(self)
        if self.length:
            rule = "all images of a model have the same number of tokens: set {model.image_size}"
            raise OptionError("data.length", self.length, rule)
        require_between("data.label_smoothing", self.label_smoothing, 0, 1, without_high=True)
        require_one_of("data.resample", self.resample, ("", *FILTERS))
        for name in ("image_mean", "image_std"):
            for value in getattr(self, name):
                is_deviation = name == "image_std"
                require_between(f"data.{name}", value, 0, 1e6, without_low=is_deviation)
            if len(getattr(self, name)) not in (0, 1, 3):
                rule = "give a number for each colour"
                raise OptionError(f"data.{name}", getattr(self, name), rule)

    def processing(self, start: ImageProcessing) -> ImageProcessing:
        """How images become pixels: as the model says that the training starts from, or anew."""
        changes: dict[str, Any] = {
            name: tuple(value)
            for name in ("image_mean", "image_std")
            if (value := getattr(self, name))
        }
        if self.resample:
            changes["resample"] = FILTERS[self.resample]
        return dataclasses.replace(start, **changes)


@dataclasses.dataclass(frozen=True, eq=False)
class ImageEvaluator(ClassificationEvaluator):
    """Accuracy, and that of the five best labels where there are more; F1 of each class."""

    PREDICT = PREDICT

    def predictor(self, model: Model) -> Any:
        return ImageScoresPredictor(model, self.options.batches)

    def metrics(self, examples: Any, predictions: list[np.ndarray]) -> dict[str, float]:
        metrics = super().metrics(examples, predictions)
        if len(self.problem.labels) > _TOP:
            targets, scores = self.problem.targets(examples), np.stack(predictions)
            own = np.take_along_axis(scores, targets[:, None], axis=1)
            metrics[f"top_{_TOP}_accuracy"] = float(((scores > own).sum(axis=1) < _TOP).mean())
        return metrics

    def metric_names(self, examples: Any) -> Iterable[str]:
        top = (f"top_{_TOP}_accuracy",) if len(self.problem.labels) > _TOP else ()
        return *super().metric_names(examples), *top


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class ImageClassificationTask(LabelledTask[ImageFile], Distillable):
    """Images with one class each; each epoch changes them at random, in another way.

    A batch has `pixel_values`, float32 [B, height, width, colours], `labels` and `weights`; and as
    `attention_mask`, int32 [B, T], which rows are images and no padding.

    Attributes:
        problem: the labels.
        data: how images are changed at random, and the smoothing of labels.

    Raises:
        OptionError: the images are smaller than a patch.
    """

    unit = "images"
    reads_pairs = False
    rows_change = True
    teacher_heads = HEADS
    score_kind = "classes"

    problem: SingleLabel
    data: ImageClassificationData

    def __post_init__(self) -> None:
        super().__post_init__()
        self.processor = image_processor(self.tokenizer, self.description)
        self.size, self.tokens = image_size(self.processor, self.description.config)
        self.positive_class = self.problem.positive_class

    def row_length(self) -> int:
        return 0

    def make_evaluator(self) -> ImageEvaluator:
        return ImageEvaluator(self.splits, self.options, self.description, self.problem, {})

    @functools.cached_property
    def images(self) -> TrainingImages:
        """The training images."""
        return TrainingImages(
            self.splits.train, self.processor, self.size, self.data, self.options.seed
        )

    def make_rows(self) -> TrainingRows:
        self._targets = self.problem.targets(self.splits.train)
        self._weights = example_weights(self._targets, balanced=self.balanced)
        lengths = np.full(len(self._targets), self.tokens)
        return TrainingRows(Sequences.from_encodings((), self.processor), lengths, self._unchanged)

    def _unchanged(self, chosen: np.ndarray, length: int) -> Batch:
        """The batch of some images that are not changed at random."""
        return self._batch(chosen, self.images.pixels(chosen))

    def _batch(self, chosen: np.ndarray, pixels: np.ndarray) -> Batch:
        is_image = chosen >= 0
        mask = np.broadcast_to(is_image[:, None].astype(np.int32), (len(chosen), self.tokens))
        return {
            "pixel_values": pixels,
            "labels": self._targets[chosen],
            "weights": np.where(is_image, self._weights[chosen], np.float32(0)),
            "attention_mask": mask,
        }

    def train_batches(self, start: int, stop: int, *, host: int, hosts: int) -> Batches:
        batches = self.batches

        def batch(number: int) -> Batch:
            chosen = np.array_split(batches.examples(number), hosts)[host]
            epoch = number // batches.batches_per_epoch
            return self._batch(chosen, self.images.pixels(chosen, epoch))

        return batches_in_order(batch, start, stop)

    def pack_rows(self, rows: Batch, parts: int) -> Batch:
        """The rows as they are: all have the same length."""
        return rows

    def inputs(self, batch: dict[str, jax.Array]) -> Any:
        """The images alone: the model knows that it sees all of their tokens."""
        return super().inputs({"pixel_values": batch["pixel_values"]})

    def loss(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> Sums:
        """The cross-entropy; of two heads, the mean of both, which learn the labels alike."""
        if isinstance(outputs, jax.Array):
            losses = self._losses(outputs, batch)
        else:
            cls_losses, distilled = (self._losses(each, batch) for each in outputs[1:])
            losses = (cls_losses + distilled) / 2
        return self._sums(losses, outputs, batch)

    def loss_beside_teacher(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> Sums:
        """The cross-entropy of the head that does not learn from the teacher."""
        logits = outputs if isinstance(outputs, jax.Array) else outputs.cls_logits
        return self._sums(self._losses(logits, batch), outputs, batch)

    def _losses(self, logits: jax.Array, batch: dict[str, jax.Array]) -> jax.Array:
        one_hot = jax.nn.one_hot(batch["labels"], logits.shape[-1])
        targets = optax.smooth_labels(one_hot, self.data.label_smoothing)
        return optax.softmax_cross_entropy(logits, targets)

    def _sums(self, losses: jax.Array, outputs: Any, batch: dict[str, jax.Array]) -> Sums:
        correct = self.problem.correct(logits_of(outputs), batch["labels"])
        return {"": weighted_sums(batch["weights"], {"loss": losses, "accuracy": correct})}

    def scores(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> jax.Array:
        """The logits of the head that learns from a teacher, the only one or that of its token."""
        return outputs if isinstance(outputs, jax.Array) else outputs.distillation_logits

    def teacher_scores(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> jax.Array:
        return logits_of(outputs)

    def token_counts(self) -> TokenCounts:
        return TokenCounts(self.tokens, self.tokens, self.tokens, 0.0)

    def duplicates(self) -> dict[str, int]:
        """None: files of one name may hold different images."""
        return {}

    def examples_as_text(self, count: int) -> str:
        """Label and file, one example a line."""
        chosen = self.splits.train[:count]
        return "\n".join(f"{example.label}\t{example.location}" for example in chosen)


def create(
    config: TaskConfig[ImageClassificationData], model_init: ModelInit
) -> ImageClassificationTask:
    """The task of a config.

    Raises:
        UserError: the data and the options do not fit together.
    """
    data, start = config.data, model_init.description
    splits = read_splits(
        data,
        lambda source, split, report: read_images(
            source, data, needs_labels=split == "train", report=report
        ),
        with_train=not model_init.is_finished,
        default_names=_SPLIT_FOLDERS,
    )
    evaluated = [example for eval_set in splits.validation for example in eval_set.examples]
    examples = evaluated if model_init.is_finished else splits.all_train
    labels = choose_labels(labels_of(examples), model_init, tuple(map(str, data.labels)))
    problem = SingleLabel(labels)
    if len(labels) < 2 and not model_init.is_finished:
        raise UserError(
            f"the training images have {len(labels)} class ({', '.join(labels)}); give images of "
            "two or more"
        )
    test = [drop_unknown_labels(eval_set, problem) for eval_set in splits.test]
    splits = dataclasses.replace(splits, test=test)
    has_two = HEADS[1] in model_init.family.class_names
    head = start.head if start and start.head in HEADS else HEADS[has_two]
    description = model_init.describe(
        model_init.tokenizer or ImageProcessor({}),
        head,
        num_labels=problem.outputs,
        labels=labels,
        problem_type=problem.problem_type,
    )
    return ImageClassificationTask(
        splits=splits,
        tokenizer=_processor(data, model_init, description),
        description=description,
        execution=model_init.execution,
        options=labelled_options(config, problem.best_metric),
        problem=problem,
        data=data,
        balanced=bool(data.class_weights),
    )


def _processor(
    data: ImageClassificationData, model_init: ModelInit, description: ModelDescription
) -> ImageProcessor:
    """How images become pixels: as the files of the model say, but for keys that are set."""
    images, stored = description.config.images, model_init.tokenizer
    if images is None:
        return image_processor(None, description)  # which refuses it
    if stored is None:
        own, start = None, ImageProcessing.for_channels(images.num_channels, images.pixels)
    else:
        own = start = image_processor(stored, description).processing
        if "image_size" in model_init.options.fields:
            start = start.with_size(*images.pixels)
    processing = data.processing(start)
    if isinstance(stored, ImageProcessor) and stored.fields and processing == own:
        return stored  # whose file stays as it is
    return ImageProcessor(processing.fields, channels=images.num_channels)


TRAIN = TrainSpec(ImageClassificationData, create, defaults=labelled_defaults())
