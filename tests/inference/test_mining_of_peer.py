"""Hard negatives beside those of sentence-transformers, on random texts with random weights."""

import collections
import json
import random
import sys
import types

import pytest

from bert_jax import cli

pytestmark = pytest.mark.slow

sentence_transformers = pytest.importorskip("sentence_transformers")

WORDS = [
    *("the", "cat", "dog", "sat", "ran", "up", "down", "sun", "was", "warm", "long", "low"),
    *("sea", "mat", "tree", "song", "boys", "walked", "to"),
]


class Dataset(dict):
    """What `mine_hard_negatives` uses of the library datasets, which need not be installed."""

    column_names = property(list)
    from_dict = classmethod(lambda cls, columns: cls(columns))

    def __len__(self):
        return len(next(iter(self.values())))

    def to_pandas(self):
        return self

    def groupby(self, name):
        return types.SimpleNamespace(count=lambda: self)

    def to_dict(self):
        """The number of positives of each query."""
        return {"positive": collections.Counter(self["query"])}


@pytest.fixture(scope="module")
def files(tmp_path_factory, make_model):
    """A model with its files for sentence-transformers, queries with positives, documents."""
    draw = random.Random(0)

    def text(low, high):
        return " ".join(draw.choices(WORDS, k=draw.randint(low, high)))

    directory = tmp_path_factory.mktemp("peer")
    make_model("encoder").save(directory / "model")
    make_model("classification", num_labels=1).save(directory / "cross")
    convert = ("convert", "--input", directory / "model", "--output", directory / "cosine")
    assert cli.main([*map(str, convert), "--pooling", "mean", "--similarity", "cosine"]) == 0
    corpus = [*dict.fromkeys(text(3, 9) for _ in range(200))]
    queries = [*dict.fromkeys(text(2, 5) for _ in range(40))]
    rows = [(query, text) for query in queries for text in draw.sample(corpus, draw.randint(1, 3))]
    lines = (json.dumps({"query": query, "positive": text}) for query, text in rows)
    (directory / "train.jsonl").write_text("\n".join(lines))
    lines = (json.dumps({"text": text}) for text in corpus)
    (directory / "corpus.jsonl").write_text("\n".join(lines))
    return directory, rows, corpus


@pytest.fixture(scope="module")
def peer(files):
    return sentence_transformers.SentenceTransformer(str(files[0] / "cosine"), device="cpu")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_negatives": 5, "range_min": 4},
        {"range_min": 3, "range_max": 9, "num_negatives": 6},
        {"relative_margin": 0.002},
        {"relative_margin": 0.005, "range_max": 150},
        {"absolute_margin": 0.01, "range_min": 2, "range_max": 60},
        {"absolute_margin": 0.0, "relative_margin": 0.003, "max_score": 0.98, "range_max": 150},
        {"absolute_margin": 0.0, "min_score": 0.9, "range_max": 150, "num_negatives": 9},
        {"max_score": 0.985, "num_negatives": 4},
        {"min_score": 0.985},
        {"reranker": True, "absolute_margin": 0.0},
        {"reranker": True, "min_score": 0.4, "num_negatives": 2},
    ],
)
def test_the_same_negatives_and_scores(files, peer, options, monkeypatch, tmp_path):
    from sentence_transformers.util import hard_negatives

    directory, rows, corpus = files
    monkeypatch.setattr(hard_negatives, "is_datasets_available", lambda: True)
    library = types.SimpleNamespace(Dataset=Dataset, __version__="0")  # a model card names it
    monkeypatch.setitem(sys.modules, "datasets", library)
    dataset = Dataset(query=[row[0] for row in rows], positive=[row[1] for row in rows])
    options, rescoring = dict(options), {}
    if options.pop("reranker", False):
        cross = sentence_transformers.CrossEncoder(str(directory / "cross"), device="cpu")
        rescoring = {"cross_encoder": cross}
    theirs = hard_negatives.mine_hard_negatives(
        dataset, peer, corpus=corpus, output_scores=True, verbose=False, **options, **rescoring
    )
    expected = collections.defaultdict(dict)
    for query, positive, negative, scores in zip(*theirs.values(), strict=True):
        expected[query] |= {positive: scores[0], negative: scores[1]}
    arguments = ["mine", "--model", directory / "cosine", "--input", directory / "train.jsonl"]
    arguments += ["--collection", directory / "corpus.jsonl", "--output", tmp_path / "mined.jsonl"]
    arguments += ["--reranker", directory / "cross"] if rescoring else []
    for name, value in options.items():
        flag = {"num_negatives": "negatives"}.get(name, name).replace("_", "-")
        arguments += [f"--{flag}", value]
    assert cli.main([*map(str, arguments), "--scores"]) == 0
    records = [json.loads(line) for line in (tmp_path / "mined.jsonl").read_text().splitlines()]
    assert [record["query"] for record in records] == [*expected]
    for record in records:
        texts = record["positives"] + record["negatives"]
        scores = dict(zip(texts, record["scores"], strict=True))
        assert scores == pytest.approx(expected[record["query"]], abs=2e-6)
