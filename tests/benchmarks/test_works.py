"""The table of works: documented commands, configs of data sets, samples; real works, tiny."""

import argparse
import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import bert_jax
from benchmarks import samples
from benchmarks.__main__ import combinations, parse
from benchmarks.works import ACCELERATOR, WORKS
from bert_jax import cli
from bert_jax.config import load_config

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
def test_an_accelerator_needs_no_tensorflow(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ModuleNotFoundError('no tensorflow here')\n")
    results, printed = measured(
        tmp_path, "accelerator", JAX_PLATFORMS="cpu", PYTHONPATH=str(tmp_path)
    )
    assert all(rounds["bert_jax"] for rounds in results)
    assert "| kernels-64 | bert_jax |" in printed
    assert "| bench-tiny-64-2-2 | bert_jax |" in printed


@pytest.mark.slow
@pytest.mark.parametrize("work", ["masking", "train", "embed", "tag", "answer"])
def test_other_libraries_take_their_turns(work, tmp_path):
    pytest.importorskip("transformers")
    pytest.importorskip("sentence_transformers")
    contenders = [name for name in WORKS[work].contenders if name != "compile"]
    (rounds,), _ = measured(tmp_path, work, "--contenders", *contenders)
    assert {name: len(turns) for name, turns in rounds.items()} == dict.fromkeys(contenders, 1)


@pytest.mark.slow
def test_both_sides_fine_tune_a_tiny_model(tmp_path, base_model):
    pytest.importorskip("transformers")
    pytest.importorskip("seqeval")
    write_sentences(tmp_path, 12)
    bert_jax.load(base_model).extend_positions(64).save(tmp_path / "model")
    options = [f"data={tmp_path}", f"model={tmp_path}/model", "set=conll2003", "epochs=1"]
    (rounds,), _ = measured(tmp_path, "compare", *options)
    assert {name: 0 <= turns[0]["f1"] <= 1 for name, turns in rounds.items()} == {
        "bert_jax": True,
        "transformers": True,
    }
