"""The files of an evaluation for people: predictions with their texts, mistakes, reports."""

import json

import numpy as np
import pytest

from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.data.examples import Example, Sentence
from bert_jax.data.readers.tagged import read_tagged
from bert_jax.inference.evaluation import write_files, write_result
from bert_jax.models.head import with_fields
from bert_jax.tasks.base.labelled_options import LabelledOptions
from bert_jax.tasks.base.splits import EvalSet, Splits
from bert_jax.tasks.classification.problems import SingleLabel
from bert_jax.tasks.classification.task import ClassificationEvaluator
from bert_jax.tasks.tagging.tagged_words import TaggedWord, Tagging
from bert_jax.tasks.tagging.tags import TagSet, read_tags
from bert_jax.tasks.tagging.task import TaggingEvaluator


@pytest.fixture
def write_set(tiny_config, tmp_path):
    """Writes the files of a set; returns the content of one by its ending."""

    def write(evaluator, labels, problem, examples, predictions):
        config = with_fields(tiny_config, {"num_labels": len(labels)})
        description = ModelDescription(config, "classification", labels=labels)
        made = evaluator(None, None, description, *problem)
        eval_set = EvalSet("validation", "a.tsv", examples)
        write_files(tmp_path, made.set_files(eval_set, predictions))
        return lambda ending: (tmp_path / f"validation.{ending}").read_text()

    return write


def test_classes_with_texts_and_the_worst_mistakes(write_set):
    examples = [
        Example("a cat", "1", "0", "a.tsv:2"),
        Example(("a\tdog", "it ran"), "1", "1", "a.tsv:3"),
        Example("a sun", "0", "2", "a.tsv:4"),
    ]
    shares = [[0.75, 0.25], [0.9, 0.1], [0.8, 0.2]]
    labels = ("0", "1")
    problem = SingleLabel(labels), {}
    logits = [np.log(np.float32(each)) for each in shares]
    read = write_set(ClassificationEvaluator, labels, problem, examples, logits)
    first, second, _ = (json.loads(line) for line in read("jsonl").splitlines())
    assert [*first] == ["id", "text", "expected", "label", "score", "probabilities"]
    assert (second["text"], second["text_pair"]) == ("a\tdog", "it ran")
    assert read("mistakes.tsv") == (
        "location\tid\texpected\tpredicted\tscore\ttext\n"
        "a.tsv:3\t1\t1\t0\t0.9\ta dog / it ran\n"
        "a.tsv:2\t0\t1\t0\t0.75\ta cat\n"
    )
    assert read("report.txt").endswith("gold \\ predicted  0  1\n0                 1  0\n1"
                                       "                 2  0")  # fmt: skip


def test_an_evaluation_has_its_files_and_writes_none(tiny_config, tmp_path, monkeypatch):
    """The evaluator names them and their content; `write_result` is what writes them."""
    monkeypatch.chdir(tmp_path)
    labels, examples = ("0", "1"), [Example("a cat", "1", "0", "a.tsv:2")]
    config = with_fields(tiny_config, {"num_labels": 2})
    description = ModelDescription(config, "classification", labels=labels)
    splits = Splits([], [], [EvalSet("validation", "a.tsv", examples)], [])
    options = LabelledOptions("accuracy", batch_size=1, length=8, seed=0)
    evaluator = ClassificationEvaluator(splits, options, description, SingleLabel(labels), {})
    object.__setattr__(evaluator, "predictor", lambda model: None)
    result = evaluator.evaluate(None, lambda *_: [np.log([0.75, 0.25])], with_test=True)
    assert result.metrics["accuracy"] == 0.0
    names = [
        f"validation.{end}" for end in ("jsonl", "report.txt", "confusion.png", "mistakes.tsv")
    ]
    assert [name for name, _ in evaluator.files(result)] == names
    assert not list(tmp_path.iterdir())
    write_result(tmp_path / "out", evaluator, result)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(names)


