"""SQuAD's questions as T5 reads and writes them."""

import json

import pytest

from bert_jax.data.examples import Question
from bert_jax.data.readers.parallel import ParallelOptions, read_parallel
from bert_jax.data.readers.squad_texts import as_source
from bert_jax.errors import OptionError, UserError

CONTEXT = "Goethe wrote Faust in Weimar."
OPTIONS = ParallelOptions("squad")


@pytest.fixture
def squad(tmp_path):
    """Writes questions, each with its accepted answers; None: unknown."""

    def write(**questions):
        rows = []
        for text, answers in questions.items():
            row = {"id": text, "question": f"{text}?"}
            if answers is not None:
                spans = [{"text": each, "answer_start": CONTEXT.index(each)} for each in answers]
                row |= {"answers": spans, "is_impossible": not answers}
            rows.append(row)
        article = {"title": "Faust", "paragraphs": [{"context": CONTEXT, "qas": rows}]}
        path = tmp_path / "dev.json"
        path.write_text(json.dumps({"version": "1.1", "data": [article]}))
        return path

    return write


def test_the_form():
    assert as_source(Question("Who?", "He did.")) == "question: Who? context: He did."


def test_all_answers_are_accepted(squad):
    path = squad(Who=["Goethe"], Where=["Weimar", "in Weimar"])
    found = [(each.input, each.label, each.id) for each in read_parallel(path, OPTIONS)]
    assert found == [
        (f"question: Who? context: {CONTEXT}", ("Goethe",), "Who"),
        (f"question: Where? context: {CONTEXT}", ("Weimar", "in Weimar"), "Where"),
    ]


def test_a_file_without_answers_can_be_predicted_only(squad):
    path = squad(Who=None)
    assert [each.label for each in read_parallel(path, OPTIONS)] == [None]
    with pytest.raises(UserError, match="the source has no target"):
        list(read_parallel(path, OPTIONS, needs_targets=True))


def test_questions_without_an_answer_are_refused_or_left_out(squad, capfd):
    path = squad(Who=["Goethe"], When=[])
    with pytest.raises(OptionError, match="the source or the target is empty") as error:
        list(read_parallel(path, OPTIONS))
    assert error.value.key == "data.empty"
    skipping = ParallelOptions("squad", empty="skip")
    assert [each.id for each in read_parallel(path, skipping)] == ["Who"]
    assert "pairs with an empty text left out: 1" in capfd.readouterr().err


def test_a_file_without_its_format_is_told_to_have_one(squad):
    with pytest.raises(OptionError, match=r"only 'title', 'paragraphs'; set data.format=squad$"):
        list(read_parallel(squad(Who=["Goethe"]), ParallelOptions()))
