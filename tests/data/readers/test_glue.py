"""The files of GLUE, two rows each, as the benchmark lays them out."""

import pytest

from bert_jax.data.readers.columns import TextOptions
from bert_jax.data.readers.glue import GLUE
from bert_jax.data.readers.texts import open_texts, read_texts
from bert_jax.errors import UserError

MNLI = "index|promptID|pairID|genre|sentence1_binary_parse|sentence2_binary_parse|"
MNLI += "sentence1_parse|sentence2_parse|sentence1|sentence2"
A_B = "0|63735|63735n|slate|( a )|( b )|(ROOT a)|(ROOT b)|A.|B."
STSB = "index|genre|filename|year|old_index|source1|source2|sentence1|sentence2"
PLANES = "0|main|MSR|2012|1|none|none|A plane.|An air plane."
PAIR = "index|sentence1|sentence2"
SIX_LABELS = "label1|label2|label3|label4|label5|gold_label"

# Task, lines with | for tabs, text or pair, label, id.
FILES = [
    ("cola", 'gj04|0|*|The "box.\ngj04|1||Bill sank.', 'The "box.', "0", "0"),
    ("cola", "index|sentence\n4|Bill ran.", "Bill ran.", None, "4"),
    ("sst2", "sentence|label\nhide new |0", "hide new ", "0", "0"),
    ("sst2", "index|sentence\n0|uneasy .", "uneasy .", None, "0"),
    ("mrpc", "\ufeffQuality|#1 ID|#2 ID|#1 String|#2 String\r\n1|7|8|\" A \"|B\r",
     ('" A "', "B"), "1", "0"),
    ("mrpc", "index|#1 ID|#2 ID|#1 String|#2 String\n3|1|2|A|B", ("A", "B"), None, "3"),
    ("stsb", f"{STSB}|score\n{PLANES}|5.000", ("A plane.", "An air plane."), 5.0, "0"),
    ("stsb", f"{STSB}\n{PLANES}", ("A plane.", "An air plane."), None, "0"),
    ("qqp", "id|qid1|qid2|question1|question2|is_duplicate\n133|1|2|A?|B?|0",
     ("A?", "B?"), "0", "133"),
    ("qqp", "id|question1|question2\n0|A?|B?", ("A?", "B?"), None, "0"),
    ("mnli", f"{MNLI}|label1|gold_label\n{A_B}|neutral|entailment",
     ("A.", "B."), "entailment", "0"),
    ("mnli", f"{MNLI}|{SIX_LABELS}\n{A_B}|neutral|neutral|neutral|neutral|neutral|contradiction",
     ("A.", "B."), "contradiction", "0"),
    ("mnli", f"{MNLI}\n{A_B}", ("A.", "B."), None, "0"),
    ("mnli", f"{PAIR}\n9|A.|B.", ("A.", "B."), None, "9"),
    ("qnli", "index|question|sentence|label\n2|What?|That.|not_entailment",
     ("What?", "That."), "not_entailment", "2"),
    ("qnli", "index|question|sentence\n2|What?|That.", ("What?", "That."), None, "2"),
    ("rte", f"{PAIR}|label\n1|A|B|entailment", ("A", "B"), "entailment", "1"),
    ("rte", f"{PAIR}\n1|A|B", ("A", "B"), None, "1"),
    ("wnli", f"{PAIR}|label\n1|A|B|1", ("A", "B"), "1", "1"),
    ("wnli", f"{PAIR}\n1|A|B", ("A", "B"), None, "1"),
]  # fmt: skip


def read(path, content, task, **options):
    path.write_bytes(content.encode())
    return list(read_texts(path, TextOptions(f"glue:{task}", **options)))


@pytest.mark.parametrize(("task", "lines", "text", "label", "id"), FILES)
def test_files_of_every_task(tmp_path, task, lines, text, label, id):
    first = read(tmp_path / "train.tsv", lines.replace("|", "\t") + "\n", task)[0]
    assert (first.input, first.label, first.id) == (text, label, id)


def test_a_file_without_header_loses_no_row(tmp_path):
    content = "gj04\t0\t*\tThey drank.\ngj04\t1\t\tBill sank.\n"
    rows = read(tmp_path / "train.tsv", content, "cola")
    assert [(row.input, row.label, row.id) for row in rows] == [
        ("They drank.", "0", "0"),
        ("Bill sank.", "1", "1"),
    ]


def test_broken_rows_and_empty_questions_of_qqp(tmp_path, capsys):
    content = (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
        "1\t2\t3\tA?\tB\n?\t0\n4\t5\t6\tC?\t\t1\n7\t8\t9\tD?\tE?\t0\n"
    )
    rows = read(tmp_path / "train.tsv", content, "qqp")
    assert [(row.id, row.input[1]) for row in rows] == [("4", ""), ("7", "E?")]
    path = tmp_path / "train.tsv"
    assert capsys.readouterr().err == (
        f"1 empty texts kept; the first: {path}:4\n"
        f"2 rows with a wrong number of columns skipped; the first: {path}:2\n"
    )
    # In prediction no row may be lost.
    message = "train.tsv:2: 5 fields, but the header has 6; fix"
    with (
        open_texts(path, TextOptions("glue:qqp")) as examples,
        pytest.raises(UserError, match=message),
    ):
        list(examples)


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        ("rte", "index\tsentence1\tsentence2\tlabel\n1\tA\tentailment\n", "2: 3 fields, but t"),
        ("stsb", "sentence1\tsentence2\tscore\nA\tB\tx\n", "2: 'score' is 'x', which is not"),
        ("mrpc", "sentence1\tsentence2\n", "1: there is no column '#1 String', only 'sente"),
        ("cola", "a\tb\n", "1: 2 fields, but the first row has 4"),
    ],
)
def test_errors(tmp_path, task, content, message):
    with pytest.raises(UserError, match=f"a.tsv:{message}"):
        read(tmp_path / "a.tsv", content, task)


def test_tasks_with_another_layout():
    assert list(GLUE) == ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli"]
    assert [name for name, layout in GLUE.items() if layout.regression] == ["stsb"]
    assert [name for name, layout in GLUE.items() if not layout.pair] == ["cola", "sst2"]
    metrics = {name: layout.metric for name, layout in GLUE.items() if layout.metric != "accuracy"}
    assert metrics == {
        "cola": "matthews_correlation", "mrpc": "f1", "stsb": "pearson", "qqp": "f1"
    }  # fmt: skip
    assert {name for layout in GLUE.values() for name in layout.test.values()} == {
        *("CoLA.tsv", "SST-2.tsv", "MRPC.tsv", "STS-B.tsv", "QQP.tsv"),
        *("MNLI-m.tsv", "MNLI-mm.tsv", "QNLI.tsv", "RTE.tsv", "WNLI.tsv"),
    }
    assert GLUE["mnli"].validation == ("dev_matched.tsv", "dev_mismatched.tsv")
