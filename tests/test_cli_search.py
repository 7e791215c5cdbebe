"""The verbs of a collection: index, search."""

import json
import shutil

import pytest

import bert_jax
from bert_jax import cli
from bert_jax.tasks.base.text_rows import TextPredictor

DOCUMENTS = [
    {"_id": "a", "title": "the cat", "text": "sat down"},
    {"_id": "b", "text": "the dog ran up"},
    {"_id": "c", "text": "the sun was warm"},
]
TEXTS = {"a": "the cat sat down", "b": "the dog ran up", "c": "the sun was warm"}


@pytest.fixture(scope="module")
def files(tmp_path_factory, make_model):
    """A model, a folder as BEIR's, and the index of its documents."""
    directory = tmp_path_factory.mktemp("collection")
    make_model("encoder").save(directory / "model")
    write = {"corpus.jsonl": DOCUMENTS, "queries.jsonl": [{"_id": "q1", "text": "the cat"}]}
    for name, rows in write.items():
        (directory / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (directory / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tb\t2\nq2\tc\t1\n")
    arguments = ["index", "--model", directory / "model", "--input", directory]
    assert cli.main([str(each) for each in (*arguments, "--output", directory / "index")]) == 0
    return directory


@pytest.fixture
def search(files):
    """Searches the index; returns the exit code."""

    def run(*arguments):
        return cli.main(["search", "--index", str(files / "index"), *map(str, arguments)])

    return run


def ranking(files, query):
    """The documents by the cosine of their vectors and of the query's."""
    model = bert_jax.load(files / "model")
    scores = model.similarity([query], TEXTS.values())[0].tolist()
    return sorted(zip(TEXTS, scores, strict=True), key=lambda pair: -pair[1])


@pytest.mark.slow
def test_two_indexes_are_fused(files, search, make_model, tmp_path, capsys):
    make_model("masked_lm").save(tmp_path / "model")
    model = bert_jax.load(tmp_path / "model")
    other = model.index(list(TEXTS.values()), list(TEXTS), path=tmp_path / "other")
    first = bert_jax.Index.load(files / "index")
    assert search("--index", other.directory, "--text", "the cat", "--top-k", 2) == 0
    (record,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (expected,) = bert_jax.fuse_hits([each.search(["the cat"], 3) for each in (first, other)], 2)
    assert [hit["id"] for hit in record["hits"]] == [hit.id for hit in expected]


def test_options_of_a_single_index(files, search, capsys):
    assert search("--index", files / "index", "--text", "a", "--searcher", "bm25") == 2
    message = "--searcher is 'bm25'; it is for a single --index; leave it out\n"
    assert capsys.readouterr().err.endswith(message)


def test_hits_of_texts_are_json_lines(files, search, capsys):
    assert search("--text", "the cat", "--text", "a dog", "--top-k", 2) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(record["id"], record["query"]) for record in records] == [
        ("0", "the cat"),
        ("1", "a dog"),
    ]
    for record in records:
        expected = ranking(files, record["query"])[:2]
        assert [hit["id"] for hit in record["hits"]] == [name for name, _ in expected]
        texts = [f"{hit.get('title', '')} {hit['text']}".strip() for hit in record["hits"]]
        assert texts == [TEXTS[name] for name, _ in expected]
        scores = [hit["score"] for hit in record["hits"]]
        assert scores == pytest.approx([score for _, score in expected], abs=1e-6)


def test_many_queries_of_stored_vectors(search, monkeypatch, capsys, tmp_path):
    """The documents are not embedded again."""
    encoded, encode = [], TextPredictor.encode

    def recorded(self, texts):
        encoded.extend(texts)
        return encode(self, texts)

    monkeypatch.setattr(TextPredictor, "encode", recorded)
    (tmp_path / "queries.txt").write_text("the cat\na dog\nthe sun\n")
    assert search("--input", tmp_path / "queries.txt", "--top-k", 1) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["id"], each["query"]) for each in records] == [
        ("0", "the cat"),
        ("1", "a dog"),
        ("2", "the sun"),
    ]
    assert encoded == ["the cat", "a dog", "the sun"]


def test_a_run_is_written_and_judged(files, search, capsys, tmp_path):
    arguments = ["--input", files, "--output", tmp_path / "q.run", "--judgements", files]
    assert search(*arguments, "--metrics", "mrr,recall@2,precision@1") == 0
    order = [name for name, _ in ranking(files, "the cat")]
    rank = 1 + order.index("b")
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {
        "mrr": 1 / rank / 2,  # the other judged query was not searched for
        "recall@2": (rank <= 2) / 2,
        "precision@1": (rank == 1) / 2,
    }
    assert "judgements that are not in the input, which count as 0: 1\n" in captured.err
    assert (tmp_path / "q.recall.png").read_bytes().startswith(b"\x89PNG")
    columns = [line.split() for line in (tmp_path / "q.run").read_text().splitlines()]
    assert [column[:4] for column in columns] == [
        ["q1", "Q0", name, str(number)] for number, name in enumerate(order, 1)
    ]


