"""`bert-jax mine`: from queries with positives to files to train on."""

import json

import numpy as np
import pytest

import bert_jax
from bert_jax import cli
from bert_jax.config import complete_config, set_keys
from bert_jax.data.readers.ranking import read_candidates
from bert_jax.experiment import Experiment
from bert_jax.inference import mining

TEXTS = [
    *("the cat sat down", "the dog ran up", "the sun was warm", "a sea", "one found a shell ."),
    *("the boys walked to the sea .", "the mat was warm", "a tree", "the dog sat", "it was low"),
    *("a song was sung .", "it was long and warm"),
]
QUERIES = {"a cat sat": [0], "the dog": [1, 8], "was it warm": [2], "a song": [10]}


@pytest.fixture(scope="module")
def files(tmp_path_factory, make_model):
    """Models, queries, and documents with ids."""
    directory = tmp_path_factory.mktemp("mining")
    make_model("encoder").save(directory / "encoder")
    make_model("classification", num_labels=1).save(directory / "cross")
    rows = [
        {"query": query, "positive": [TEXTS[number] for number in numbers]}
        for query, numbers in QUERIES.items()
    ]
    write(directory / "train.jsonl", rows)
    write(directory / "corpus.jsonl", ({"_id": f"d{n}", "text": t} for n, t in enumerate(TEXTS)))
    return directory


@pytest.fixture
def mine(files, tmp_path, capsys):
    """Runs the verb; the records of the output, and the last line; `err` has what it says."""

    def run(*options, collection="corpus.jsonl", model="encoder", source=files / "train.jsonl"):
        options += ("--collection", files / collection) if collection else ()
        options += ("--model", files / model) if model else ()
        arguments = ("--input", source, "--output", tmp_path / "mined.jsonl", *options)
        assert cli.main(["mine", *map(str, arguments)]) == 0
        lines = (tmp_path / "mined.jsonl").read_text().splitlines()
        out, run.err = capsys.readouterr()
        return list(map(json.loads, lines)), json.loads(out.splitlines()[-1])

    return run


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def expected(files, query, known, keep=lambda score, positive: True):
    """The other texts by the cosine of the vectors, and all scores."""
    model = bert_jax.load(files / "encoder")
    scores = dict(zip(TEXTS, model.similarity([query], TEXTS)[0].tolist(), strict=True))
    lowest = min(scores[text] for text in known)
    others = [text for text in TEXTS if text not in known and keep(scores[text], lowest)]
    return sorted(others, key=lambda text: -scores[text]), scores


def test_the_nearest_documents_that_are_not_positives(files, mine, monkeypatch):
    monkeypatch.setattr(mining, "_QUERIES", 3)  # two blocks
    records, summary = mine("--scores")
    assert [record["query"] for record in records] == [*QUERIES]
    for record, (query, numbers) in zip(records, QUERIES.items(), strict=True):
        positives = [TEXTS[number] for number in numbers]
        negatives, scores = expected(files, query, positives)
        assert record["positives"] == positives
        assert record["negatives"] == negatives[:3]
        texts = [*positives, *negatives[:3]]
        assert record["scores"] == pytest.approx([scores[text] for text in texts], abs=1e-6)
    known = summary.pop("dropped")["known"]
    counts = {"queries": 4, "negatives": 12, "fewer": 0, "without": 0}
    assert json.dumps(summary) == json.dumps(counts)  # where 0 and false differ
    assert 0 < known <= 5  # positives among the best 7


def test_margins_and_queries_with_fewer_negatives_or_none(files, mine):
    records, summary = mine("--absolute-margin", "0.02", "--negatives", "11", "--range-max", "12")
    by_query = {record["query"]: record["negatives"] for record in records}
    dropped = 0
    for query, numbers in QUERIES.items():
        positives = [TEXTS[number] for number in numbers]
        negatives, _ = expected(files, query, positives, lambda s, p: s + 0.02 <= p)
        assert by_query.get(query, []) == negatives
        dropped += len(TEXTS) - len(positives) - len(negatives)
    assert summary["dropped"] == {"known": 5, "absolute_margin": dropped}
    counts = [len(by_query.get(query, [])) for query in QUERIES]
    assert summary["without"] == counts.count(0)
    assert summary["fewer"] == sum(0 < count < 11 for count in counts) > 0


