"""`bert-jax bench`: speed of this machine for the work of a config, as a JSON object."""

import contextlib
import dataclasses
import itertools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.data.pipeline import Batch
from bert_jax.errors import require_at_least, require_between
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import Encoder, cast_layer_kernels
from bert_jax.models.encoder_with_head import row_kinds, token_shape
from bert_jax.models.execution import Execution
from bert_jax.planning.hardware import hardware_of
from bert_jax.planning.roofline import real_flops, step_flops
from bert_jax.sharding.hosts import to_global
from bert_jax.sharding.mesh import explain_out_of_memory
from bert_jax.sharding.rules import on_mesh
from bert_jax.tasks.base.task import Task
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.progress import computed_tokens
from bert_jax.training.step import abstract_state, make_train_step, new_state, pack_rows
from bert_jax.training_options import TrainOptions

# Batches that are placed on the devices before the timing, and then used in turn.
_BATCHES = 4
# The queue of the pipeline is filled before the timing.
_PIPELINE_WARMUP_STEPS = 20
_TRACED_STEPS = 3

Step = Callable[[int], Any]


@dataclasses.dataclass(frozen=True)
class BenchOptions:
    """Options of a benchmark.

    Attributes:
        work: "train" or "finetune", the training step of a config; "infer", its encoder forward;
            "pipeline", the making of its batches.
        steps: number of steps that are timed, each separately.
        profile: directory for a trace of three more steps; None: no trace.
        peak_flops: peak of a device in FLOP/s, instead of the published figure.
    """

    work: str
    steps: int = 10
    profile: Path | None = None
    peak_flops: float | None = None

    def __post_init__(self) -> None:
        require_at_least("steps", self.steps, 1)
        require_between("peak_flops", self.peak_flops, 0, without_low=True)


class Workload(NamedTuple):
    """The model, the training and the devices of a config, to be timed."""

    task: Task
    execution: Execution
    optimizer: Optimizer
    train_options: TrainOptions
    mesh: Mesh


@dataclasses.dataclass(frozen=True)
class Timing:
    """Seconds of wall-clock time.

    Attributes:
        first: time of the first step, including compilation and other one-time work.
        steps: times of the later steps.
    """

    first: float
    steps: Sequence[float]

    @property
    def median(self) -> float:
        """The median of the later steps."""
        return statistics.median(self.steps)

    @property
    def once(self) -> float:
        """Extra time of the first step, over the median of the later steps."""
        return max(0.0, self.first - self.median)


def time_work(options: BenchOptions, workload: Workload) -> dict[str, Any]:
    """Times the work.

    Returns:
        `median_s`, `min_s`, `steps_s`, `compile_s` (extra time of the first step; 0 if nothing is
        compiled; programs in the compilation cache are only read), `tokens_per_s` (including
        padding), `real_tokens_per_s`, and for computations `flops_per_s` (of the model, for real
        tokens), `mfu` (as a fraction of the devices' peak; None if that is unknown), `peak_bytes`.
    """
    task, mesh, execution = workload.task, workload.mesh, workload.execution
    is_pipeline = options.work == "pipeline"
    rule = "lower {train.global_batch_size}"
    work = f"a batch of {workload.train_options.global_batch_size} rows"
    with explain_out_of_memory(work, "train.global_batch_size", rule):
        step, batches = make_step(options.work, workload)
        # Each batch once: another length is another program.
        warmup = _PIPELINE_WARMUP_STEPS if is_pipeline else len(batches)
        timing = time_steps(step, options.steps, warmup=warmup, profile=options.profile)
    timed = [batches[n % len(batches)] for n in range(warmup, warmup + options.steps)]
    seconds = sum(timing.steps)
    kinds = [row_kinds(batch) for batch in timed]
    config = task.description.config
    lengths = [{kind: row_lengths(rows, config) for kind, rows in each.items()} for each in kinds]
    result: dict[str, Any] = {
        "work": options.work,
        "steps": options.steps,
        "median_s": timing.median,
        "min_s": min(timing.steps),
        "steps_s": [round(seconds, 6) for seconds in timing.steps],
        "tokens_per_s": sum(computed_tokens(batch, config) for batch in timed) / seconds,
        "real_tokens_per_s": sum(int(rows.sum()) for each in lengths for rows in each.values())
        / seconds,
    }
    if is_pipeline:
        return result
    devices = list(mesh.devices.flat)
    flops = 0.0
    for batch, each in zip(timed, lengths, strict=True):
        if options.work == "infer":
            flops += sum(real_flops(config, n, 0) for n in each.values()) / 3
        else:
            predictions = np.count_nonzero(batch.get("masked_lm_weights", 0))
            flops += step_flops(task.computed_models, each, int(predictions))
    hardware = hardware_of(devices[0].device_kind)
    peak = options.peak_flops or (hardware and hardware.flops(execution.dtype))
    return result | {
        "compile_s": timing.once,
        "flops_per_s": flops / seconds,
        "mfu": flops / seconds / (peak * len(devices)) if peak else None,
        "peak_bytes": peak_bytes(devices),
        "device": devices[0].device_kind,
        "devices": len(devices),
        "precision": execution.dtype,
        "rows": workload.train_options.global_batch_size,
        "length": max(token_shape(rows, config)[-1] for each in kinds for rows in each.values()),
    }


