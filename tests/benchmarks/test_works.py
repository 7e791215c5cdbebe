"""The table of works: documented commands, configs of data sets, samples; real works, tiny."""

import argparse
import dataclasses
import gzip
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import retrieval, samples
from benchmarks.__main__ import combinations, parse
from benchmarks.collection import collection
from benchmarks.texts import uneven_texts
from benchmarks.works import ACCELERATOR, WORKS
from bert_jax import cli
from bert_jax.config import load_config
from bert_jax.data.readers.collection import open_collection, read_queries
from bert_jax.data.readers.judgements import read_judgements

ROOT = Path(__file__).parents[2]


def test_every_documented_command_is_parsed():
    pages = [
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "benchmarks").rglob("*.md"),
        ROOT / "README.md",
    ]
    text = "\n".join(page.read_text() for page in [*pages, *(ROOT / "configs").glob("*.py")])
    commands = set(re.findall(r"python -m\s+benchmarks ([^`#…]*?)(?:\n\s*\n|`|#|$|\n    )", text))
    assert len(commands) > 15
    for command in commands | set(ACCELERATOR):
        options = parse(shlex.split(command))
        if options.work != "accelerator":
            work = WORKS[options.work]
            defaults = {name: kind() if isinstance(kind, type) else kind
                        for name, kind in work.options.items()}  # fmt: skip
            work = dataclasses.replace(work, options=defaults)
            assert list(combinations(work, options.options, tiny=False)), command


def check_command(template, config, **more):
    """Parses a command line of `bert-jax train`, and its config."""
    values = {"run": "RUN", "seed": 2, "output": "OUT", **more, "config": config, "model": "MODEL"}
    program, *words = shlex.split(template.format(**values))
    assert program == "bert-jax"
    options = cli.parse(words)
    return load_config(options.config, options.overrides)


@pytest.mark.parametrize("name", samples.CONFIGS)
def test_every_data_set_is_a_valid_config(name):
    files = {"data": "DATA", "train": "TRAIN", "validation": "VALIDATION", "set": name}
    config = check_command(
        WORKS["finetune"].contenders["bert_jax"], samples.CONFIGS[name].format(**files)
    )
    assert (config.init_from, config.seed) == ("MODEL", 2)
    assert "{" not in f"{config.data.train}{config.data.validation}"


@pytest.mark.parametrize("name", ["bench", "plan", "compare"])
def test_every_other_command_is_valid(name):
    work = WORKS[name]
    options = {
        key: kind() if isinstance(kind, type) else kind for key, kind in work.options.items()
    }
    options |= {"batch": 8, "mesh": "data=8", "topology": "v5e:2x4"}
    files = {"train": "a.tsv", "validation": "b.tsv"}
    config = options.pop("config", "glue:task=mrpc,directory=D")
    check_command(work.contenders["bert_jax"], config, **options | files)


def test_every_student_is_a_valid_config():
    contenders = WORKS["distill"].contenders
    teacher = "OUT/runs/distill-teacher-0/model"
    found = {}
    for one, template in contenders.items():
        config = check_command(template, "classification", name="distill")
        keep = config.model.keep_layers
        found[one] = (config.init_from, keep, config.distillation.teacher)
    assert found == {
        "teacher": ("MODEL", None, ""),
        "3-layers-taught": (teacher, 3, teacher),
        "3-layers-alone": ("MODEL", 3, ""),
        "2-layers-taught": (teacher, 2, teacher),
        "2-layers-alone": ("MODEL", 2, ""),
    }


class Names(dict):
    def __missing__(self, name):
        return name.upper()


