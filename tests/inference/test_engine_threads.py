"""One engine that several threads use."""

import concurrent.futures
import os
import subprocess
import sys

import pytest

from bert_jax.inference.engine import Engine
from bert_jax.tasks.base.predictor import BatchOptions
from bert_jax.tasks.classification.predict import LabelPredictor


def test_several_threads_use_one_engine(make_model):
    """Each gets the predictions of its own texts."""
    lists = [[f"the sun was {'very ' * (n % 20)}low ." for n in range(k, k + 40)] for k in range(8)]
    engine = Engine(LabelPredictor(make_model("classification"), BatchOptions(batch_size=4)))
    expected = [engine.predict(texts) for texts in lists]
    with concurrent.futures.ThreadPoolExecutor(len(lists)) as pool:
        for _ in range(3):
            assert list(pool.map(engine.predict, lists)) == expected


PROGRAM = """
import concurrent.futures, sys
from pathlib import Path
import bert_jax
from bert_jax.inference.engine import Engine
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.tasks.embed import EmbeddingPredictor, EmbedPredictOptions

model = bert_jax.load(sys.argv[1], mesh=make_mesh(MeshShape(data=2, tensor=2, fsdp=2)))
engine = Engine(EmbeddingPredictor(model, EmbedPredictOptions(batch_size=8)))
texts = ["the sun was low .", "a sea"]
expected = engine.predict(texts)
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    for vectors in pool.map(engine.predict, [texts] * 300):
        assert all((one == other).all() for one, other in zip(vectors, expected, strict=True))
print("done")
"""


@pytest.mark.slow
def test_several_threads_use_several_devices(make_model, tmp_path):
    """Programs with collectives run one after the other, see `programs_may_overlap`."""
    make_model("encoder").save(tmp_path / "model")
    flags = "--xla_force_host_platform_device_count=8"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "model")],
        env={**os.environ, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "done\n", done.stderr