def test_an_index_gives_the_same(files, mine, tmp_path):
    index = ("index", "--model", files / "encoder", "--input", files / "corpus.jsonl")
    assert cli.main([*map(str, index), "--output", str(tmp_path / "index"), "--bm25"]) == 0
    mined, _ = mine("--relative-margin", "0.01", "--scores")
    of_index = ("--index", tmp_path / "index")
    options = (*of_index, "--relative-margin", "0.01", "--scores")
    again, _ = mine(*options, collection=None, model=None)
    assert [record["negatives"] for record in again] == [record["negatives"] for record in mined]
    for record, other in zip(mined, again, strict=True):
        assert record["scores"] == pytest.approx(other["scores"], abs=1e-6)
    words, _ = mine("--searcher", "bm25", model=None)
    assert words == mine(*of_index, "--searcher", "bm25", collection=None, model=None)[0]


def test_words_find_negatives_without_a_model(mine):
    """Texts with the word of the query alone; of the song, that is the positive."""
    records, summary = mine("--searcher", "bm25", model=None)
    assert "queries with none, left out: 2\ncandidates left out: known 5\n" in mine.err
    assert {record["query"]: record["negatives"] for record in records} == {
        "a cat sat": ["the dog sat"],
        "was it warm": ["the mat was warm", "it was long and warm"],
    }
    assert (summary["fewer"], summary["without"]) == (2, 2)


@pytest.mark.slow
def test_the_positives_of_all_queries_are_the_documents_by_default(mine):
    records, _ = mine("--negatives", "9", collection=None)
    texts = {TEXTS[number] for numbers in QUERIES.values() for number in numbers}
    for record in records:
        assert {*record["positives"], *record["negatives"]} == texts


@pytest.mark.slow
def test_a_cross_encoder_drops_what_may_be_relevant(files, mine):
    """Its scores replace the vectors': in the rules, in the order and in the file."""
    records, summary = mine(
        "--reranker", files / "cross", "--absolute-margin", "0", "--range-max", "12",
        "--negatives", "5", "--scores", "--raw-scores",
    )  # fmt: skip
    model, dropped = bert_jax.load(files / "cross"), 0
    by_query = {record["query"]: record for record in records}
    for query, numbers in QUERIES.items():
        pairs = [(query, text) for text in TEXTS]
        scores = dict(zip(TEXTS, model.classify(pairs, raw_scores=True), strict=True))
        positives = [TEXTS[number] for number in numbers]
        lowest = min(scores[text] for text in positives)
        others = [text for text in TEXTS if text not in positives]
        kept = [text for text in others if scores[text] <= lowest]
        dropped += len(others) - len(kept)
        negatives = sorted(kept, key=lambda text: -scores[text])[:5]
        if negatives:
            texts = [*positives, *negatives]
            assert by_query[query]["negatives"] == negatives
            assert by_query[query]["scores"] == pytest.approx([scores[t] for t in texts], rel=1e-5)
        else:
            assert query not in by_query
    assert summary["dropped"]["absolute_margin"] == dropped > 0


def test_what_the_file_says_is_kept(mine, tmp_path):
    """Known negatives stay and are not mined again, grades stay, equal queries become one."""
    rows = [
        {"query": "the dog", "documents": [TEXTS[2], TEXTS[1]], "labels": [0, 2]},
        {"query": "the dog", "documents": [TEXTS[8], TEXTS[1]], "labels": [1, 2]},
    ]
    (record,), _ = mine("--negatives", "9", source=write(tmp_path / "graded.jsonl", rows))
    assert record["documents"][:4] == [TEXTS[1], TEXTS[8], TEXTS[2], record["documents"][3]]
    assert record["labels"] == [2, 1, 0] + [0] * 9
    assert sorted(record["documents"]) == sorted(TEXTS)
    (example,) = read_candidates(tmp_path / "mined.jsonl")
    assert example.label.grades == (2, 1, *[0] * 10)


