"""The parts of `accelerator.py`: `python accelerator_parts.py PART [--rehearse]` prints JSON.

Each returns `rows` for the table (what, figure, spread or limit), its raw figures, and `outside`:
the results that are outside their limits.
"""

import argparse
import dataclasses
import datetime
import importlib.metadata
import importlib.util
import json
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import benchmark_checkpoint
import compare_speed
import jax
import kernel_parity
import numpy as np
from accelerator_scale import FULL, REHEARSAL, Scale
from timed_rounds import with_spread

import bert_jax
from bert_jax.benchmarks import BenchOptions, first_batches, training_step
from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.config import load_config
from bert_jax.experiment import Experiment
from bert_jax.families import bert
from bert_jax.models.config import Head
from bert_jax.models.encoder import init_params
from bert_jax.models.execution import Execution
from bert_jax.planning.meshes import device_memory
from bert_jax.planning.training_on_mesh import Training, TrainingOnMesh
from bert_jax.sharding.mesh import MeshShape, make_mesh
from bert_jax.tokenization import BertSwitches, WordPieceTokenizer

CONFIGS = Path(__file__).parents[2] / "configs"
GIB = 2**30
# A timed step may take this share of the memory by `plan`'s estimate: it leaves out some buffers.
MEMORY_SHARE = 0.6
# Losses in bfloat16 differ from those in float32 by less, as tests/training/test_precision.py says.
LOSS_LIMIT = 0.01
Result = dict[str, Any]


def machine(scale: Scale) -> Result:
    """Devices, driver and versions."""
    device = jax.devices()[0]
    names = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "libtpu", "torch", "tensorflow")
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    found = {
        "devices": f"{len(jax.devices())} × {device.device_kind}",
        "platform": device.platform,
        "memory": f"{device_memory(jax.devices()) / GIB:.1f} GiB usable",
        "driver": _driver(),
        "python": platform.python_version(),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
    }
    return {"machine": found, "rows": []}


def _driver() -> str:
    if shutil.which("nvidia-smi") is None:
        return "no nvidia-smi"
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, check=False, timeout=20)
    return answer.stdout.strip().splitlines()[0] if answer.stdout.strip() else "unknown"


def kernels(scale: Scale) -> Result:
    """Parity of each kernel with float32 on the CPU."""
    found = list(kernel_parity.parities(scale.kernel_lengths))
    rows, outside = [], []
    for key in dict.fromkeys((one["kernel"], one["dtype"]) for one in found):
        mine = [one for one in found if (one["kernel"], one["dtype"]) == key]
        limit = kernel_parity.LIMITS[key[1]]
        worst = max(max(one["forward"], one["gradient"]) for one in mine)
        name = f"{key[0]}, {key[1]}, {len(mine)} calls"
        errors = [max(one[kind] for one in mine) for kind in ("forward", "gradient")]
        figure = f"forward {errors[0]:.1e}, gradient {errors[1]:.1e}"
        rows.append([name, figure, f"limit {limit:.0e}"])
        # NaN is outside, too.
        outside += [] if worst <= limit else [f"{name}: {figure}, limit {limit:.0e}"]
    return {"rows": rows, "outside": outside, "calls": found}


def attention(scale: Scale) -> Result:
    """Times of the kernels."""
    found: list[dict[str, Any]] = []
    for length in scale.attention_lengths:
        found += kernel_parity.times(length, scale.attention_tokens, scale.steps)
    rows = []
    for one in found:
        figure = f"forward {one['forward']:.3f} ms, with gradients {one['training']:.3f} ms"
        spreads = [one["forward_spread"], one["training_spread"]]
        spread = ", ".join(f"{least:.3f}–{most:.3f}" for least, most in spreads)
        rows.append([f"{one['kernel']}, {one['length']} tokens, {one['rows']}", figure, spread])
    return {"rows": rows, "times": found}


