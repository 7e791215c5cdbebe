"""Vectors, words for masks, hidden states and attentions of texts."""

import dataclasses
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from bert_jax.data.readers.rows import Rows, open_rows
from bert_jax.data.records import shortest
from bert_jax.models.config import Head
from bert_jax.tasks.base.predict_options import PredictOptions
from bert_jax.tasks.base.predict_task import (
    JSONL,
    PredictionTask,
    batch_options,
    json_lines,
    text_options,
)
from bert_jax.tasks.base.predictor import Text
from bert_jax.tasks.features import AttentionsPredictor, EmbeddingPredictor, HiddenStatesPredictor
from bert_jax.tasks.fill_mask import MaskPrediction, MaskPredictor

Record = Mapping[str, Any]


def open_texts(
    source: str | Path, options: PredictOptions
) -> AbstractContextManager[Rows[str | tuple[str, str]]]:
    """Opens texts and pairs of texts."""
    return open_rows(source, text_options(options))


def _fill_mask(text: Text, masks: list[list[MaskPrediction]]) -> Record:
    return {
        "fillings": [
            [{**dataclasses.asdict(one), "score": shortest(one.score)} for one in mask]
            for mask in masks
        ]
    }


EMBED = PredictionTask(
    open_texts,
    lambda model, options: EmbeddingPredictor(
        model,
        batch_options(options),
        pooling=options.pooling or "mean",
        normalize=options.normalize,
    ),
    {JSONL: json_lines(lambda text, vector: {"embedding": vector})},
)
FILL_MASK = PredictionTask(
    open_texts,
    lambda model, options: MaskPredictor(model, batch_options(options), top_k=options.top_k or 5),
    {JSONL: json_lines(_fill_mask)},
    heads=(Head.PRETRAINING, Head.MASKED_LM),
)
HIDDEN_STATES = PredictionTask(
    open_texts,
    lambda model, options: HiddenStatesPredictor(
        model,
        batch_options(options),
        layers=(-1,) if options.layers is None else options.layers,
        combine=options.combine,
    ),
    {
        JSONL: json_lines(
            lambda text, found: {
                "tokens": found.tokens,
                "offsets": found.offsets,
                "hidden_states": found.states,
            }
        )
    },
)
ATTENTIONS = PredictionTask(
    open_texts,
    lambda model, options: AttentionsPredictor(
        model, batch_options(options, 8), layers=options.layers
    ),
    {JSONL: json_lines(lambda text, found: {"tokens": found.tokens, "attentions": found.weights})},
)
