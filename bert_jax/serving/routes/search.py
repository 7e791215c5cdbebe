"""Search in the index that a server was started with."""

from collections.abc import Mapping

from pydantic import Field

from bert_jax.errors import UserError
from bert_jax.inference.index import hit_record
from bert_jax.search.searchers import BM25, EXACT
from bert_jax.serving.endpoints import Endpoint, Reply, RequestForm
from bert_jax.serving.errors import RequestError, from_user_error, unprocessable
from bert_jax.serving.service import Predicted, Service

_MOST_HITS = 1000


class SearchRequest(RequestForm):
    """Queries, and how they are searched."""

    queries: list[str]
    top_k: int = Field(10, ge=1, le=_MOST_HITS)
    searcher: str | None = Field(
        None, description="exact, faiss, lance, sparse, maxsim, bm25, or fused"
    )
    prompt: str | None = Field(None, description="name of a prompt of the model, or a text")


async def search(service: Service, body: SearchRequest, path: Mapping[str, str]) -> Reply:
    """For each query the hits that `bert-jax search` writes."""
    index = service.models.index
    if index is None:
        raise RequestError(404, "this server has no index; start it with --index")
    service.check_count(len(body.queries), "queries")
    if f"{EXACT}:" in (body.searcher or ""):  # each value would be a program, which is never freed
        message = f"searcher is {body.searcher!r:.80}; on a server, {EXACT} has no parameters"
        raise unprocessable(message, "searcher")
    predicted = Predicted([])
    if body.searcher == BM25:
        if body.prompt is not None:
            raise unprocessable(f"prompt: {BM25} compares words alone; leave it out", "prompt")
    else:
        try:
            engine = service.models.query_engine(body.prompt)
        except UserError as error:
            raise from_user_error(error, "prompt") from error
        predicted = await service.predict(engine, body.queries, field="queries")
    results = await service.call(
        lambda: index.search(
            body.queries, body.top_k, searcher=body.searcher, predicted=predicted.predictions
        ),
        "queries",
    )
    hits = [
        {"query": query, "hits": [hit_record(hit) for hit in found]}
        for query, found in zip(body.queries, results, strict=True)
    ]
    return Reply({"results": hits}, predicted.cut)


ENDPOINTS = (Endpoint("/search", SearchRequest, search, "Documents of the index", "bert_jax"),)
