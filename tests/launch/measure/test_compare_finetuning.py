"""The scripts under launch/ that measure fine-tuning: what they draw, count, show and refuse."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from bert_jax.config import load_config
from bert_jax.data.readers.tagged import read_tagged
from bert_jax.errors import UserError
from bert_jax.models.config import Head

LAUNCH = Path(__file__).parents[3] / "launch" / "measure"


def test_every_row_of_the_table_is_a_valid_config(script):
    table = script("finetuning_table")
    for key, row in table.ROWS.items():
        words = table.command(row, "DATA", "MADE", "MODEL", "2", "RUN")
        options = [word.removeprefix("--config.") for word in words if "--config." in word]
        overrides = [tuple(option.split("=", 1)) for option in options]
        config = load_config(str(LAUNCH.parents[1] / words[2]), overrides)
        assert (config.init_from, config.seed) == ("MODEL", 2), key
        assert "{" not in f"{config.data.train}{config.data.validation}", key


def test_the_command_of_a_row_is_what_a_person_would_type(script):
    assert script("finetuning_table").shown_command("wnli") == (
        "bert-jax train --config configs/glue.py:task=wnli --workdir runs/wnli-0 "
        "--config.init_from=MODEL --config.data.directory=DATA/glue/WNLI "
        "--config.optimizer.learning_rate=5e-5 --config.seed=0"
    )


def test_the_table_shows_percents_of_all_seeds(script):
    of_row = {
        "scores": [
            {"accuracy": 0.5, "accuracy_majority": 0.25},
            {"accuracy": 0.7, "accuracy_majority": 0.25},
        ],
        "seconds": [10.0, 14.0],
        "seeds": [0, 1],
        "command": "bert-jax train …",
    }
    text = script("finetuning_table").as_markdown({"wnli": of_row})
    cells = "`glue.py:task=wnli` | validation set | accuracy 60.0 ± 14.1 | 25.0 | 2 | 12"
    assert f"| WNLI | {cells} |\n" in text
    assert "```sh\nbert-jax train …\n```" in text


def test_trec_becomes_a_table_and_keeps_its_quotation_marks(script, tmp_path):
    (tmp_path / "classification").mkdir()
    for split in ("train", "test"):
        path = tmp_path / f"classification/TREC.{split}.all"
        path.write_text('0 What is "it" ?\n5 How many ?\n')
    script("finetuning_table").make_trec(tmp_path, tmp_path)
    expected = 'label\ttext\n0\tWhat is "it" ?\n5\tHow many ?\n'
    assert (tmp_path / "trec-test.tsv").read_text() == expected


def test_what_has_run_is_not_run_again_and_not_taken_for_something_else(script, tmp_path):
    once = script("timed_runs").once
    calls = []

    def work():
        calls.append(1)
        return {"f1": 0.5}

    path = tmp_path / "deep" / "run.json"
    first = once(path, {"seed": 0, "shape": (1, 2)}, work)
    assert once(path, {"seed": 0, "shape": (1, 2)}, work) == first
    assert (len(calls), first["f1"]) == (1, 0.5)
    with pytest.raises(UserError, match="other settings"):
        once(path, {"seed": 1, "shape": (1, 2)}, work)


def test_a_command_gives_its_output_and_its_time(script, tmp_path):
    runs = script("timed_runs")
    program = "import os; print('noise'); print('{\"a\": \"' + os.environ['WORD'] + '\"}')"
    output, times = runs.run([sys.executable, "-c", program], tmp_path / "log", {"WORD": "found"})
    assert runs.last_json(output) == {"a": "found"}
    assert set(times) == {"seconds", "processor_seconds"}


def test_a_command_that_fails_shows_the_end_of_its_log(script, tmp_path, capsys):
    program = "import sys; print('what went wrong', file=sys.stderr); sys.exit(3)"
    with pytest.raises(UserError, match="ended with 3; see .*log"):
        script("timed_runs").run([sys.executable, "-c", program], tmp_path / "log")
    assert capsys.readouterr().err == "what went wrong\n"


@pytest.mark.parametrize(
    ("values", "expected"), [([0.5], "0.50"), ([0.5, 0.7], "0.60 ± 0.14"), ([3, 3], "3.00 ± 0.00")]
)
def test_mean_and_deviation(script, values, expected):
    assert script("timed_runs").mean_and_deviation(values, 2) == expected


def write_sentences(data: Path, count: int) -> None:
    (data / "ner/conll2003").mkdir(parents=True)
    blocks = [f"Ada{number} NNP I-NP I-PER\nran VBD I-VP O\n" for number in range(count)]
    for name in ("eng.train", "eng.testa"):
        path = data / "ner/conll2003" / name
        path.write_text("-DOCSTART- -X- O O\n\n" + "\n".join(blocks))


def test_both_sides_get_the_same_sentences_in_their_order(script, tmp_path):
    tasks = script("comparison_tasks")
    write_sentences(tmp_path, 50)
    conll = tasks.COMPARISONS["conll2003"]
    paths = [
        tasks.choose(conll, conll.train, tmp_path, 10, tmp_path / folder) for folder in ("a", "b")
    ]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    bert_jax_rows = [(sentence.words, sentence.tags) for sentence in read_tagged(paths[0])]
    numbers = [int(words[0].removeprefix("Ada")) for words, _ in bert_jax_rows]
    assert len(numbers) == 10
    assert numbers == sorted(numbers) != list(range(10))
    assert {tags for _, tags in bert_jax_rows} == {("B-PER", "O")}  # IOB2


def test_questions_keep_their_answers_when_they_are_drawn(script, tmp_path):
    tasks = script("comparison_tasks")
    questions = [
        {"id": f"q{n}", "question": "who?", "answers": [{"text": "Ada", "answer_start": 0}]}
        for n in range(3)
    ]
    paragraphs = [{"context": "Ada ran.", "qas": questions}]
    path = tmp_path / "squad/train-v1.1.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"data": [{"title": "x", "paragraphs": paragraphs}]}))
    squad = tasks.COMPARISONS["squad"]
    chosen = tasks.choose(squad, squad.train, tmp_path, 2, tmp_path / "out")
    gold = tasks.gold_answers(tasks.read_questions(chosen))
    assert len(gold) == 2
    assert list(gold.values()) == [["Ada"], ["Ada"]]
    assert tasks.squad_score(chosen, dict.fromkeys(gold, "ada")) == {
        "exact match": 100.0,
        "F1": 100.0,
    }


def test_scores_of_both_sides_are_those_of_the_official_scripts(script, tmp_path):
    tasks = script("comparison_tasks")
    mrpc = tmp_path / "dev.tsv"
    mrpc.write_text(tasks.mrpc_whole([f"{label}\t1\t2\tone\ttwo" for label in (1, 1, 0, 0)]))
    # Two of three answers "1" are right, and both paraphrases are found: F1 = 2·2/(3 + 2).
    assert tasks.mrpc_score(mrpc, ["1", "1", "1", "0"]) == {"accuracy": 75.0, "F1": 80.0}
    conll = tmp_path / "dev.conll"
    conll.write_text("Ada\tB-PER\nran\tO\n\nOslo\tB-LOC\n\n")
    assert tasks.conll_score(conll, [["B-PER", "O"], ["O"]])["entity F1"] == pytest.approx(200 / 3)


def test_the_comparison_shows_both_sides(script, tmp_path):
    compare = script("compare_finetuning")

    def result(score, seconds, **others):
        scores = {"F1": score}
        return {"scores": scores, "seconds": seconds, "processor_seconds": 2 * seconds, **others}

    ours = [result(80, 30, compile_seconds=8.2), result(82, 10, compile_seconds=0.1)]
    found = {"squad": {"bert_jax": ours, "peer": [result(81, 40)]}}
    assert compare.table(found).splitlines()[2:] == [
        "| squad | bert_jax | F1 81.00 ± 1.41 | 30, 10 | 8, 0 | 20 | 0.50 | 40 |",
        "| squad | PyTorch + transformers | F1 81.00 | 40 | – | 40 | 1.00 | 80 |",
    ]
    compare.draw(found, tmp_path / "comparison.png")
    assert (tmp_path / "comparison.png").read_bytes().startswith(b"\x89PNG")


def test_the_seconds_of_all_compilations_are_summed(script):
    log = (
        "WARNING:jax._src.dispatch:Finished XLA compilation of jit(step) in 4.25 sec\n"
        "WARNING:jax._src.dispatch:Finished tracing + transforming step for pjit in 9 sec\n"
        "training:  50%|\rWARNING:jax._src.dispatch:"
        "Finished XLA compilation of jit(f) in 2.5e-01 sec\n"
    )
    assert script("compare_finetuning").compile_seconds(log) == 4.5


def test_missing_data_are_one_line(script, tmp_path):
    places = ["--data", str(tmp_path), "--model", "m", "--output", str(tmp_path / "out")]
    with pytest.raises(SystemExit, match=r"has none of glue/MRPC/train.tsv; give another"):
        script("compare_finetuning").main(["--task", "mrpc", *places])
    with pytest.raises(SystemExit):
        script("finetuning_table").main(["--rows", "nonsense", *places])


@pytest.fixture
def peer_tokenizer(pieces, tmp_path):
    transformers = pytest.importorskip("transformers")
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    return transformers.BertTokenizerFast(vocab=str(tmp_path / "vocab.txt"))


@pytest.mark.slow
def test_the_peer_cuts_passages_where_we_do(script, peer_tokenizer, tokenizer):
    import argparse

    from bert_jax.data.windows.passages import PassageWindows

    passage = "the cat sat on the mat . it was warm . the dogs walked up and down to the sea ."
    asked = [("the cat ?", passage), ("went the boy up to it ?", passage), ("cat", "a dog .")]
    rows = [
        {
            "id": str(number),
            "question": question,
            "passage": text,
            "answers": [{"text": text[:5], "answer_start": 0}],
        }
        for number, (question, text) in enumerate(asked)
    ]
    # With a step of 12, only the first question leaves room for windows that overlap.
    for step in (2, 5, 12):
        options = argparse.Namespace(length=18, window_step=step)
        task = script("peer_tasks").Answering(peer_tokenizer, options, rows)
        peer_rows = [
            (window["row"], window["input_ids"], window["token_type_ids"])
            for window in task.features(rows, with_labels=True)
        ]
        windows = PassageWindows(tokenizer, 18, step, 64)(asked)
        bert_jax_rows = [
            (row, list(window.ids), list(window.type_ids))
            for row, windows_of_row in enumerate(windows)
            for window in windows_of_row
        ]
        assert peer_rows == bert_jax_rows


@pytest.mark.slow
def test_the_peer_finds_the_tokens_of_an_answer(script):
    pytest.importorskip("transformers")
    tasks = script("peer_tasks")
    # [CLS] the cat [SEP] the dog ##s ran [SEP]
    offsets = [None, None, None, None, (0, 3), (4, 7), (7, 8), (9, 12), None]
    assert tasks.answer_tokens(offsets, {"text": "dogs", "answer_start": 4}) == (5, 6)
    assert tasks.answer_tokens(offsets, {"text": "ran on", "answer_start": 9}) == (0, 0)


@pytest.mark.slow
def test_the_peer_answers_with_the_best_span_of_the_passage(script):
    pytest.importorskip("transformers")
    # [CLS] who [SEP] the dog ran [SEP], and two positions of padding with high scores.
    offsets = [None, None, None, (0, 3), (4, 7), (8, 11), None]
    output = {
        "start_logits": np.array([9.0, 0.0, 0.0, 1.0, 3.0, 0.0, 0.0, 8.0, 8.0]),
        "end_logits": np.array([9.0, 0.0, 0.0, 5.0, 1.0, 2.0, 0.0, 8.0, 8.0]),
    }
    found = list(script("peer_tasks").best_spans(offsets, output))
    # "the" is first, then "dog ran"; "dog … the" is no span.
    assert max(found) == (6.0, 0, 3)
    assert sorted(found)[-2] == (5.0, 4, 11)
    assert len(found) == 6


@pytest.mark.slow
def test_both_sides_run_on_a_tiny_model(script, tokenizer, tiny_config, tmp_path, capsys):
    import jax

    from bert_jax.checkpoints import model_directory
    from bert_jax.checkpoints.config_file import ModelDescription
    from bert_jax.models.encoder import init_params
    from bert_jax.models.execution import Execution

    pytest.importorskip("transformers")
    write_sentences(tmp_path, 12)
    description = ModelDescription(tiny_config, Head.ENCODER)
    params = init_params(description.make_module(Execution()), jax.random.key(0))
    model_directory.save(tmp_path / "model", description, params, tokenizer)
    places = {"--data": tmp_path, "--model": tmp_path / "model", "--output": tmp_path / "out"}
    words = [str(word) for place in places.items() for word in place]
    words += ["--task", "conll2003", "--seeds", "4", "--epochs", "1", "--length", "32"]
    script("compare_finetuning").main(words)
    first = capsys.readouterr()
    assert "| conll2003 | bert_jax | entity F1 " in first.out
    assert "| conll2003 | PyTorch + transformers | entity F1 " in first.out
    script("compare_finetuning").main(words)  # from the files
    again = capsys.readouterr()
    assert (again.out, again.err) == (first.out, "")
