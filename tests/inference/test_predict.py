"""Files answered row by row."""

import csv
import dataclasses
import gzip
import io
import json
import os
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

from bert_jax.data import converted_outputs
from bert_jax.errors import UserError
from bert_jax.inference.predict import predict

ROWS = [
    {"id": 1, "text": "the cat sat on the mat ."},
    {"id": "two", "text": "the dog ran", "text_pair": "it was warm ."},
    {"text": "", "label": None},
    {"id": 4, "text": "the sun went down to the sea and up .", "tags": ["é"]},
]
TEXTS = [(row["text"], row["text_pair"]) if "text_pair" in row else row["text"] for row in ROWS]


def as_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_vectors(ask, model):
    records = ask("embed", as_lines(ROWS), pooling="max", normalize=True)
    assert [list(record) for record in records] == [
        ["id", "text", "embedding"],
        ["id", "text", "text_pair", "embedding"],
        ["text", "label", "embedding"],
        ["id", "text", "tags", "embedding"],
    ]
    assert [record.get("id") for record in records] == [1, "two", None, 4]
    assert records[3]["tags"] == ["é"]
    # Written so that the same float32 is read.
    np.testing.assert_array_equal(
        np.array([record["embedding"] for record in records], np.float32),
        model.embed(TEXTS, "max", normalize=True, batch_size=2),
    )


@pytest.mark.slow
def test_hidden_states_and_attentions(ask, model):
    records = ask("hidden_states", as_lines(ROWS), layers=(0, -1), combine="concatenate")
    expected = model.hidden_states(TEXTS, (0, -1), "concatenate", batch_size=2)
    for record, states in zip(records, expected, strict=True):
        assert record["tokens"] == states.tokens
        assert [tuple(offset) for offset in record["offsets"]] == states.offsets
        np.testing.assert_array_equal(np.array(record["hidden_states"], np.float32), states.states)
    records = ask("attentions", as_lines(ROWS))
    for record, maps in zip(records, model.attentions(TEXTS, batch_size=2), strict=True):
        assert record["tokens"] == maps.tokens
        np.testing.assert_array_equal(np.array(record["attentions"], np.float32), maps.weights)
    for task, options, shape in [
        ("hidden_states", {}, (1, 4, 16)),
        ("attentions", {"layers": (2,)}, (1, 2, 4, 4)),
    ]:
        record, _ = ask(task, "a bird\nsun\n", "in.txt", **options)
        assert np.shape(record[task]) == shape


def test_fillings(ask, model):
    texts = ["the [MASK] sat .", "a [MASK] and a [MASK]"]
    records = ask("fill_mask", "\n".join(texts), "in.txt", top_k=3)
    for record, masks in zip(records, model.fill_masks(texts, 3), strict=True):
        assert list(record) == ["text", "fillings"]
        for written, predictions in zip(record["fillings"], masks, strict=True):
            for prediction, fields in zip(predictions, written, strict=True):
                score = pytest.approx(prediction.score, rel=1e-5)
                assert fields == {**dataclasses.asdict(prediction), "score": score}


def test_every_format_gives_the_same_vectors(ask):
    expected = ask("embed", '{"id": "1", "text": "the sun"}\n{"id": "2", "text": "a, b"}\n')
    assert ask("embed", 'id,text\r\n1,the sun\r\n2,"a, b"\r\n', "in.csv") == expected
    assert ask("embed", "\ufefftext\tid\nthe sun\t1\na, b\t2\n", "in.tsv") == expected
    packed = gzip.compress(b'id,sentence\n1,the sun\n2,"a, b"\n')
    renamed = ask("embed", packed, "in.csv.gz", text_column="sentence")
    assert [row | {"text": row.pop("sentence")} for row in renamed] == expected
    plain = ask("embed", "the sun\na, b", "in")
    assert plain == [{key: row[key] for key in ("text", "embedding")} for row in expected]


def test_vectors_as_an_array_and_as_a_table(ask, model, tmp_path):
    expected = ask("embed", as_lines(ROWS))
    vectors = np.array([record.pop("embedding") for record in expected], np.float32)
    source, array, table = (tmp_path / name for name in ("in.jsonl", "v.npy", "v.parquet"))
    options = {"progress": False, "batch_size": 2}
    assert predict(model, "embed", source, array, options) == 4
    assert np.load(array).dtype == np.float32
    np.testing.assert_array_equal(np.load(array), vectors)
    # The columns of each row, in the order of the vectors.
    lines = (tmp_path / "rows_v.jsonl").read_text().splitlines()
    assert list(map(json.loads, lines)) == expected
    # Columns of a table have one type: ids are numbers and strings here.
    message = "^predictions 1 to 4 do not fit in a table: .*; write JSON lines, as .jsonl$"
    with pytest.raises(UserError, match=message):
        predict(model, "embed", source, table, options)
    assert not table.exists()