def test_judgements_of_other_ids_are_refused(files, refused, tmp_path):
    (tmp_path / "qrels").write_text("0 0 doc-b 1\n0 0 doc-c 1\n")
    search = ("search", "--index", files / "index", "--output", tmp_path / "q.run", "--judgements")
    line = refused(*search, tmp_path / "qrels", "--text", "the cat")
    assert "no document with a judgement, as 'doc-b', is searched; give judgements and" in line
    line = refused(*search, files / "qrels.tsv", "--text", "the cat")
    assert (
        "the input has none of the queries with judgements, as 'q1', but has '0'; give judg" in line
    )
    assert not (tmp_path / "q.run").exists()


def test_a_metric_of_more_documents_than_a_query_has(files, search, capsys):
    names = "recall@2,recall@3,map"
    assert search("--input", files, "--judgements", files, "--top-k", 2, "--metrics", names) == 0
    assert "recall@3: a query has at most 2 results\n" in capsys.readouterr().err


def test_documents_in_passages_are_judged_by_the_best_one(files, capsys, tmp_path):
    """A run, which other programs judge and `rerank` reads, has documents, too."""
    index = ("index", "--model", files / "model", "--input", files, "--passages", 1)
    assert cli.main([*map(str, index), "--output", str(tmp_path / "index")]) == 0
    how = ("search", "--index", tmp_path / "index", "--input", files, "--judgements", files)
    output = tmp_path / "q.run"
    assert cli.main([*map(str, how), "--metrics", "mrr", "--output", str(output)]) == 0
    columns = [line.split() for line in output.read_text().splitlines()]
    assert sorted(column[2] for column in columns) == ["a", "b", "c"]
    hits = bert_jax.Index.load(tmp_path / "index").search(["the cat"], 99)[0]
    best = {name: max(h.score for h in hits if h.document == name) for name in "abc"}
    assert {column[2]: float(column[4]) for column in columns} == best
    rank = 1 + sorted(best, key=lambda name: (best[name], name), reverse=True).index("b")
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"mrr": 1 / rank / 2}


def test_documents_are_added_with_the_options_of_the_index(files, tmp_path, capsys, refused):
    (tmp_path / "documents.tsv").write_text("id\ttext\nd\ta sea\n")
    adds = ["index", "--add", "--input", tmp_path / "documents.tsv", "--output", files / "index"]
    line = refused(*adds, "--faiss", "IVF2,Flat")
    assert "--faiss is 'IVF2,Flat'; an index that documents are added to keeps its own" in line
    assert "--no-texts is False; an index that" in refused(*adds, "--no-texts")
    assert cli.main(list(map(str, adds))) == 0
    assert json.loads(capsys.readouterr().out) == {"documents": 4}
    assert "the id 'd' is of another document, too; give each document its own id" in refused(*adds)


def test_an_index_is_changed_without_its_collection(files, tmp_path, capsys, refused):
    arguments = ["index", "--model", files / "model", "--input", files, "--output", tmp_path / "i"]
    assert cli.main(list(map(str, (*arguments, "--passages", "2")))) == 0
    assert json.loads(capsys.readouterr().out) == {"passages": 5}
    index = ["index", "--output", tmp_path / "i"]
    line = refused(*index, "--model", files / "model")
    assert "/model'; it is for documents; give --input" in line
    line = refused(*index, "--id-column", "x")
    assert "--id-column is 'x'; it is for documents; give --input" in line
    assert "--input is None; give the documents to --add" in refused(*index, "--add")
    assert cli.main(list(map(str, (*index, "--bm25")))) == 0
    assert json.loads(capsys.readouterr().out) == {"passages": 5}
    (tmp_path / "ids").write_text("b\n\nc\n\n")
    deletion = [*index, "--delete", tmp_path / "ids"]
    line = refused(*deletion, "--lance")
    assert "--lance is True; it does not go with --delete; leave it out" in line
    assert cli.main(list(map(str, deletion))) == 0
    assert json.loads(capsys.readouterr().out) == {"passages": 1}
    assert "has no document b, c" in refused(*deletion)
    found = ["search", "--index", tmp_path / "i", "--text", "sat down", "--searcher", "bm25"]
    assert cli.main(list(map(str, found))) == 0
    captured = capsys.readouterr()
    assert [hit["id"] for hit in json.loads(captured.out)["hits"]] == ["a#0"]
    assert "queries" not in captured.err