COMMANDS = {
    **{name: f"{command} --{'workdir' if command.startswith('train') else 'output'} OUT"
       for name, (_, _, command) in retrieval.COMMANDS.items()},
    **{name: retrieval.ANSWER + more + retrieval.READ for name, more in retrieval.ANSWERS.items()},
    "gold": retrieval.GOLD,
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_search_is_valid(name):
    numbers = {"length": 64, "seed": 1, "depth": 3, "masked_lm_steps": 2, "epochs": 1, "read": 2}
    values = Names(numbers, precision="auto")
    options = cli.parse(shlex.split(COMMANDS[name].format_map(values)))
    if "config" in options:
        assert "{" not in str(load_config(options.config, options.overrides))


def test_questions_of_one_half_train_and_of_the_other_are_searched(tmp_path):
    articles = [
        {"title": f"t{a}", "paragraphs": [
            {"context": f"text {a}", "qas": [
                {"id": f"{a}{q}", "question": f"q{a}{q}", "answers": []} for q in range(3)]}]}
        for a in range(4)
    ]  # fmt: skip
    (tmp_path / "squad").mkdir()
    with gzip.open(tmp_path / "squad/train-v1.1.json.gz", "wt") as file:
        json.dump({"data": articles}, file)
    files = collection(options_of(tmp_path, "squad", examples=9, evaluated=2))
    assert set(read_queries(files.train)) == {"00", "01", "02", "10", "11", "12"}
    asked = set(read_queries(files.searched))
    assert len(asked) == 2
    assert asked < {"20", "21", "22", "30", "31", "32"}
    with open_collection(files.searched) as documents:
        assert [each.text for each in documents] == ["text 0", "text 1", "text 2", "text 3"]


def test_lists_have_the_questions_with_an_answer(tmp_path):
    (tmp_path / "retrieval/wikiqa").mkdir(parents=True)
    rows = "who ?\tno\t0\nwhy ?\tdull\t0\nwho ?\tAda\t1\nhow ?\tno\t1\n"
    (tmp_path / "retrieval/wikiqa/dev.tsv").write_text(rows)
    files = collection(options_of(tmp_path, "wikiqa"))
    assert read_queries(files.searched) == {"q0": "who ?", "q2": "how ?"}
    assert read_judgements(files.searched) == {"q0": {"d0": 0, "d2": 1}, "q2": {"d0": 1}}
    assert files.has_lists
    assert files.train.endswith("retrieval/wikiqa/train.tsv.gz")


def write_sentences(data, count):
    blocks = [f"Ada{number} NNP I-NP I-PER\nran VBD I-VP O\n" for number in range(count)]
    (data / "ner/conll2003").mkdir(parents=True)
    for name in ("eng.train", "eng.testa"):
        text = "-DOCSTART- -X- O O\n\n" + "\n".join(blocks)
        (data / "ner/conll2003" / name).write_text(text)


def options_of(tmp_path, name, **more):
    return argparse.Namespace(data=tmp_path, output=tmp_path / "out", set=name, **more)


def test_both_sides_get_the_same_sentences_in_their_order(tmp_path):
    write_sentences(tmp_path, 50)
    made = samples.drawn(options_of(tmp_path, "conll2003", examples=10, evaluated=0))
    blocks = Path(made["train"]).read_text().removesuffix("\n\n").split("\n\n")
    assert [block.split("\n")[1] for block in blocks] == ["ran\tO"] * 10
    numbers = [int(re.match(r"Ada(\d+)\tB-PER\n", block)[1]) for block in blocks]  # IOB2
    assert numbers == sorted(numbers) != list(range(10))
    assert len(Path(made["validation"]).read_text().strip().split("\n\n")) == 50


def measured(tmp_path, *words, **variables):
    """The results of a tiny work, by its contenders."""
    command = [sys.executable, "-m", "benchmarks", *words, "--output", str(tmp_path / "out")]
    done = subprocess.run(
        [*command, "--tiny", "--rounds", "1"],
        cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    results = [json.loads(path.read_text()) for path in (tmp_path / "out").glob("*.json")]
    return [result["rounds"] for result in results], done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("work", ["bench", "train"])
def test_an_accelerator_needs_no_tensorflow(work, tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ModuleNotFoundError('no tensorflow here')\n")
    variables = {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(tmp_path)}
    (rounds,), printed = measured(tmp_path, work, "--contenders", "bert_jax", **variables)
    assert rounds["bert_jax"]
    assert f"| {work}-" in printed


@pytest.mark.slow
def test_other_libraries_take_their_turns(tmp_path):
    pytest.importorskip("transformers")
    contenders = [name for name in WORKS["train"].contenders if name != "compile"]
    (rounds,), _ = measured(tmp_path, "train", "--contenders", *contenders)
    assert {name: len(turns) for name, turns in rounds.items()} == dict.fromkeys(contenders, 1)


@pytest.mark.slow
def test_a_full_queue_refuses_and_says_when(tmp_path):
    (rounds,), _ = measured(tmp_path, "overload", JAX_PLATFORMS="cpu")
    (figures,) = rounds["bert_jax"]
    assert figures["answered"] > 0
    assert figures["refused"] > 0


def write_books(data):
    lines = [" ".join(text.split()[:20]) for text in uneven_texts(400)]
    (data / "pretrain").mkdir()
    with gzip.open(data / "pretrain/classic_books_en.jsonl.gz", "wt") as file:
        for number in range(0, 400, 4):
            file.write(json.dumps({"text": "\n\n".join(lines[number : number + 4])}) + "\n")


@pytest.mark.slow
def test_both_sides_learn_the_same_batches(tmp_path):
    pytest.importorskip("transformers")
    write_books(tmp_path)
    command = [sys.executable, "-m", "benchmarks.generating", "span", f"--data={tmp_path}"]
    command += ["--size=tiny", "--steps=3", "--batch=4", "--length=32", "--vocabulary=500"]
    command += ["--checkpoint-every=2", "--evaluated=3", f"--output={tmp_path}/out"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "out/results.json").read_text())
    ours, theirs = (results[side]["cross_entropy"] for side in ("bert_jax", "transformers"))
    assert ours == pytest.approx(theirs, rel=0.05)
