"""Pre-training: masked language model and next-sentence prediction (paper, section 3.1)."""

import dataclasses
import math
from collections.abc import Generator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.corpus import Corpus
from bert_jax.data.pipeline import batches_in_order
from bert_jax.data.preparation.prepare import PrepareOptions
from bert_jax.data.preparation.vocabulary import VocabularyOptions
from bert_jax.data.pretraining import PretrainingBatches, PretrainingOptions
from bert_jax.data.show import as_text
from bert_jax.data.sources import SourceSpec
from bert_jax.errors import UserError
from bert_jax.models.config import BertConfig, Execution
from bert_jax.sharding.hosts import batch_share, rows_per_host
from bert_jax.tokenization import Tokenizer, load_tokenizer
from bert_jax.training.evaluation import evaluate
from bert_jax.training.step import EvaluationStep, make_evaluation_step
from bert_jax.training.task import Batch, Foundation, Sums, Task


@dataclasses.dataclass(frozen=True)
class EvaluationOptions:
    """How much of the held-out documents an evaluation reads.

    Attributes:
        rows: examples of a batch, over all hosts.
        batches: the most batches; 0 for all.
    """

    rows: int
    batches: int = 0

    def __post_init__(self) -> None:
        if self.batches < 0:
            raise UserError(f"data.evaluation_batches is {self.batches}; 0 is all of them")


