"""The routes of text-embeddings-inference that make vectors of texts, and their tokens."""

import functools
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from bert_jax.data.outputs import float32_repr
from bert_jax.metrics.similarity import similarities, units
from bert_jax.serving.endpoints import Endpoint, Reply, RequestForm
from bert_jax.serving.errors import check_not_empty, unprocessable
from bert_jax.serving.models import ServedModel
from bert_jax.serving.routes.openai import leading
from bert_jax.serving.service import Predicted, Service

Side = Literal["Left", "Right", "left", "right"]
"""Where a text is cut: as text-embeddings-inference writes it, or Hugging Face's clients."""


class ModelRequest(RequestForm):
    """The field that all requests have."""

    model: str | None = Field(None, description="name of a model; by default, the first that can")


class Texts(RequestForm):
    """One text or several."""

    inputs: str | list[str]

    @property
    def texts(self) -> list[str]:
        """The texts as a list."""
        return [self.inputs] if isinstance(self.inputs, str) else self.inputs

    @property
    def places(self) -> list[str] | None:
        """The places of the texts, see `Service.predict`."""
        return ["inputs"] if isinstance(self.inputs, str) else None


class Truncation(RequestForm):
    """What is done to texts that are too long."""

    truncate: Annotated[
        bool,
        BeforeValidator(lambda given: given is None or given, json_schema_input_type=bool | None),
        Field(description="cut texts that are too long, also if null; else refuse them"),
    ] = True
    truncation_direction: Side | None = None

    def check_direction(self, served: ServedModel) -> None:
        """Refuses to cut texts on another side than the model's tokenizer does."""
        side = served.model.tokenizer.truncation_side
        direction = self.truncation_direction
        if direction is not None and direction.lower() != side:
            raise unprocessable(
                f"truncation_direction is {direction}; this model's tokenizer cuts on the {side}",
                "truncation_direction",
            )


class EmbedRequest(Texts, Truncation, ModelRequest):
    """Texts, and how their vectors are made."""

    normalize: bool | None = Field(True, description="scale to length 1; null: as the model does")
    prompt_name: str | None = Field(None, description="name of a prompt of the model")
    dimensions: int | None = Field(None, ge=1, description="leading values; all by default")


class EmbedAllRequest(Texts, Truncation, ModelRequest):
    """Texts."""

    prompt_name: str | None = Field(None, description="name of a prompt of the model")


class SimilarityInputs(RequestForm):
    """A sentence, and others to compare it with."""

    source_sentence: str
    sentences: list[str]


class SimilarityParameters(Truncation):
    """How sentences are read."""

    prompt_name: str | None = None


class SimilarityRequest(ModelRequest):
    """Sentences, and how they are read."""

    inputs: SimilarityInputs
    parameters: SimilarityParameters = SimilarityParameters()


class TokenizeRequest(Texts, ModelRequest):
    """One text or several."""

    add_special_tokens: bool = True
    prompt_name: str | None = Field(None, description="name of a prompt of the model")


class DecodeRequest(ModelRequest):
    """One list of token ids or several."""

    ids: list[int] | list[list[int]]
    skip_special_tokens: bool = True


def known_prompt(served: ServedModel, name: str) -> str:
    """The name of a prompt of the model."""
    known = served.model.description.vectors.all_prompts
    if name not in known:
        message = f"prompt_name is {name!r:.80}; this model has {', '.join(known)}"
        raise unprocessable(message, "prompt_name")
    return name


async def embed(service: Service, body: EmbedRequest, path: Mapping[str, str]) -> Reply:
    """A list of vectors."""
    options = {"normalize": False} if body.normalize is False else {}
    predicted = await _predicted(service, body, "embed", **options)
    vectors = [leading(vector, body.dimensions) for vector in predicted.predictions]
    return Reply([*map(units, vectors)] if body.normalize else vectors, predicted.cut)


async def embed_all(service: Service, body: EmbedAllRequest, path: Mapping[str, str]) -> Reply:
    """For each text the last hidden states of all its tokens."""
    predicted = await _predicted(service, body, "hidden_states")
    return Reply([each.states for each in predicted.predictions], predicted.cut)


async def embed_sparse(service: Service, body: EmbedAllRequest, path: Mapping[str, str]) -> Reply:
    """For each text the weights above 0 of words of the vocabulary, the largest first."""
    predicted = await _predicted(service, body, "sparse_vectors")
    weights = (
        [
            {"index": index, "value": value}
            for index, value in zip(each.ids.tolist(), map(float32_repr, each.weights), strict=True)
        ]
        for each in predicted.predictions
    )
    return Reply(weights, predicted.cut)


