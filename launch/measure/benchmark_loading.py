"""Measures loading a model against reading its file: time and peak memory.

    python launch/measure/benchmark_loading.py [--size base] [--rounds 7] [--model DIR]

Makes a model directory of random weights (base: 440 MB; or takes DIR), then lets fresh processes
take turns: one reads the bytes of `model.safetensors` into memory, one makes the parameters of it
(JAX imported and started before the clock), one calls `bert_jax.load`. The file is in the system's
cache. Memory is what the peak adds to the process as it stood before, and the parameters are still
held at the end. Prints a table of medians; targets: parameters within 2 times the reading, and 1.3
times the file in memory. Linux only.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

WEIGHTS = "model.safetensors"
MEBIBYTE = 2**20
LABELS = {
    "read": "reading the file",
    "parameters": "parameters of the model",
    "load": "bert_jax.load",
}


def make_model(directory: Path, size: str) -> None:
    """Writes a masked language model of random weights and a vocabulary of invented words."""
    import jax

    from bert_jax.checkpoints import model_directory
    from bert_jax.checkpoints.config_file import ModelDescription
    from bert_jax.families import bert
    from bert_jax.models.config import Head
    from bert_jax.models.encoder import init_params
    from bert_jax.models.execution import Execution
    from bert_jax.tokenization import BertSwitches, WordPieceTokenizer

    config = bert.FAMILY.new_config(size)
    description = ModelDescription(config, Head.MASKED_LM)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [f"w{number}" for number in range(config.vocab_size - len(special))]
    tokenizer = WordPieceTokenizer.from_vocabulary(
        [*special, *words], BertSwitches(True, None, True)
    )
    module = description.make_module(Execution())
    params = jax.jit(lambda key: init_params(module, key))(jax.random.key(0))
    model_directory.save(directory, description, params, tokenizer)


def reader(directory: Path) -> Callable[[], object]:
    """Reads the bytes of the file."""
    return (directory / WEIGHTS).read_bytes


def parameter_loader(directory: Path) -> Callable[[], object]:
    """Makes the parameters, with everything imported and the device started."""
    import jax
    import safetensors.numpy  # noqa: F401

    from bert_jax.checkpoints import model_directory
    from bert_jax.models.execution import Execution

    description = model_directory.load_description(directory)
    module = description.make_module(Execution())
    jax.block_until_ready(jax.numpy.zeros(1))
    return lambda: jax.block_until_ready(
        model_directory.load_params(directory, description, module)[0]
    )


def model_loader(directory: Path) -> Callable[[], object]:
    """What a user calls: config, tokenizer and parameters."""
    import jax

    import bert_jax
    import bert_jax.inference.loading

    jax.block_until_ready(jax.numpy.zeros(1))

    def load() -> object:
        model = bert_jax.load(directory)
        jax.block_until_ready(model.params)
        return model

    return load


WORKS = {"read": reader, "parameters": parameter_loader, "load": model_loader}


def memory(field: str) -> int:
    """A line of this process' status, in bytes: VmRSS now, VmHWM at its highest."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition(f"{field}:")[2].split()[0])


def measure_here(work: str, directory: Path) -> dict[str, float]:
    """Seconds and bytes of one piece of work in this process."""
    run = WORKS[work](directory)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from here
    before = memory("VmRSS")
    start = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - start
    peak = memory("VmHWM") - before
    del result
    return {"seconds": seconds, "bytes": peak}


def measure(work: str, directory: Path) -> dict[str, float]:
    """The same in a fresh process."""
    command = [sys.executable, __file__, "--model", str(directory), "--work", work]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(process.stdout)


def print_table(directory: Path, rounds: int) -> None:
    """Lets the processes take turns and prints their medians."""
    size = (directory / WEIGHTS).stat().st_size
    measure("read", directory)  # the file comes into the system's cache
    results: dict[str, list[dict[str, float]]] = {work: [] for work in WORKS}
    for _ in range(rounds):
        for work, runs in results.items():
            runs.append(measure(work, directory))
    medians = {
        work: {key: statistics.median(run[key] for run in runs) for key in ("seconds", "bytes")}
        for work, runs in results.items()
    }
    print(f"{WEIGHTS}: {size / MEBIBYTE:.0f} MiB; medians of {rounds} processes each\n")
    print("| work | s | times reading | peak memory, MiB | times the file |")
    print("|---|---:|---:|---:|---:|")
    for work, median in medians.items():
        time_ratio = median["seconds"] / medians["read"]["seconds"]
        print(
            f"| {LABELS[work]} | {median['seconds']:.3f} | {time_ratio:.2f} | "
            f"{median['bytes'] / MEBIBYTE:.0f} | {median['bytes'] / size:.2f} |"
        )


def main() -> None:
    """Parses the arguments and measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="base", help="of the model that is made")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--model", type=Path, help="a model directory, in place of a made one")
    parser.add_argument("--work", choices=WORKS, help="only this, in this process, as JSON")
    arguments = parser.parse_args()
    if arguments.work:
        print(json.dumps(measure_here(arguments.work, arguments.model)))
        return
    with tempfile.TemporaryDirectory() as folder:
        directory = arguments.model or Path(folder, "model")
        if arguments.model is None:
            make_model(directory, arguments.size)
        print_table(directory, arguments.rounds)


if __name__ == "__main__":
    main()