@pytest.mark.slow
def test_documents_are_added_to_an_index_whose_model_was_moved(files, tmp_path, capsys, refused):
    model = shutil.copytree(files / "model", tmp_path / "model")
    index = ["index", "--output", tmp_path / "i", "--input", files]
    assert cli.main(list(map(str, (*index, "--model", model, "--precision", "bfloat16")))) == 0
    moved = model.rename(tmp_path / "moved")
    (tmp_path / "documents.tsv").write_text("id\ttext\nd\ta sea\n")
    adds = [*index[:-1], tmp_path / "documents.tsv", "--add"]
    capsys.readouterr()
    line = refused(*adds)
    assert f"i: {model} does not exist; give a model directory or a hub id; " in line
    assert line.endswith("; if it was moved, give --model\n")
    assert cli.main(list(map(str, (*adds, "--model", moved)))) == 0
    assert json.loads(capsys.readouterr().out) == {"documents": 4}
    other = tmp_path / "other"
    bert_jax.load(moved).add_words(["zebra"]).save(other)
    line = refused(*adds, "--model", other)
    assert f"i was made by another model; give the same model, {model}, or make a new" in line


def test_bad_use_is_one_line(files, refused, tmp_path):
    search = ["search", "--index", files / "index", "--text", "the cat"]
    assert "--metrics is 'f1'; one of ndcg," in refused(*search, "--metrics", "f1")
    line = refused(*search, "--metrics", "mrr")
    assert "--metrics is 'mrr'; it is for --judgements; give them, or leave it out" in line
    line = refused(*search, "--relevant-from", 2)
    assert "--relevant-from is 2; it is for --judgements; give them, or leave it out" in line
    line = refused(*search, "--precision", "bfloat16")
    assert "--precision is 'bfloat16'; it is for models that are given, as --model; give" in line
    answer = ["answer", "--index", files / "index", "--question", "the cat", "--max-length", 9]
    assert "--max-length is 9; it is for a --reader; give one, or leave it out" in refused(*answer)
    assert "--top-k is 0; it must be at least 1" in refused(*search, "--top-k", "0")
    assert "another {searcher}" not in refused(*search, "--searcher", "lance")
    line = refused(*search, "--searcher", "faiss:foo=1")
    assert "FAISS refuses 'faiss:foo=1': " in line
    assert "; give a parameter of this index, such as faiss:nprobe=32" in line
    index = ["index", "--input", files, "--output", tmp_path / "index"]
    assert "there is no model of the documents; give --model" in refused(*index)
    other = ["index", "--input", files, "--model", files / "model", "--output", files / "index"]
    line = refused(*other, "--dtype", "float16", "--no-texts")
    assert "is an index with other options; give the same --dtype, --no-texts, or another" in line
    files_own = files / "qrels.tsv"
    line = refused(*other[:-1], files_own)
    assert f"{files_own} is a file; give a directory" in line


def test_ids_with_blanks_are_refused_before_a_run_is_searched(files, refused, tmp_path):
    (tmp_path / "queries.jsonl").write_text('{"_id": "q 1", "text": "the cat"}\n')
    (tmp_path / "index").mkdir()  # no index: nothing is searched
    search = ("search", "--index", tmp_path / "index", "--input", tmp_path / "queries.jsonl")
    line = refused(*search, "--output", tmp_path / "q.run")
    assert "'q 1' cannot be written to a run, whose columns have blanks between them; ren" in line


@pytest.mark.parametrize("flag", ["--input", "--judgements"])
def test_an_input_is_not_the_output(files, refused, tmp_path, flag):
    for name in ("queries.jsonl", "qrels.tsv"):
        (tmp_path / name).write_bytes((files / name).read_bytes())
    inputs = {"--input": tmp_path / "queries.jsonl", "--judgements": tmp_path / "qrels.tsv"}
    content = inputs[flag].read_bytes()
    pairs = [part for pair in inputs.items() for part in pair]
    line = refused("search", "--index", files / "index", *pairs, "--output", inputs[flag])
    assert f"{inputs[flag]} is input and output; give another output" in line
    assert inputs[flag].read_bytes() == content


def test_only_own_files_are_replaced(search, refused, files, tmp_path, capsys):
    output = ("--text", "the cat", "--output", tmp_path / "hits.jsonl")
    for _ in range(2):
        assert search(*output) == 0
    capsys.readouterr()
    (tmp_path / "hits.jsonl").write_text("mine")
    line = refused("search", "--index", files / "index", *output)
    assert "hits.jsonl was changed since bert_jax wrote it; move it away, or write els" in line
    (tmp_path / "bert_jax.json").unlink()
    assert "hits.jsonl was not written by bert_jax" in refused(
        "search", "--index", files / "index", *output
    )
    assert (tmp_path / "hits.jsonl").read_text() == "mine"


def test_only_an_own_picture_is_replaced(search, refused, files, tmp_path, capsys):
    judged = ("--input", files, "--output", tmp_path / "q.run", "--judgements", files)
    for _ in range(2):
        assert search(*judged) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"bert_jax.json", "q.recall.png", "q.run"}
    (tmp_path / "q.run").unlink()
    (tmp_path / "q.recall.png").write_text("mine")
    capsys.readouterr()
    line = refused("search", "--index", files / "index", *judged)
    assert "q.recall.png was changed since bert_jax wrote it; move it away, or write els" in line
    assert not (tmp_path / "q.run").exists()
