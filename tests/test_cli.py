"""The command line: what it answers, and that bad input is one line and exit code 2."""

import json
import sys

import pytest

from bert_jax import cli
from bert_jax.families import bert
from bert_jax.models.head import fields_of
from tests.conftest import REPOSITORY
from tests.runs import completed


@pytest.fixture
def config(tmp_path):
    """A config file with two arguments."""
    path = tmp_path / "config.py"
    path.write_text(
        "def get_config(size: str = 'tiny', length: int = 16):\n"
        "    return {'model': {'size': size}, 'data': {'length': length}}\n"
    )
    return path


def test_help_names_the_verbs_and_loads_nothing_heavy():
    script = (
        "import sys\n"
        "from bert_jax.cli import main\n"
        "try:\n"
        "    main(['--help'])\n"
        "finally:\n"
        "    heavy = 'jax flax optax orbax numpy tensorflow tensorflow_datasets tokenizers '\\\n"
        "        'sentencepiece matplotlib ml_collections'.split()\n"
        "    print([name for name in heavy if name in sys.modules], file=sys.stderr)\n"
    )
    done = completed([sys.executable, "-c", script])
    assert done.returncode == 0
    assert done.stderr == "[]\n"
    for verb in cli.VERBS:
        assert f"\n    {verb} " in done.stdout


def test_every_verb_has_help(capsys):
    for verb in cli.VERBS:
        with pytest.raises(SystemExit) as stop:
            cli.main([verb, "--help"])
        assert stop.value.code == 0
        assert f"usage: bert-jax {verb}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: VERB"),
        (["pretend"], "invalid choice: 'pretend'"),
        (["train"], "the following arguments are required: --config, --workdir"),
        (
            ["train", "--config", "c.py", "--workdir", "w", "--fast"],
            "unrecognized arguments: --fast",
        ),
        (["prepare", "--config", "c.py", "--workers", "two"], "invalid int value: 'two'"),
        (["evaluate", "--config", "c.py"], "one of the arguments --workdir --model is required"),
        (["export", "--workdir", "w"], "the following arguments are required: --output"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    captured = capsys.readouterr()
    assert stop.value.code == 2
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("bert-jax")
    assert captured.err.endswith(" --help\n")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("modle.size=tiny", "--config: unknown key 'modle.size'; the nearest known is"
         " 'model.size'"),
        ("train.step=3", "unknown key 'train.step'; the nearest known is 'train.steps'"),
        ("learning_rate=3", "the nearest known is 'optimizer.learning_rate'"),
        ("train=3", "unknown key 'train'"),
        ("train.steps=many", "train.steps is 'many', a str; it must be"),
        (f"optimizer.learning_rate={10**400}", "0, a int; it must be of type float"),
        ("model.scan_layers=1", "model.scan_layers is 1; it must be True or False"),
        ("model.hidden_size=wide", "model.hidden_size"),
        ("task=translation", "this is a config of task pretraining, not 'translation'; choose"),
        ("precision=float16", "precision is 'float16'; known are"),
        ("data.length=17", "data.length is 17; the model has 16 positions: lower it"),
        ("data.length=4", "data.length is 4; it must be at least 8"),
        ("data.masking=words", "data.masking is 'words'; known are"),
        ("data.objective=mlm", "data.objective is 'mlm'; known are"),
        ("train.epochs=2", "train.epochs is 2.0; leave it out, or train.steps, which is 10"),
        ("train.steps=0", "train.steps is 0; it must be at least 1"),
        ("train.global_batch_size=9", "train.global_batch_size is 9; it must be a multiple of"),
        ("mesh.data=7", "a mesh data=7, fsdp=1, tensor=1 does not fit 1 devices"),
        ("optimizer.warmup_steps=100000", "optimizer.warmup_steps is 100000; it must lie between"),
        ("model.type_vocab_size=1", "model.type_vocab_size is 1; data.objective=nsp has pairs of"),
        ("model.vocab_size=10", "model.vocab_size is 10; the corpus has a vocabulary of 40"),
        ("init_from=/nowhere", "/nowhere"),
        ("data.corpus=/nowhere", "/nowhere: not a finished corpus: it does not exist"),
        ("data.corpus=", "data.corpus is ''; make one with `bert-jax prepare`"),
    ],
)  # fmt: skip
def test_a_refused_config_is_one_line_and_leaves_no_work_directory(
    config, tiny_corpus, tmp_path, refused, override, message
):
    workdir = tmp_path / "run"
    line = refused(
        "train", "--config", config, "--workdir", workdir,
        f"--config.data.corpus={tiny_corpus}", "--config.model.max_position_embeddings=16",
        "--config.train.steps=10", "--config.train.microbatches=2", f"--config.{override}",
    )  # fmt: skip
    assert message in line
    # Otherwise the corrected command would be refused: "belongs to another config".
    assert not workdir.exists()


