"""A rate that no parameter survives, where answers cannot be made of what is left."""

import json

import pytest

from bert_jax.training.loop import DivergedError

pytestmark = pytest.mark.slow

TAGGED = {"tokens": ["the", "cat", "sat"], "tags": ["O", "B-ANIMAL", "O"]}
ASKED = {
    "question": "it ?",
    "passage": "the cat sat",
    "answers": [{"text": "cat", "answer_start": 4}],
}


@pytest.mark.parametrize("rate", [1e30, 1e10])
@pytest.mark.parametrize(
    ("task", "row"),
    [
        ("tagging", TAGGED),
        ("question_answering", ASKED),
        ("classification", {"text": "the cat"}),
        ("multiple_choice", {"prompt": "the cat", "choices": ["sat", "ran"], "label": 1}),
        ("similarity", {"text": "the cat", "text_pair": "the dog", "label": 0.5}),
    ],
)
def test_it_is_named_before_an_evaluation_stumbles(train, tmp_path, task, row, rate):
    path = tmp_path / "rows.jsonl"
    rows = [{"id": str(number), **row} for number in range(16)]
    if task == "classification":
        rows = [{**row, "label": "xy"[number % 2]} for number, row in enumerate(rows)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DivergedError, match=r"is not finite; .* lower learning rate"):
        train(
            task,
            data__train=str(path),
            data__validation=str(path),
            optimizer__learning_rate=rate,
            train__epochs=20.0,
            train__log_every=1000,
            train__eval_every=1,
            train__evaluate_per_epoch=0,
        )
