"""What a set of queries is ranked against, the metrics of rankings, and the written files."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bert_jax.config import complete_config
from bert_jax.data.runs import read_run
from bert_jax.errors import OptionError, UserError
from bert_jax.experiment import Experiment
from bert_jax.inference.evaluation import write_result
from bert_jax.metrics.ranking import ranking_metrics
from bert_jax.sharding.mesh import one_device_mesh
from bert_jax.tasks.retrieval.task import DualInteraction

LISTS = [
    {"query": "a cat", "positives": ["the cat sat ."], "negatives": ["the sea was low ."]},
    {"query": "the sea", "positives": ["the sea was low ."], "negatives": ["a dog ran .", "on ."]},
]
CORPUS = {"x": "the cat sat .", "y": "the sea was low .", "z": "a dog ran ."}


def vectors_of(texts):
    """One value for each of a few words, instead of a model's."""
    return [np.float32([word in text for word in ("cat", "sea", "dog")]) + 0.01 for text in texts]


@pytest.fixture
def evaluator(base_model, write_rows):
    """The evaluator of a config with such rows, or of a folder, as validation set."""

    def make(source, **keys):
        path = source if isinstance(source, str) else str(write_rows("v.jsonl", source))
        data = {"train": str(write_rows("train.jsonl", LISTS)), "validation": (path,), **keys}
        config = {"task": "retrieval", "init_from": str(base_model), "data": {"length": 16, **data}}
        return Experiment.from_config(complete_config(config, where="test")).task.evaluator

    return make


@pytest.fixture
def beir(tmp_path):
    """A folder with three documents and two queries, of which one is judged."""
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": id, "title": "", "text": text} for id, text in CORPUS.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"_id": "1", "text": "a cat"}, {"_id": "2", "text": "the sea"}]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "qrels/dev.tsv").write_text("query-id\tcorpus-id\tscore\n1\tx\t2\n1\tz\t1\n1\tw\t1\n")
    return str(folder)


def evaluated(evaluator, tmp_path):
    """The result with the vectors of words, and the run that is written."""
    named = []
    model = SimpleNamespace(mesh=one_device_mesh())

    def predict(predictor, examples, name):
        named.append(name)
        return vectors_of([example.input for example in examples])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DualInteraction, "predictor", lambda *_: None)
        result = evaluator.evaluate(model, predict, with_test=True)
    write_result(tmp_path, evaluator, result)
    return result.metrics, read_run(tmp_path / "validation.run"), named


def test_lists_are_ranked(evaluator, tmp_path):
    metrics, run, named = evaluated(evaluator(LISTS), tmp_path)
    assert metrics["ndcg@10"] == metrics["mrr@10"] == 1.0
    # Equal texts have one id; a query's list alone is ranked.
    assert {query: sorted(scores) for query, scores in run.items()} == {
        "0": ["0", "1"],
        "1": ["1", "2", "3"],
    }
    assert named == ["validation.document", "validation.query"]
    assert (tmp_path / "validation.recall.png").stat().st_size > 1000


def test_grades_between_0_and_1_are_relevant(evaluator, tmp_path):
    row = {"query": "a cat", "documents": ["the cat sat .", "on ."], "labels": [0.4, 0.0]}
    assert evaluated(evaluator([row]), tmp_path)[0]["map"] == 1.0
    assert evaluated(evaluator([row], relevant_from=0.5), tmp_path)[0]["map"] == 0.0


def test_lists_of_positives_alone_are_ranked_among_all(evaluator, tmp_path):
    rows = [row | {"negatives": []} for row in LISTS]
    metrics, run, _ = evaluated(evaluator(rows), tmp_path)
    assert metrics["mrr@10"] == 1.0
    assert {len(scores) for scores in run.values()} == {2}


def test_some_lists_of_positives_alone_do_not_count(evaluator, tmp_path, capsys):
    rows = [{"query": f"a {word}", "positives": ["on ."], "negatives": []} for word in "bcd"]
    wrong = {"query": "a cat", "positives": ["a dog ran ."], "negatives": ["the cat sat ."]}
    made = evaluator([*rows, wrong])
    metrics, run, _ = evaluated(made, tmp_path)
    assert metrics["map"] == made.baselines()["map_bm25"] == 1 / 2
    assert len(run) == 4
    error = capsys.readouterr().err
    assert error.count("validation: 3 of 4 queries have relevant documents alone, and do not") == 1


