"""What the page asks beside the routes of clients: the numbers of its pictures."""

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from bert_jax.errors import UserError
from bert_jax.metrics.similarity import similarities
from bert_jax.serving.endpoints import Endpoint, Reply
from bert_jax.serving.errors import from_user_error
from bert_jax.serving.routes.embeddings_inference import ModelRequest
from bert_jax.serving.service import Service

_ATTENTIONS = "attentions"


class AttentionsRequest(ModelRequest):
    """A text or a pair, and layers."""

    text: str
    pair: str | None = Field(None, description="the second text of a pair")
    layers: list[int] | None = Field(None, description="from 1, or -1, -2, …; all by default")


class SimilaritiesRequest(ModelRequest):
    """Texts to compare with each other."""

    texts: list[str] = Field(min_length=1)


async def attentions(service: Service, body: AttentionsRequest, path: Mapping[str, str]) -> Reply:
    """The attention weights in the form of `AttentionOfText.fields`."""
    served = service.models.named(body.model, _ATTENTIONS)
    engine = service.models.task_engine(served, _ATTENTIONS, {"layers": body.layers}).engine
    text = body.text if body.pair is None else (body.text, body.pair)
    predicted = await service.predict(engine, [text], field="text", places=["text"])
    (maps,) = predicted.predictions
    try:
        fields = await service.in_thread(maps.picture().fields)
    except UserError as error:
        raise from_user_error(error, "text") from error
    return Reply({"maps": fields}, predicted.cut)


async def compare(service: Service, body: SimilaritiesRequest, path: Mapping[str, str]) -> Reply:
    """The scores of `LoadedModel.similarity`, and the name of the function."""
    served = service.models.named(body.model, "embed")
    engine = service.models.task_engine(served, "embed").engine
    predicted = await service.predict(engine, body.texts, field="texts")
    vectors = np.stack(predicted.predictions)
    name = served.model.description.vectors.similarity
    scores = similarities(vectors, vectors, name)
    return Reply({"similarity": name, "scores": scores}, predicted.cut)


GROUP = "page"
ENDPOINTS = (
    Endpoint("/page/attentions", AttentionsRequest, attentions, "Weights of a picture", GROUP),
    Endpoint("/page/similarities", SimilaritiesRequest, compare, "Texts with each other", GROUP),
)