def experiment_of(
    size: str, length: int, rows: int, keys: Mapping[str, object], *, packed: bool = False
) -> Experiment:
    """A pre-training on synthetic text, on all devices."""
    name = f"pretrain_512.py:size={size}" if packed else f"pretrain.py:size={size}"
    overrides = {
        "data.length": length,
        "data.max_predictions": -(-length * 16 // 100),  # packed rows round more often
        "train.global_batch_size": rows,
        **keys,
    }
    config = load_config(
        f"{CONFIGS}/{name}", [(key, str(value)) for key, value in overrides.items()]
    )
    return dataclasses.replace(Experiment.from_config(config), with_data=False)


def bench(size: str, length: int, scale: Scale) -> Result:
    """A training step: time, MFU, and its peak memory against the estimate of `plan`."""
    devices = jax.devices()
    packed = length == scale.lengths[-1]
    rows = scale.rows * len(devices)
    while True:
        experiment = experiment_of(size, length, rows, scale.keys, packed=packed)
        training = Training(experiment.task, experiment.optimizer, experiment.options)
        memory = TrainingOnMesh(training, experiment.mesh_shape, devices).estimate
        if memory.peak <= MEMORY_SHARE * device_memory(devices) or rows <= len(devices):
            break
        rows //= 2
    result = experiment.bench(BenchOptions("train", steps=scale.steps))
    milliseconds = [1e3 * seconds for seconds in result["steps_s"]]
    share = f", MFU {result['mfu']:.1%}" if result["mfu"] is not None else ""
    shown = [
        [
            f"step of {rows} rows, {result['precision']}",
            f"{statistics.median(milliseconds):.1f} ms, "
            f"{result['real_tokens_per_s']:,.0f} tokens/s{share}",
            f"{min(milliseconds):.1f}–{max(milliseconds):.1f} ms",
        ],
        ["compiling", f"{result['compile_s']:.1f} s", ""],
    ]
    if result["peak_bytes"] and devices[0].platform != "cpu":  # there it is that of the process
        peak = result["peak_bytes"]
        figure = f"{peak / GIB:.2f} GiB, estimated {memory.peak / GIB:.2f}"
        shown.append(["peak memory", figure, f"{peak / memory.peak:.2f} of the estimate"])
    return {"rows": shown, "bench": result, "estimated_bytes": memory.peak}


def precision(scale: Scale) -> Result:
    """Losses in bfloat16 against those in float32."""
    losses = {}
    for dtype in ("float32", "bfloat16"):
        keys = {**scale.keys, "precision": dtype, "train.steps": 500}
        experiment = experiment_of(scale.sizes[0], scale.lengths[0], scale.precision_rows, keys)
        mesh = make_mesh(MeshShape(data=1), jax.devices()[:1])
        with jax.default_matmul_precision("highest" if dtype == "float32" else "default"):
            batches = first_batches(experiment.task, 8)
            step = training_step(experiment.task, experiment.optimizer, mesh, 1, batches)
            losses[dtype] = [float(step(n)["loss"]) for n in range(scale.precision_steps)]
    pairs = list(zip(losses["float32"], losses["bfloat16"], strict=True))
    worst = max(abs(half - full) / full for full, half in pairs)
    first, last = pairs[0][0], pairs[-1][0]
    name = f"{len(pairs)} losses, bfloat16 against float32"
    figure = f"within {worst:.2%}; {first:.3f} → {last:.3f}"
    is_within = worst <= LOSS_LIMIT  # NaN is not
    return {
        "rows": [[name, figure, f"limit {LOSS_LIMIT:.0%}"]],
        "outside": [] if is_within else [f"{name}: {figure}"],
        "losses": losses,
    }


def embed(scale: Scale) -> Result:
    """Texts of uneven lengths through `LoadedModel.embed`, in the precision of the device."""
    words = [f"w{number}" for number in range(30_000)]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    tokenizer = WordPieceTokenizer.from_vocabulary(pieces, BertSwitches(True, None, True))
    description = ModelDescription(
        bert.FAMILY.new_config(scale.sizes[0], vocab_size=len(pieces)), Head.ENCODER
    )
    rng = np.random.default_rng(0)
    # Most texts are short, some are cut at 512 tokens.
    lengths = np.minimum(np.exp(rng.normal(4.0, 1.0, scale.texts)).astype(int) + 3, 600)
    texts = [" ".join(words[n] for n in rng.integers(len(words), size=size)) for size in lengths]
    with tempfile.TemporaryDirectory() as folder:
        params = jax.jit(init_params, static_argnums=0)(
            description.make_module(Execution()), jax.random.key(0)
        )
        model_directory.save(Path(folder) / "model", description, params, tokenizer)
        model = bert_jax.load(Path(folder) / "model", precision="auto")

    def seconds() -> float:
        began = time.perf_counter()
        model.embed(texts, batch_size=128)
        return time.perf_counter() - began

    first = seconds()
    later = [seconds() for _ in range(3)]
    rates = [len(texts) / each for each in later]
    tokens = int(np.minimum(lengths + 2, 512).sum())
    figure = (
        f"{statistics.median(rates):,.0f} texts/s, "
        f"{tokens / statistics.median(later):,.0f} tokens/s"
    )
    name = f"{len(texts)} texts of 5 to 512 tokens, {tokens / len(texts):.0f} on average"
    return {
        "rows": [
            [name, figure, f"{min(rates):,.0f}–{max(rates):,.0f} texts/s"],
            ["the first time, with compiling", f"{first:.1f} s", ""],
        ],
        "seconds": later,
        "first_s": first,
    }


def checkpoint(scale: Scale) -> Result:
    """How long a checkpoint holds up the training."""
    with tempfile.TemporaryDirectory() as folder:
        times, size = benchmark_checkpoint.measure(scale.sizes[0], scale.checkpoints, Path(folder))
    rows = [
        [
            f"{label}, {size / 1e6:,.0f} MB",
            f"{1e3 * statistics.median(times[name]):.0f} ms",
            f"{1e3 * min(times[name]):.0f}–{1e3 * max(times[name]):.0f} ms",
        ]
        for name, label in benchmark_checkpoint.ROWS
    ]
    return {"rows": rows, "times": times, "bytes": size}


def peer(length: int, scale: Scale) -> Result:
    """A training step beside PyTorch with SDPA, compiled, in turns."""
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        return {"status": "skipped", "reason": f"{' and '.join(missing)} not installed"}
    if jax.devices()[0].platform == "tpu":
        return {"status": "skipped", "reason": "PyTorch is compared on GPUs"}
    side = "compile" if scale is FULL else "sdpa"
    work = compare_speed.Work("train", scale.peer_rows, length, "bfloat16", (side,))
    with tempfile.TemporaryDirectory() as folder:
        options = argparse.Namespace(
            output=Path(folder),
            peer_python=sys.executable,
            size=scale.sizes[0],
            rounds=3,
            steps=scale.steps,
        )
        sides = compare_speed.compare(f"train-{length}", work, options)
    rows = []
    for name, times in sides.items():
        spread = f"{with_spread(times['ratio'])} × bert_jax"
        what = f"{compare_speed.LABELS[name]}, {scale.peer_rows} rows"
        rows.append([what, f"{1e3 * times['median_s']:.1f} ms", spread if name == side else ""])
    return {"rows": rows, "sides": sides}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures one part and prints its result on the last line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part")
    parser.add_argument("--rehearse", action="store_true")
    options = parser.parse_args(arguments)
    scale = REHEARSAL if options.rehearse else FULL
    name, *words = options.part.split("-")
    if name == "bench":
        result = bench(words[0], int(words[1]), scale)
    elif name == "peer":
        result = peer(int(words[0]), scale)
    else:
        parts: dict[str, Callable[[Scale], Result]] = {
            part.__name__: part
            for part in (machine, kernels, attention, precision, embed, checkpoint)
        }
        result = parts[name](scale)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
