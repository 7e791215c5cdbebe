"""Parallel text in tables, JSON lines and two files."""

import gzip
import json

import pytest

from bert_jax.data.readers.parallel import ParallelOptions, read_parallel
from bert_jax.errors import UserError

GERMAN = {"source_language": "en", "target_language": "de"}


@pytest.fixture
def pairs(tmp_path):
    """Writes files and reads the first as (source, targets, id, line)."""

    def read(files, needs_targets=False, **options):
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(
                content if isinstance(content, bytes) else content.encode()
            )
        source = tmp_path / next(iter(files))
        examples = read_parallel(source, ParallelOptions(**options), needs_targets=needs_targets)
        return [
            (each.input, each.label, each.id, int(each.location.rpartition(":")[2]))
            for each in examples
        ]

    return read


def refused(pairs, *arguments, **options):
    with pytest.raises(UserError) as caught:
        pairs(*arguments, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("header", "options", "expected"),
    [
        ("source,target,id", {}, ("a", ("b",), "c", 2)),
        ("Target,x,Source", {}, ("c", ("a",), "0", 2)),
        ("id,article,highlights", {}, ("b", ("c",), "a", 2)),
        ("question,context,answer", {}, ("a", ("c",), "0", 2)),
        ("de,en,fr", GERMAN, ("b", ("a",), "0", 2)),
        ("source,target,fr", GERMAN, ("a", ("b",), "0", 2)),
        ("u,v,w", {"source_column": "w", "target_column": "0"}, ("c", ("a",), "0", 2)),
        ("title,text,summary", {"source_column": "title"}, ("a", ("c",), "0", 2)),
        (",source,target", {}, ("b", ("c",), "0", 2)),
        ("text,x,translation", {"target_column": "translation"}, ("a", ("c",), "0", 2)),
        ("text,label,x", {}, ("a", None, "0", 2)),
        ("en,x,y", GERMAN, ("a", None, "0", 2)),
    ],
)
def test_columns_of_a_table(pairs, header, options, expected):
    assert pairs({"a.csv": f"{header}\na,b,c\n"}, **options) == [expected]
    row = f"{header}\na,b,c\n".replace(",", "\t")
    assert pairs({"a.tsv.gz": gzip.compress(row.encode())}, **options) == [expected]


def test_json_lines(pairs):
    def of(*objects, **options):
        return pairs({"a.jsonl": "".join(f"{json.dumps(each)}\n" for each in objects)}, **options)

    sides = {"translation": {"de": "b", "en": "a"}, "id": "x"}
    assert of(sides, **GERMAN) == [("a", ("b",), "x", 1)]
    back = {"source_language": "de", "target_language": "en"}
    assert of(sides, **back) == [("b", ("a",), "x", 1)]
    nested = {"source_column": "translation.de", "target_column": "translation.en"}
    assert of(sides, **nested) == [("b", ("a",), "x", 1)]
    assert of({"document": "a", "summary": "b"}) == [("a", ("b",), "0", 1)]
    assert of({"source": "a", "references": ["b", "c"]}) == [("a", ("b", "c"), "0", 1)]
    squad = {"question": "a", "context": "x", "answers": {"text": ["b"], "answer_start": [0]}}
    assert of(squad) == [("a", ("b",), "0", 1)]
    assert of({"source": "a"}, {"source": "b", "target": None}) == [
        ("a", None, "0", 1),
        ("b", None, "1", 2),
    ]


def test_two_files(pairs):
    files = {"en-de/train.en.gz": gzip.compress(b"a b\r\nc\n"), "en-de/train.de.gz": b"d\ne f"}
    expected = [("a b", ("d",), "0", 1), ("c", ("e f",), "1", 2)]
    assert pairs(files, **GERMAN) == expected
    words = {"source_language": "src", "target_language": "tgt"}
    assert pairs({"src-train.txt": "a b\nc\n", "tgt-train.txt": "d\ne f\n"}, **words) == expected
    named = {"source_language": "eng_Latn", "target_language": "deu_Latn"}
    assert pairs({"eng_Latn.dev": "a b\nc\n", "deu_Latn.dev": "d\ne f\n"}, **named) == expected