def make_step(work: str, workload: Workload) -> tuple[Step, list[Batch]]:
    """A step of a work, and its batches: the input in turn, or the output of the pipeline."""
    task, mesh = workload.task, workload.mesh
    first = workload.train_options.batch_warmup_steps
    if work == "pipeline":
        stream = task.train_batches(first, 1 << 40, host=0, hosts=1)
        made: list[Batch] = []
        return lambda _: made.append(next(stream)), made
    stream = task.train_batches(first, first + _BATCHES, host=0, hosts=1)
    with contextlib.closing(stream):
        batches = list(itertools.islice(stream, _BATCHES))
    if work == "infer":
        return forward_pass(task, workload.execution, mesh, batches), batches
    parts = workload.train_options.microbatches
    batches = [pack_rows(task, mesh, parts, batch) for batch in batches]
    return training_step(task, workload.optimizer, mesh, parts, batches), batches


def as_text(result: dict[str, Any]) -> str:
    """The result of `bench` for people."""
    median, least = result["median_s"] * 1e3, result["min_s"] * 1e3
    lines = [
        f"{result['work']}: {median:,.1f} ms (least {least:,.1f})",
        f"{result['tokens_per_s']:,.0f} tokens/s, "
        f"{result['real_tokens_per_s']:,.0f} without padding",
    ]
    if "flops_per_s" in result:
        share = f", {result['mfu']:.1%} of the peak" if result["mfu"] is not None else ""
        lines.append(f"{result['flops_per_s'] / 1e12:,.3f} TFLOP/s of the model{share}")
        where = f"{result['devices']} × {result['device']}, {result['precision']}"
        lines.append(f"{where}; first step {result['compile_s']:.1f} s longer (compiling)")
    return "\n".join(lines)


def time_steps(step: Step, steps: int, *, warmup: int, profile: Path | None = None) -> Timing:
    """Times a step from its start until its result is ready.

    Args:
        step: runs step number n, from 0, and returns its result, which is awaited.
        steps: number of timed steps.
        warmup: number of steps before these; the first of them is timed as well.
        profile: directory for a trace of a few further steps.
    """

    def seconds(number: int) -> float:
        began = time.perf_counter()
        jax.block_until_ready(step(number))
        return time.perf_counter() - began

    first, *_ = [seconds(number) for number in range(warmup)]
    times = [seconds(number) for number in range(warmup, warmup + steps)]
    if profile is not None:
        with jax.profiler.trace(str(profile), create_perfetto_trace=True):
            for number in range(warmup + steps, warmup + steps + _TRACED_STEPS):
                seconds(number)
    return Timing(first, times)


def peak_bytes(devices: Sequence[jax.Device]) -> int | None:
    """Peak memory in use: the maximum over the devices; on a CPU, of this process."""
    if devices[0].platform == "cpu":
        with contextlib.suppress(ImportError):  # not on every system
            import resource

            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return None
    memory = [device.memory_stats() or {} for device in devices]
    return max(
        (stats["peak_bytes_in_use"] for stats in memory if "peak_bytes_in_use" in stats),
        default=None,
    )


def row_lengths(batch: Batch, config: EncoderConfig) -> np.ndarray:
    """Number of tokens of each text of one kind, int64 [n]; texts packed in a row count apart."""
    if config.images is not None:
        count, length = token_shape(batch, config)
        return np.full(count, length)
    if "segment_ids" in batch:
        ids = batch["segment_ids"]  # BT
        numbers = ids + (ids.max() + 1) * np.arange(len(ids))[:, None]
        counts = np.bincount(numbers[ids > 0])
        return counts[counts > 0]
    # A decoder's rows have weights only, 1 for tokens.
    mask = batch["attention_mask" if "attention_mask" in batch else "weights"]
    return mask.reshape(math.prod(mask.shape[:-1]), -1).sum(axis=1).astype(np.int64)


def training_step(
    task: Task, optimizer: Optimizer, mesh: Mesh, microbatches: int, batches: list[Batch]
) -> Step:
    """The step of the training loop, on batches that are already on the devices."""
    abstract = abstract_state(task, optimizer, mesh)
    state = new_state(task, optimizer, abstract, seed=0)
    step = make_train_step(
        task,
        optimizer,
        mesh=mesh,
        abstract=abstract,
        microbatches=microbatches,
        seed=0,
        frozen_params=task.frozen_inputs.load(mesh),
    )
    placed = [to_global(mesh, batch) for batch in batches]

    def run(number: int) -> Any:
        nonlocal state  # its memory was donated to the step before
        state, metrics = step(state, placed[number % len(placed)])
        return metrics

    return run


def forward_pass(task: Task, execution: Execution, mesh: Mesh, batches: list[Batch]) -> Step:
    """The encoder without dropout: the hidden states of each kind of row, as in `embed`."""
    encoder = Encoder(task.description.config, execution, add_pooling_layer=False)
    names = ("input_ids", "token_type_ids", "attention_mask", "segment_ids", "position_ids")
    images = "pixel_values"

    def place(rows: Batch) -> Any:
        # Choices and pairs have more dimensions; they become rows.
        if images in rows:
            return to_global(mesh, {images: rows[images]})
        arrays = {name: rows[name] for name in names if name in rows}
        return to_global(mesh, {k: each.reshape(-1, each.shape[-1]) for k, each in arrays.items()})

    placed = [[place(rows) for rows in row_kinds(batch).values()] for batch in batches]
    with on_mesh(mesh):
        params = jax.jit(encoder.init)(jax.random.key(0), **placed[0][0])
        params = cast_layer_kernels(params, dtype=execution.dtype)

    @jax.jit
    def forward(params: Any, batch: Any) -> list[jax.Array]:
        outputs: list[Any] = [encoder.apply(params, **rows) for rows in batch]
        return [output.last_hidden_state for output in outputs]

    def run(number: int) -> list[jax.Array]:
        with on_mesh(mesh):
            return forward(params, placed[number % len(placed)])

    return run