def test_a_table_has_a_column_for_each_key(ask, model, tmp_path):
    rows = [{"id": f"{n}", "text": "the sun"} | ({"tags": [0.5]} if n else {}) for n in range(3)]
    expected = ask("embed", as_lines(rows))
    # In batches of the same shape: another processor rounds another shape's sums differently.
    options = {"progress": False, "batch_size": 2}
    predict(model, "embed", tmp_path / "in.jsonl", tmp_path / "v.parquet", options)
    read = pq.read_table(tmp_path / "v.parquet")
    assert read.drop_columns("embedding").to_pylist() == [
        {"id": "0", "text": "the sun", "tags": None},
        {"id": "1", "text": "the sun", "tags": [0.5]},
        {"id": "2", "text": "the sun", "tags": [0.5]},
    ]
    vectors = np.array(read["embedding"].to_pylist(), np.float32)
    np.testing.assert_array_equal(vectors, [np.float32(row["embedding"]) for row in expected])
    assert [str(kind) for kind in read.schema.types] == [
        "string", "string", "list<element: float>", "list<element: float>"
    ]  # fmt: skip


def test_rows_of_other_types_are_no_table(tmp_path, monkeypatch):
    monkeypatch.setattr(converted_outputs, "_GROUP", 2)
    lines = tmp_path / "lines"
    for last in ('{"a": 0.5}', '{"a": "b"}', '{"b": 3}'):
        lines.write_text('{"a": 1}\n{"a": 2}\n' + last + "\n")
        with pytest.raises(UserError, match="^predictions 3 to 3 do not fit"):
            converted_outputs.to_parquet(lines, io.BytesIO())


def test_vectors_as_csv(ask, model, tmp_path):
    rows = [{"id": 1, "text": 'the "sun"'}, {"id": None, "text": "a, b"}]
    expected = ask("embed", as_lines(rows))
    source, options = tmp_path / "in.jsonl", {"progress": False, "batch_size": 2}
    predict(model, "embed", source, tmp_path / "v.csv", options)
    header, *lines = csv.reader((tmp_path / "v.csv").open(encoding="utf-8", newline=""))
    width = len(expected[0]["embedding"])
    assert header == ["id", "text", *(f"embedding_{index}" for index in range(width))]
    assert [line[:2] for line in lines] == [["1", 'the "sun"'], ["null", "a, b"]]
    for line, row in zip(lines, expected, strict=True):
        np.testing.assert_array_equal(np.float32(line[2:]), np.float32(row["embedding"]))
    source.write_text('{"text": "a"}\n{"text": "b", "more": 1}\n')
    message = "^prediction 2 has the column 'more', which the first one lacks; write JSON lines"
    with pytest.raises(UserError, match=message):
        predict(model, "embed", source, tmp_path / "w.csv", options)
    assert not (tmp_path / "w.csv").exists()


@pytest.mark.parametrize("name", ["v.tsv", "v.npz", "v.txt", "v.parquets"])
def test_an_ending_without_a_format(model, tmp_path, name):
    (tmp_path / "in.jsonl").write_text('{"text": "a"}')
    ending = name[1:]
    expected = (
        f"{name}: no format of task 'embed' has the ending {ending}; give .jsonl, .ndjson, .json, "
        ".parquet, .npy, .csv, or a format: jsonl, json, parquet, npy, csv"
    )
    with pytest.raises(UserError, match=f"{re.escape(expected)}$"):
        predict(model, "embed", tmp_path / "in.jsonl", tmp_path / name)


def test_an_array_is_a_regular_file(model, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "a"}')
    options = {"progress": False, "output_format": "npy"}
    with pytest.raises(UserError, match="^-: this format needs a regular file; give its path$"):
        predict(model, "embed", tmp_path / "in.jsonl", "-", options)


