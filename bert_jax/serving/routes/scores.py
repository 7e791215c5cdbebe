"""The routes that score: text-embeddings-inference's `/predict` and `/rerank`, and our `/rank`."""

import asyncio
import functools
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from bert_jax.errors import UserError
from bert_jax.models.vectors import SIDES
from bert_jax.serving.endpoints import Endpoint, Reply
from bert_jax.serving.errors import check_not_empty, from_user_error, unprocessable
from bert_jax.serving.models import ServedModel
from bert_jax.serving.routes.embeddings_inference import GROUP, ModelRequest, Truncation
from bert_jax.serving.service import Predicted, Service
from bert_jax.tasks.base.labels import label_names
from bert_jax.tasks.base.vector_kinds import check_makes_vectors, vector_kind

_TASK = "classification"


class ScoredRequest(Truncation, ModelRequest):
    """What `/predict` and `/rerank` share."""

    raw_scores: bool = Field(False, description="outputs of the model, without an activation")


class PredictRequest(ScoredRequest):
    """A text, a list of two texts, which are one pair, or a list of lists of one text or two."""

    inputs: str | list[str] | list[list[str]]

    @property
    def is_single(self) -> bool:
        """Whether the inputs are one text or one pair."""
        return isinstance(self.inputs, str) or any(isinstance(each, str) for each in self.inputs)


class QueryRequest(ScoredRequest):
    """A query for texts that are put in the order of their relevance."""

    query: str


class RerankRequest(QueryRequest):
    """The form of text-embeddings-inference."""

    texts: list[str]
    return_text: bool = False


class RankRequest(QueryRequest):
    """The arguments of `LoadedModel.rank`."""

    documents: list[str]
    top_k: int | None = Field(None, ge=1, description="how many are returned; null: all")


async def predict(service: Service, body: PredictRequest, path: Mapping[str, str]) -> Reply:
    """The score of each label, the best first; for several inputs a list for each."""
    inputs: Any = [body.inputs] if body.is_single else body.inputs
    texts, places = [_text(each) for each in inputs], ["inputs"] if body.is_single else None
    check_not_empty(texts, "inputs", places)
    served = service.models.named(body.model, _TASK)
    predicted = await classified(service, served, body, texts, places=places)
    scores = [labelled(served, each) for each in predicted.predictions]
    return Reply(scores[0] if body.is_single else scores, predicted.cut)


async def classified(
    service: Service,
    served: ServedModel,
    body: ScoredRequest,
    texts: list[Any],
    field: str = "inputs",
    places: list[str] | None = None,
) -> Predicted:
    """The predictions of a classifier for texts and pairs; see `Service.predict`."""
    body.check_direction(served)
    options = {"raw_scores": True} if body.raw_scores else {}
    engine = service.models.task_engine(served, _TASK, options).engine
    truncate = body.truncate
    return await service.predict(engine, texts, field=field, places=places, truncate=truncate)


def labelled(served: ServedModel, prediction: Any) -> list[dict[str, Any]]:
    """The labels of a prediction with their scores, the best first; a number has the only one."""
    if isinstance(prediction, float):
        (name,) = label_names(served.model.description)
        return [{"label": name, "score": prediction}]
    scores = [{"label": name, "score": score} for name, score in prediction.probabilities.items()]
    return sorted(scores, key=lambda each: -each["score"])


def _text(given: Any) -> Any:
    parts = [given] if isinstance(given, str) else given
    if len(parts) not in (1, 2):
        raise unprocessable("inputs: give a text, or a pair of two", "inputs")
    return parts[0] if len(parts) == 1 else tuple(parts)


async def rerank(service: Service, body: RerankRequest, path: Mapping[str, str]) -> Reply:
    """The scores of `LoadedModel.rank`, the best first."""
    check_not_empty([(body.query, text) for text in body.texts], "texts")
    ranks, cut = await _ranks(service, body, body.texts, "texts")
    if not body.return_text:
        ranks = [{"index": each["index"], "score": each["score"]} for each in ranks]
    return Reply(ranks, cut)


async def rank(service: Service, body: RankRequest, path: Mapping[str, str]) -> Reply:
    """What `LoadedModel.rank` returns."""
    ranks, cut = await _ranks(service, body, body.documents, "documents")
    return Reply({"matches": ranks[: body.top_k]}, cut)


async def _ranks(
    service: Service, body: QueryRequest, texts: list[str], field: str
) -> tuple[list[dict[str, Any]], int]:
    """Index, text and score of each text of a field, the best first; how many were cut."""
    served = _ranker(service, body.model)
    if served.model.description.head == _TASK:
        if served.model.config.num_labels != 1:
            raise unprocessable("the model has several labels; give a cross-encoder", "model")
        pairs = [(body.query, text) for text in texts]
        predicted = await classified(service, served, body, pairs, field)
    else:
        predicted = await _by_vectors(service, served, body, texts, field)
    ranks = [
        {"index": index, "text": text, "score": score}
        for index, (text, score) in enumerate(zip(texts, predicted.predictions, strict=True))
    ]
    return sorted(ranks, key=lambda each: -each["score"]), predicted.cut


def _ranker(service: Service, name: str | None) -> ServedModel:
    """The model of a name; else the first cross-encoder, else the first that makes vectors."""
    for served in service.models.served if name is None else ():
        if served.model.description.head == _TASK and served.model.config.num_labels == 1:
            return served
    return service.models.named(name, "embed")


async def _by_vectors(
    service: Service, served: ServedModel, body: QueryRequest, texts: list[str], field: str
) -> Predicted:
    """The scores of any other model."""
    if body.raw_scores:
        raise unprocessable("raw_scores: vectors have no activation; leave it out", "raw_scores")
    body.check_direction(served)
    description = served.model.description
    try:
        check_makes_vectors(description, "give a cross-encoder, or a model of vectors")
        kind = vector_kind(description)
        query_engine, text_engine = (
            service.models.engine(
                served, ("rank", side), functools.partial(kind.predictor, side=side)
            )
            for side in SIDES
        )
    except UserError as error:
        raise from_user_error(error, "model") from error
    if not texts:
        return Predicted([])
    query, documents = await asyncio.gather(
        service.predict(
            query_engine, [body.query], field="query", places=["query"], truncate=body.truncate
        ),
        service.predict(text_engine, texts, field=field, truncate=body.truncate),
    )
    scores = kind.similarities(query.predictions, documents.predictions)[0].tolist()
    return Predicted(scores, query.tokens + documents.tokens, query.cut + documents.cut)


ENDPOINTS = (
    Endpoint("/predict", PredictRequest, predict, "Labels of texts and pairs", GROUP),
    Endpoint("/rerank", RerankRequest, rerank, "Texts in the order of their relevance", GROUP),
    Endpoint("/rank", RankRequest, rank, "Documents in the order of their relevance", "bert_jax"),
)
