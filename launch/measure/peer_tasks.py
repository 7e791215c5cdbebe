"""The three tasks of `finetuning_peer.py`, as the examples of transformers have them."""

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import transformers

IGNORED = -100  # a label that takes no part in the loss
N_BEST, ANSWER_LENGTH, QUESTION_LENGTH = 20, 30, 64
TOKENS = ("input_ids", "token_type_ids", "attention_mask")

Feature = dict[str, Any]


def classification_rows(path: Path) -> list[Feature]:
    """Rows of MRPC."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        table = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [
            {"text": row["#1 String"], "pair": row["#2 String"], "label": row["Quality"]}
            for row in table
        ]


class Classification:
    """As run_glue."""

    read = staticmethod(classification_rows)
    model_class = transformers.AutoModelForSequenceClassification
    collator = transformers.DataCollatorWithPadding

    def __init__(self, tokenizer: Any, options: argparse.Namespace, train: list[Feature]) -> None:
        self.tokenizer, self.options = tokenizer, options
        self.labels = sorted({row["label"] for row in train})

    def features(self, rows: list[Feature], *, with_labels: bool) -> list[Feature]:
        """Tokens of texts and pairs."""
        encoded = self.tokenizer(
            [row["text"] for row in rows],
            [row["pair"] for row in rows],
            truncation=True,
            max_length=self.options.length,
        )
        features = [
            {name: encoded[name][number] for name in encoded} for number in range(len(rows))
        ]
        if with_labels:
            for feature, row in zip(features, rows, strict=True):
                feature["labels"] = self.labels.index(row["label"])
        return features

    def predictions(
        self, rows: list[Feature], features: list[Feature], outputs: list[dict[str, np.ndarray]]
    ) -> list[str]:
        """A label for each row."""
        return [self.labels[int(output["logits"].argmax())] for output in outputs]

    def metrics(self, rows: list[Feature], predictions: list[str]) -> dict[str, float]:
        """Of scikit-learn."""
        from sklearn.metrics import accuracy_score, f1_score

        gold = [row["label"] for row in rows]
        f1 = f1_score(gold, predictions, pos_label=self.labels[1])
        return {"accuracy": float(accuracy_score(gold, predictions)), "f1": float(f1)}


def tagged_rows(path: Path) -> list[Feature]:
    """Sentences, a word and its tag on each line, a tab between them."""
    rows: list[Feature] = []
    words: list[str] = []
    tags: list[str] = []
    for line in [*path.read_text(encoding="utf-8").split("\n"), ""]:
        if line.strip():
            word, *_, tag = line.split("\t")
            words.append(word)
            tags.append(tag)
        elif words:
            rows.append({"words": words, "tags": tags})
            words, tags = [], []
    return rows


class Tagging:
    """As run_ner: the first token of a word carries its tag."""

    read = staticmethod(tagged_rows)
    model_class = transformers.AutoModelForTokenClassification
    collator = transformers.DataCollatorForTokenClassification

    def __init__(self, tokenizer: Any, options: argparse.Namespace, train: list[Feature]) -> None:
        self.tokenizer, self.options = tokenizer, options
        self.labels = sorted({tag for row in train for tag in row["tags"]})

    def features(self, rows: list[Feature], *, with_labels: bool) -> list[Feature]:
        """Tokens of words; what is longer is cut."""
        encoded = self.tokenizer(
            [row["words"] for row in rows],
            is_split_into_words=True,
            truncation=True,
            max_length=self.options.length,
        )
        features = [
            {name: encoded[name][number] for name in encoded} for number in range(len(rows))
        ]
        for number, (feature, row) in enumerate(zip(features, rows, strict=True)):
            words = encoded.word_ids(number)
            feature["firsts"] = {
                word: place for place, word in reversed(list(enumerate(words))) if word is not None
            }
            if with_labels:
                labels = [IGNORED] * len(words)
                for word, place in feature["firsts"].items():
                    labels[place] = self.labels.index(row["tags"][word])
                feature["labels"] = labels
        return features

    def predictions(
        self, rows: list[Feature], features: list[Feature], outputs: list[dict[str, np.ndarray]]
    ) -> list[list[str]]:
        """A tag for each word; O for words that were cut off."""
        return [
            [
                self.labels[int(output["logits"][feature["firsts"][word]].argmax())]
                if word in feature["firsts"]
                else "O"
                for word in range(len(row["words"]))
            ]
            for row, feature, output in zip(rows, features, outputs, strict=True)
        ]

    def metrics(self, rows: list[Feature], predictions: list[list[str]]) -> dict[str, float]:
        """Of seqeval."""
        from seqeval.metrics import f1_score

        return {"f1": float(f1_score([row["tags"] for row in rows], predictions))}


def question_rows(path: Path) -> list[Feature]:
    """Questions of SQuAD."""
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    return [
        {
            "id": question["id"],
            "question": question["question"].lstrip(),
            "passage": paragraph["context"],
            "answers": question["answers"],
        }
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]


class Answering:
    """As run_qa: windows, the n best spans of each, the best of all."""

    read = staticmethod(question_rows)
    model_class = transformers.AutoModelForQuestionAnswering
    collator = transformers.DataCollatorWithPadding

    def __init__(self, tokenizer: Any, options: argparse.Namespace, train: list[Feature]) -> None:
        self.tokenizer, self.options = tokenizer, options
        self.labels: list[str] = []

    def features(self, rows: list[Feature], *, with_labels: bool) -> list[Feature]:
        """Windows of passages, in the order of the questions.

        `stride` is how far windows overlap. So that the next one begins `window_step` tokens after
        a window, it depends on the length of the question: those of a length are encoded together.
        """
        questions = self.shortened([row["question"] for row in rows])
        encoded = self.tokenizer(questions, add_special_tokens=False)
        groups = defaultdict(list)
        for number, ids in enumerate(encoded["input_ids"]):
            groups[len(ids)].append(number)
        windows: list[list[Feature]] = [[] for _ in rows]
        for question_length, numbers in groups.items():
            room = self.options.length - question_length - 3
            step = self.options.window_step
            group = self.tokenizer(
                [questions[number] for number in numbers],
                [rows[number]["passage"] for number in numbers],
                truncation="only_second",
                max_length=self.options.length,
                stride=room - (step if step < room else room // 2),
                return_overflowing_tokens=True,
                return_offsets_mapping=True,
            )
            for index, of in enumerate(group["overflow_to_sample_mapping"]):
                feature = {name: group[name][index] for name in TOKENS}
                is_passage = [part == 1 for part in group.sequence_ids(index)]
                feature["offsets"] = [
                    offsets if inside else None
                    for offsets, inside in zip(
                        group["offset_mapping"][index], is_passage, strict=True
                    )
                ]
                feature["row"] = numbers[of]
                if with_labels:
                    start, end = answer_tokens(feature["offsets"], rows[numbers[of]]["answers"][0])
                    feature["start_positions"], feature["end_positions"] = start, end
                windows[numbers[of]].append(feature)
        return [window for of_row in windows for window in of_row]

    def shortened(self, questions: list[str]) -> list[str]:
        """The same with at most `QUESTION_LENGTH` tokens."""
        encoded = self.tokenizer(questions, add_special_tokens=False, return_offsets_mapping=True)
        return [
            question[: offsets[:QUESTION_LENGTH][-1][1]] if offsets else question
            for question, offsets in zip(questions, encoded["offset_mapping"], strict=True)
        ]

    def predictions(
        self, rows: list[Feature], features: list[Feature], outputs: list[dict[str, np.ndarray]]
    ) -> dict[str, str]:
        """The best span of each question."""
        best: dict[int, tuple[float, str]] = {}
        for feature, output in zip(features, outputs, strict=True):
            row = feature["row"]
            for score, start, end in best_spans(feature["offsets"], output):
                if row not in best or score > best[row][0]:
                    best[row] = score, rows[row]["passage"][start:end]
        return {row["id"]: best.get(number, (0.0, ""))[1] for number, row in enumerate(rows)}

    def metrics(self, rows: list[Feature], predictions: dict[str, str]) -> dict[str, float]:
        """Only the share of answers that are right letter by letter: no library has SQuAD's own."""
        right = [
            predictions[row["id"]] in {answer["text"] for answer in row["answers"]} for row in rows
        ]
        return {"same_text": 100 * float(np.mean(right))}


