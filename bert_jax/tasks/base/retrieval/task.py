"""Training of retrieval models: queries with relevant documents, and others as negatives."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.model_directory import load_description, load_tokenizer
from bert_jax.checkpoints.parameters import LoadReport
from bert_jax.checkpoints.sentence_transformers.entries import sides_of
from bert_jax.data.examples import Candidates, Example, Text, digest_of
from bert_jax.data.padding import Sequences, bucket_length
from bert_jax.data.pipeline import Batch
from bert_jax.data.row_packing import RowPacker
from bert_jax.errors import OptionError, UserError, listed
from bert_jax.models.dual_encoder import VectorInputs
from bert_jax.models.encoder_with_head import model_inputs, row_kinds
from bert_jax.models.execution import Execution
from bert_jax.models.vectors import DOCUMENT, QUERY, SIDES
from bert_jax.options import differing_names
from bert_jax.tasks.base.labelled_options import labelled_options
from bert_jax.tasks.base.labelled_task import TrainingRows, encode_in_chunks, sequences_of
from bert_jax.tasks.base.predictor import EncodingCounts
from bert_jax.tasks.base.ranked_task import RankedTask
from bert_jax.tasks.base.ranking_rows import RankingRows
from bert_jax.tasks.base.retrieval.evaluator import RankingEvaluator
from bert_jax.tasks.base.retrieval.interaction import Interaction
from bert_jax.tasks.base.retrieval.objectives import Objective, find_objective
from bert_jax.tasks.base.retrieval.options import RetrievalData
from bert_jax.tasks.base.retrieval.towers import load_encoder, with_documents
from bert_jax.tasks.base.splits import Splits
from bert_jax.tasks.base.task import ComputedModel, Sums, weighted_sums
from bert_jax.tasks.base.text_rows import TextEncoder
from bert_jax.tasks.base.train_spec import TaskConfig
from bert_jax.tasks.embed import stored_length


class RetrievalTask(RankedTask):
    """Queries with their documents; a batch has rows of two kinds, `query/…` and `document/…`."""

    data: RetrievalData
    objective: Objective

    def __init__(
        self,
        splits: Splits[Candidates],
        interaction: Interaction,
        config: TaskConfig[RetrievalData],
        execution: Execution,
        *,
        collection: Mapping[str, Text],
        document_encoder: Path | None = None,
    ) -> None:
        """Makes the module.

        Args:
            splits: queries with their documents.
            interaction: how these become vectors, and how vectors are compared.
            config: options of the training.
            execution: how the model is computed.
            collection: texts of the documents that sets with judgements search, by their ids.
            document_encoder: directory of the encoder of documents that the model starts from, or
                of a finished model; None: a copy of the encoder of queries.
        """
        self.collection, self._document_encoder = collection, document_encoder
        self.interaction, self.data = interaction, config.data
        self.objective = find_objective(config.data, are_cosines=interaction.are_cosines)
        self.global_loss = self.objective.is_global or bool(interaction.regularisers)
        super().__init__(
            splits=splits,
            tokenizer=interaction.tokenizer,
            description=interaction.description,
            execution=execution,
            options=labelled_options(config, config.data.metrics[0]),
        )

    def make_module(self, execution: Execution) -> nn.Module:
        return self.interaction.make_module(execution)

    def load_params(
        self, directory: Path, description: ModelDescription, module: Any, **how: Any
    ) -> tuple[Any, LoadReport]:
        """Reads one encoder, or both; see `towers.load_encoder`.

        Raises:
            OptionError: the encoder of documents of a finished model is not named.
        """
        one, has_both = module.clone(towers=1), bool(sides_of(directory))

        def load(source: Path, described: ModelDescription, side: str) -> tuple[Any, LoadReport]:
            if side in sides_of(source):
                described = load_description(source, route=side)
                own, other = load_tokenizer(source, described), load_description(source)
                is_alike = own.fingerprint() == self.tokenizer.fingerprint()
                if not is_alike or described.config != other.config:
                    problem = f"{source}: its encoders differ in architecture or tokenizer"
                    raise UserError(f"{problem}; give two that are alike")
                self._check_vectors_alike(source, described, other)
            return load_encoder(source, described, self.description, one, **how)

        if module.towers == 1:
            if has_both:
                rule = "take one by `bert-jax convert --route`, or both where a task has this key"
                problem = f"{directory} has encoders of its own for queries and documents"
                raise OptionError("document_encoder.separate", False, rule, problem)
            return load(directory, description, QUERY)
        queries = load(directory, description, QUERY)
        if source := self._document_encoder:
            documents = load_description(source)
            if not self.splits.train:  # a training makes both alike
                self._check_vectors_alike(source, documents, description)
            return with_documents(queries, load(source, documents, DOCUMENT))
        if not (self.splits.train or has_both):
            rule = "give the directory that `bert-jax export --part document` wrote"
            problem = f"{directory} has the encoder of queries alone"
            raise OptionError("document_encoder.init_from", "", rule, problem)
        return with_documents(queries, load(directory, description, DOCUMENT))

    def _check_vectors_alike(
        self, source: Path, described: ModelDescription, other: ModelDescription
    ) -> None:
        """Raises UserError if two encoders differ in what both have alike in a training."""
        names = differing_names(vars(described.vectors), vars(other.vectors))
        names = [name for name in names if name not in ("other", "route")]
        if names == ["max_length"]:
            if self.data.length:
                return
            rule = "the encoders have different lengths; set it, and {data.query_length}"
            raise OptionError("data.length", None, rule)
        if names:
            problem = f"{source}: the two encoders differ in the files' {listed(names)}"
            raise UserError(f"{problem}; give two that are alike")

    def stored_length(self) -> int | None:
        return stored_length(self.description, self.tokenizer)

    def limit(self, side: str) -> int:
        """The maximum number of tokens of a text of a side.

        Raises:
            OptionError: queries would be longer than documents; the files have one length.
        """
        length, query_length = self.options.length, self.data.query_length
        if query_length and query_length > length:
            rule = f"it must be at most {length}, the length of documents; raise {{data.length}}"
            raise OptionError("data.query_length", query_length, rule)
        return query_length or length if side == QUERY else length

    def make_evaluator(self) -> RankingEvaluator:
        limits = {side: self.limit(side) for side in SIDES}
        return RankingEvaluator(
            self.splits, self.collection, self.interaction, self.options, self.data, limits
        )

    @property
    def computed_models(self) -> tuple[ComputedModel, ...]:
        model = ComputedModel(self.description.config, has_vocabulary_head=False)
        return tuple(dataclasses.replace(model, rows=(side,)) for side in SIDES)

    def make_rows(self) -> TrainingRows:
        """Each text is tokenised once; queries have one length, the longest query's."""
        rows = self.ranking
        if self.data.loss == "margin_mse" and self.interaction.are_cosines:
            _check_margin(rows.largest_margin, self.interaction.cosine_remedy)
        queries, query_rows, cut = self._encoded(QUERY, rows, rows.queries)
        self._report = (*self._cut_report(cut), *rows.report)
        documents, document_rows, counts = self._encoded(DOCUMENT, rows, rows.documents)
        query_length = bucket_length(int(queries.lengths.max()), self.limit(QUERY))

        def make(chosen: np.ndarray, length: int) -> Batch:
            is_row = chosen >= 0

            def batch_rows(array: np.ndarray, filler: Any = -1) -> np.ndarray:
                shape = (-1, *[1] * (array.ndim - 1))
                return np.where(is_row.reshape(shape), array[chosen], array.dtype.type(filler))

            kinds = {
                QUERY: queries.pad(batch_rows(query_rows), query_length, self.tokenizer),
                DOCUMENT: documents.pad(batch_rows(document_rows), length, self.tokenizer),
            }
            batch = _prefixed(
                {side: self.interaction.arrays(side, arrays) for side, arrays in kinds.items()}
            )
            batch |= {
                "query_numbers": batch_rows(rows.queries),
                "document_numbers": batch_rows(rows.documents),
                "related_numbers": batch_rows(rows.related, -2),
                "grades": batch_rows(rows.grades, 0),
                "weights": is_row.astype(np.float32),
            }
            return batch if rows.scores is None else batch | {"scores": batch_rows(rows.scores, 0)}

        longest = np.where(document_rows < 0, 0, documents.lengths[document_rows]).max(axis=1)
        return TrainingRows(documents, longest, make, counts)

    def _cut_report(self, queries: EncodingCounts) -> Iterator[str]:
        if queries.cut:
            limit = self.limit(QUERY)
            yield (
                f"{queries.cut:,} of {queries.texts:,} queries are longer than {limit} tokens, and "
                "the rest of them is not read: raise data.query_length"
            )

    def reading_report(self) -> tuple[str, ...]:
        return self._report if self.rows else ()

    def _encoded(
        self, side: str, ranking: RankingRows, numbers: np.ndarray
    ) -> tuple[Sequences, np.ndarray, EncodingCounts]:
        """The rows of the texts of a side, and the row of each number; -1 stays -1."""
        encode = TextEncoder(
            self.tokenizer,
            self.description.config,
            self.limit(side),
            prepare=self.interaction.prepare(side),
        )
        used = np.unique(numbers[numbers >= 0])
        texts, locations = ranking.texts, ranking.locations
        examples = (Example(texts[number], location=locations[number]) for number in used)
        encoded = encode_in_chunks(encode, examples)
        sequences, _, counts = sequences_of(encoded, self.tokenizer)
        row_of = np.full(len(texts) + 1, -1)  # the last is for -1
        row_of[used] = np.arange(len(used))
        return sequences, row_of[numbers], counts

    def fingerprints(self) -> dict[str, str]:
        """Also of the collection that sets with judgements search."""
        documents = (Example(text, id=id) for id, text in self.collection.items())
        collection = {"collection": digest_of(documents)} if self.collection else {}
        return super().fingerprints() | collection

    @functools.cached_property
    def row_packers(self) -> dict[str, RowPacker]:
        """How short rows of each side are packed, decided by the first batches."""
        if not self.interaction.packs_rows:
            return {}
        return {
            side: RowPacker(row_kinds(batch)[side] for batch in self.batches.samples())
            for side in SIDES
        }

    def pack_rows(self, rows: Batch, parts: int) -> Batch:
        kinds, packers = row_kinds(rows), self.row_packers
        packed = {side: packer.pack(kinds[side], parts) for side, packer in packers.items()}
        return rows | _prefixed(packed)

    def inputs(self, batch: dict[str, jax.Array]) -> dict[str, VectorInputs]:
        return {side: model_inputs(rows, VectorInputs) for side, rows in row_kinds(batch).items()}

    def loss_weights(self, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        total = batch["weights"].sum()
        return dict.fromkeys(("", *self.interaction.regularisers), total)

    def loss(self, params: Any, outputs: Any, batch: dict[str, jax.Array]) -> Sums:
        weights, interaction = batch["weights"], self.interaction
        view_losses = [
            self.objective.losses(interaction, view, batch) for view in interaction.views(outputs)
        ]
        losses = jnp.stack(view_losses).sum(axis=0)
        added = interaction.regulariser(outputs, batch)
        return {
            "": weighted_sums(weights, {"loss": losses}),
            **{name: {"loss": value * weights.sum()} for name, value in added.items()},
        }


def _check_margin(margin: float, remedy: str) -> None:
    """Raises OptionError if no two cosines differ by a teacher's margin."""
    if margin > 2:
        raise OptionError(
            "data.similarity",
            None,
            f"set {remedy}",
            f"a teacher's scores differ by {margin:.3g}, and cosines by 2 at most",
        )


def _prefixed(kinds: Mapping[str, Batch]) -> Batch:
    """The arrays of a batch from its kinds of rows, see `row_kinds`."""
    return {f"{side}/{name}": array for side, rows in kinds.items() for name, array in rows.items()}
