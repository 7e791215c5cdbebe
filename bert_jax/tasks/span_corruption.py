"""Pre-training of an encoder-decoder on corrupted spans (T5: Raffel et al., 2020).

`data.pretraining.span_corruption` makes the batches; the loss is that of every encoder-decoder.
"""

import dataclasses

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.pretraining.corpus import CorpusSplit
from bert_jax.data.pretraining.span_corruption import SpanExamples, SpanOptions, SpanTokens
from bert_jax.models.execution import Execution
from bert_jax.models.heads.text_to_text import start_token
from bert_jax.tasks.base.corpora import Corpora, CorpusOptions, check_corpora, corpus_spec
from bert_jax.tasks.base.corpus_task import CorpusTask, TokenEvaluator
from bert_jax.tasks.base.encoder_decoder import DECODER, EncoderDecoderTask
from bert_jax.tasks.base.generation_description import describe_generating
from bert_jax.tasks.base.model_init import ModelInit
from bert_jax.tasks.base.task import Evaluator
from bert_jax.tasks.base.train_spec import TaskConfig
from bert_jax.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True)
class SpanData(SpanOptions, CorpusOptions):
    """The section `data` of a config."""

    def __post_init__(self) -> None:
        SpanOptions.__post_init__(self)
        CorpusOptions.__post_init__(self)


class SpanCorruptionTask(EncoderDecoderTask, CorpusTask[SpanData, SpanExamples]):
    """The spans that are missing in texts of a corpus; metrics as in `EncoderDecoderTask`."""

    best_metric = ("loss", False)  # lower is better
    general_metrics = ("loss", "accuracy", "perplexity")

    def __init__(
        self,
        config: TaskConfig[SpanData],
        corpora: Corpora,
        description: ModelDescription,
        execution: Execution,
        tokens: SpanTokens,
    ) -> None:
        """Takes the special tokens of the examples; see `CorpusTask`."""
        self._tokens = tokens
        super().__init__(config, corpora, description, execution)

    def make_examples(self, split: CorpusSplit, *, weighted: bool) -> SpanExamples:
        return SpanExamples(split, self._config.data, self._tokens, weighted=weighted)

    @property
    def mean_source_length(self) -> float:
        return float(self._config.data.length)

    @property
    def evaluator(self) -> Evaluator:
        labels = f"{DECODER}/labels", f"{DECODER}/weights"
        return TokenEvaluator(self, self.best_metric, self._validation, labels)

    def examples_as_text(self, count: int) -> str:
        """The first corrupted texts of the run, each with its target, as tokens."""
        batch = self._train.batch(0, count)
        masks = (
            ("input_ids", batch["attention_mask"]),
            (f"{DECODER}/labels", batch[f"{DECODER}/weights"]),
        )
        lines = []
        for number in range(count):
            lines.append(f"example {number}")
            for key, mask in masks:
                ids = batch[key][number][mask[number] > 0]
                lines.append("  " + " ".join(self.tokenizer.readable_token(int(i)) for i in ids))
        return "\n".join(lines)


def _tokens(tokenizer: Tokenizer, start: int) -> SpanTokens:
    """The special tokens of the examples.

    Raises:
        UserError: the tokenizer has no end of a text.
    """
    return SpanTokens(
        tuple(tokenizer.sentinel_ids()),
        eos=tokenizer.special_id("eos", "span corruption"),
        start=start,
        padding=tokenizer.padding_id,
    )


def _make(
    config: TaskConfig[SpanData], model_init: ModelInit, corpora: Corpora
) -> SpanCorruptionTask:
    description = describe_generating(model_init, corpora.tokenizer, "text_to_text")
    check_corpora(corpora, config.data.length, description.config)
    if corpora.is_synthetic:
        sentinels = tuple(range(corpora.tokenizer.vocab_size))
        tokens = SpanTokens(sentinels, eos=1, start=0, padding=0)
    else:
        tokens = _tokens(corpora.tokenizer, start_token(description.config))
    return SpanCorruptionTask(config, corpora, description, model_init.execution, tokens)


TRAIN = corpus_spec(SpanData, _make)
