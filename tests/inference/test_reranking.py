"""`bert-jax rerank`: runs and training files from a model's scores."""

import json

import pytest

import bert_jax
from bert_jax import cli
from bert_jax.data.readers.ranking import read_candidates
from bert_jax.data.runs import read_run
from bert_jax.inference import ranking, reranking
from bert_jax.inference.reranking import FirstSearch
from bert_jax.metrics.ranking import ranking_metrics

DOCUMENTS = {
    "d1": "it was warm .",
    "d2": "the cat sat down on the mat .",
    "d3": "the dog ran to the tree .",
    "d4": "a song was sung .",
}
QUERIES = {"q1": "the cat sat .", "q2": "it was a song"}
RUN = {"q1": ["d1", "d3", "d2"], "q2": ["d4", "d1"]}
GRADES = {"q1": {"d2": 2, "d1": 1}, "q2": {"d4": 1}}


@pytest.fixture(scope="module")
def directories(make_model, tmp_path_factory):
    """A cross-encoder and an encoder."""
    path = tmp_path_factory.mktemp("models")
    make_model("classification", num_labels=1).save(path / "cross")
    make_model("encoder").save(path / "encoder")
    return path


@pytest.fixture
def rerank(directories, tmp_path, capsys):
    """Runs the verb on the results above; the exit code, stdout and stderr."""
    corpus = ({"_id": id, "title": "", "text": text} for id, text in DOCUMENTS.items())
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in corpus))
    (tmp_path / "queries.tsv").write_text("".join(f"{id}\t{q}\n" for id, q in QUERIES.items()))
    lines = (
        f"{query} Q0 {id} {rank} {10 - rank} first\n"
        for query, ids in RUN.items()
        for rank, id in enumerate(ids, 1)
    )
    (tmp_path / "first.run").write_text("".join(lines))
    grades = (f"{q} 0 {id} {grade}\n" for q, of in GRADES.items() for id, grade in of.items())
    (tmp_path / "qrels.txt").write_text("".join(grades))

    def run(output, *options, model="cross", first=True):
        files = {"--run": "first.run", "--queries": "queries.tsv", "--documents": "corpus.jsonl"}
        files = {flag: tmp_path / name for flag, name in files.items() if first}
        arguments = [word for pair in files.items() for word in pair]
        arguments += ["--model", directories / model, "--output", tmp_path / output, *options]
        code = cli.main(["rerank", *map(str, arguments)])
        return code, *capsys.readouterr()

    return run


@pytest.mark.parametrize("model", ["cross", "encoder"])
@pytest.mark.slow
def test_a_run_in_a_new_order_with_its_metrics(rerank, directories, tmp_path, model):
    ranking.say_by_vectors.cache_clear()
    options = ("--judgements", tmp_path / "qrels.txt", "--metrics", "ndcg@10,map")
    code, out, err = rerank("new.RUN", *options, model=model)
    assert (code, "new.RUN: 2 queries" in err) == (0, True)
    assert ("the model is no cross-encoder: " in err) == (model == "encoder")
    run = read_run(tmp_path / "new.RUN")
    loaded = bert_jax.load(directories / model)
    for query, ids in RUN.items():
        matches = loaded.rank(QUERIES[query], [DOCUMENTS[id] for id in ids])
        assert run[query] == pytest.approx(
            {ids[match.index]: match.score for match in matches}, rel=1e-5
        )
    lines = (tmp_path / "new.RUN").read_text().splitlines()
    assert [line.split()[3] for line in lines] == ["1", "2", "3", "1", "2"]
    assert json.loads(out.splitlines()[-1]) == ranking_metrics(GRADES, run, ("ndcg@10", "map"))


def test_the_first_results_alone(rerank, tmp_path):
    assert rerank("new.run", "--top-k", "2")[0] == 0
    run = read_run(tmp_path / "new.run")
    assert {query: set(scores) for query, scores in run.items()} == {
        "q1": {"d1", "d3"},
        "q2": {"d4", "d1"},
    }


@pytest.mark.slow
def test_scores_of_a_teacher_for_a_training(rerank, directories, tmp_path):
    """One command from the results of a search to the file of Margin-MSE."""
    options = ("--judgements", tmp_path / "qrels.txt", "--raw-scores")
    code, out, _ = rerank("scores.jsonl", *options)
    assert code == 0
    examples = list(read_candidates(tmp_path / "scores.jsonl"))
    model = bert_jax.load(directories / "cross")
    assert [example.id for example in examples] == ["q1", "q2"]
    assert examples[0].input.documents == tuple(DOCUMENTS[id] for id in ("d2", "d1", "d3"))
    assert examples[0].label.grades == (2, 1, 0)
    for example in examples:
        pairs = [(example.input.query, text) for text in example.input.documents]
        expected = model.classify(pairs, raw_scores=True)
        assert example.label.scores == pytest.approx(expected, rel=1e-5)
    assert set(json.loads(out.splitlines()[-1])) >= {"ndcg@10", "map"}


