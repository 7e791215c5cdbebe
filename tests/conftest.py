"""How tests run; a small model, the commands and processes of a small training, a bucket."""

import functools
import gc
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import jax
import pytest

from bert_jax import cli
from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.checkpoints.parameters import LoadReport
from bert_jax.families.family import find_family
from bert_jax.inference.model import LoadedModel
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import init_params
from bert_jax.models.execution import Execution
from bert_jax.models.head import with_fields
from bert_jax.sharding import runtime
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.tokenization import Tokenizer
from bert_jax.tokenization.sentencepiece_training import train_t5
from tests.google_storage import google_storage
from tests.random_params import random_params

pytest_plugins = ("tests.corpora",)

# Nothing is timed, and every run tries the same examples.
hypothesis.settings.register_profile("bert_jax", deadline=None, derandomize=True)
hypothesis.settings.load_profile("bert_jax")


def pytest_configure(config: pytest.Config) -> None:
    """Most of what tests do is compiling: what was compiled is kept in `.pytest_cache`.

    So it does without XLA's optimisations, except where a test asks for `optimized` programs. The
    newer code generator for fused loops takes three times as long as the older one; and a module
    that is split for several threads gains nothing while another worker uses the other core.
    """
    gc.set_threshold(100_000, 50, 50)  # tracing makes many objects that live on: collect seldom
    # Started in the background, we ignore Ctrl-C, and so would all processes that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    options: dict[str, bool | str | float | int] = {
        "jax_compilation_cache_dir": str(config.cache.mkdir("compiled")),
        "jax_persistent_cache_min_compile_time_secs": 0.1,
        "jax_compilation_cache_max_size": 2**29,  # with a size, JAX locks it: workers share it
        "jax_disable_most_optimizations": True,
    }
    flags = (
        "--xla_cpu_parallel_codegen_split_count=1",
        "--xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters",
    )
    os.environ["XLA_FLAGS"] = " ".join((os.environ.get("XLA_FLAGS", ""), *flags)).strip()
    for name, value in options.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)  # for processes that tests start


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The fast tests read no file of slow tests alone: some import PyTorch at once."""
    if collection_path.suffix != ".py" or "not slow" not in config.option.markexpr:
        return None
    text = collection_path.read_text(encoding="utf-8")
    return "\npytestmark = pytest.mark.slow\n" in text or None


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """Pytest and Python collect garbage at the end; what was traced takes them seconds."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def any_processor() -> Iterator[None]:
    """precision=auto is float32 on every machine, so that tolerances are the same on all.

    Processes that tests start are told so by their configs.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "cpu_flags", frozenset)
        yield


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """Variables that a command sets in this process do not reach the processes of later tests.

    What did not change is left alone: libraries' threads may read the environment meanwhile, and a
    variable that is written then ends the process by a segmentation fault.
    """
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    for name, value in before.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


@pytest.fixture
def optimized(monkeypatch) -> Iterator[None]:
    """Programs are compiled as for users, here and in processes that a test starts."""
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "false")
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="session")
def store_address() -> Iterator[str]:
    """The URL of Google's storage interface on loopback, with one bucket."""
    pytest.importorskip("gcsfs")
    with google_storage("bucket") as address:
        yield address


@pytest.fixture
def store(store_address, monkeypatch) -> str:
    """A bucket on loopback, as gs://bucket, for this process and its children.

    Reached through gcsfs and TensorStore as the real one.
    """
    # Else gcsfs asks for the kind of this bucket, with other credentials.
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", store_address)
    monkeypatch.setenv("TENSORSTORE_GCS_HTTP_URL", store_address)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "project")
    return "gs://bucket"