def test_a_corpus_without_held_out_documents_is_refused_at_once(
    config, make_tiny_corpus, tmp_path, refused
):
    corpus = make_tiny_corpus(validation=0.0)
    line = refused(
        "train", "--config", config, "--workdir", tmp_path / "run",
        f"--config.data.corpus={corpus}", "--config.train.steps=10",
    )  # fmt: skip
    assert "corpus has no validation documents; prepare it from at least 2 documents" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("specification", "message"),
    [
        ("nowhere.py", "--config nowhere.py: no such file"),
        ("{config}:sizes=tiny", "argument 'sizes=tiny' is not name=value of one of size, length"),
        ("{config}:tiny", "argument 'tiny' is not name=value of one of size, length"),
        ("{config}:length=long", "argument length is 'long'; it must be of type int"),
        ("{config}:size=huge", "model.size is 'huge'; known are tiny, mini"),
        ("{directory}", "no such file"),
        ("{broken}", "broken.py:2: "),
        ("{empty}", "has no function get_config"),
        ("{unknown}", "unknown.py: unknown key 'model.width'; the nearest known is"),
        ("{nothing}", "nothing.py"),
    ],
)
def test_bad_config_files(config, tiny_corpus, tmp_path, refused, specification, message):
    files = {
        "broken": "def get_config():\n    return {\n",
        "empty": "",
        "unknown": "def get_config():\n    return {'model': {'width': 3}}\n",
        "nothing": "def get_config():\n    return None\n",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    paths = {name: tmp_path / f"{name}.py" for name in files}
    specification = specification.format(config=config, directory=tmp_path, **paths)
    line = refused(
        "train", "--config", specification, "--workdir", tmp_path / "run",
        f"--config.data.corpus={tiny_corpus}",
    )  # fmt: skip
    assert message in line


def test_work_directories_that_cannot_be(config, tiny_corpus, tmp_path, refused):
    (tmp_path / "file").write_text("")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{")
    (tmp_path / "thesis" / "tokenizer").mkdir(parents=True)
    (tmp_path / "thesis" / "tokenizer" / "vocab.txt").write_text("years of work")
    for name, message in {
        "file": "cannot make",
        "file/run": "cannot make",
        "damaged": "config.json",
        "thesis": "is not a run: it has tokenizer, but no config.json; use another --workdir",
    }.items():
        line = refused(
            "train", "--config", config, "--workdir", tmp_path / name,
            f"--config.data.corpus={tiny_corpus}",
        )  # fmt: skip
        assert message in line
    assert (tmp_path / "damaged" / "config.json").read_text() == "{"
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["tokenizer"]


def test_export_refuses_directories_that_are_no_run(tmp_path, refused):
    line = refused("export", "--workdir", tmp_path, "--output", tmp_path / "model")
    assert "is not a run: it has no config.json; use another --workdir" in line
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    line = refused("export", "--workdir", tmp_path, "--output", tmp_path / "model")
    assert "is not a run: its config.json describes a model; use another --workdir" in line
    assert not (tmp_path / "model").exists()


def test_prepare_needs_an_output_and_a_source(config, tmp_path, refused):
    assert "prepare needs --output CORPUS (or --dry-run)" in refused(
        "prepare", "--config", config, "--config.data.source=text:x"
    )
    assert "--show prints examples of a corpus, --dry-run makes none: leave one out" in refused(
        "prepare", "--config", config, "--config.data.source=text:x", "--dry-run",
        "--show", 3,
    )  # fmt: skip
    assert "there is no source of text; set data.source" in refused(
        "prepare", "--config", config, "--output", tmp_path / "corpus"
    )
    line = refused(
        "prepare", "--config", config, "--output", tmp_path / "corpus",
        f"--config.data.source=text:{tmp_path}/nowhere.txt",
    )  # fmt: skip
    assert "nowhere.txt" in line
    assert not (tmp_path / "corpus").exists()


@pytest.mark.slow
def test_a_real_process_says_it_in_one_line_too():
    command = [sys.executable, "-m", "bert_jax", "train", "--config=nowhere.py", "--workdir=run"]
    done = completed(command)
    assert (done.returncode, done.stdout) == (2, "")
    known = ", ".join(sorted(path.stem for path in (REPOSITORY / "configs").glob("*.py")))
    problem = "--config nowhere.py: no such file, and no config of the package"
    assert done.stderr == f"bert-jax: {problem}: {known}\n"


def test_prepare_shows_examples(config, tmp_path, capsys, documents, pieces):
    (tmp_path / "text.txt").write_text("\n\n".join("\n".join(lines) for lines in documents))
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    code = cli.main(
        [
            *("prepare", "--config", str(config), "--output", str(tmp_path / "corpus")),
            *("--workers", "1", "--show", "2"),
            f"--config.data.source=text:{tmp_path}/text.txt",
            f"--config.tokenizer.path={tmp_path}/vocab.txt",
            *("--config.data.sentences=lines", "--config.data.validation_fraction=0.000001"),
        ]
    )
    assert code == 0
    first, *examples = capsys.readouterr().out.splitlines()
    assert json.loads(first)["train"]["documents"] == 4
    assert json.loads(first)["validation"]["documents"] == 1
    assert [line.split(":")[0] for line in examples if line.startswith("example")] == [
        "example 0",
        "example 1",
    ]
    assert sum("[CLS]" in line for line in examples) == 2


def test_an_architecture_that_differs_from_init_from_is_refused(
    config, tiny_corpus, make_model, tmp_path, refused
):
    """The shapes of all tensors are the same for any number of heads; what they compute is not."""
    start, model = tmp_path / "start", make_model("pretraining")
    model.save(start)
    values = fields_of(model.config) | {"num_attention_heads": 1}
    fields = {name: values[name] for name in bert.FAMILY.file_fields()}
    overrides = [f"--config.model.{name}={value}" for name, value in fields.items()]
    line = refused(
        "train", "--config", config, "--workdir", tmp_path / "run",
        f"--config.data.corpus={tiny_corpus}", f"--config.init_from={start}", *overrides,
    )  # fmt: skip
    assert "model.num_attention_heads is 1; init_from has a model with 2" in line
    assert not (tmp_path / "run").exists()