def test_judged_documents_of_a_folder_with_titles(mine, tmp_path):
    documents = [("cat", "a cat sat"), ("dog", "the cat ran"), ("", "one cat"), ("", " ")]
    rows = ({"_id": f"d{n}", "title": a, "text": b} for n, (a, b) in enumerate(documents))
    write(tmp_path / "corpus.jsonl", rows)
    write(tmp_path / "queries.jsonl", [{"_id": "q", "text": "the cat"}])
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\td0\t1\n")
    options = ("--collection", tmp_path, "--searcher", "bm25", "--option", "empty=skip")
    how = {"collection": None, "model": None, "source": tmp_path}
    (record,), _ = mine(*options, **how)
    assert (record["id"], record["positives"]) == ("q", ["cat a cat sat"])
    assert sorted(record["negatives"]) == ["dog the cat ran", "one cat"]
    (record,), _ = mine(*options, "--option", "titles=pair", **how)
    assert record["positives"] == [{"title": "cat", "text": "a cat sat"}]
    assert {"title": "dog", "text": "the cat ran"} in record["negatives"]


def test_passages_of_a_positive_are_no_negatives(files, mine, tmp_path):
    documents = [{"_id": "long", "text": " ".join(TEXTS[:3])}, {"_id": "sea", "text": TEXTS[5]}]
    write(tmp_path / "long.jsonl", documents)
    index = ("index", "--model", files / "encoder", "--input", tmp_path / "long.jsonl")
    options = ("--output", tmp_path / "index", "--passages", "4")
    assert cli.main([*map(str, (*index, *options))]) == 0
    rows = [{"query": "the dog", "positive": documents[0]["text"]}]
    source = write(tmp_path / "train.jsonl", rows)
    (record,), summary = mine("--index", tmp_path / "index", collection=None, model=None,
                              source=source)  # fmt: skip
    assert sorted(record["negatives"]) == ["the boys walked to", "the sea ."]
    assert summary["dropped"] == {"known": 3}


def test_passages_of_a_positive_leave_enough_candidates(files, mine, tmp_path):
    """Its nine passages are the best by BM25; the first search has 4 of them."""
    documents = [{"_id": "long", "text": "the dog . " * 9}]
    documents += [{"_id": "low", "text": "dog ran low"}, {"_id": "up", "text": "dog dog up"}]
    write(tmp_path / "long.jsonl", documents)
    index = ("index", "--model", files / "encoder", "--input", tmp_path / "long.jsonl")
    options = ("--output", tmp_path / "index", "--passages", "3", "--bm25")
    assert cli.main([*map(str, (*index, *options))]) == 0
    rows = [{"query": "dog", "positive": documents[0]["text"]}]
    how = {"collection": None, "model": None, "source": write(tmp_path / "train.jsonl", rows)}
    options = ("--index", tmp_path / "index", "--searcher", "bm25", "--range-max", "3")
    (record,), summary = mine(*options, **how)
    assert record["negatives"] == ["dog dog up", "dog ran low"]
    assert summary["dropped"] == {"known": 1}  # nine equal texts


def test_positives_of_a_file_without_the_titles_of_the_collection(mine, tmp_path):
    """The positive is found with a title and with other blanks."""
    rows = [
        {"_id": "a", "title": "Faust", "text": "Goethe wrote  it\n"},
        {"_id": "b", "title": "", "text": "Goethe lived here"},
        {"_id": "c", "title": "Goethe", "text": ""},
    ]
    write(tmp_path / "corpus.jsonl", rows)
    how = {"model": None, "collection": tmp_path / "corpus.jsonl"}
    for positive in ("Goethe wrote it", "Faust Goethe wrote it "):
        source = write(tmp_path / "train.jsonl", [{"query": "wrote Goethe", "positive": positive}])
        (record,), summary = mine("--searcher", "bm25", source=source, **how)
        assert sorted(record["negatives"]) == ["Goethe ", "Goethe lived here"]
        assert summary["dropped"] == {"known": 1}


