"""Records of a program as JSON lines: what becomes of each kind of value."""

import datetime
import json
import math

import numpy as np
import pytest

from bert_jax.data.record_files import write_records
from bert_jax.errors import UserError


def written(path, records):
    write_records(path, records, "train")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_values_have_the_forms_of_json(tmp_path):
    record = {
        "text": "½ 好",
        "label": np.int64(3),
        "score": np.float32(0.5),
        "missing": math.nan,
        "none": None,
        "words": ("a", "b"),
        "vector": np.array([[1, 0], [0, 1]]),
        "inside": {"start": np.array([4]), 5: True},
        "day": datetime.date(2026, 11, 28),
    }
    assert written(tmp_path / "train.jsonl", iter([record])) == [
        {
            "text": "½ 好",
            "label": 3,
            "score": 0.5,
            "missing": None,
            "none": None,
            "words": ["a", "b"],
            "vector": [[1, 0], [0, 1]],
            "inside": {"start": [4], "5": True},
            "day": "2026-11-28",
        }
    ]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ({"text": "a"}, "train is one dict with the keys 'text'; give a list of dicts"),
        (3, "train is of type int; give a file, or an iterable of dicts"),
        (["a text"], "train:1 is 'a text', of type str; give dicts, such as"),
        ([{"a": 1}, {"a": object()}], "train:2: 'a' is of type object, which JSON has not"),
    ],
)
def test_what_is_no_record_is_refused(tmp_path, records, message):
    with pytest.raises(UserError, match=f"^{message}"):
        write_records(tmp_path / "train.jsonl", records, "train")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow
def test_frames_and_data_sets(tmp_path):
    pandas, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    path = tmp_path / "train.jsonl"
    frame = pandas.DataFrame(
        {
            "text": ["a", None],
            "stars": [1.5, math.nan],
            "day": pandas.to_datetime(["2026-11-28", None]),
            "count": pandas.array([1, None], dtype="Int64"),
            "kind": pandas.Categorical(["x", "y"]),
        }
    )
    missing = {"text": None, "stars": None, "day": None, "count": None, "kind": "y"}
    assert written(path, frame) == [
        {"text": "a", "stars": 1.5, "day": "2026-11-28T00:00:00", "count": 1, "kind": "x"},
        missing,
    ]
    twice = pandas.DataFrame([["a", "b"]], columns=["text", "text"])
    with pytest.raises(UserError, match="two columns of the frame have the same name"):
        write_records(path, twice, "train")

    names = datasets.ClassLabel(names=["bad", "good"])
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": names,
            "tags": datasets.Sequence(names),
            "answers": {"text": datasets.Sequence(datasets.Value("string")), "kind": names},
        }
    )
    rows = [
        {"text": "a", "label": 1, "tags": [0, 1], "answers": {"text": ["x"], "kind": 0}},
        {"text": "b", "label": -1, "tags": [], "answers": {"text": [], "kind": 1}},
    ]
    data = datasets.Dataset.from_list(rows, features=features)
    named = [
        {
            "text": "a",
            "label": "good",
            "tags": ["bad", "good"],
            "answers": {"text": ["x"], "kind": "bad"},
        },
        {"text": "b", "label": None, "tags": [], "answers": {"text": [], "kind": "good"}},
    ]
    assert written(path, data) == named
    assert written(path, data.to_iterable_dataset()) == named
    with pytest.raises(UserError, match="train is one DatasetDict with the keys 'train'"):
        write_records(path, datasets.DatasetDict({"train": data}), "train")
