"""Token classification in Hugging Face's task form: what transformers' pipeline returns."""

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import Field

from bert_jax.errors import UserError
from bert_jax.metrics.entities import OUTSIDE
from bert_jax.metrics.tag_names import TagNames
from bert_jax.models.heads.tagging import TaggingOptions
from bert_jax.serving.endpoints import RequestForm
from bert_jax.serving.errors import from_user_error, unprocessable
from bert_jax.serving.models import ServedModel
from bert_jax.serving.routes.embeddings_inference import Texts
from bert_jax.serving.service import Predicted, Service
from bert_jax.tasks.base.labels import label_names
from bert_jax.tasks.tagging.pieces import (
    Labelled,
    PiecePredictor,
    ScoredPiece,
    Strategy,
    entities,
    group,
    label_pieces,
)

_STRIDE, _STRATEGY = "parameters.stride", "parameters.aggregation_strategy"


class TokenClassification(RequestForm):
    """Parameters of token-classification; without `stride`, each piece of a text is read once."""

    aggregation_strategy: Strategy = "simple"
    ignore_labels: list[str] = Field(default_factory=lambda: [OUTSIDE])
    stride: int | None = Field(None, ge=0, description="tokens that two windows share")


async def tagged(
    service: Service,
    served: ServedModel,
    texts: Texts,
    parameters: TokenClassification,
    *,
    truncate: bool = True,
) -> tuple[list[Any], Predicted]:
    """For each text its entities, or with the strategy "none" its pieces.

    A CRF labels words, so its words are what is grouped.
    """
    strategy, stride = parameters.aggregation_strategy, parameters.stride
    labels, ignored = label_names(served.model.description), set(parameters.ignore_labels)
    if strategy == "none" and stride is not None:
        message = f"{_STRIDE}: entities of two windows are joined, pieces are not; leave it out"
        raise unprocessable(message, _STRIDE)
    has_crf = served.model.config.head_options(TaggingOptions).use_crf
    if has_crf and (stride is not None or strategy not in ("simple", "first")):
        message = f"{_STRATEGY}: this model has a CRF, for words: give simple or first, no stride"
        raise unprocessable(message, _STRATEGY)
    encoder = None
    try:
        if has_crf:
            engine = service.models.task_engine(served, "tagging").engine
        else:
            engine = service.models.engine(served, ("pieces",), PiecePredictor)
            if stride is not None:
                predictor: Any = engine.predictor
                encoder = predictor.encoder_of_windows(stride)
    except UserError as error:
        raise from_user_error(error, "model", "parameters.{}".format) from error
    predicted = await service.predict(
        engine, texts.texts, places=texts.places, truncate=truncate, encoder=encoder
    )

    def found(text: str, prediction: Any) -> list[dict[str, Any]]:
        if has_crf:
            words = [
                Labelled(each.tag, each.score, each.start, each.end) for each in prediction.words
            ]
            groups = group(words, TagNames.from_labels(labels))
            return _groups(text, (each for each in groups if each.label not in ignored))
        if strategy == "none":
            (pieces,) = prediction  # without `stride`, in one list
            return _pieces(pieces, labels, ignored)
        return _groups(text, entities(prediction, labels, strategy, ignored))

    answers = map(found, texts.texts, predicted.predictions)
    return await service.in_thread(list, answers), predicted


def _pieces(
    pieces: Sequence[ScoredPiece], labels: Sequence[str], ignored: set[str]
) -> list[dict[str, Any]]:
    return [
        {
            "entity": each.label,
            "score": each.score,
            "index": piece.position,
            "word": piece.token,
            "start": each.start,
            "end": each.end,
        }
        for piece, each in zip(pieces, label_pieces(pieces, labels), strict=True)
        if each.label not in ignored
    ]


def _groups(text: str, groups: Iterable[Labelled]) -> list[dict[str, Any]]:
    return [
        {
            "entity_group": each.label,
            "score": each.score,
            "word": text[each.start : each.end],
            "start": each.start,
            "end": each.end,
        }
        for each in groups
    ]