def answer_tokens(
    offsets: Sequence[tuple[int, int] | None], answer: dict[str, Any]
) -> tuple[int, int]:
    """First and last token of an answer in a window; (0, 0) where not all of it is in there."""
    start, end = answer["answer_start"], answer["answer_start"] + len(answer["text"])
    places = [place for place, offset in enumerate(offsets) if offset is not None]
    bounds = [offset for offset in offsets if offset is not None]
    if not bounds or bounds[0][0] > start or bounds[-1][1] < end:
        return 0, 0
    first = max(place for place, (begin, _) in zip(places, bounds, strict=True) if begin <= start)
    last = min(place for place, (_, stop) in zip(places, bounds, strict=True) if stop >= end)
    return first, last


def best_spans(
    offsets: Sequence[tuple[int, int] | None], output: dict[str, np.ndarray]
) -> Iterator[tuple[float, int, int]]:
    """Score and characters of spans between the best starts and the best ends of a window."""
    # What stands behind the window's own tokens is padding.
    start_logits, end_logits = (
        output[name][: len(offsets)] for name in ("start_logits", "end_logits")
    )
    ends = np.argsort(-end_logits)[:N_BEST].tolist()
    for start in np.argsort(-start_logits)[:N_BEST].tolist():
        for end in ends:
            first, last = offsets[start], offsets[end]
            if first and last and start <= end < start + ANSWER_LENGTH:
                yield float(start_logits[start] + end_logits[end]), first[0], last[1]


TASKS: dict[str, Any] = {
    "mrpc": Classification,
    "conll2003": Tagging,
    "squad": Answering,
}