def test_scores_of_positives_and_hits_are_of_the_same_vectors(files, mine, refused, tmp_path):
    """An index of pairs of title and text: scores of a positive that no search finds, too."""
    documents = [{"_id": "a", "title": "the cat", "text": "a sea"}, {"_id": "b", "text": "a tree"}]
    write(tmp_path / "titled.jsonl", documents[1:])
    index = ("index", "--model", files / "encoder", "--input", tmp_path / "titled.jsonl")
    options = ("--output", tmp_path / "index", "--titles", "pair", "--similarity", "dot")
    assert cli.main([*map(str, (*index, *options))]) == 0
    positive = {"title": "the cat", "text": "a sea"}
    source = write(tmp_path / "train.jsonl", [{"query": "it was", "positive": positive}])
    request = ("--index", tmp_path / "index", "--scores")
    how = {"collection": None, "model": None, "source": source}
    (record,), _ = mine(*request, "--option", "titles=pair", **how)
    model = bert_jax.load(files / "encoder")
    expected = model.embed([("the cat", "a sea"), "a tree"]) @ model.embed(["it was"])[0]
    assert record["scores"] == pytest.approx(expected.tolist(), rel=1e-5)
    line = refused("mine", "--input", source, "--output", tmp_path / "m", *request)
    assert (
        "made with titles=pair, the queries are read with titles=join; set --option titles=pair"
        in line
    )


@pytest.mark.parametrize(
    ("titles", "texts"),
    [
        ("join", ["the cat a sea", "the dog a tree"]),
        ("pair", [("the cat", "a sea"), ("the dog", "a tree")]),
        ("omit", ["a sea", "a tree"]),
    ],
)
def test_a_collection_has_the_titles_of_the_queries(files, mine, tmp_path, titles, texts):
    documents = [{"title": "the cat", "text": "a sea"}, {"title": "the dog", "text": "a tree"}]
    rows = ({"_id": str(number), **each} for number, each in enumerate(documents))
    collection = write(tmp_path / "titled.jsonl", rows)
    source = write(tmp_path / "train.jsonl", [{"query": "it was", "positive": documents[0]}])
    options = ("--scores", "--option", f"titles={titles}")
    (record,), _ = mine(*options, collection=collection, source=source)
    model = bert_jax.load(files / "encoder")
    vectors, query = (model.embed(each, normalize=True) for each in (texts, ["it was"]))
    assert record["scores"] == pytest.approx((vectors @ query[0]).tolist(), abs=1e-6)


@pytest.mark.slow
def test_training_on_what_was_mined(files, mine, tmp_path):
    mine("--scores", "--reranker", files / "cross", "--raw-scores")
    config = complete_config({"task": "retrieval", "init_from": str(files / "encoder")}, where="")
    mined = str(tmp_path / "mined.jsonl")
    keys = {"train": mined, "validation": (mined,), "loss": "margin_mse", "length": 16}
    settings = {f"data.{key}": value for key, value in keys.items()}
    settings |= {"train.global_batch_size": 2, "train.steps": 2}
    Experiment.from_config(set_keys(config, settings, where="")).train(tmp_path / "run")
    before, after = (bert_jax.load(path) for path in (files / "encoder", tmp_path / "run/model"))
    assert np.abs(before.embed(TEXTS) - after.embed(TEXTS)).max() > 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "--model is None; give --model, --index, or --searcher bm25"),
        (("--searcher", "bm25", "--scores"), "leave out margins and --scores, or give a --rerank"),
        (("--searcher", "bm25", "--negatives", 0), "--negatives is 0; it must be at least 1"),
        (("--searcher", "bm25", "--sampling", "best"), "--sampling is 'best'; known are top, rand"),
        (("--index", "/nowhere", "--collection", "c"), "--collection is 'c'; leave it out"),
        (("--option", "rank=1"), "has no such option"),
        (
            ("--option", "batch_size=4"),
            "--batch-size is '4'; it is set without --option; leave --option out",
        ),
        (
            ("--option", "require_positive=false"),
            "require_positive is 'false'; it is set without --option",
        ),
        (("--searcher", "bm25", "--raw-scores"), "it is for a --reranker; give one, or leave it"),
    ],
)
def test_refused_requests(files, refused, tmp_path, options, problem):
    target = tmp_path / "mined.jsonl"
    source = ("--input", files / "train.jsonl", "--output", target)
    assert problem in refused("mine", *source, *options)
    assert not target.exists()


