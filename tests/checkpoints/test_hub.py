"""Model directories by path and by hub id: a local hub, and a cache made by hand."""

import hashlib
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bert_jax.checkpoints.hub import resolve
from bert_jax.errors import UserError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REFUSALS = {  # repository: (status, the hub's code for it)
    "ghosts/unknown": (404, "RepoNotFound"),
    "ghosts/private": (401, "RepoNotFound"),
    "ghosts/gated": (403, "GatedRepo"),
    "ghosts/strange": (418, ""),
}
MODELS = {
    "tiny/whole": {
        "config.json": b'{"model_type": "bert"}',
        "model.safetensors": bytes(range(256)) * 1000,
        "pytorch_model.bin": b"not fetched",
        **dict.fromkeys(("tokenizer.json", "tokenizer_config.json"), b"{}"),
        **dict.fromkeys(("special_tokens_map.json", "vocab.txt"), b"{}"),
        **dict.fromkeys(("README.md", "model.fp16.safetensors"), b"not fetched"),
        **dict.fromkeys(("onnx/config.json", "onnx/model.safetensors"), b"not fetched"),
    },
    "tiny/shards": {
        "config.json": b"{}",
        "model.safetensors.index.json": b"{}",
        "model-00001-of-00002.safetensors": b"1",
        "model-00002-of-00002.safetensors": b"2",
        "spiece.model": b"pieces",
    },
    "tiny/old": {"config.json": b"{}", "pytorch_model.bin": b"PK", "vocab.txt": b"[PAD]\n"},
    "tiny/empty": {"config.json": b"{}", "tf_model.h5": b"not fetched"},
    "tiny/broken": {"config.json": b"{}", "model.safetensors": b"twelve bytes"},
    "tiny/other": {"README.md": b"not fetched"},
    "tiny/vectors": {
        "modules.json": json.dumps(
            [
                {"path": path, "type": f"sentence_transformers.models.{kind}"}
                for path, kind in (("encoder", "Transformer"), ("1", "Pooling"), ("2", "Dense"))
            ]
        ).encode(),
        "config_sentence_transformers.json": b"{}",
        "encoder/config.json": b"{}",
        "encoder/model.safetensors": b"1",
        "encoder/sentence_bert_config.json": b"{}",
        "encoder/sentencepiece.bpe.model": b"pieces",
        "1/config.json": b"{}",
        "2/config.json": b"{}",
        "2/pytorch_model.bin": b"2",
        "onnx/config.json": b"not fetched",
    },
    "solo": {"config.json": b"{}", "model.safetensors": b"1"},
}


