"""The ending of an output is its format."""

import json

import pytest

from bert_jax.data.converted_outputs import layout_of
from bert_jax.data.outputs import open_outputs, resumable_outputs
from bert_jax.errors import UserError

ROWS = ['{"a": 1, "hits": [{"id": "x"}]}\n', '{"a": 2, "hits": []}\n']


def written(path, rows):
    with resumable_outputs(path, [layout_of(path)], request=None) as outputs:
        for row in rows:
            outputs.write("", row)
    return path.read_bytes()


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], []])
def test_json_is_an_array_and_json_lines_are_lines(tmp_path, rows):
    lines = "".join(rows).encode()
    assert written(tmp_path / "hits.jsonl", rows) == written(tmp_path / "hits", rows) == lines
    assert json.loads(written(tmp_path / "hits.json", rows)) == [*map(json.loads, rows)]


def test_parquet_is_a_table(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    written(tmp_path / "hits.parquet", ROWS)
    assert parquet.read_table(tmp_path / "hits.parquet").to_pylist() == [*map(json.loads, ROWS)]


def test_an_array_on_stdout(capfdbinary):
    with open_outputs("-", [layout_of("x.json")]) as outputs:
        outputs.write("", ROWS[0])
    assert json.loads(capfdbinary.readouterr().out) == [json.loads(ROWS[0])]


def test_other_endings_are_refused(refused, tmp_path):
    with pytest.raises(UserError, match=r"^h.json: .json is no ending of this output; give .jsonl"):
        layout_of("h.json", only_lines=True)
    for verb, endings in {
        ("search", "--index", "x", "--text", "a"): ".jsonl, .ndjson, .json, .parquet, .run, .trec",
        ("answer", "--index", "x", "--question", "a"): ".jsonl, .ndjson, .json, .parquet",
    }.items():
        message = refused(*verb, "--output", tmp_path / "hits.csv")
        assert message.endswith(f"hits.csv: .csv is no ending of this output; give {endings}\n")