class PretrainingTask(Task):
    """MLM and NSP (or SOP, or MLM alone) on a corpus."""

    best_metric = ("mlm_loss", False)  # lower is better

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: Tokenizer,
        options: PretrainingOptions,
        model_config: BertConfig,
        execution: Execution,
        *,
        global_batch_size: int,
        evaluation: EvaluationOptions,
    ) -> None:
        """Plans the examples of both splits.

        Raises:
            UserError: corpus, options and model do not fit.
        """
        self.tokenizer = tokenizer
        self.description = ModelDescription(model_config, "BertForPreTraining")
        self.module = self.description.make_module(execution)
        self._evaluation_steps: dict[Mesh, EvaluationStep] = {}
        self._objective = options.objective
        self._global_batch_size = global_batch_size
        self._evaluation = evaluation
        if options.length > model_config.max_position_embeddings:
            raise UserError(
                f"data.length {options.length} exceeds the position table of "
                f"{model_config.max_position_embeddings}; lower it or raise "
                "model.max_position_embeddings"
            )
        if model_config.vocab_size < self.tokenizer.vocab_size:
            raise UserError(
                f"model.vocab_size {model_config.vocab_size} is smaller than the corpus' "
                f"vocabulary of {self.tokenizer.vocab_size}; leave it out to use that size"
            )
        train = corpus.splits["train"]
        if options.objective == "nsp" and len(train.document_offsets) < 3:
            raise UserError(
                f"{corpus.path} has 1 document to train on, but data.objective=nsp draws random "
                "next sentences from another one; separate documents by blank lines and prepare "
                "again, or use sop or none"
            )
        self._train = PretrainingBatches(train, self.tokenizer, options)
        held_out = corpus.splits["held_out"]
        if not len(held_out.tokens):
            raise UserError(
                f"{corpus.path} has no held-out documents to evaluate on; prepare it from at least "
                "2 documents with data.held_out above 0"
            )
        self._held_out = PretrainingBatches(held_out, self.tokenizer, options, weighted=False)

    @property
    def examples_per_epoch(self) -> int:
        """See `PretrainingBatches`."""
        return self._train.examples_per_epoch

    def train_batches(
        self, start: int, stop: int, *, host: int, hosts: int
    ) -> Generator[Batch, None, None]:
        """See `Task` and `PretrainingBatches`."""
        rows = self._global_batch_size // hosts
        return batches_in_order(
            lambda number: self._train.batch(number, rows, host=host, hosts=hosts), start, stop
        )

    def evaluation_batches(self, *, host: int, hosts: int) -> Generator[Batch, None, None]:
        """This host's rows of held-out batches, the same examples and masks every time.

        Rows that only fill up a batch weigh nothing.
        """
        rows = self._evaluation.rows
        batches = -(-self._held_out.examples_per_epoch // rows)
        if self._evaluation.batches:
            batches = min(batches, self._evaluation.batches)
        return batches_in_order(
            lambda number: self._held_out.evaluation_batch(
                number, rows // hosts, host=host, hosts=hosts
            ),
            0,
            batches,
        )

    def evaluate(self, params: Any, mesh: Mesh, directory: Path | None = None) -> dict[str, float]:
        """See `Task`; there are no predictions to write."""
        rows_per_host(self._evaluation.rows, mesh)
        if mesh not in self._evaluation_steps:  # else each evaluation would compile it anew
            self._evaluation_steps[mesh] = make_evaluation_step(self, mesh=mesh)
        share = batch_share(mesh)
        batches = self.evaluation_batches(host=share.index, hosts=share.count)
        return evaluate(self, self._evaluation_steps[mesh], params, batches, mesh)

    def weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """Masked positions and labelled pairs of a batch."""
        return {
            "mlm": batch["masked_lm_weights"].sum(),
            "nsp": batch["next_sentence_weights"].sum(),
        }

    def sums(self, params: Any, batch: dict[str, jax.Array], dropout_key: Any = None) -> Sums:
        """Cross-entropies and correct answers of both heads."""
        output: Any = self.module.apply(
            {"params": params},
            batch["input_ids"],
            batch["token_type_ids"],
            batch["attention_mask"],
            masked_lm_positions=batch["masked_lm_positions"],
            deterministic=dropout_key is None,
            rngs=None if dropout_key is None else {"dropout": dropout_key},
        )
        return {
            "mlm": _classification_sums(
                output.prediction_logits, batch["masked_lm_ids"], batch["masked_lm_weights"]
            ),
            "nsp": _classification_sums(
                output.seq_relationship_logits,
                batch["next_sentence_labels"],
                batch["next_sentence_weights"],
            ),
        }

    def summary(self, metrics: dict[str, float]) -> dict[str, float]:
        """Adds the perplexity of the masked words."""
        # e^20 is beyond any vocabulary; the cap keeps a diverging run's log finite.
        return {**metrics, "mlm_perplexity": math.exp(min(metrics["mlm_loss"], 20.0))}

    def examples_as_text(self, count: int) -> str:
        """The first training examples of the run, readable."""
        return as_text(self._train.examples(np.arange(count)), self.tokenizer, self._objective)

    def baselines(self) -> dict[str, float]:
        """Held-out accuracy of two answers that need no model.

        `mlm_most_frequent`: always the most frequent masked token; `nsp_majority`: always the more
        frequent label.
        """
        tokens = np.zeros(self.tokenizer.vocab_size)
        labels = np.zeros(2)
        for batch in self.evaluation_batches(host=0, hosts=1):
            tokens += np.bincount(
                batch["masked_lm_ids"].ravel(), batch["masked_lm_weights"].ravel(), len(tokens)
            )
            labels += np.bincount(
                batch["next_sentence_labels"], batch["next_sentence_weights"], len(labels)
            )
        return {
            "mlm_most_frequent": float(tokens.max() / max(tokens.sum(), 1)),
            "nsp_majority": float(labels.max() / max(labels.sum(), 1)),
        }


def _classification_sums(
    logits: jax.Array, labels: jax.Array, weights: jax.Array
) -> dict[str, jax.Array]:
    """float32 [..., C], int [...], float32 [...] → weighted sums of loss and correct answers."""
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    correct = logits.argmax(axis=-1) == labels
    return {"loss": (weights * losses).sum(), "accuracy": (weights * correct).sum()}


def defaults() -> dict[str, dict[str, Any]]:
    """The keys of this task, by section.

    `tokenizer` are those of `VocabularyOptions`; `data` those of `PrepareOptions`, of the sources,
    and of `PretrainingOptions`.
    """
    return {
        "tokenizer": _fields(VocabularyOptions),
        "data": {
            "source": "",
            **_fields(SourceSpec, omit=("source", "weight")),
            **_fields(PrepareOptions, omit=("sources", "tokenizer", "vocabulary", "seed")),
            "corpus": "",
            **_fields(PretrainingOptions, omit=("seed",)),
            "evaluation_batches": 0,
        },
    }


def _fields(cls: type, omit: tuple[str, ...] = ()) -> dict[str, Any]:
    """The defaults of a dataclass' fields."""
    fields = dataclasses.fields(cls)
    return {field.name: field.default for field in fields if field.name not in omit}


def create(config: ConfigDict, foundation: Foundation) -> PretrainingTask:
    """The task of a config, see `bert_jax.configuration`."""
    data = config.data
    if not data.corpus:
        raise UserError(
            "data.corpus is not set; make one with `bert-jax prepare` and give its directory"
        )
    corpus = Corpus.open(data.corpus)
    tokenizer = corpus.tokenizer()
    if config.tokenizer.path:
        corpus.check_tokenizer(load_tokenizer(config.tokenizer.path))
    if foundation.tokenizer and foundation.tokenizer.fingerprint() != tokenizer.fingerprint():
        raise UserError(
            f"the model has another tokenizer than the corpus {data.corpus}; prepare the corpus "
            "with tokenizer.path=DIRECTORY OF THE MODEL"
        )
    options = PretrainingOptions(
        seed=config.seed,
        **{
            field.name: data[field.name]
            for field in dataclasses.fields(PretrainingOptions)
            if field.name != "seed"
        },
    )
    return PretrainingTask(
        corpus,
        tokenizer,
        options,
        foundation.architecture(tokenizer),
        foundation.execution,
        global_batch_size=config.train.global_batch_size,
        evaluation=EvaluationOptions(config.train.global_batch_size, data.evaluation_batches),
    )
