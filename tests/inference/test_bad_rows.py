"""Predictions that are continued with another option for bad rows."""

import json

import pytest

from bert_jax.errors import UserError
from bert_jax.inference.predict import predict


def test_another_option_for_bad_rows_continues_if_there_was_none(model, tmp_path):
    """A window of 2 × 64 rows is kept when all of it is predicted."""
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
