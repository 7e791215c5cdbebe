"""The verbs for models that exist: convert, predict, parity."""

import dataclasses
import json
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

import bert_jax
from bert_jax import cli
from tests.runs import completed


@pytest.fixture(scope="module")
def model(tmp_path_factory, make_model):
    """The tiny model with its pre-training heads, saved; nothing changes it."""
    directory = tmp_path_factory.mktemp("models") / "model"
    make_model("pretraining").save(directory)
    return directory


def test_predict_answers_line_by_line(model, tmp_path, capsys):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    rows = [{"id": 7, "text": "the cat sat ."}, {"id": 8, "text": "a dog ran", "text_pair": "up"}]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ["predict", "--model", model, "--task", "embed", "--input", source]
    arguments += ["--output", target, "--pooling", "cls", "--normalize", "--prompt", "the sea "]
    assert cli.main([str(argument) for argument in arguments]) == 0
    assert "2 records" in capsys.readouterr().err
    actual = [json.loads(line) for line in target.read_text().splitlines()]
    assert [record["id"] for record in actual] == [7, 8]
    expected = bert_jax.load(model).embed(
        ["the cat sat .", ("a dog ran", "up")], pooling="cls", normalize=True, prompt="the sea "
    )
    np.testing.assert_allclose([record["embedding"] for record in actual], expected, atol=1e-6)


def test_predict_gives_chosen_layers(model, tmp_path):
    source, target = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text("the cat\n")
    arguments = ["predict", "--model", model, "--task", "hidden_states", "--input", source]
    arguments += ["--output", target, "--layers", "-2,-1", "--option", "combine=concatenate"]
    assert cli.main([str(argument) for argument in arguments]) == 0
    record = json.loads(target.read_text())
    assert record["tokens"] == ["[CLS]", "the", "cat", "[SEP]"]
    width = bert_jax.load(model).config.hidden_size
    assert np.shape(record["hidden_states"]) == (4, 2 * width)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, make_model):
    """A saved classifier of texts."""
    directory = tmp_path_factory.mktemp("models") / "classifier"
    model = make_model("classification", num_labels=2)
    description = dataclasses.replace(model.description, labels=("no", "yes"))
    dataclasses.replace(model, description=description).save(directory)
    return directory


def test_predict_takes_the_task_of_the_model(classifier, tmp_path):
    source = tmp_path / "in.csv"
    source.write_text("1,the cat\n2,the sun\n")
    arguments = ["predict", "--model", str(classifier), "--input", str(source), "--no-header"]
    arguments += ["--text-column", "1", "--id-column", "0", "--output"]
    assert cli.main([*arguments, str(tmp_path / "out.tsv")]) == 0
    labels = [each.label for each in bert_jax.load(classifier).classify(["the cat", "the sun"])]
    expected = f"index\tprediction\n1\t{labels[0]}\n2\t{labels[1]}\n"
    assert (tmp_path / "out.tsv").read_text() == expected
    assert cli.main([*arguments, str(tmp_path / "out.jsonl")]) == 0
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [record["label"] for record in records] == labels
    assert cli.main([*arguments, str(tmp_path / "kept.tsv"), "--keep-columns", "1,0"]) == 0
    expected = f"1\t0\tprediction\nthe cat\t1\t{labels[0]}\nthe sun\t2\t{labels[1]}\n"
    assert (tmp_path / "kept.tsv").read_text() == expected


