"""Rows that cannot be predicted: skipped or marked, also when a prediction is continued."""

import json

import numpy as np
import pytest

from bert_jax.errors import NotFiniteError, UserError
from bert_jax.inference.predict import predict
from bert_jax.tasks.embed import EmbeddingPredictor

BAD = """{"id": 1, "text": "the [MASK]"}
{"id": 2, "text": null}
oops
{"id": 4, "txt": "a"}
{"id": 5, "text": "no mask"}
{"id": 6, "text": "a [MASK]"}
"""


def test_bad_rows_are_skipped_or_marked(ask, tmp_path, capsys):
    good = ask("fill_mask", "".join(BAD.splitlines(keepends=True)[:6:5]))
    assert [row["id"] for row in good] == [1, 6]
    assert ask("fill_mask", BAD, bad_rows="skip") == good
    path = tmp_path / "in.jsonl"
    null = f"{path}:2: 'text' is null; give it a value, or remove the row"
    assert capsys.readouterr().err == f"bad rows skipped: 4; the first: {null}\n"
    usual = "there is no key 'text' or another usual name of a text, only 'id', 'txt'"
    option = "set data.text_column (and data.pair_column, data.label_column)"
    assert ask("fill_mask", BAD, bad_rows="mark") == [
        good[0],
        {"id": 2, "text": None, "error": null},
        {"error": f"{path}:3: not valid JSON: Expecting value, column 1; fix or remove the line"},
        {"id": 4, "txt": "a", "error": f"{path}:4: {usual}; {option}"},
        {"id": 5, "text": "no mask", "error": f"{path}:5: the text has no [MASK]: 'no mask'"},
        good[1],
    ]
    assert capsys.readouterr().err == f"bad rows marked: 4; the first: {null}\n"


def test_the_option_for_bad_rows_is_named_after_other_rows(ask):
    rule = "or leave such rows out with bad_rows=skip$"
    with pytest.raises(UserError, match=f":2: 'text' is null; give it a value, .* row; {rule}"):
        ask("fill_mask", BAD)
    with pytest.raises(UserError, match=f":2: there is no key 'text' .*; {rule}"):
        ask("fill_mask", '{"text": "a [MASK]"}\n{"txt": "a"}\n')
    with pytest.raises(UserError, match="label_column.$"):  # perhaps all rows are like this one
        ask("fill_mask", '{"txt": "a"}\n')


def test_a_row_with_scores_that_are_not_finite_is_bad_alone(ask, monkeypatch, capsys):
    vector = EmbeddingPredictor.vector

    def damaged(predictor, output):
        damaged.count += 1
        return vector(predictor, output) * (np.nan if damaged.count == 2 else 1)

    monkeypatch.setattr(EmbeddingPredictor, "vector", damaged)
    problem = "the vectors of a text are not finite; the parameters of the model are damaged"
    rows = "".join(json.dumps({"id": number, "text": "sun"}) + "\n" for number in range(3))
    damaged.count = 0
    marked = ask("embed", rows, bad_rows="mark")
    assert [*marked[1]] == ["id", "text", "error"]
    assert marked[1]["error"].endswith(f"in.jsonl:2: {problem}")
    assert [[*marked[number]] for number in (0, 2)] == [["id", "text", "embedding"]] * 2
    assert "bad rows marked: 1; the first: " in capsys.readouterr().err
    damaged.count = 0
    with pytest.raises(NotFiniteError, match=f"^{problem}$"):
        ask("embed", rows.replace("sun", "sea"))


def test_bad_rows_where_vectors_are_in_order(ask, model, tmp_path):
    rows = ask("embed", '{"id": 1, "text": "a"}\n[]\n{"id": 3, "text": "b"}\n', bad_rows="skip")
    array = tmp_path / "v.npy"
    options = {"progress": False, "bad_rows": "mark"}
    message = "bad_rows is 'mark'; that is for JSON lines, not for .*v.npy; give skip, or"
    with pytest.raises(UserError, match=message):
        predict(model, "embed", tmp_path / "in.jsonl", array, options)
    assert (
        predict(model, "embed", tmp_path / "in.jsonl", array, options | {"bad_rows": "skip"}) == 2
    )
    np.testing.assert_array_equal(np.load(array), np.float32([row["embedding"] for row in rows]))


def test_another_option_for_bad_rows_continues_if_there_was_none(model, tmp_path):
    """A chunk of 2 × 64 rows is kept when all of it is predicted."""
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [json.dumps({"id": number, "text": "sun"}) for number in range(300)]

    def run(how, calls=1000):
        left = iter(range(calls))
        options = {"progress": False, "batch_size": 2, "bad_rows": how}
        return predict(model, "embed", source, target, options, lambda: next(left, None) is None)

    source.write_text("\n".join(lines))
    with pytest.raises(KeyboardInterrupt, match="after 128 predictions"):
        run("error", 250)
    source.write_text("\n".join([*lines[:200], "oops", *lines[201:]]))
    assert run("skip") == 299
    rows = [json.loads(line)["id"] for line in target.read_text().splitlines()]
    assert rows == [number for number in range(300) if number != 200]

    target.unlink()
    source.write_text("\n".join(["oops", *lines[1:]]))
    with pytest.raises(KeyboardInterrupt, match="after 128 predictions"):
        run("skip", 250)
    for how in ("error", "mark"):  # a row is left out already
        with pytest.raises(UserError, match="with other bad rows; give bad_rows=skip, or remove"):
            run(how)
    run("skip")
    assert len(target.read_text().splitlines()) == 299
