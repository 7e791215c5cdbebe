"""Measures how long a checkpoint holds up the training that it is written beside.

    python launch/measure/benchmark_checkpoint.py [--size base] [--rounds 7] [--directory DIR]

Rounds of two steps of pre-training with small batches, the second with a checkpoint before it:
what the call of `save` takes of the host's time, how much longer the step then takes, and how long
the writing continues in the background. Prints a table of medians; target: 50 ms of blocking for
base.
"""

import argparse
import dataclasses
import statistics
import tempfile
import time
from pathlib import Path

import jax

from bert_jax.benchmarks import first_batches
from bert_jax.checkpoints.runs import RunCheckpoints
from bert_jax.config import load_config
from bert_jax.experiment import Experiment
from bert_jax.sharding.hosts import to_global
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.training.step import abstract_state, make_train_step, new_state

CONFIG = Path(__file__).parents[2] / "configs" / "pretrain.py"
ROWS = [
    ("saving", "`save` returns after"),
    ("plain", "a step"),
    ("after", "the step after `save`"),
    ("written", "the checkpoint is written after"),
]


def measure(size: str, rounds: int, directory: Path) -> tuple[dict[str, list[float]], int]:
    """Seconds of each round by their names in `ROWS`, and the bytes of a state."""
    config = load_config(f"{CONFIG}:size={size},length=128", [("train.global_batch_size", "2")])
    # Without data: on a synthetic corpus.
    experiment = dataclasses.replace(Experiment.from_config(config), with_data=False)
    task, optimizer = experiment.task, experiment.optimizer
    mesh = make_mesh(MeshShape(data=1), jax.devices()[:1])
    abstract = abstract_state(task, optimizer, mesh)
    step = make_train_step(task, optimizer, mesh=mesh, abstract=abstract, microbatches=1, seed=0)
    state = new_state(task, optimizer, abstract, seed=0)
    batch = to_global(mesh, first_batches(task, 1)[0])
    times: dict[str, list[float]] = {name: [] for name, _ in ROWS}
    with RunCheckpoints(directory, keep=1) as checkpoints:
        for number in range(rounds + 1):
            start = time.perf_counter()
            state, metrics = step(state, batch)
            jax.block_until_ready((state, metrics))
            before = time.perf_counter()
            checkpoints.save(number, state, {}, {})
            saved = time.perf_counter()
            state, metrics = step(state, batch)
            jax.block_until_ready((state, metrics))
            after = time.perf_counter()
            checkpoints.wait()
            if number > 0:  # the first one compiles
                times["plain"].append(before - start)
                times["saving"].append(saved - before)
                times["after"].append(after - saved)
                times["written"].append(time.perf_counter() - before)
    return times, sum(leaf.nbytes for leaf in jax.tree.leaves(state))


def main() -> None:
    """Parses the arguments and measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="base")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--directory", type=Path, help="where it is written, in place of /tmp")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        times, size = measure(arguments.size, arguments.rounds, Path(folder))
    print(f"{arguments.size}: a state of {size / 1e6:.0f} MB, {jax.devices()[0].platform}\n")
    print("| what | median, ms | all, ms |\n|---|---:|---|")
    for name, label in ROWS:
        shown = ", ".join(f"{1000 * seconds:.0f}" for seconds in times[name])
        print(f"| {label} | {1000 * statistics.median(times[name]):.0f} | {shown} |")


if __name__ == "__main__":
    main()
