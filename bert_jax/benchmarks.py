"""`bert-jax bench`: how fast this machine does the work of a config, as an object of JSON."""

import contextlib
import dataclasses
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.data.pipeline import Batch
from bert_jax.errors import OptionError
from bert_jax.models.encoder import Encoder
from bert_jax.models.execution import Execution
from bert_jax.planning.hardware import hardware_of
from bert_jax.planning.roofline import real_flops
from bert_jax.sharding.hosts import to_global
from bert_jax.sharding.mesh import explain_out_of_memory
from bert_jax.sharding.rules import on_mesh
from bert_jax.tasks.base.task import Task
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.options import TrainOptions
from bert_jax.training.progress import computed_tokens
from bert_jax.training.step import abstract_state, make_train_step, new_state, pack_rows

# Batches that are placed on the devices before the clock starts, and then used in turn.
_BATCHES = 4
# The pipeline starts with an empty queue, and must be timed with one that is in use.
_WARMUP_OF_PIPELINE = 20
_TRACED_STEPS = 3

Step = Callable[[int], Any]


@dataclasses.dataclass(frozen=True)
class BenchOptions:
    """What is timed.

    Attributes:
        work: "train" or "finetune", the training step of a config; "infer", its encoder forward;
            "pipeline", the making of its batches.
        steps: how many are timed, each separately.
        profile: a directory for a trace of three more steps, None: no trace.
        peak_flops: of a device, FLOP/s, in place of the published figure.
    """

    work: str
    steps: int = 10
    profile: Path | None = None
    peak_flops: float | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise OptionError("steps", self.steps, "it must be at least 1")
        if self.peak_flops is not None and not self.peak_flops > 0:
            raise OptionError("peak_flops", self.peak_flops, "it must be above 0")


@dataclasses.dataclass(frozen=True)
class Workload:
    """What a config computes.

    Attributes:
        task: model and batches.
        execution: how the model is computed.
        optimizer: of the training step.
        options: batch and micro-batches.
        mesh: where it runs.
    """

    task: Task
    execution: Execution
    optimizer: Optimizer
    options: TrainOptions
    mesh: Mesh


@dataclasses.dataclass(frozen=True)
class Timing:
    """Seconds of wall-clock time.

    Attributes:
        first: of the first step, with compilation and whatever else happens once.
        steps: of each later step.
    """

    first: float
    steps: Sequence[float]

    @property
    def median(self) -> float:
        """The median of the later steps."""
        return statistics.median(self.steps)

    @property
    def once(self) -> float:
        """How much longer the first step took."""
        return max(0.0, self.first - self.median)


