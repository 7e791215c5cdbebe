"""OpenAI's `/v1/embeddings`: base64 is the default of its Python client."""

import base64
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from bert_jax.metrics.similarity import units
from bert_jax.serving.endpoints import Endpoint, Reply, RequestForm
from bert_jax.serving.errors import check_not_empty, unprocessable
from bert_jax.serving.service import Service
from bert_jax.tasks.base.predictor import EncodedExample, EncodingCounts, RequestEncoder
from bert_jax.tasks.embed import EmbeddingPredictor
from bert_jax.tokenization import Tokenizer
from bert_jax.tokenization.encoding import TEXTS, TRUNCATIONS, Pieces, cut

_TASK = "embed"

TokenIds = list[int]


class EmbeddingsRequest(RequestForm):
    """Texts, or token ids of the model, and how their vectors are written."""

    input: str | list[str] | TokenIds | list[TokenIds] = Field(
        description="a text, texts, or the token ids of texts, without special tokens around them"
    )
    model: str | None = Field(None, description="name of a model; the first one by default")
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(
        None, ge=1, description="leading values, scaled to length 1; all by default"
    )
    user: str | None = Field(None, description="has no effect")
    truncate: bool = Field(True, description="cut texts that are too long; else refuse them")


async def embeddings(service: Service, body: EmbeddingsRequest, path: Mapping[str, str]) -> Reply:
    """The vectors of `LoadedModel.embed`; with `dimensions`, as OpenAI shortens them."""
    served = service.models.named(body.model, _TASK)
    engine = service.models.task_engine(served, _TASK).engine
    inputs: Any = body.input
    is_one = isinstance(inputs, str) or (inputs and isinstance(inputs[0], int))
    inputs, places = ([inputs], ["input"]) if is_one else (inputs, None)
    check_not_empty(inputs, "input", places)
    encoder = None
    if not isinstance(inputs[0], str):
        predictor: Any = engine.predictor
        _check_ids(inputs, predictor)
        encode = functools.partial(_rows_of_ids, predictor)
        encoder = RequestEncoder(encode, predictor.text_limit)
    predicted = await service.predict(
        engine, inputs, field="input", places=places, truncate=body.truncate, encoder=encoder
    )
    vectors = [leading(vector, body.dimensions) for vector in predicted.predictions]
    if body.dimensions is not None:
        vectors = [*map(units, vectors)]
    is_base64 = body.encoding_format == "base64"
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": _base64(vector) if is_base64 else vector,
        }
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": predicted.tokens, "total_tokens": predicted.tokens}
    content = {"object": "list", "data": data, "model": served.name, "usage": usage}
    return Reply(content, predicted.cut)


def leading(vector: np.ndarray, dimensions: int | None) -> np.ndarray:
    """The first values of a vector, float32 [X]; None: all.

    Raises:
        RequestError: it has fewer.
    """
    if dimensions is not None and dimensions > len(vector):
        message = f"dimensions is {dimensions}; the vectors of this model have {len(vector)}"
        raise unprocessable(message, "dimensions")
    return vector[:dimensions]


def _base64(vector: np.ndarray) -> str:
    """Float32, little-endian."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def _check_ids(lists: Sequence[TokenIds], predictor: EmbeddingPredictor) -> None:
    """Refuses lists that are not the ids of a text alone."""
    tokenizer = predictor.model.tokenizer
    if predictor.encode_texts.prepare(""):
        message = "input: this model puts a prompt before a text; send text instead of token ids"
        raise unprocessable(message, "input")
    added = _added_ids(tokenizer)
    for number, ids in enumerate(lists):
        if not all(0 <= each < tokenizer.vocab_size for each in ids):
            rule = f"give ids of this model's tokenizer, 0 to {tokenizer.vocab_size - 1}, or text"
            message = f"input: list {number} has an id out of range; {rule}"
            raise unprocessable(message, "input")
        if special := added.intersection(ids):
            token = tokenizer.id_to_token(min(special))
            message = f"input: list {number} has {token}, id {min(special)}; leave out the special "
            raise unprocessable(f"{message}tokens around a text, which are added here", "input")


def _added_ids(tokenizer: Tokenizer) -> set[int]:
    """The ids that the tokenizer puts around a text, and that of padding."""
    parts = tokenizer.template.parts(pair=False)
    ids = {tokenizer.template_id(name) for name, _ in parts if name not in TEXTS}
    return ids | {tokenizer.padding_id}


def _rows_of_ids(predictor: EmbeddingPredictor, lists: Sequence[TokenIds]) -> list[EncodedExample]:
    """Token ids of texts as the rows of these texts, cut to the limit."""
    tokenizer = predictor.model.tokenizer
    limit = predictor.limit - tokenizer.num_special_tokens(pair=False)
    rows = []
    for number, ids in enumerate(lists):
        tokens = [tokenizer.id_to_token(each) for each in ids]
        pieces = Pieces(ids, tokens, [(0, 0)] * len(ids), [None] * len(ids))
        kept = cut((pieces,), limit, TRUNCATIONS[0], tokenizer.truncation_side, number)
        rows.append(EncodedExample([tokenizer.join(kept)], EncodingCounts(cut=len(ids) > limit)))
    return rows


GROUP = "OpenAI"
ENDPOINTS = (Endpoint("/v1/embeddings", EmbeddingsRequest, embeddings, "Vectors of texts", GROUP),)