async def _predicted(
    service: Service, body: EmbedRequest | EmbedAllRequest, task: str, **options: Any
) -> Predicted:
    """The predictions of a task with some of its options."""
    check_not_empty(body.texts, "inputs", body.places)
    served = service.models.named(body.model, task)
    body.check_direction(served)
    if body.prompt_name is not None:
        if task not in ("embed", "sparse_vectors"):
            message = "prompt_name: this route has no prompts; leave it out"
            raise unprocessable(message, "prompt_name")
        options["prompt"] = known_prompt(served, body.prompt_name)
    engine = service.models.task_engine(served, task, options).engine
    return await service.predict(engine, body.texts, places=body.places, truncate=body.truncate)


async def similarity(service: Service, body: SimilarityRequest, path: Mapping[str, str]) -> Reply:
    """How similar a sentence is to each of several, by the model's function."""
    inputs = body.inputs
    check_not_empty(inputs.sentences, "inputs.sentences")
    check_not_empty([inputs.source_sentence], "inputs", ["inputs.source_sentence"])
    served = service.models.named(body.model, "embed")
    values = {}
    if body.parameters.prompt_name is not None:
        values["prompt"] = known_prompt(served, body.parameters.prompt_name)
    body.parameters.check_direction(served)
    engine = service.models.task_engine(served, "embed", values).engine
    texts = [inputs.source_sentence, *inputs.sentences]
    places = [f"inputs.sentences[{number}]" for number in range(len(inputs.sentences))]
    places.insert(0, "inputs.source_sentence")
    predicted = await service.predict(
        engine, texts, places=places, truncate=body.parameters.truncate
    )
    vectors = np.stack(predicted.predictions)
    function = served.model.description.vectors.similarity
    scores = similarities(vectors[:1], vectors[1:], function)[0].tolist()
    return Reply(scores, predicted.cut)


async def tokenize(service: Service, body: TokenizeRequest, path: Mapping[str, str]) -> Reply:
    """The tokens of each text, with their characters."""
    check_not_empty(body.texts, "inputs", body.places)
    served = service.models.named(body.model)
    tokenizer = served.model.tokenizer
    prompt = ""
    if body.prompt_name is not None:
        name = known_prompt(served, body.prompt_name)
        prompt = served.model.description.vectors.all_prompts[name]
    texts = [prompt + text for text in body.texts]
    special = body.add_special_tokens
    encode = functools.partial(tokenizer.encode_batch, add_special_tokens=special)
    with service.admitted(len(texts), "inputs"):
        encoded = await service.in_thread(encode, texts)
    service.check_tokens(sum(len(each.ids) for each in encoded), "inputs")
    tokens = (
        [
            {
                "id": token_id,
                "text": token,
                "special": bool(is_special),
                "start": None if is_special else start,
                "stop": None if is_special else stop,
            }
            for token_id, token, is_special, (start, stop) in zip(
                each.ids, each.tokens, each.special_tokens_mask, each.offsets, strict=True
            )
        ]
        for each in encoded
    )
    return Reply(tokens)


async def decode(service: Service, body: DecodeRequest, path: Mapping[str, str]) -> Reply:
    """The text of each list of token ids."""
    tokenizer = service.models.named(body.model).model.tokenizer
    is_one = not body.ids or not isinstance(body.ids[0], list)
    lists: list[Any] = [body.ids] if is_one else list(body.ids)
    check_not_empty(lists, "ids", ["ids"] if is_one else None)
    skip = body.skip_special_tokens

    def texts() -> list[str]:
        for ids in lists:
            if not all(0 <= each < tokenizer.vocab_size for each in ids):
                raise unprocessable(f"ids: give 0 to {tokenizer.vocab_size - 1}", "ids")
        return [tokenizer.decode(ids, skip_special_tokens=skip) for ids in lists]

    service.check_tokens(sum(map(len, lists)), "ids")
    with service.admitted(len(lists), "ids"):
        return Reply(await service.in_thread(texts))


GROUP = "text-embeddings-inference"
ENDPOINTS = (
    Endpoint("/embed", EmbedRequest, embed, "Vectors of texts", GROUP),
    Endpoint("/embed_all", EmbedAllRequest, embed_all, "Vectors of tokens", GROUP),
    Endpoint("/embed_sparse", EmbedAllRequest, embed_sparse, "Weights of words", GROUP),
    Endpoint("/similarity", SimilarityRequest, similarity, "Similarities of sentences", GROUP),
    Endpoint("/tokenize", TokenizeRequest, tokenize, "Tokens of texts", GROUP),
    Endpoint("/decode", DecodeRequest, decode, "Texts of token ids", GROUP),
)