@pytest.fixture
def bucket(store, tmp_path, monkeypatch) -> str:
    """An empty directory in a bucket, and an empty cache of the user."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return f"{store}/{tmp_path.name}"


@pytest.fixture(scope="session")
def base_model(tmp_path_factory, tiny_config, tokenizer) -> Path:
    """The directory of a random encoder of two layers and 32 positions."""
    directory = tmp_path_factory.mktemp("base") / "model"
    description = ModelDescription(tiny_config, "encoder")
    # As training begins: from here the tasks' tests learn.
    init = functools.partial(init_params, description.make_module(Execution()))
    model_directory.save(directory, description, jax.jit(init)(jax.random.key(0)), tokenizer)
    return directory


@pytest.fixture(scope="session")
def base_t5(tmp_path_factory) -> Path:
    """The directory of a random T5 of one layer in encoder and decoder."""
    directory = tmp_path_factory.mktemp("base") / "t5"
    tokenizer = train_t5(
        ["the cat sat on a mat", "a dog ran to the sea", "it was long"] * 4, vocab_size=120
    )
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    of_t5 = {"intermediate_size": 20, "attention_head_size": 6, "decoder_layers": 1}
    family = find_family("t5")
    config = family.new_config("tiny", vocab_size=tokenizer.vocab_size, **sizes, **of_t5)
    description = ModelDescription(config, "text_to_text", family=family)
    init = functools.partial(init_params, description.make_module(Execution()))
    model_directory.save(directory, description, jax.jit(init)(jax.random.key(0)), tokenizer)
    return directory


@pytest.fixture(scope="session")
def tiny_config(pieces: list[str]) -> EncoderConfig:
    """Two layers of width 16, two heads, no dropout."""
    return EncoderConfig(
        vocab_size=len(pieces),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


REPOSITORY = Path(__file__).parents[1]
TINY_OVERRIDES = {
    "precision": "float32",
    "model.hidden_size": 32,
    "model.num_hidden_layers": 2,
    "model.num_attention_heads": 2,
    "model.intermediate_size": 64,
    "model.max_position_embeddings": 16,
    "data.length": 16,
    "data.max_predictions": 3,
    "optimizer.learning_rate": 1e-3,
    "optimizer.warmup_steps": 5,
    "train.global_batch_size": 8,
    "train.log_every": 1,
    "train.eval_every": 10,
    "train.checkpoint_every": 5,
}

# Rows of 64 tokens, enough for two or three examples of the tiny corpus.
PACKED_OVERRIDES = {
    "model.max_position_embeddings": 64,
    "data.packing": True,
    "data.length": 64,
    "data.max_predictions": 12,
    "data.short_probability": 0.5,
}


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that is refused with exit code 2; returns its message, a line on stderr."""

    def run(*arguments: object) -> str:
        assert cli.main([str(argument) for argument in arguments]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert captured.err.startswith("bert-jax: ")
        return captured.err

    return run


CommandMaker = Callable[..., list[str]]


@pytest.fixture(scope="session")
def packed_overrides() -> dict[str, object]:
    """What makes `train_command` pack its rows."""
    return dict(PACKED_OVERRIDES)


@pytest.fixture(scope="session")
def train_command(tiny_corpus: Path) -> CommandMaker:
    """Builds the command that trains a tiny model on the tiny corpus."""

    def make(workdir: Path, overrides: dict[str, object]) -> list[str]:
        keys = TINY_OVERRIDES | {"data.corpus": tiny_corpus} | overrides
        return [
            *(sys.executable, "-m", "bert_jax", "train"),
            *("--config", f"{REPOSITORY}/configs/pretrain.py"),
            *("--workdir", str(workdir)),
            *(f"--config.{key}={value}" for key, value in keys.items()),
        ]

    return make


@pytest.fixture(scope="module")
def processes_without_torch(tmp_path_factory) -> Iterator[None]:
    """In processes of a module tensorboardX finds no PyTorch to import, more than a second each."""
    directory = tmp_path_factory.mktemp("missing")
    (directory / "torch.py").write_text("raise ModuleNotFoundError('no torch here')\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(directory), prepend=os.pathsep)
        yield


HostsMaker = Callable[..., list["subprocess.Popen[str]"]]


@pytest.fixture(scope="module")
def start_hosts(processes_without_torch) -> Iterator[HostsMaker]:
    """Starts a command as several processes that find each other on the loopback.

    Each has so many CPU devices; those that still run at the end of the module are killed.
    """
    started: list[subprocess.Popen[str]] = []

    def start(command: Sequence[str], count: int, *, devices: int = 1) -> list[Any]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        environment = os.environ | {
            "JAX_NUM_CPU_DEVICES": str(devices),
            # Process 0 alone may write to the cache: then the others would compile what it reads.
            "JAX_ENABLE_COMPILATION_CACHE": "false",
            "TF_CPP_MIN_LOG_LEVEL": "2",  # the compiler's warnings are not ours
        }
        processes = [
            subprocess.Popen(
                [
                    *command,
                    *("--coordinator", f"127.0.0.1:{port}"),
                    *("--processes", str(count)),
                    *("--process-id", str(number)),
                ],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for number in range(count)
        ]
        started.extend(processes)
        return processes

    yield start
    for process in started:
        process.kill()
        process.communicate()


ModelMaker = Callable[..., LoadedModel]


@pytest.fixture(scope="session")
def make_model(tiny_config: EncoderConfig, tokenizer: Tokenizer) -> ModelMaker:
    """Builds a model with a head; fields of the config can be replaced."""

    @functools.cache
    def make(head: str, *, add_pooling_layer: bool = True, **fields: object) -> LoadedModel:
        config = with_fields(tiny_config, fields)
        description = ModelDescription(config, head, add_pooling_layer=add_pooling_layer)
        module = description.make_module(Execution())
        params = jax.device_put(random_params(module))
        report = LoadReport((), (), ())
        mesh = make_mesh(MeshShape(), jax.local_devices()[:1])
        return LoadedModel(module, params, tokenizer, description, mesh, report)

    return make


@pytest.fixture(scope="session")
def model(make_model: ModelMaker) -> LoadedModel:
    """A model with both heads of pre-training."""
    return make_model("pretraining")
