"""Rows for every task of the package that has labels."""

from typing import Any

NAMES, VERBS = ("cat", "dog", "bird", "boy"), ("sat", "ran")
TEXTS = [f"the {name} {verb} ." for name in NAMES for verb in VERBS]
# Keys of section data, and rows; every task of the package that has labels.
ROWS: dict[str, tuple[str, dict[str, Any], list[dict[str, Any]]]] = {
    "classes": (
        "classification",
        {},
        [{"text": text, "label": "xyz"[number % 3]} for number, text in enumerate(TEXTS)],
    ),
    "any classes": (
        "classification",
        {"problem_type": "multi_label_classification"},
        [{"text": text, "label": ["x", "y"][: number % 3]} for number, text in enumerate(TEXTS)],
    ),
    "numbers": (
        "classification",
        {"problem_type": "regression"},
        [{"text": text, "label": number / 8} for number, text in enumerate(TEXTS)],
    ),
    "tags": (
        "tagging",
        {},
        [
            {"tokens": text.split(), "tags": ["O", "B-A", "B-B" if number % 2 else "O", "O"]}
            for number, text in enumerate(TEXTS)
        ],
    ),
    "answers": (
        "question_answering",
        {"question_length": 8},
        [
            {
                "question": "it was",
                "context": text,
                "answers": [{"text": text.split()[1], "answer_start": 4}],
            }
            for text in TEXTS
        ],
    ),
    "choices": (
        "multiple_choice",
        {},
        [
            {
                "prompt": text,
                "choices": ["sat", "ran", "sang"][: 2 + number % 2],
                "label": number % 2,
            }
            for number, text in enumerate(TEXTS)
        ],
    ),
    "pairs": (
        "similarity",
        {},
        [
            {"text": text, "text_pair": TEXTS[number - 1], "label": number % 2}
            for number, text in enumerate(TEXTS)
        ],
    ),
}
