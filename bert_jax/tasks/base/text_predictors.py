"""Vectors, words for masks, hidden states and attentions of texts."""

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from bert_jax.data.readers.rows import Rows, open_rows
from bert_jax.inference import features
from bert_jax.inference.interface import Advance, Text
from bert_jax.inference.model import LoadedModel
from bert_jax.inference.records import shortest
from bert_jax.tasks.base.predict_options import PredictOptions
from bert_jax.tasks.base.predictor import JSONL, PredictionTask, json_lines, text_options
from bert_jax.tasks.fill_mask import fillings

Record = Mapping[str, Any]


def open_texts(
    source: str | Path, options: PredictOptions
) -> AbstractContextManager[Rows[str | tuple[str, str]]]:
    """Opens texts and pairs of texts."""
    return open_rows(source, text_options(options))


def _embed(
    model: LoadedModel, texts: Iterator[Text], options: PredictOptions, advance: Advance
) -> Iterator[Record]:
    found = features.embeddings(
        model,
        texts,
        pooling=options.pooling or "mean",
        normalize=options.normalize,
        batch_size=options.batch_size or 32,
        max_length=options.max_length,
        advance=advance,
    )
    return ({"embedding": vector} for vector in found)


def _fill_mask(
    model: LoadedModel, texts: Iterator[Text], options: PredictOptions, advance: Advance
) -> Iterator[Record]:
    found = fillings(
        model,
        texts,
        top_k=options.top_k or 5,
        batch_size=options.batch_size or 32,
        max_length=options.max_length,
        advance=advance,
    )
    for masks in found:
        yield {
            "fillings": [
                [
                    {**dataclasses.asdict(filling), "score": shortest(filling.score)}
                    for filling in mask
                ]
                for mask in masks
            ]
        }


def _hidden_states(
    model: LoadedModel, texts: Iterator[Text], options: PredictOptions, advance: Advance
) -> Iterator[Record]:
    found = features.hidden_states(
        model,
        texts,
        layers=(-1,) if options.layers is None else options.layers,
        combine=options.combine,
        batch_size=options.batch_size or 32,
        max_length=options.max_length,
        advance=advance,
    )
    for text in found:
        yield {"tokens": text.tokens, "offsets": text.offsets, "hidden_states": text.states}


def _attentions(
    model: LoadedModel, texts: Iterator[Text], options: PredictOptions, advance: Advance
) -> Iterator[Record]:
    found = features.attentions(
        model,
        texts,
        layers=options.layers,
        batch_size=options.batch_size or 8,
        max_length=options.max_length,
        advance=advance,
    )
    for text in found:
        yield {"tokens": text.tokens, "attentions": text.weights}


FORMATS = {JSONL: json_lines(lambda text, record: record)}

EMBED = PredictionTask(open_texts, _embed, FORMATS)
FILL_MASK = PredictionTask(
    open_texts,
    _fill_mask,
    FORMATS,
    architectures=("BertForPreTraining", "BertForMaskedLM"),
)
HIDDEN_STATES = PredictionTask(open_texts, _hidden_states, FORMATS)
ATTENTIONS = PredictionTask(open_texts, _attentions, FORMATS)
