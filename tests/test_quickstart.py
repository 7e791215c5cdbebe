"""launch/show_quickstart.py: what it prints is what the README shows."""

import importlib.util
import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def form(line: str) -> str:
    """A line without its words, numbers and spaces."""
    return re.sub(r"\S+ \(\d+%\)|\d+\.\d%", "…", " ".join(line.split()))


def test_it_shows_a_sentence_with_five_words_as_the_readme(make_model, tmp_path, capsys):
    path = ROOT / "launch" / "show_quickstart.py"
    spec = importlib.util.spec_from_file_location("show_quickstart", path)
    show = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(show)
    make_model("pretraining").save(tmp_path / "model")
    metrics = {"mlm_accuracy": 0.2, "mlm_accuracy_most_frequent": 0.04}
    metrics |= {"nsp_accuracy": 0.7, "nsp_accuracy_majority": 0.55}
    (tmp_path / "result.json").write_text(json.dumps(metrics))
    show.main(tmp_path)
    printed = [form(line) for line in capsys.readouterr().out.splitlines() if line]
    assert printed[:2] == [show.SENTENCE, "[MASK] = …, …, …, …, …"]
    readme = (ROOT / "README.md").read_text()
    block = readme[readme.index(f"    {show.SENTENCE}") :].partition("\nIt took")[0]
    assert [form(line) for line in block.splitlines() if line] == printed[:-2]  # curves and model
