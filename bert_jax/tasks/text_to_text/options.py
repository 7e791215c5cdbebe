"""The options of a training on pairs of texts."""

import contextlib
import dataclasses
from collections.abc import Iterator

from bert_jax.data.readers.parallel import ParallelOptions
from bert_jax.errors import OptionError, require_at_least, require_between, require_one_of
from bert_jax.metrics.generated_texts import SCORES, TOKENIZERS
from bert_jax.options import keys_of
from bert_jax.tasks.base.generation_options import GenerationOptions
from bert_jax.tasks.base.labelled_options import LabelledData


@dataclasses.dataclass(frozen=True)
class TextToTextData(LabelledData, ParallelOptions):
    """The section `data` of a config.

    Attributes:
        length: maximum number of tokens of a source, and of a packed row of sources.
        target_length: the same of targets; 0: as `length`.
        prefix: text before every source, as "translate English to German: ".
        packing: whether a row of a training batch has several pairs.
        label_smoothing: ε, see `smoothed_cross_entropy`.
        metrics: scores of the generated texts, some of `SCORES`; the first is the default of
            `best_metric`, else the cross-entropy. (): evaluations during a training generate none,
            only the last one does, for the files of predictions.
        bleu_tokenizer: how BLEU splits texts into words, one of `TOKENIZERS`.
    """

    target_length: int = 0
    prefix: str = ""
    packing: bool = True
    label_smoothing: float = 0.1
    metrics: tuple[str, ...] = ()
    bleu_tokenizer: str = TOKENIZERS[0]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_length:
            require_at_least("data.target_length", self.target_length, 3)
        require_between("data.label_smoothing", self.label_smoothing, 0, 1, without_high=True)
        for name in self.metrics:
            require_one_of("data.metrics", name, SCORES)
        require_one_of("data.bleu_tokenizer", self.bleu_tokenizer, TOKENIZERS)


@dataclasses.dataclass(frozen=True)
class GenerationSection(GenerationOptions):
    """The section `generation` of a config: how evaluations and the exported model generate.

    Where `max_new_tokens` is not set, it is the maximum number of tokens of a target.
    """

    def __post_init__(self) -> None:
        with generation_keys():
            super().__post_init__()


@contextlib.contextmanager
def generation_keys() -> Iterator[None]:
    """Names the options of a generation in errors by their keys in a config."""
    names = keys_of(GenerationOptions)
    try:
        yield
    except OptionError as error:

        def key_of(option: str) -> str:
            return f"generation.{option}" if option.partition("=")[0] in names else option

        raise error.renamed(key_of) from error