class Hub(http.server.BaseHTTPRequestHandler):
    """The three requests of a download, for `MODELS` at one commit."""

    def do_GET(self):
        if "/resolve/" in self.path:
            self.answer_file()
            return
        path = self.path.removeprefix("/api/models/").partition("?")[0]
        repository, tree, revision = path.partition("/tree/")
        if not tree:
            repository, _, revision = path.partition("/revision/")
        if repository not in MODELS:
            self.refuse(*REFUSALS[repository])
        elif revision not in ("", "main", COMMIT):
            self.refuse(404, "RevisionNotFound")
        elif tree:
            files = MODELS[repository].items()
            rows = [
                {"type": "file", "path": name, "size": len(content), "oid": tag(content)}
                for name, content in files
            ]
            self.send(json.dumps(rows).encode())
        else:
            siblings = [{"rfilename": name} for name in MODELS[repository]]
            self.send(json.dumps({"id": repository, "sha": COMMIT, "siblings": siblings}).encode())

    do_HEAD = do_GET  # noqa: N815

    def answer_file(self) -> None:
        repository, _, rest = self.path.removeprefix("/").partition("/resolve/")
        revision, _, name = rest.partition("/")
        assert revision == COMMIT
        content = MODELS[repository][name]
        self.send(content, len(content) // 2 if repository == "tiny/broken" else None)

    def send(self, content: bytes, end: int | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{tag(content)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content[:end])

    def refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        self.server.seen.append(f"{self.command} {self.path} {self.headers['authorization']}")


def tag(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@pytest.fixture(scope="module")
def hub() -> Iterator[http.server.ThreadingHTTPServer]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.seen = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


# `huggingface_hub` reads the environment once, at its import: each run is a process that is forked
# from a process with all other imports. A line of input is a run; an empty line ends its output.
SCRIPT = """
import json, os, signal, sys
from huggingface_hub import HfApi, snapshot_download
from bert_jax.checkpoints.hub import resolve
from bert_jax.errors import UserError
for name in [name for name in sys.modules if name.startswith("huggingface_hub")]:
    del sys.modules[name]
for line in sys.stdin:
    requests, environment = json.loads(line)
    if os.fork():
        _, status = os.wait()
        print(flush=True)
        assert status == 0
        continue
    signal.alarm(100)
    os.environ.clear()
    os.environ.update(environment)
    try:
        for arguments in requests:
            try:
                print(resolve(*arguments))
            except UserError as error:
                print(error)
        sys.stdout.flush()
        os._exit(0)
    finally:
        os._exit(1)
"""


@pytest.fixture(scope="module")
def runs() -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.stdin.close()


class Machine:
    """A user's machine."""

    def __init__(self, runs: "subprocess.Popen[str]", home: Path, endpoint: str) -> None:
        self.runs = runs
        self.cache = home / "hub"
        others = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        self.environment = others | {
            "HF_HOME": str(home),
            "HF_ENDPOINT": endpoint,
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }

    def resolve_each(self, *requests: list[str], **environment: str) -> list[str]:
        """A line for each request: the directory, or the error."""
        self.runs.stdin.write(json.dumps([requests, self.environment | environment]) + "\n")
        self.runs.stdin.flush()
        lines = [line.removesuffix("\n") for line in iter(self.runs.stdout.readline, "\n")]
        assert len(lines) == len(requests)
        return lines

    def snapshot(self, repository: str) -> Path:
        folder = "models--" + repository.replace("/", "--")
        return self.cache / folder / "snapshots" / COMMIT

    def put(self, repository: str, files: dict[str, bytes]) -> Path:
        """Writes what a download leaves in the cache."""
        directory = self.snapshot(repository)
        directory.mkdir(parents=True)
        for name, content in files.items():
            (directory / name).write_bytes(content)
        references = directory.parents[1] / "refs"
        references.mkdir()
        (references / "main").write_text(COMMIT)
        return directory


@pytest.fixture
def machine(hub, runs, tmp_path) -> Machine:
    hub.seen.clear()
    return Machine(runs, tmp_path, f"http://127.0.0.1:{hub.server_port}")


# Paths.


def test_a_directory_is_itself(tmp_path, monkeypatch):
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert resolve(tmp_path) == tmp_path
    assert resolve(str(tmp_path)) == tmp_path
    monkeypatch.chdir(tmp_path)
    assert resolve("org/name") == Path("org/name")
    assert resolve(".") == Path(".")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("~/org") == tmp_path / "org"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ("model_config.json result.json model/config.json", "model"),
        ("several_runs.json result.json model/config.json", "model"),
        ("result.json model/config.json", "."),  # no run of bert_jax
        # A result is written last: this model is of an earlier, shorter training.
        ("model_config.json model/config.json", " is a run that is not finished; continue it, or "),
        ("model_config.json result.json", "export --workdir {path} --output DIR writes"),
        ("several_runs.json", " holds several runs and no model of the best; continue them, or "),
        ("several_runs.json result.json", "; continue them, or give one of the runs in it"),
    ],
)
def test_the_directory_of_a_run_means_its_model(tmp_path, files, expected):
    (tmp_path / "model").mkdir()
    for name in files.split():
        (tmp_path / name).touch()
    if " " not in expected:
        assert resolve(tmp_path) == resolve(str(tmp_path)) == tmp_path / expected
        return
    with pytest.raises(UserError) as error:
        resolve(tmp_path)
    assert expected.format(path=tmp_path) in str(error.value)


@pytest.mark.parametrize(
    "path",
    ["/no/such/model", "./model", "~/no-such-model", "a\\b", "a/b/c", "", "a b", "a/"],
)
def test_a_path_that_does_not_exist(path, tmp_path):
    with pytest.raises(UserError, match="does not exist; give a model directory or a hub id"):
        resolve(path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match="is a file; give the model directory that it is in"):
        resolve(tmp_path / "model.safetensors")
    with pytest.raises(UserError, match="have no revision 'main'; leave the revision out"):
        resolve(tmp_path, "main")


@pytest.mark.parametrize(
    ("address", "rule"),
    [
        ("https://huggingface.co/a/b", "is an address; give the model's id, a/b$"),
        ("huggingface.co/a/b/tree/v2", "is an address; give the model's id, a/b, with .* v2$"),
        ("https://hf.co/a/b/blob/main/config.json", "is an address; give the model's id, a/b$"),
        ("hf://a/b@main/config.json", "is an address; give the model's id, a/b$"),
        ("no-a/b/onnx", r"does not exist; .* hub id, as no-a/b; of a folder .*download no-a/b "),
        ("no-a/b@v2", r"does not exist; .* hub id, as no-a/b; of a folder or a revision"),
    ],
)
def test_addresses_and_folders_on_the_hub(address, rule):
    with pytest.raises(UserError, match=rule):
        resolve(address)


# Downloads.


@pytest.mark.slow
def test_only_the_files_that_are_read_are_downloaded(machine, hub):
    names = ["tiny/whole", "tiny/shards", "tiny/old", "tiny/vectors", "solo"]
    lines = machine.resolve_each(*([name, "main"] for name in names), HF_TOKEN="hf_secret")
    assert Path(lines[0]) == machine.snapshot("tiny/whole")
    for name, line in zip(names, lines, strict=True):
        files = {
            path.relative_to(line).as_posix(): path.read_bytes()
            for path in Path(line).rglob("*")
            if path.is_file()
        }
        model = MODELS[name].items()
        assert files == {name: content for name, content in model if content != b"not fetched"}
    assert {line.rpartition(" /")[2].partition(" ")[2] for line in hub.seen} == {"Bearer hf_secret"}


@pytest.mark.slow
def test_a_second_run_and_an_offline_run_fetch_no_file_again(machine, hub):
    names = (["tiny/whole"], ["tiny/old"], ["tiny/old", COMMIT])
    first = machine.resolve_each(*names)
    assert any("GET /tiny/whole/resolve" in line for line in hub.seen)
    hub.seen.clear()
    assert machine.resolve_each(*names) == first
    assert not any("/resolve/" in line for line in hub.seen)
    hub.seen.clear()
    assert machine.resolve_each(*names, HF_HUB_OFFLINE="1") == first
    assert not hub.seen
    Path(first[0], "vocab.txt").unlink()  # `tokenizer.json` says the same
    assert machine.resolve_each(*names, HF_HUB_OFFLINE="1") == first


MISSING = "is neither a directory here nor "


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["ghosts/unknown"],
            f"ghosts/unknown {MISSING}a model on the hub that you may read; check the spelling, or "
            "set HF_TOKEN if it is private",
        ),
        (["ghosts/private"], f"ghosts/private {MISSING}a model on the hub that you may read; ch"),
        (
            ["ghosts/gated"],
            "ghosts/gated is restricted by its authors; request access on its page, then set "
            "HF_TOKEN to your token",
        ),
        (["ghosts/strange"], f"{MISSING}whole in the hub's cache, and cannot be downloaded (HfHub"),
        (
            ["tiny/whole", "v9"],
            "tiny/whole has no revision v9 on the hub; give a branch, tag or commit that it has",
        ),
        (["tiny/empty"], "has neither model.safetensors nor pytorch_model.bin"),
        (["tiny/other"], "has no config.json"),
        (
            ["tiny/a--b"],
            "tiny/a--b does not exist and cannot be a hub id; give a model directory or a hub id",
        ),
        pytest.param(  # the library tries five times
            ["tiny/broken"], "cannot be downloaded (RemoteProtocolError: ", marks=pytest.mark.slow
        ),
    ],
)
def test_refusals_of_the_hub_are_one_line(machine, arguments, message):
    (line,) = machine.resolve_each(arguments)
    assert message in line
    assert not list(machine.cache.rglob("model.safetensors"))