def test_a_training_file_gets_scores(rerank, tmp_path):
    row = {"query": "the cat", "positives": ["sat"], "negatives": ["ran up", "it"]}
    row["scores"] = [1, 2, 3]
    (tmp_path / "train.jsonl").write_text(json.dumps(row) + "\n")
    assert rerank("scored.jsonl", "--input", tmp_path / "train.jsonl", first=False)[0] == 0
    before, after = (
        list(read_candidates(tmp_path / name)) for name in ("train.jsonl", "scored.jsonl")
    )
    assert [example.input for example in before] == [example.input for example in after]
    assert before[0].label.grades == after[0].label.grades
    assert before[0].label.scores != after[0].label.scores


def test_labels_stay_and_lists_without_them_get_none(rerank, tmp_path):
    rows = [
        {"query": "the cat", "documents": ["sat", "it"], "labels": [2, 1]},
        {"query": "the cat", "positives": ["sat", "it"]},
        {"query": "the cat", "documents": ["sat", "it"]},
        {"query": "the cat", "documents": ["sat", "it"], "labels": [0, 0]},
    ]
    (tmp_path / "lists.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert rerank("scored.jsonl", "--input", tmp_path / "lists.jsonl", first=False)[0] == 0
    lines = (tmp_path / "scored.jsonl").read_text().splitlines()
    assert [json.loads(line).get("labels") for line in lines] == [[2, 1], [1, 1], None, None]
    grades = [each.label.grades for each in read_candidates(tmp_path / "scored.jsonl")]
    assert grades == [(2, 1), (1, 1), (0, 0), (0, 0)]  # as they were, and unknown


@pytest.mark.parametrize("model", ["cross", "encoder"])
def test_a_stopped_command_continues(rerank, directories, tmp_path, monkeypatch, model):
    monkeypatch.setattr(ranking, "_DOCUMENTS", 2)
    assert rerank("whole.jsonl", model=model)[0] == 0
    names = {"queries": "queries.tsv", "documents": "corpus.jsonl", "run": "first.run"}
    source = FirstSearch(**{key: tmp_path / name for key, name in names.items()})
    loaded = bert_jax.load(directories / model)
    target, calls = tmp_path / "stopped.jsonl", []
    with pytest.raises(KeyboardInterrupt):  # after the first query
        reranking.rerank(loaded, source, target, {}, lambda: calls.append(1) or len(calls) > 2)
    assert not target.exists()
    assert reranking.rerank(loaded, source, target, {}) == 2
    assert target.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_judgements_that_do_not_fit_the_run(rerank, tmp_path):
    options = ("--top-k", 1, "--judgements", tmp_path / "qrels.txt", "--metrics", "recall@2")
    assert "recall@2: a query has at most 1 results\n" in rerank("new.run", *options)[2]
    (tmp_path / "qrels.txt").write_text("q1 0 other 1\n")
    code, _, err = rerank("new.run", *options)
    assert (code, "no document with a judgement, as 'other', is searched" in err) == (2, True)


def test_metrics_of_results_from_stdin_and_of_a_file_alone(rerank, tmp_path, monkeypatch):
    judgements = ("--judgements", tmp_path / "qrels.txt")
    expected = rerank("file.run", *judgements)[1]
    with (tmp_path / "first.run").open() as first:
        monkeypatch.setattr("sys.stdin", first)
        assert rerank("stdin.run", *judgements, "--run", "-")[:2] == (0, expected)
    for output in ("-", "/dev/null"):
        code, out, err = rerank("", *judgements, "--output", output)
        line = f"--output is '{output}'; it is read again for --judgements; give a file"
        assert (code, out, line in err) == (2, "", True)


def test_refused_requests(rerank, tmp_path):
    (tmp_path / "train.jsonl").write_text('{"query": "a", "positive": "b"}\n')
    source = ("--input", tmp_path / "train.jsonl")
    for problem, output, options, first in (
        ("a run needs ids of documents", "new.run", source, False),
        ("give --queries, --documents and --run", "new.run", (), False),
        ("give --queries, --documents and --run", "new.jsonl", source, True),
        ("--top-k is 0; it must be at least 1", "new.run", ("--top-k", 0), True),
        ("has no such option", "new.run", ("--option", "ranks=1"), True),
        ("--max-length is '9'; it is set", "new.run", ("--option", "max_length=9"), True),
    ):
        code, _, err = rerank(output, *options, first=first)
        assert (code, problem in err) == (2, True), err
    code, _, err = rerank("new.run", "--raw-scores", model="encoder")
    assert (code, "--raw-scores is True; vectors have no activation; leave it" in err) == (2, True)
    (tmp_path / "nothing.jsonl").write_text('{"query": "a", "documents": []}\n')
    code, _, err = rerank("x.jsonl", "--input", tmp_path / "nothing.jsonl", first=False)
    assert (code, "the query has no documents; give one or more" in err) == (2, True), err
    with (tmp_path / "first.run").open("a") as file:
        file.write("q2 Q0 d9 3 1.0 first\n")
    code, _, err = rerank("new.run")
    assert code == 2
    assert "first.run: " in err
    assert "corpus.jsonl has no document 'd9'; give the files that the run was made from" in err
    (tmp_path / "first.run").write_text("")
    code, _, err = rerank("new.run")
    assert (code, "first.run is empty; give the results of a search" in err) == (2, True)
    assert not (tmp_path / "new.run").exists()
