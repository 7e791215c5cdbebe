"""The files of GLUE, two rows each, as the benchmark lays them out."""

import pytest

from bert_jax.data.readers.columns import TextOptions
from bert_jax.data.readers.glue import GLUE
from bert_jax.data.readers.texts import read_texts
from bert_jax.errors import UserError

MNLI = "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
MNLI += "sentence1_parse\tsentence2_parse\tsentence1\tsentence2"
MNLI_ROW = "0\t63735\t63735n\tslate\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tA.\tB."

# Task, file, text, pair, label, id.
FILES = [
    ("cola", 'gj04\t0\t*\tThe "box.\ngj04\t1\t\tBill sank.\n', 'The "box.', None, "0", "0"),
    ("cola", "index\tsentence\n4\tBill ran.\n", "Bill ran.", None, None, "4"),
    ("sst2", "sentence\tlabel\nhide new \t0\n", "hide new ", None, "0", "0"),
    ("sst2", "index\tsentence\n0\tuneasy .\n", "uneasy .", None, None, "0"),
    (
        "mrpc",
        '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t7\t8\t" A "\tB\r\n',
        *('" A "', "B", "1", "0"),
    ),
    (
        "mrpc",
        "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n3\t1\t2\tA\tB\n",
        *("A", "B", None, "3"),
    ),
    (
        "stsb",
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
        "0\tmain\tMSR\t2012\t1\tnone\tnone\tA plane.\tAn air plane.\t5.000\n",
        *("A plane.", "An air plane.", 5.0, "0"),
    ),
    (
        "stsb",
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\n"
        "7\tmain\tMSR\t2012\t1\tnone\tnone\tA.\tB.\n",
        *("A.", "B.", None, "7"),
    ),
    (
        "qqp",
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n133273\t1\t2\tA?\tB?\t0\n",
        *("A?", "B?", "0", "133273"),
    ),
    ("qqp", "id\tquestion1\tquestion2\n0\tA?\tB?\n", "A?", "B?", None, "0"),
    (
        "mnli",
        f"{MNLI}\tlabel1\tgold_label\n{MNLI_ROW}\tneutral\tentailment\n",
        *("A.", "B.", "entailment", "0"),
    ),
    (
        "mnli",
        f"{MNLI}\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label\n"
        f"{MNLI_ROW}\tneutral\tneutral\tneutral\tneutral\tneutral\tcontradiction\n",
        *("A.", "B.", "contradiction", "0"),
    ),
    ("mnli", f"{MNLI}\n{MNLI_ROW}\n", "A.", "B.", None, "0"),
    ("mnli", "index\tsentence1\tsentence2\n9\tA.\tB.\n", "A.", "B.", None, "9"),
    (
        "qnli",
        "index\tquestion\tsentence\tlabel\n2\tWhat?\tThat.\tnot_entailment\n",
        *("What?", "That.", "not_entailment", "2"),
    ),
    ("qnli", "index\tquestion\tsentence\n2\tWhat?\tThat.\n", "What?", "That.", None, "2"),
    (
        "rte",
        "index\tsentence1\tsentence2\tlabel\n1\tA\tB\tentailment\n",
        "A",
        "B",
        "entailment",
        "1",
    ),
    ("rte", "index\tsentence1\tsentence2\n1\tA\tB\n", "A", "B", None, "1"),
    ("wnli", "index\tsentence1\tsentence2\tlabel\n1\tA\tB\t1\n", "A", "B", "1", "1"),
    ("wnli", "index\tsentence1\tsentence2\n1\tA\tB\n", "A", "B", None, "1"),
]


def read(path, content, task, **options):
    path.write_bytes(content.encode())
    return list(read_texts(path, TextOptions(f"glue:{task}", **options)))


@pytest.mark.parametrize(("task", "content", "text", "pair", "label", "id"), FILES)
def test_files_of_every_task(tmp_path, task, content, text, pair, label, id):
    first = read(tmp_path / "train.tsv", content, task)[0]
    assert (first.input, first.label, first.id) == (
        (text, pair) if pair else text,
        label,
        id,
    )


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


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        ("rte", "index\tsentence1\tsentence2\tlabel\n1\tA\tB\tmaybe\n", "a.tsv:2: the label 'mayb"),
        (
            "rte",
            "index\tsentence1\tsentence2\tlabel\n1\tA\tentailment\n",
            "a.tsv:2: 3 fields, but t",
        ),
        ("stsb", "sentence1\tsentence2\tscore\nA\tB\tx\n", "a.tsv:2: 'score' is 'x', which is not"),
        ("mrpc", "sentence1\tsentence2\n", "a.tsv:1: there is no column '#1 String', only 'sente"),
        ("cola", "a\tb\n", "a.tsv:1: 2 fields, but the first row has 4"),
    ],
)
def test_rows_that_are_none_of_glue(tmp_path, task, content, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path / "a.tsv", content, task)


def test_layouts():
    assert list(GLUE) == ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli"]
    assert [name for name, layout in GLUE.items() if layout.regression] == ["stsb"]
    assert [name for name, layout in GLUE.items() if not layout.pair] == ["cola", "sst2"]
    assert {name: layout.metric for name, layout in GLUE.items()} == {
        "cola": "matthews_correlation",
        "sst2": "accuracy",
        "mrpc": "f1",
        "stsb": "pearson",
        "qqp": "f1",
        "mnli": "accuracy",
        "qnli": "accuracy",
        "rte": "accuracy",
        "wnli": "accuracy",
    }
    assert {name for layout in GLUE.values() for name in layout.test.values()} == {
        *("CoLA.tsv", "SST-2.tsv", "MRPC.tsv", "STS-B.tsv", "QQP.tsv"),
        *("MNLI-m.tsv", "MNLI-mm.tsv", "QNLI.tsv", "RTE.tsv", "WNLI.tsv"),
    }
    assert GLUE["mnli"].validation == ("dev_matched.tsv", "dev_mismatched.tsv")
    assert GLUE["rte"].classes == ("entailment", "not_entailment")