def test_two_files_of_other_lengths(pairs):
    message = refused(pairs, {"t.en": "a\nb\n", "t.de": "c\n"}, **GERMAN)
    assert message.endswith("t.de has no such line; give both files one for each pair")
    assert "t.en:2: " in message
    message = refused(pairs, {"t.en": "a\n", "t.de": "c\nd\n"}, **GERMAN)
    assert "t.de:2: " in message
    assert "t.en has no such line" in message


def test_two_files_without_a_language(pairs):
    assert "set data.source_language=en" in refused(pairs, {"train.txt": "a\n"})
    assert "set data.source_language=en" in refused(pairs, {"trainen.txt": "a\n"}, **GERMAN)
    assert "t.de: cannot be read" in refused(pairs, {"u/t.en": "a\n"}, **GERMAN)


def test_empty_texts(pairs, capsys):
    files = {"t.en": "a\n \nc\nd\n", "t.de": "e\nf\n\ng\n"}
    message = refused(pairs, files, **GERMAN)
    assert (
        "t.en:2: the source or the target is empty; fix the row, or set data.empty=skip" in message
    )
    assert pairs(files, empty="skip", **GERMAN) == [("a", ("e",), "0", 1), ("d", ("g",), "3", 4)]
    assert "pairs with an empty text left out: 2; the first:" in capsys.readouterr().err


def test_missing_targets(pairs):
    assert "a.csv:2: the source has no target" in refused(
        pairs, {"a.csv": "source,x\na,b\n"}, needs_targets=True
    )
    lines = '{"source": "a", "target": "b"}\n{"source": "c"}\n'
    assert "a.jsonl:2: the source has no target" in refused(pairs, {"a.jsonl": lines})
    other = "".join(reversed(lines.splitlines(keepends=True)))
    assert "a.jsonl:2: the source has a target" in refused(pairs, {"a.jsonl": other})


def test_columns_that_are_missing_or_no_texts(pairs):
    assert "a.csv:1: there is no column 'u', only 'a', 'b'" in refused(
        pairs, {"a.csv": "a,b\nc,d\n"}, source_column="u"
    )
    assert "a.csv:1: no column has a usual name of a source, only 'a', 'b'" in refused(
        pairs, {"a.csv": "a,b\nc,d\n"}
    )
    assert "a.jsonl:1: 'source' is not a string but int" in refused(
        pairs, {"a.jsonl": '{"source": 1, "target": "b"}\n'}
    )
    assert "a.jsonl:1: 'target' must be a text, a list of texts" in refused(
        pairs, {"a.jsonl": '{"source": "a", "target": 2}\n'}
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"source_language": "en"}, "a language is given for one side only; set data.source_l"),
        ({"source_language": "en", "target_language": "en"}, "data.target_language is 'en'; it"),
        ({**GERMAN, "source_column": "a"}, "data.source_language is 'en'; leave out one of it"),
        ({"empty": "keep"}, "data.empty is 'keep'; known are error, skip"),
        ({"format": "label_text"}, "data.format is 'label_text'; known are jsonl, tsv, csv, text"),
    ],
)
def test_options_that_contradict_each_other(options, expected):
    with pytest.raises(UserError) as caught:
        ParallelOptions(**options)
    assert str(caught.value).startswith(expected)


def test_columns_that_are_not_read(tmp_path):
    files = []
    (tmp_path / "a.csv").write_text("article,highlights,url\na,b,c\n")
    assert len(list(read_parallel(tmp_path / "a.csv", report=files.append))) == 1
    line = {"translation": {"en": "a", "de": "b"}, "id": 1, "score": 0.5}
    (tmp_path / "a.jsonl").write_text(json.dumps(line))
    options = ParallelOptions(**GERMAN)
    assert len(list(read_parallel(tmp_path / "a.jsonl", options, report=files.append))) == 1
    assert [file.columns for file in files] == [
        {"article": True, "highlights": True, "url": False},
        {"translation": True, "id": True, "score": False},
    ]