def test_order_and_count_over_many_chunks(ask):
    rows = [{"id": number, "text": "sun " * (number * 7 % 31)} for number in range(200)]
    records = ask("embed", as_lines(rows))
    assert [record["id"] for record in records] == list(range(200))
    by_text = {}
    for row, record in zip(rows, records, strict=True):
        same = by_text.setdefault(row["text"], record["embedding"])
        np.testing.assert_allclose(record["embedding"], same, atol=1e-6)
    assert len(by_text) == 31


def test_a_stopped_prediction_is_continued(ask, model, tmp_path, capsys):
    """A chunk of 2 × 64 rows is kept when all of it is predicted."""
    rows = [{"id": number, "text": "sun " * (number % 4)} for number in range(300)]
    options = {"progress": False, "batch_size": 2}
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    ask("embed", as_lines(rows))
    whole = target.read_bytes()
    target.unlink()

    def stop_after(count):
        calls = iter(range(count))
        predict(model, "embed", source, target, options, lambda: next(calls, None) is None)

    for count, message in [(100, "^$"), (250, "^stopped; .* after 128 predictions$")]:
        with pytest.raises(KeyboardInterrupt, match=message):
            stop_after(count)
        assert not target.exists()
        assert (tmp_path / "out.jsonl.partial").exists() == (count == 250)
    capsys.readouterr()
    source.write_text(as_lines([{"id": -1, "text": "sun"}, *rows]))
    with pytest.raises(UserError, match=r"in.jsonl: the first 128 examples differ from the ones"):
        predict(model, "embed", source, target, options)
    changed = {**options, "normalize": True}
    with pytest.raises(UserError, match=r"128 predictions of another request \(other normalize\)"):
        predict(model, "embed", source, target, changed)
    description = dataclasses.replace(model.tokenizer.description, truncation_side="left")
    cut_left = dataclasses.replace(model, tokenizer=model.tokenizer.with_description(description))
    for other in (dataclasses.replace(model).add_words(["zzz"]), cut_left):
        with pytest.raises(UserError, match=r"of another request \(other model\)"):
            predict(other, "embed", source, target, options)
    of_two = dataclasses.replace(model, sides={"query": cut_left})
    with pytest.raises(UserError, match=r"of another request \(other query_model\)"):
        predict(of_two, "embed", source, target, options)

    # A malformed row further on is an error; when it is mended, the rows before it are kept.
    source.write_text(as_lines(rows[:280]) + "oops\n" + as_lines(rows[281:]))
    with pytest.raises(UserError, match="in.jsonl:281: not valid JSON"):
        predict(model, "embed", source, target, options)
    assert "keeps 128 predictions; the same command continues" in capsys.readouterr().err
    source.write_text(as_lines(rows))
    assert predict(model, "embed", source, target, options) == 300
    assert "out.jsonl.partial: continuing after 128 predictions" in capsys.readouterr().err
    assert target.read_bytes() == whole
    assert sorted(os.listdir(tmp_path)) == ["bert_jax.json", "in.jsonl", "out.jsonl"]


def test_lines_on_stderr(ask, tmp_path, capsys):
    assert ask("embed", "") == []
    assert (tmp_path / "out.jsonl").read_bytes() == b""
    ask("embed", "sun\n" + "sun " * 40 + "\n", "in.txt", pooling="mean")
    assert capsys.readouterr().err == "1 of 2 texts were longer than 32 tokens: cut\n"
    ask("embed", "the sun\n" * 7, "in.txt", progress=True)
    assert "7/7" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("task", "content", "options", "message"),
    [
        ("embed", '{"text": "a"}\n{"text": 1}\n', {}, "in.jsonl:2: 'text' is not a string but int"),
        (
            "embed",
            '{"text": "a"}\n\n{"embedding": 1, "text": "a"}',
            {},
            "in.jsonl:3: 'embedding' conflicts",
        ),
        ("embed", '{"text": "a"}', {"pooling": "x"}, "pooling is 'x'; known are"),
        ("embed", '{"text": "a"}', {"batch_size": 0}, "batch_size is 0"),
        (
            "embed",
            '{"text": "a"}',
            {"max_length": 33},
            "max_length is 33; this model takes 3 to 32",
        ),
        ("embed", '{"text": "a"}', {"max_length": 2}, "max_length is 2; this model takes 3 to 32"),
        ("embed", '{"text": "a"}', {"format": "xml"}, "data.format is 'xml'"),
        ("hidden_states", '{"text": "a"}', {"layers": (9,)}, "layer 9 does not exist"),
        ("attentions", '{"text": "a"}', {"layers": (0,)}, "layer 0 does not exist"),
        (
            "fill_mask",
            '{"text": "[MASK]"}\n' * 9 + '\n{"text": "a sea"}\n' + '{"text": "[MASK]"}\n' * 9,
            {},
            r"in.jsonl:11: the text has no \[MASK\]: 'a sea'",
        ),
        (
            "fill_mask",
            '{"text": "[MASK]"}\n{"text": "' + "[MASK] " * 31 + '"}\n',
            {},
            "in.jsonl:2: the text has 33 tokens, the model takes 32; shorten it, or set the max",
        ),
        (
            "embed",
            '{"text": "a"}',
            {"layers": (0,)},
            "layers is .* task 'embed' has no such option",
        ),
        (
            "nonsense",
            "",
            {},
            "task 'nonsense' is unknown; known are alignments, attention_rollout, attentions, c",
        ),
    ],
)
def test_errors_leave_nothing_behind(ask, tmp_path, task, content, options, message):
    with pytest.raises(UserError, match=message):
        ask(task, content, **options)
    assert os.listdir(tmp_path) == ["in.jsonl"]


