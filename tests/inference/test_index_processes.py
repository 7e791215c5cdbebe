"""Indexes of real processes: killed again and again, on several hosts, in a bucket."""

import dataclasses
import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bert_jax.files import as_path
from bert_jax.models.heads.token_vectors import TokenVectors
from bert_jax.models.vectors import Normalize
from tests.runs import completed

pytestmark = pytest.mark.slow

# The command, with shards of 128 documents.
COMMAND = """
import sys
from bert_jax import cli
from bert_jax.search import vector_writing
vector_writing.SHARD_DOCUMENTS = 128
sys.exit(cli.main(sys.argv[1:]))
"""
COUNT = 1_500


@pytest.fixture(scope="module", params=["texts", "tokens"])
def directory(request, tmp_path_factory, make_model):
    """A model, whose vectors are of texts or of tokens, and a collection."""
    directory, model = tmp_path_factory.mktemp("collection"), make_model("encoder")
    vectors = TokenVectors(modules=(Normalize(),)) if request.param == "tokens" else None
    description = dataclasses.replace(model.description, stored_vectors=vectors)
    dataclasses.replace(model, description=description).save(directory / "model")
    draw = random.Random(0)
    words = ["the", "cat", "dog", "sun", "sea", "boys", "mat", "shell", "tree", "warm", "long"]
    with (directory / "documents.jsonl").open("w") as file:
        for number in range(COUNT):
            text = " ".join(draw.choices(words, k=draw.randrange(1, 30)))
            file.write(json.dumps({"_id": f"d{number}", "text": text}) + "\n")
    return directory


@pytest.fixture(scope="module")
def command(directory):
    """Builds the command that indexes the collection."""

    def build(output, *more):
        return [
            *(sys.executable, "-c", COMMAND, "index", "--model", str(directory / "model")),
            *("--input", str(directory / "documents.jsonl"), "--output", str(output)),
            *("--batch-size", "4", "--bm25", *more),
        ]

    return build


@pytest.fixture(scope="module")
def whole(directory, command):
    """The files of the index of one process."""
    done = completed(command(directory / "whole"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"documents": COUNT}
    assert done.stderr.splitlines()[-1] == "95 of 1500 texts were longer than 32 tokens: cut"
    return contents(directory / "whole")


def contents(path):
    """The content of each file by name."""
    path = as_path(path)
    patterns = ("*", "*/*", "*/*/*", "*/*/*/*")  # of a bucket, etils knows no **
    files = [file for each in patterns for file in path.glob(each) if file.is_file()]
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}


def shards(path):
    return len(list(Path(path).glob("vectors/*.parquet")))


def test_killed_again_and_again(command, whole, tmp_path):
    path = tmp_path / "index"
    for count in (1, 4, 11):
        process = subprocess.Popen(command(path), stderr=subprocess.DEVNULL)
        while shards(path) < count:
            assert process.poll() is None
            time.sleep(0.005)
        process.kill()
        process.wait()
        refused = completed(
            [sys.executable, "-m", "bert_jax", "search", "--index", path, "--text", "a"]
        )
        assert refused.returncode == 2
        assert "is half-written; repeat the `bert-jax index` that began it" in refused.stderr
    done = completed(command(path))
    assert done.returncode == 0, done.stderr
    assert contents(path) == whole


def test_several_hosts_write_their_share(command, whole, start_hosts, tmp_path):
    path = tmp_path / "index"
    hosts = start_hosts(command(path), 2)
    texts = [process.communicate() for process in hosts]
    assert [process.returncode for process in hosts] == [0, 0], texts
    assert json.loads(texts[0][0].splitlines()[-1]) == {"documents": COUNT}
    assert contents(path) == whole


def test_an_index_in_a_bucket(command, whole, bucket):
    done = completed(command(f"{bucket}/index"))
    assert done.returncode == 0, done.stderr
    assert contents(f"{bucket}/index") == whole
    search = [sys.executable, "-m", "bert_jax", "search", "--text", "the sea"]
    of_tokens = any(name.startswith("maxsim/") for name in whole)
    for searcher in ("maxsim:bm25", "maxsim+bm25") if of_tokens else ("exact", "faiss+bm25"):
        found = completed([*search, "--index", f"{bucket}/index", "--searcher", searcher])
        assert found.returncode == 0, found.stderr
        assert len(json.loads(found.stdout)["hits"]) == 10
