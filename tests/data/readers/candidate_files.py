"""Collections, queries and records of files that the readers of candidates read."""

import json


def lines(*objects) -> str:
    return "".join(json.dumps(fields, ensure_ascii=False) + "\n" for fields in objects)


QUERIES = ("queries.tsv", "7\tq\n8\tr\n")
CORPUS = ("corpus.jsonl", lines({"_id": "3", "text": "p", "title": "T"}, {"_id": "4", "text": "n"}))
IDS = {"corpus": "corpus.jsonl", "queries": "queries.tsv"}