def test_an_input_that_is_the_output_or_does_not_exist(model, tmp_path):
    (tmp_path / "in.txt").write_text("sun\n")
    for name, message in [
        ("in.txt", "in.txt is input and output; give another output"),
        ("none.txt", "none.txt does not exist; give another input"),
    ]:
        with pytest.raises(UserError, match=message):
            predict(model, "embed", tmp_path / name, tmp_path / "in.txt", {"progress": False})
    assert (tmp_path / "in.txt").read_text() == "sun\n"
    assert os.listdir(tmp_path) == ["in.txt"]


def test_errors_of_a_pipe_name_its_lines(model, tmp_path, capsys):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write():
        with pipe.open("w") as lines:
            lines.write("the [MASK]\na [MASK]\nit [MASK]\n")
            lines.flush()
            time.sleep(0.5)  # enough for these to be answered by themselves; either way is right
            lines.write("it [MASK]\nnone\n")

    writer = threading.Thread(target=write)
    writer.start()
    with pytest.raises(UserError, match=r"pipe:5: the text has no \[MASK\]"):
        predict(model, "fill_mask", pipe, "-", {"progress": False})
    writer.join()
    assert all("fillings" in json.loads(line) for line in capsys.readouterr().out.splitlines())


# The peak of getrusage would be the peak of the parent process, if that is higher.
PROGRAM = """
import pathlib, re, sys
import bert_jax
from bert_jax.inference.predict import predict
from bert_jax.tasks.embed import EmbeddingPredictor
directory, task, source, target = sys.argv[1:]
layers = {"layers": (0, 1, 2)} if task == "hidden_states" else {}
options = {"progress": False, **layers}
predict(bert_jax.load(directory), task, source, target, options)
status = pathlib.Path("/proc/self/status").read_text()
print(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1], file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux")
@pytest.mark.parametrize(
    ("task", "counts"), [("embed", (10_000, 50_000)), ("hidden_states", (2_000, 10_000))]
)
def test_memory_does_not_grow_with_the_file(model, tmp_path, task, counts):
    model.save(tmp_path / "model")
    peaks = []
    for count in counts:
        source = tmp_path / f"{count}.jsonl"
        with source.open("w") as file:
            for number in range(count):
                text = "the sun was low " * (number % 8)
                file.write(f'{{"id": {number}, "text": "{text}"}}\n')
        target = tmp_path / f"out-{count}.jsonl"
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, tmp_path / "model", task, source, target],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        with target.open() as file:
            assert [json.loads(line)["id"] for line in file] == list(range(count))
        peaks.append(int(done.stderr.splitlines()[-1]))
    assert peaks[1] / peaks[0] < 1.1


def test_a_column_with_the_name_of_an_output_field_names_the_options(model, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "a", "embedding": 3}')
    expected = (
        "in.jsonl:1: 'embedding' conflicts with an output field; if it is the label, give it as "
        "label_column; else rename it, or choose the columns without it by keep_columns"
    )
    with pytest.raises(UserError, match=f"{re.escape(expected)}$"):
        predict(model, "embed", tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    options = {"label_column": "embedding", "progress": False}
    predict(model, "embed", tmp_path / "in.jsonl", tmp_path / "out.jsonl", options)
    assert json.loads((tmp_path / "out.jsonl").read_text())["expected"] == 3
