"""Our own routes answer with the records that `bert-jax predict` writes."""

import json

import pytest

from bert_jax.inference.predict import predict

RECORDS = [{"id": 7, "text": "the [MASK] sat"}, {"text": "a dog ran to the [MASK] ."}]


@pytest.fixture(scope="module")
def served(serve, model, encoder):
    """A client of an encoder and of a model that fills masks."""
    return serve({"tiny": encoder, "mlm": model})


def test_records_are_those_of_predict(served, model, tmp_path):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    predict(model, "fill_mask", tmp_path / "in.jsonl", tmp_path / "out.jsonl", {"progress": False})
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    answer = served.post("/fill_mask", json={"records": RECORDS})
    assert answer.status_code == 200
    for made, expected in zip(answer.json()["predictions"], written, strict=True):
        assert made.get("id") == expected.get("id")
        for words, others in zip(made["fillings"], expected["fillings"], strict=True):
            assert [word["token"] for word in words] == [word["token"] for word in others]
            assert [word["score"] for word in words] == pytest.approx(
                [word["score"] for word in others], abs=1e-6
            )


@pytest.mark.parametrize(
    ("path", "body", "status", "field"),
    [
        ("/fill_mask", {"records": ["no mask"]}, 422, "records[0]"),
        ("/fill_mask", {"records": [{"words": []}]}, 422, "records[0]"),
        ("/fill_mask", {"records": ["[MASK]", {"text": 5}]}, 422, "records[1]"),
        ("/fill_mask", {"records": ["[MASK]"], "options": {"top_k": 0}}, 422, "options.top_k"),
        (
            "/fill_mask",
            {"records": ["[MASK]"], "options": {"data_dir": "/"}},
            422,
            "options.data_dir",
        ),
        ("/fill_mask", {"records": ["[MASK]"], "model": "tiny"}, 422, "model"),
        ("/tag", {"records": ["a dog"]}, 422, "model"),
        ("/tasks/cook", {"records": []}, 422, "task"),
        ("/search", {"queries": ["a dog"]}, 404, None),
    ],
)
def test_a_wrong_field_is_named(served, path, body, status, field):
    answer = served.post(path, json=body)
    assert (answer.status_code, answer.json().get("field")) == (status, field), answer.text
    assert "data." not in answer.text  # the remedy is no option about files