def test_equal_queries_are_one(evaluator, tmp_path):
    """A document is relevant for a query that has it in another line."""
    rows = [{"query": "a cat", "positive": f"{word} cat"} for word in ("the", "one")]
    made = evaluator([*rows, {"query": "the sea", "positive": "sea ."}])
    metrics, run, _ = evaluated(made, tmp_path)
    assert metrics["ndcg@10"] == metrics["map"] == 1.0
    assert made.sets["validation"].queries == {"0": "a cat", "2": "the sea"}
    assert set(run["0"]) == {"0", "1", "2"}


def test_a_collection_is_searched(evaluator, beir, tmp_path, capsys):
    made = evaluator(beir, metrics=("ndcg@10", "recall@1"))
    made.check()
    assert "1 of 3 judged documents are not in the collection, as 'w': they count" in (
        capsys.readouterr().err
    )
    metrics, run, _ = evaluated(made, tmp_path)
    assert set(run["1"]) == set(CORPUS)  # query 2 has no judgements
    evaluator(beir, metrics=("ndcg@10", "recall@2000")).check()
    assert "validation: recall@2000: a query has at most 1,000 results" in capsys.readouterr().err
    judgements = {"1": {"x": 2, "z": 1, "w": 1}}
    assert metrics == ranking_metrics(judgements, run, ("ndcg@10", "recall@1"))
    assert metrics["recall@1"] == pytest.approx(1 / 3)
    assert made.baselines()["recall@1_bm25"] == pytest.approx(1 / 3)


def test_known_positives_are_searched_in_the_collection(evaluator, beir, tmp_path):
    rows = [{"query": "a cat", "positives": ["x"]}]
    corpus = Path(beir, "corpus.jsonl")
    corpus.write_text(corpus.read_text() + '{"_id": "v", "text": "the cat sat ."}\n')
    made = evaluator(rows, train=f"{beir}/qrels/dev.tsv", corpus=beir)
    _, run, _ = evaluated(made, tmp_path)
    assert set(run["0"]) == {*CORPUS, "v"}
    assert made.sets["validation"].judgements == {"0": {"x": 1, "v": 1}}  # they have equal texts


def test_a_share_of_judged_queries_is_searched_in_their_collection(evaluator, beir, capsys):
    """The judgements are read once; one query of two validates."""
    judged = Path(beir, "qrels/train.tsv")
    judged.write_text("query-id\tcorpus-id\tscore\n1\tx\t1\n2\ty\t1\n3\tz\t0\n")
    keys = {"train": beir, "validation": (), "validation_fraction": 0.5}
    made = evaluator(beir, **keys, require_positive=True)
    assert dict(made.collection) == CORPUS
    assert made.sets["validation"].judgements in ({"1": {"x": 1}}, {"2": {"y": 1}})
    assert capsys.readouterr().err.count("queries without a positive left out: 1") == 1


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"best_metric": "map@3"}, "there is no metric 'map@3', only ndcg@10, map, "),
        ({"metrics": ("ndgc",)}, "^data.metrics is 'ndgc'; one of ndcg, binary_ndcg, map, "),
        ({"metrics": ()}, r"^data.metrics is \(\); name at least one"),
    ],
)
def test_refused_metrics(evaluator, keys, message):
    with pytest.raises(OptionError, match=message):
        evaluator(LISTS, **keys).check()


def test_refused_collections(evaluator, beir, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(beir, other)
    shutil.copy(other / "qrels/dev.tsv", other / "qrels/test.tsv")
    with pytest.raises(OptionError, match="other judges documents of .*other, not of .*beir; give"):
        evaluator(beir, test=(str(other),))
    (other / "corpus.jsonl").write_text('{"_id": "q", "text": "on ."}\n')
    with pytest.raises(UserError, match="validation: 3 of 3 judged documents are not in the coll"):
        evaluator(str(other)).check()
    (other / "corpus.jsonl").write_text('{"_id": "x y", "text": "a"}\n{"_id": "x", "text": "b"}\n')
    with pytest.raises(UserError, match="'x y' cannot be written to a run"):
        evaluator(str(other)).check()
