"""Training of an encoder-decoder on pairs of a source and a target."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator

from bert_jax.data.examples import Example
from bert_jax.data.pair_rows import EncodedPairs, PairRows
from bert_jax.data.pipeline import Batch
from bert_jax.data.pretraining.options import VocabularyOptions
from bert_jax.data.readers.glue import glue_layout
from bert_jax.data.readers.parallel import read_parallel
from bert_jax.errors import OptionError
from bert_jax.tasks.base.encoder_decoder import EncoderDecoderTask
from bert_jax.tasks.base.generation_description import describe_generating
from bert_jax.tasks.base.generation_options import GenerationOptions
from bert_jax.tasks.base.labelled_options import (
    labelled_defaults,
    labelled_options,
    model_tokenizer,
)
from bert_jax.tasks.base.labelled_task import LabelledTask, TrainingRows
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.planning_tokenizer import planning_tokenizer
from bert_jax.tasks.base.splits import EvalSet, Splits, read_splits
from bert_jax.tasks.base.train_spec import TaskConfig, TrainSpec
from bert_jax.tasks.text_to_text.evaluator import TextToTextEvaluator
from bert_jax.tasks.text_to_text.options import GenerationSection, TextToTextData, generation_keys
from bert_jax.tasks.text_to_text.pairs import PairEncoder, PairNotes
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class TextToTextTask(EncoderDecoderTask, LabelledTask[str]):
    """Pairs of a source and a target; batches are those of `PairRows`.

    Attributes:
        data: the section of a config.
        generation: how the model generates.

    Raises:
        OptionError: see `LabelledTask`; or a recurrent model is to read packed rows.
    """

    unit = "pairs"

    data: TextToTextData
    generation: GenerationOptions

    def __post_init__(self) -> None:
        if self.data.packing and self.description.config.is_recurrent:
            rule = "a recurrent decoder begins with the states of one text: set it to False"
            raise OptionError("data.packing", True, rule)
        super().__post_init__()
        self.label_smoothing = self.data.label_smoothing
        # The decoder begins with a token of its own.
        most = min(self.encode.target_length, self.description.config.max_length - 1)
        if self.generation.max_new_tokens is None:
            self.generation = dataclasses.replace(self.generation, max_new_tokens=most)
        # The exported model generates as the evaluated one.
        with generation_keys():
            other = self.generation.fields_with(self.description.other)
        self.description = dataclasses.replace(self.description, other=other)

    @functools.cached_property
    def encode(self) -> PairEncoder:
        """How pairs become token ids.

        Raises:
            OptionError: the model takes fewer tokens than `data.target_length`.
        """
        config, length = self.description.config, self.options.length
        target_length = self.data.target_length or length
        if target_length > config.max_length:
            rule = f"this model takes at most {config.max_length} tokens"
            raise OptionError("data.target_length", target_length, rule)
        return PairEncoder(self.tokenizer, config, length, target_length, self.data.prefix)

    @functools.cached_property
    def _pairs(self) -> tuple[EncodedPairs, PairNotes]:
        return self.encode(self.splits.train)

    def make_rows(self) -> TrainingRows:
        """See `PairRows`; each pair trains on its first target."""
        pairs, counts = self._pairs
        rows = PairRows(pairs, packed=self.data.packing, seed=self.options.seed)
        return TrainingRows(pairs.sources, rows.lengths, rows.batch, counts.sources)

    def reading_report(self) -> tuple[str, ...]:
        cut, most = self._pairs[1].targets.cut, self.encode.target_length
        several = sum(len(example.label) > 1 for example in self.splits.train)
        lines = {
            f"training targets cut to {most} tokens (data.target_length)": cut,
            "training sources with several targets, of which the first is trained on": several,
        }
        return tuple(f"{line}: {count:,}" for line, count in lines.items() if count)

    def class_counts(self, examples: Iterable[Example[str]]) -> dict[str, int]:
        return {}

    def pack_rows(self, rows: Batch, parts: int) -> Batch:
        return rows  # they are packed when they are made

    def make_evaluator(self) -> TextToTextEvaluator:
        return TextToTextEvaluator(
            self.splits,
            self.options,
            self.description,
            self,
            self.encode,
            self.generation,
            self.data,
        )

    @property
    def mean_source_length(self) -> float:
        return float(self._pairs[0].sources.lengths.mean())

    def examples_as_text(self, count: int) -> str:
        """Source and target, one pair a line."""
        shown = self.splits.train[:count]
        return "\n".join(f"{self.data.prefix}{each.input}\t{each.label[0]}" for each in shown)


def _splits(data: TextToTextData, *, with_train: bool) -> Splits[str]:
    layout = glue_layout(data.format)
    return read_splits(
        data,
        lambda source, split, report: read_parallel(
            source, data, needs_targets=split == "train", report=report
        ),
        with_train=with_train,
        default_names=layout.files if layout else None,
    )


def create(config: TaskConfig[TextToTextData], model_init: ModelInit) -> TextToTextTask:
    """The task of a config."""
    tokenizer = model_tokenizer(model_init)
    splits = _splits(config.data, with_train=not model_init.is_finished)
    return _task(config, model_init, tokenizer, splits)


def create_without_data(
    config: TaskConfig[TextToTextData], model_init: ModelInit
) -> TextToTextTask:
    """The task of a config without data, for planning: every text is as long as it may be."""
    data, size = config.data, config.section(VocabularyOptions).vocab_size
    tokenizer = planning_tokenizer(model_init, "tokenizer.vocab_size", size)
    source, target = (
        " ".join(["a"] * (length or TextToTextTask.default_length))
        for length in (data.length, data.target_length or data.length)
    )
    rows = config.train.global_batch_size
    examples = [Example(source, (target,), str(number)) for number in range(rows)]
    splits = Splits(examples, examples, [EvalSet("validation", "", examples)], [])
    return _task(config, model_init, tokenizer, splits)


def _task(
    config: TaskConfig[TextToTextData],
    model_init: ModelInit,
    tokenizer: Tokenizer,
    splits: Splits[str],
) -> TextToTextTask:
    description = describe_generating(model_init, tokenizer, "text_to_text")
    return TextToTextTask(
        splits=splits,
        tokenizer=tokenizer,
        description=description,
        execution=model_init.execution,
        options=labelled_options(config, (*config.data.metrics, "cross_entropy")[0]),
        data=config.data,
        generation=config.section(GenerationSection),
    )


def _vocabulary(config: TaskConfig[TextToTextData]) -> tuple[Iterator[str], VocabularyOptions]:
    """The texts of both sides of the training pairs, up to the maximum amount of text."""
    options = config.section(VocabularyOptions)
    splits = _splits(config.data, with_train=True)

    def texts() -> Iterator[str]:
        characters = 0
        for example in splits.train:
            for text in (example.input, *(example.label or ())):
                yield text
                characters += len(text)
            if characters >= options.train_characters:
                return

    return texts(), options


def _export_notes(data: TextToTextData) -> tuple[str, ...]:
    note = f"the exported model does not add data.prefix: begin each text with {data.prefix!r}"
    return (note,) if data.prefix else ()


TRAIN = TrainSpec(
    TextToTextData,
    create,
    create_without_data=create_without_data,
    has_data=lambda data: bool(data.train or data.directory),
    sections={"tokenizer": VocabularyOptions, "generation": GenerationSection},
    defaults=labelled_defaults(optimizer={"learning_rate": 1e-4}),
    vocabulary=_vocabulary,
    export_notes=_export_notes,
)
