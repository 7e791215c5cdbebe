"""One benchmark: the work of a config, timed, as an object of JSON."""

import dataclasses
from typing import Any

import numpy as np
from jax.sharding import Mesh

from bert_jax.benchmarks.command import BenchOptions
from bert_jax.benchmarks.timing import Timing, peak_bytes, time_steps
from bert_jax.benchmarks.work import (
    batch_making,
    first_batches,
    forward_pass,
    row_lengths,
    training_step,
)
from bert_jax.data.pipeline import Batch
from bert_jax.errors import UserError
from bert_jax.models.config import Execution, Head
from bert_jax.planning.hardware import hardware_of
from bert_jax.planning.roofline import real_flops
from bert_jax.tasks.base.task import Task
from bert_jax.training.optimizer import Optimizer
from bert_jax.training.options import TrainOptions
from bert_jax.training.progress import computed_tokens
from bert_jax.training.step import pack_rows

# The pipeline begins with a queue that is empty, and must be timed with one that is in use.
_WARMUP_OF_PIPELINE = 20


@dataclasses.dataclass(frozen=True)
class Workload:
    """What is timed.

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


def bench(subject: Workload, options: BenchOptions) -> dict[str, Any]:
    """Times the work.

    Returns:
        `median_s`, `min_s`, `steps_s`, `compile_s` (what the first step took longer; 0 is nothing
        to compile, and what the compilation cache has is only read), `tokens_per_s` (padding
        counted), `real_tokens_per_s`, and for what computes `flops_per_s` (of the model, for real
        tokens), `mfu` (as a share of the devices' peak; None where that is unknown), `peak_bytes`.
    """
    if options.work == "pipeline":
        step, batches = batch_making(subject.task)
        timing = time_steps(
            step, options.steps, warmup=_WARMUP_OF_PIPELINE, profile=options.profile
        )
        timed = batches[_WARMUP_OF_PIPELINE:][: options.steps]
        return {"work": options.work, **_times(timing), **_rates(timing, timed)}

    is_pretraining = subject.task.description.head is Head.PRETRAINING
    if options.work == "finetune" and is_pretraining:
        raise UserError("--work finetune needs a config of a labelled task; or --work train")
    batches = first_batches(subject.task)
    if options.work == "infer":
        step = forward_pass(subject.task, subject.execution, subject.mesh, batches)
    else:
        parts = subject.options.microbatches
        batches = [pack_rows(subject.task, subject.mesh, parts, batch) for batch in batches]
        step = training_step(
            subject.task, subject.optimizer, subject.options, subject.mesh, batches
        )
    # Each batch once: those of other lengths are other programs.
    timing = time_steps(step, options.steps, warmup=len(batches), profile=options.profile)
    numbers = range(len(batches), len(batches) + options.steps)
    timed = [batches[number % len(batches)] for number in numbers]
    devices = list(subject.mesh.devices.flat)
    flops = sum(_flops(subject, batch, training=options.work != "infer") for batch in timed)
    per_second = flops / sum(timing.steps)
    hardware = hardware_of(devices[0].device_kind)
    peak = options.peak_flops or (hardware and hardware.flops(subject.execution.dtype))
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
        "precision": subject.execution.dtype,
        "rows": int(timed[0]["input_ids"].shape[0]),
        "length": max(int(batch["input_ids"].shape[-1]) for batch in timed),
    }


def as_text(found: dict[str, Any]) -> str:
    """A benchmark for people."""
    lines = [
        f"{found['work']}: {found['median_s'] * 1e3:,.1f} ms (least {found['min_s'] * 1e3:,.1f})"
    ]
    lines.append(
        f"{found['tokens_per_s']:,.0f} tokens/s, {found['real_tokens_per_s']:,.0f} without padding"
    )
    if "flops_per_s" in found:
        share = f", {found['mfu']:.1%} of the peak" if found["mfu"] is not None else ""
        lines.append(f"{found['flops_per_s'] / 1e12:,.3f} TFLOP/s of the model{share}")
        where = f"{found['devices']} × {found['device']}, {found['precision']}"
        lines.append(f"{where}; first step {found['compile_s']:.1f} s longer (compiling)")
    return "\n".join(lines)


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


def _flops(subject: Workload, batch: Batch, *, training: bool) -> float:
    weights = batch.get("masked_lm_weights")
    predictions = 0 if weights is None or not training else int(np.count_nonzero(weights))
    config = subject.task.description.config
    found = real_flops(config, row_lengths(batch), predictions)
    return found if training else found / 3
