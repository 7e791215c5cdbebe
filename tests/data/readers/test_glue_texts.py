"""GLUE's rows as T5 reads and writes them."""

import pytest

from bert_jax.data.readers.glue import GLUE
from bert_jax.data.readers.glue_texts import as_answer, as_source
from bert_jax.data.readers.parallel import ParallelOptions, read_parallel
from bert_jax.errors import UserError

PAIR = ("One.", "Two.")


@pytest.mark.parametrize(
    ("task", "text", "label", "source", "answer"),
    [
        ("cola", "One.", "0", "cola sentence: One.", "unacceptable"),
        ("sst2", "One.", "1", "sst2 sentence: One.", "positive"),
        ("mrpc", PAIR, "1", "mrpc sentence1: One. sentence2: Two.", "equivalent"),
        ("stsb", PAIR, 3.25, "stsb sentence1: One. sentence2: Two.", "3.2"),
        ("stsb", PAIR, 5.0, "stsb sentence1: One. sentence2: Two.", "5.0"),
        ("qqp", PAIR, "0", "qqp question1: One. question2: Two.", "not_duplicate"),
        ("mnli", PAIR, "neutral", "mnli hypothesis: Two. premise: One.", "neutral"),
        ("qnli", PAIR, "entailment", "qnli question: One. sentence: Two.", "entailment"),
        ("rte", PAIR, "not_entailment", "rte sentence1: One. sentence2: Two.", "not_entailment"),
        ("wnli", PAIR, "1", "wnli sentence1: One. sentence2: Two.", "entailment"),
    ],
)
def test_each_task(task, text, label, source, answer):
    assert as_source(task, text) == source
    assert as_answer(task, label) == answer


def test_files_are_read_by_their_format(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text("sentence\tlabel\na smile\t1\nno plot\t0\n")
    options = ParallelOptions("glue:sst2")
    found = [(each.input, each.label, each.id) for each in read_parallel(path, options)]
    assert found == [
        ("sst2 sentence: a smile", ("positive",), "0"),
        ("sst2 sentence: no plot", ("negative",), "1"),
    ]
    path.write_text("index\tsentence\n0\ta smile\n")  # a test file
    assert [each.label for each in read_parallel(path, options)] == [None]
    with pytest.raises(UserError, match="label"):
        list(read_parallel(path, options, needs_targets=True))
    for name in GLUE:
        ParallelOptions(f"glue:{name}")
    with pytest.raises(UserError, match="data.format is 'glue:x'; known are .*glue:cola"):
        ParallelOptions("glue:x")
