"""The options of an index."""

import dataclasses

from bert_jax.data.examples import TITLES
from bert_jax.errors import require_at_least, require_one_of
from bert_jax.models.heads.text_vectors import SIMILARITIES

DTYPES = ("float32", "float16")


@dataclasses.dataclass(frozen=True)
class IndexOptions:
    """How the vectors of an index are made, and what is stored and made beside them.

    Attributes:
        pooling: see `LoadedModel.embed`; for documents and queries.
        prompt: of the documents, see `LoadedModel.embed`; None: the model's prompt "document",
            "passage" or "corpus", or its default.
        similarity: "cosine", "dot", "euclidean" or "manhattan"; None: as the model's files say, the
            only one of sparse vectors and of vectors of tokens. Vectors that are compared by the
            cosine are stored with length 1.
        max_length: maximum number of tokens of a document.
        dtype: "float32", or "float16", half the space.
        store_texts: whether hits have their texts.
        passages: documents are cut into passages of so many words, and these are indexed; the
            first of "d" has the id "d#0". DPR's have 100. None: documents stay whole.
        titles: "join", "pair" or "omit": how the title of a document is read, see
            `data.examples.with_title`.
        faiss: an index of FAISS that is made of the vectors: "Flat", or another one, as
            "IVF1024,PQ48", which FAISS makes in memory; None: "Flat", or what a finished index
            has; "": none. Of vectors of tokens, it finds candidates, and None is none.
        bm25: also an index of words, of a language such as "english"; in memory. "": all
            words as they are. Parameters follow it, as in "english:k1=1.2,b=0.75". None: none, or
            what a finished index has.
        lance: whether a table of LanceDB is made of them, for more than fits in memory.
    """

    pooling: str | None = None
    prompt: str | None = None
    similarity: str | None = None
    max_length: int | None = None
    dtype: str = "float32"
    store_texts: bool = True
    passages: int | None = None
    titles: str = "join"
    faiss: str | None = None
    bm25: str | None = None
    lance: bool = False

    def __post_init__(self) -> None:
        require_one_of("similarity", self.similarity or "", ("", *SIMILARITIES))
        require_one_of("dtype", self.dtype, DTYPES)
        require_at_least("passages", self.passages, 1)
        require_one_of("titles", self.titles, TITLES)
