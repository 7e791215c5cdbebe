"""Requests that are wrong in one place: bodies of JSON with one bad value, and what is no JSON."""

import copy
import json
from collections.abc import Iterator
from typing import Any

TEXT = "the [MASK] sat"
GOOD: dict[str, dict[str, Any]] = {
    "/embed": {"inputs": ["a dog"], "normalize": True, "dimensions": 4, "truncate": True},
    "/embed_all": {"inputs": "a dog", "truncation_direction": "Right"},
    "/embed_sparse": {"inputs": "a dog", "prompt_name": "query"},
    "/v1/embeddings": {"input": [[5, 6]], "encoding_format": "base64", "dimensions": 4},
    "/similarity": {"inputs": {"source_sentence": "a", "sentences": ["a dog"]}, "parameters": {}},
    "/tokenize": {"inputs": ["a dog"], "add_special_tokens": True},
    "/decode": {"ids": [[5, 6]], "skip_special_tokens": True},
    "/rerank": {"query": "a", "texts": ["a dog"], "return_text": True, "raw_scores": False},
    "/rank": {"query": "a", "documents": ["a dog"], "top_k": 1, "raw_scores": False},
    "/predict": {"inputs": [["a", "a dog"]], "raw_scores": True},
    "/": {"inputs": TEXT, "parameters": {"top_k": 2}},
    "/pipeline/feature-extraction": {"inputs": "a dog", "prompt_name": "query"},
    "/fill_mask": {"records": [{"id": 7, "text": TEXT}], "options": {"top_k": 2}},
    "/attentions": {"records": ["a dog"], "options": {"layers": [-1]}},
    "/tasks/hidden_states": {"records": [{"text": "a dog"}], "options": {"combine": "sum"}},
    "/search": {"queries": ["a dog"], "top_k": 2, "searcher": "exact"},
}
"""A good body for each route."""

_DEEP = "[" * 5000 + "]" * 5000
_VALUES = (
    *("null", "true", "-1", "0.5", "NaN", "-Infinity", "1e999", "9" * 5000, '""', '"\\ud800"'),
    *("[]", "{}", "[[]]", "[null]", '{"a": 1}', '["a", 5]', _DEEP, '"a\\u0000b"', '"NaN"'),
)
_PLACE = '"<here>"'


def malformed(good: dict[str, Any]) -> Iterator[bytes]:
    """Bodies that differ from a good one in one place; a few of them may be good as well."""
    for marked in _marked(good):
        text = json.dumps(marked)
        yield from (text.replace(_PLACE, value).encode() for value in _VALUES)
        yield text.encode().replace(b"<here>", b"\xff\xfe")
    whole = json.dumps(good).encode()
    yield from (whole[:-1], whole + b"}", whole.replace(b'"', b"'"), b"\xef\xbb\xbf" + whole, b"")
    yield json.dumps({**good, "unknown": 1}).encode()
    yield from (json.dumps(part).encode() for part in _without_each(good))


def _marked(value: Any) -> Iterator[Any]:
    """Copies of a value in which one part, at any depth, is the place of another."""
    yield json.loads(_PLACE)
    keys = range(len(value)) if isinstance(value, list) else value
    for key in keys if isinstance(value, dict | list) else ():
        for part in _marked(value[key]):
            changed = copy.deepcopy(value)
            changed[key] = part
            yield changed


def _without_each(good: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return ({key: good[key] for key in good if key != left_out} for left_out in good)
