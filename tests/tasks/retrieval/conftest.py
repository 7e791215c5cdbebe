"""Queries in which the relevant document can be seen by its noun."""

import random

import pytest

NOUNS = ("cat", "dog", "bird", "boy", "mat", "tree", "song", "sun", "sea", "shell")


@pytest.fixture(scope="session")
def make_queries():
    """Makes queries about a thing, each with a text about it, and texts about others."""

    def make(count, seed=0, negatives=1):
        draw = random.Random(seed)
        rows = []
        for _ in range(count):
            noun, *others = draw.sample(NOUNS, 1 + negatives)
            state = draw.choice(["warm", "long", "low"])
            rows.append({
                "query": f"it was a {noun}",
                "positives": [f"the {noun} was {state} ."],
                "negatives": [f"the {other} was {state} ." for other in others],
            })  # fmt: skip
        return rows

    return make