def bench(workload: Workload, options: BenchOptions) -> dict[str, Any]:
    """Times the work.

    Returns:
        `median_s`, `min_s`, `steps_s`, `compile_s` (what the first step took longer; 0: there is
        nothing to compile; a program in the compilation cache is only read), `tokens_per_s`
        (padding counted), `real_tokens_per_s`, and for what computes `flops_per_s` (of the model,
        for real tokens), `mfu` (as a share of the devices' peak; None where that is unknown),
        `peak_bytes`.
    """
    task, mesh = workload.task, workload.mesh
    if options.work == "pipeline":
        step, made = batch_making(task)
        timing = time_steps(
            step, options.steps, warmup=_WARMUP_OF_PIPELINE, profile=options.profile
        )
        timed = made[_WARMUP_OF_PIPELINE:][: options.steps]
        return {"work": options.work, **_times(timing), **_rates(timing, timed)}

    batches = first_batches(task)
    work = f"a batch of {workload.options.global_batch_size} rows"
    with explain_out_of_memory(work, "global_batch_size", "lower {global_batch_size}"):
        if options.work == "infer":
            step = forward_pass(workload, batches)
        else:
            parts = workload.options.microbatches
            batches = [pack_rows(task, mesh, parts, batch) for batch in batches]
            step = training_step(workload, batches)
        # Each batch once: those of other lengths are other programs.
        timing = time_steps(step, options.steps, warmup=len(batches), profile=options.profile)
    numbers = range(len(batches), len(batches) + options.steps)
    timed = [batches[number % len(batches)] for number in numbers]
    devices = list(mesh.devices.flat)
    flops = sum(_flops(task, batch, training=options.work != "infer") for batch in timed)
    per_second = flops / sum(timing.steps)
    hardware = hardware_of(devices[0].device_kind)
    peak = options.peak_flops or (hardware and hardware.flops(workload.execution.dtype))
    return {
        "work": options.work,
        **_times(timing),
        "compile_s": timing.once,
        **_rates(timing, timed),
        "flops_per_s": per_second,
        "mfu": per_second / (peak * len(devices)) if peak else None,
        "peak_bytes": peak_bytes(devices),
        "device": devices[0].device_kind,
        "devices": len(devices),
        "precision": workload.execution.dtype,
        "rows": int(timed[0]["input_ids"].shape[0]),
        "length": max(int(batch["input_ids"].shape[-1]) for batch in timed),
    }


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
    """Times a step, each time from its begin until its result is there.

    Args:
        step: does the work of a number, from 0; its result is waited for.
        steps: how many are timed.
        warmup: how many are done before, the first of which is timed as well.
        profile: a directory for a trace of a few further steps.
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
    """The most memory that was in use: of the fullest device, on a CPU of this process."""
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


def row_lengths(batch: Batch) -> np.ndarray:
    """The tokens of each text of a batch that sees no other, int64 [n], without padding."""
    if "segment_ids" in batch:
        ids = batch["segment_ids"]  # BT
        numbers = ids + (ids.max() + 1) * np.arange(len(ids))[:, None]
        counts = np.bincount(numbers[ids > 0])
        return counts[counts > 0]
    mask = batch["attention_mask"]
    return mask.reshape(math.prod(mask.shape[:-1]), -1).sum(axis=1)


def first_batches(task: Task, count: int = _BATCHES) -> list[Batch]:
    """The first batches of a training."""
    made = task.train_batches(0, count, host=0, hosts=1)
    try:
        return list(itertools.islice(made, count))
    finally:
        made.close()


def training_step(workload: Workload, batches: list[Batch]) -> Step:
    """The very step of the training loop, on batches that lie on the devices."""
    task, optimizer, mesh = workload.task, workload.optimizer, workload.mesh
    abstract = abstract_state(task, optimizer, mesh)
    state = new_state(task, optimizer, abstract, seed=0)
    microbatches = workload.options.microbatches
    step = make_train_step(
        task, optimizer, mesh=mesh, abstract=abstract, microbatches=microbatches, seed=0
    )
    placed = [to_global(mesh, batch) for batch in batches]

    def run(number: int) -> Any:
        nonlocal state  # the step before has taken its memory
        state, metrics = step(state, placed[number % len(placed)])
        return metrics

    return run


def forward_pass(workload: Workload, batches: list[Batch]) -> Step:
    """The encoder without dropout: token ids to hidden states, as `embed` computes them."""
    config, mesh = workload.task.description.config, workload.mesh
    encoder = Encoder(config, workload.execution, add_pooling_layer=False)
    names = ("input_ids", "token_type_ids", "attention_mask", "segment_ids", "position_ids")
    placed = [
        # Choices and pairs, which have more dimensions, as rows.
        to_global(
            mesh,
            {
                name: batch[name].reshape(-1, batch[name].shape[-1])
                for name in names
                if name in batch
            },
        )
        for batch in batches
    ]
    with on_mesh(mesh):
        params = jax.jit(encoder.init)(jax.random.key(0), **placed[0])

    @jax.jit
    def forward(params: Any, batch: Any) -> jax.Array:
        output: Any = encoder.apply(params, **batch)
        return output.last_hidden_state

    def run(number: int) -> jax.Array:
        with on_mesh(mesh):
            return forward(params, placed[number % len(placed)])

    return run


def batch_making(task: Task) -> tuple[Step, list[Batch]]:
    """The input pipeline, which makes the batches one after the other; the list gets all."""
    made: list[Batch] = []
    stream: Iterator[Batch] = task.train_batches(0, 1 << 40, host=0, hosts=1)

    def run(number: int) -> None:
        made.append(next(stream))

    return run, made


def _times(timing: Timing) -> dict[str, Any]:
    return {
        "steps": len(timing.steps),
        "median_s": timing.median,
        "min_s": min(timing.steps),
        "steps_s": [round(seconds, 6) for seconds in timing.steps],
    }


def _rates(timing: Timing, batches: list[Batch]) -> dict[str, float]:
    """Tokens a second over all steps that were timed."""
    seconds = sum(timing.steps)
    computed = sum(map(computed_tokens, batches))
    return {
        "tokens_per_s": computed / seconds,
        "real_tokens_per_s": sum(int(row_lengths(batch).sum()) for batch in batches) / seconds,
    }


def _flops(task: Task, batch: Batch, *, training: bool) -> float:
    weights = batch.get("masked_lm_weights")
    predictions = 0 if weights is None or not training else int(np.count_nonzero(weights))
    flops = real_flops(task.description.config, row_lengths(batch), predictions)
    return flops if training else flops / 3