def test_tags_are_in_the_scheme_of_the_file(write_set):
    labels = ("O", "B-PER", "I-PER")
    words, gold = ("Ada", "Bob", "met", "Cid"), ("I-PER", "B-PER", "O", "I-PER")
    example = Example(Sentence(words), gold, "0", "a.tsv:1")
    tags = ("B-PER", "B-PER", "B-PER", "B-PER")  # one more entity than there is
    tagged = [TaggedWord(*pair, 0.5, 0, 1) for pair in zip(words, tags, strict=True)]
    predictions = [Tagging(tuple(tagged), ())]
    problem = (TagSet(labels, "iob2"),)
    read = write_set(TaggingEvaluator, labels, problem, [example], predictions)
    record = json.loads(read("jsonl"))
    assert record["expected"] == [*gold]
    assert record["tags"] == ["I-PER", "B-PER", "B-PER", "B-PER"]
    assert read("mistakes.tsv").splitlines()[1] == (
        "a.tsv:1\t0\tmet: O, Cid: I-PER\tmet: B-PER, Cid: B-PER\t0.5\tAda Bob met Cid"
    )
    report = read("report.txt")
    assert (
        report
        == """\
processed 4 tokens with 3 phrases; found: 4 phrases; correct: 3.
accuracy:  50.00%; precision:  75.00%; recall: 100.00%; FB1:  85.71
              PER: precision:  75.00%; recall: 100.00%; FB1:  85.71  4

By tag in IOB1, the scheme of the file:

class  precision  recall      f1  support
O         0.0000  0.0000  0.0000        1
B-PER     0.3333  1.0000  0.5000        1
I-PER     1.0000  0.5000  0.6667        2

words             4
accuracy     0.5000
macro f1     0.3889
weighted f1  0.4583
matthews     0.3873

gold \\ predicted  O  B-PER  I-PER
O                 0      1      0
B-PER             0      1      0
I-PER             0      1      1"""
    )


@pytest.mark.parametrize(
    ("file", "columns"),
    [
        # An I- that begins an entity stays one, as in seqeval: two of four tags are right.
        ("Ada B-PER\nBob I-PER\nmet O\nCid B-PER\n",
         "Ada B-PER I-PER\nBob I-PER I-PER\nmet O I-PER\nCid B-PER B-PER\n"),
        # Written otherwise, the file also has the tags that are compared.
        ("Ada x PER_B\nBob x PER_I\nmet x 0\nCid x PER_B\n",
         "Ada x PER_B B-PER I-PER\nBob x PER_I I-PER I-PER\nmet x 0 O I-PER\n"
         "Cid x PER_B B-PER B-PER\n"),
    ],
)  # fmt: skip
def test_every_file_has_the_tags_as_predicted(write_set, tmp_path, file, columns):
    (tmp_path / "a.txt").write_text(file)
    examples = read_tags("a.txt", read_tagged(tmp_path / "a.txt"))
    labels, tags = ("O", "B-PER", "I-PER"), ("I-PER", "I-PER", "I-PER", "B-PER")
    tagged = [
        TaggedWord(*pair, 0.5, 0, 1) for pair in zip(examples[0].input.words, tags, strict=True)
    ]
    predictions = [Tagging(tuple(tagged), ())]
    problem = (TagSet(labels, "iob2"),)
    read = write_set(TaggingEvaluator, labels, problem, examples, predictions)
    assert read("conll") == columns
    record = json.loads(read("jsonl"))
    assert (record["expected"], record["tags"]) == (["B-PER", "I-PER", "O", "B-PER"], [*tags])
    report = read("report.txt")
    assert "accuracy:  50.00%; precision:  50.00%; recall:  50.00%; FB1:  50.00" in report
    assert "By tag in IOB2, the scheme of the file:" in report
    metrics = TaggingEvaluator(None, None, None, *problem).metrics(examples, predictions)
    assert metrics == {"f1": 0.5, "precision": 0.5, "recall": 0.5, "accuracy": 0.5}
