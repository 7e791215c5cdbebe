"""`bert-jax prepare --runner beam`, on Beam's own local runner."""

import subprocess
import sys

import pytest

from bert_jax import cli
from tests.corpora import directory_bytes

LINES = [f"the cat ran {'to the sea ' * (number % 7)}." for number in range(300)]
CONFIG = """
def get_config(source: str, vocabulary: str):
    return {"data": {"source": source, "validation_fraction": 0.2, "sentences": "lines",
                     "format": "lines"},
            "tokenizer": {"path": vocabulary}}
"""


@pytest.fixture
def command(tmp_path, tiny_vocabulary):
    for number in range(3):
        text = "\n".join(LINES[number * 100 : number * 100 + 100])
        (tmp_path / f"{number}.txt").write_text(text)
    (tmp_path / "config.py").write_text(CONFIG)
    config = f"{tmp_path}/config.py:source=text:{tmp_path}/*.txt,vocabulary={tiny_vocabulary}"
    return ["prepare", "--config", config]


def test_options_without_beam_are_refused(command, tmp_path, refused):
    output = tmp_path / "corpus"
    line = refused(*command, "--output", output, "--runner-options", "--project=p")
    assert "--runner-options are Beam's; add --runner beam" in line


def test_without_beam_the_extra_is_named(command, tmp_path, refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    monkeypatch.setitem(sys.modules, "apache_beam.options", None)
    line = refused(*command, "--output", tmp_path / "corpus", "--runner", "beam")
    assert "--runner is 'beam'; it needs the extra [beam]: pip install 'bert_jax[beam]'" in line


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--workers", "2"]], ids=["in memory", "two processes"])
def test_the_corpus_is_that_of_the_local_command(command, tmp_path, more):
    pytest.importorskip("apache_beam")
    for output, runner in (("local", []), ("beam", ["--runner", "beam", *more])):
        done = subprocess.run(
            [sys.executable, "-m", "bert_jax", *command, "--output", tmp_path / output, *runner],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert directory_bytes(tmp_path / "beam") == directory_bytes(tmp_path / "local")
    assert not list(tmp_path.glob("beam.*"))


@pytest.mark.slow
def test_mistakes_are_one_line(command, tmp_path, refused, capsys):
    pytest.importorskip("apache_beam")
    capsys.readouterr()  # what its import says
    beam = [*command, "--output", tmp_path / "corpus", "--runner", "beam", "--runner-options"]
    assert "Beam does not know --projct=p" in refused(*beam, "--projct=p")
    assert "No closing quotation" in refused(*beam, "--project='p")
    assert "argument --project: expected one argument" in refused(*beam, "--project")
    assert "give --output gs://BUCKET/CORPUS" in refused(
        *beam, "--runner=DataflowRunner --project=p --region=r --temp_location=gs://b/t"
    )
    (tmp_path / "1.txt").write_bytes(b"the cat\xff\n")
    assert cli.main([str(argument) for argument in (*beam, "")]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"bert-jax: {tmp_path}/1.txt:1: byte 8 of the line (0xff) is not UTF-8")