@pytest.mark.slow
def test_predict_answers_in_a_dialogue(classifier):
    """Each answer comes before the next line is written."""
    arguments = ["predict", "--model", str(classifier), "--input", "-", "--output", "-"]
    process = subprocess.Popen(
        [sys.executable, "-m", "bert_jax", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    predictions = bert_jax.load(classifier).classify(["the cat", "the sun"])
    expected = [prediction.label for prediction in predictions]
    actual = []
    for text in ("the cat", "the sun") * 2:
        process.stdin.write(f"{text}\n")
        process.stdin.flush()
        actual.append(json.loads(process.stdout.readline())["label"])
    assert actual == expected * 2
    # Stopped while it waits, it ends without a message of the interpreter.
    process.send_signal(signal.SIGINT)
    assert process.wait() == 75
    assert "Fatal" not in process.stderr.read()


def test_convert_makes_another_head_and_adds_words_and_positions(model, tmp_path, capsys):
    words = tmp_path / "words.txt"
    words.write_text("lighthouse\n\nfish\n")
    output = tmp_path / "converted"
    arguments = ["convert", "--input", model, "--output", output, "--task", "tagging"]
    markers = tmp_path / "markers.txt"
    markers.write_text("[E1]\n")
    arguments += ["--add-words", words, "--add-markers", markers, "--positions", 80]
    assert cli.main([str(argument) for argument in arguments]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"{output}: BertForTokenClassification, ")
    assert "new and untrained: classifier/bias, classifier/kernel" in said.err
    actual, before = bert_jax.load(output), bert_jax.load(model)
    assert actual.description.head == "tagging"
    assert actual.config.max_position_embeddings == 80
    assert actual.config.vocab_size == before.config.vocab_size + 3
    (encoding,) = actual.tokenizer.encode_batch(["the fish[E1]"])
    assert encoding.tokens == ["[CLS]", "the", "fish", "[E1]", "[SEP]"]


@pytest.mark.slow
def test_google_and_back(model, tmp_path):
    google, back = tmp_path / "google", tmp_path / "back"
    assert cli.main(["convert", "--input", str(model), "--output", str(google), "--to=google"]) == 0
    assert {path.name for path in google.iterdir()} >= {
        "bert_config.json",
        "vocab.txt",
        "bert_model.ckpt.index",
        "bert_model.ckpt.data-00000-of-00001",
    }
    assert cli.main(["convert", "--input", str(google), "--output", str(back)]) == 0
    before, after = (load_file(path / "model.safetensors") for path in (model, back))
    assert set(before) == set(after)
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)
    assert (back / "config.json").read_bytes() == (model / "config.json").read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"--task": "translate"}, "task 'translate' is unknown; known are alignments, att"),
        ({"--task": "tagging"}, "task 'tagging' needs a model with the head tagging"),
        ({"--output-format": "xml"}, "--output-format is 'xml'; this task has jsonl"),
        ({"--input-format": "xml"}, "--input-format is 'xml'; known are jsonl, tsv, csv"),
        ({"--max-length": "99"}, "--max-length is 99; this model takes 3 to 32 tokens"),
        ({"--batch-size": "0"}, "--batch-size is 0; it must be at least 1"),
        (
            {"--input-format": "tsv", "--text-column": "b"},
            "no column 'b', only 'the cat'; set --te",
        ),
        (
            {"--task": "hidden_states", "--layers": "last"},
            "--layers is 'last'; give whole numbers, such as -4,-3,-2,-1",
        ),
        (
            {"--pooling": "max", "--option": "pooling=cls"},
            "--pooling is 'cls'; it is set without --option; leave --option out",
        ),
        ({"--option": "layer=1"}, "layer is '1'; task 'embed' has no such option; it has"),
        ({"--task": "hidden_states", "--layers": "9"}, "layer"),
        ({"--pooling": "median"}, "median"),
        (
            {"--precision": "float8"},
            "precision is 'float8'; known are auto, float32, bfloat16",
        ),
        ({"--task": "fill_mask"}, "in.txt"),  # the text has no mask: file and line
        ({"--input": "nowhere.txt"}, "nowhere.txt"),
        ({"--model": "./nowhere"}, "./nowhere does not exist"),
    ],
)
def test_predict_refuses(model, tmp_path, capsys, changes, message):
    (tmp_path / "in.txt").write_text("the cat\n")
    flags = {
        "--model": model,
        "--task": "embed",
        "--input": tmp_path / "in.txt",
        "--output": tmp_path / "out.jsonl",
    }
    arguments = [part for pair in (flags | changes).items() for part in pair]
    assert cli.main(["predict", *map(str, arguments)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert message in said[-1]
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--task", "cooking"],
            "task 'cooking' is unknown; known are causal_lm, classification, ",
        ),
        (
            ["--add-words", "nowhere.txt"],
            "nowhere.txt: No such file or directory; give a file",
        ),
        (["--hidden-act", "prelu"], "hidden-act is 'prelu'"),
    ],
)
def test_convert_refuses(model, tmp_path, refused, arguments, message):
    output = tmp_path / "converted"
    line = refused("convert", "--input", model, "--output", output, *arguments)
    assert message in line
    assert not output.exists()


def test_parity_without_pytorch_is_one_line(model, monkeypatch, capsys):
    for library in ("torch", "transformers"):  # None: installed or not, it cannot be imported
        monkeypatch.setitem(sys.modules, library, None)
    assert cli.main(["parity", "--model", str(model)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "pip install" in line
    assert "torch" in line


@pytest.mark.slow
def test_parity_agrees_with_itself_and_names_a_cause(model, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")

    def parity(*arguments: object) -> subprocess.CompletedProcess[str]:
        return completed([sys.executable, "-m", "bert_jax", "parity", "--model", *arguments])

    same = parity(model)
    assert same.returncode == 0, same.stderr
    assert "agrees" in same.stdout.splitlines()[-1]
    other = tmp_path / "other"
    arguments = ["convert", "--input", model, "--output", other, "--hidden-act", "relu"]
    assert cli.main([str(argument) for argument in arguments]) == 0
    differs = parity(model, "--reference", other, "--json")
    assert differs.returncode == 1, differs.stderr
    assert "activation" in differs.stdout


@pytest.mark.slow
def test_a_stopped_predict_is_continued(model, tmp_path):
    source, target = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text("the cat sat on the mat .\n" * 400_000)
    arguments = ["predict", "--model", model, "--task", "embed", "--input", source]
    process = subprocess.Popen(
        [sys.executable, "-m", "bert_jax", *map(str, [*arguments, "--output", target])],
        stderr=subprocess.PIPE,
        text=True,
    )
    partial = tmp_path / "out.jsonl.partial"
    written = partial / "out.jsonl"
    while not written.exists() or written.stat().st_size < 3_000_000:
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == 75
    pattern = r"bert-jax: stopped; the same command continues after ([\d,]+) predictions$"
    rows = re.search(pattern, errors.splitlines()[-1])[1]
    count = json.loads((partial / ".record.json").read_text())["count"]
    assert count == int(rows.replace(",", ""))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.jsonl.partial"]