def test_a_search_that_mining_cannot_make(files, refused, tmp_path):
    source = ("--input", files / "train.jsonl", "--output", tmp_path / "m", "--model")
    line = refused("mine", *source, files / "encoder", "--searcher", "faiss:nprobe=3")
    assert "--searcher is 'faiss:nprobe=3'; without --index, the search is exact; leave it" in line
    line = refused("mine", *source, files / "encoder", "--searcher", "bm25")
    assert "--searcher is 'bm25'; leave out --model, or --searcher" in line


def test_without_any_negative_nothing_is_written(files, tmp_path, capsys):
    source = ("--input", files / "train.jsonl", "--output", tmp_path / "mined.jsonl")
    options = ("--searcher", "bm25", "--max-score", -1)
    assert cli.main(["mine", *map(str, (*source, *options))]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.endswith(
        "no query gets a negative; 5 of the documents that were retrieved are the queries' own; "
        "give more documents (--collection, --index), or change --max-score (1 dropped)"
    )
    assert not [*tmp_path.iterdir()]


def test_an_index_without_texts(files, tmp_path, capsys):
    index = ("index", "--model", files / "encoder", "--input", files / "corpus.jsonl")
    assert cli.main([*map(str, index), "--output", str(tmp_path / "index"), "--no-texts"]) == 0
    source = ("--input", files / "train.jsonl", "--output", tmp_path / "mined.jsonl")
    assert cli.main(["mine", "--index", str(tmp_path / "index"), *map(str, source)]) == 2
    assert (
        "the index stores no texts, which negatives need; make one that does"
        in capsys.readouterr().err
    )


def test_scores_of_another_teacher_are_not_lost(files, refused, tmp_path):
    row = {"query": "a", "positive": "b", "negative": "c", "scores": [2, 1]}
    source = write(tmp_path / "train.jsonl", [row])
    line = refused("mine", "--input", source, "--output", tmp_path / "m", "--searcher", "bm25")
    assert "train.jsonl:1: the documents have scores, but negatives will not; give --scores" in line


def test_ids_that_the_collection_has_are_no_texts(files, refused, tmp_path):
    """`--collection` is searched; the ids of the input are looked up in the option `corpus`."""
    (tmp_path / "q.tsv").write_text("1\td0\t1\n")
    write(tmp_path / "queries.jsonl", [{"_id": "1", "text": "a cat sat"}])
    how = ("--input", tmp_path / "q.tsv", "--output", tmp_path / "m", "--searcher", "bm25")
    options = ("--collection", files / "corpus.jsonl", "--option")
    for key in ("queries", "data.queries"):
        line = refused("mine", *how, *options, f"{key}={tmp_path / 'queries.jsonl'}")
        assert (
            "has ids in place of texts; name the files with the texts as --option corpus and"
            in line
        )
        assert "--option format=judgements" in line


def test_no_input_is_the_output(files, refused, tmp_path):
    corpus = write(tmp_path / "corpus.jsonl", [{"_id": "a", "text": "a sea"}])
    source = ("--input", files / "train.jsonl", "--searcher", "bm25", "--output", corpus)
    for flags in (("--collection", corpus), ("--option", f"corpus={corpus}")):
        line = refused("mine", *source, *flags)
        assert f"{corpus} is input and output; give another output" in line
    assert corpus.read_text() == '{"_id": "a", "text": "a sea"}\n'