# Without a network.


def test_offline_only_the_cache_is_read(machine, hub):
    whole = machine.put("tiny/whole", {"config.json": b"{}", "model.safetensors": b"1"})
    machine.put("tiny/part", {"config.json": b"{}", "vocab.txt": b""})
    by_name, by_commit, part, absent, other_revision = machine.resolve_each(
        ["tiny/whole"],
        ["tiny/whole", COMMIT],
        ["tiny/part"],
        ["tiny/absent"],
        ["tiny/whole", "v9"],
        HF_HUB_OFFLINE="1",
    )
    assert by_name == by_commit == str(whole)
    assert "has neither model.safetensors nor pytorch_model.bin" in part
    assert "only partly in the cache: then connect to the network and run again" in part
    assert absent == (
        "tiny/absent is neither a directory here nor in the hub's cache, and HF_HUB_OFFLINE is "
        "set; unset it, or give the path of a model directory"
    )
    assert other_revision == absent.replace("tiny/absent", "tiny/whole")
    assert not hub.seen


@pytest.mark.slow
def test_a_hub_or_a_cache_that_cannot_be_used(machine, tmp_path):
    cached = machine.put("tiny/whole", {"config.json": b"{}", "model.safetensors": b"1"})
    (tmp_path / "full").write_text("a file where the cache should be")
    requests = ["tiny/whole"], ["tiny/absent"]
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connects, then says nothing
        never = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for problem, environment in (
            ("ConnectError: ", {"HF_ENDPOINT": "http://127.0.0.1:9"}),  # nobody listens
            ("ReadTimeout: ", {"HF_ENDPOINT": never, "HF_HUB_ETAG_TIMEOUT": "1"}),
        ):
            present, absent = machine.resolve_each(*requests, **environment)
            assert present == str(cached)
            assert absent.startswith(
                "tiny/absent is neither a directory here nor whole in the hub's cache, and cannot "
                f"be downloaded ({problem}"
            )
            assert absent.endswith(
                "check the network, HF_ENDPOINT and the space for the cache, or give the path of a "
                "model directory"
            )
    (line,) = machine.resolve_each(["solo"], HF_HOME=str(tmp_path / "full"))
    assert "cannot be downloaded (" in line
