"""Plans as text for people: one plan in full, or several in a table."""

from collections.abc import Sequence
from typing import Any

from bert_jax.metrics.tables import aligned

_YES_OR_NO = {True: "yes", False: "no"}


def as_text(plans: Sequence[dict[str, Any]]) -> str:
    """Formats results of `plan.as_json`: one mesh in full, several with one line each."""
    return _in_full(plans[0]) if len(plans) == 1 else _table(plans)


def _table(plans: Sequence[dict[str, Any]]) -> str:
    head = ("mesh", "fits", "GiB", "largest", "step, ms", "busiest", "sent, MB", "days", "compile")
    notes = [
        "GiB: of each device at the peak; largest: rows of a micro-batch on each device that fit;",
        "step, days: lower bounds at the published peaks; sent: by each device in a step.",
    ]
    lines = aligned([head, *map(_row, plans)])
    return "\n".join([_heading(plans[0]), "", *lines, "", *notes, _provenance(plans[0])])


def _row(plan: dict[str, Any]) -> tuple[str, ...]:
    return (
        plan["mesh"],
        _YES_OR_NO[plan["fits"]],
        _number(plan["peak_bytes_per_device"], 2**30, 2),
        _number(plan["largest_microbatch_per_device"], 1, 0),
        _number(plan["step_floor_s"], 1e-3, 2),
        _busiest(plan["step_floor"]),
        _number(plan["sent_bytes_per_device"], 1e6, 0),
        _number(plan["days_floor"], 1, 2),
        _number(plan["compile_s"], 1, 0, " s"),
    )


def _in_full(plan: dict[str, Any]) -> str:
    batch, length = plan["global_batch_size"], plan["length"]
    lines = [
        _heading(plan),
        f"mesh {plan['mesh']}, micro-batches of {plan['microbatch_per_device']} rows on a device",
        "",
        _line("fits", f"{_YES_OR_NO[plan['fits']]}: {_peak(plan)}"),
    ]
    for name, size in (plan["memory_per_device"] or {}).items():
        lines.append(_line(f"  {name}", f"{size / 2**30:8.2f} GiB"))
    largest = plan["largest_microbatch_per_device"]
    if largest is not None:
        largest_batch = batch * largest // plan["microbatch_per_device"]
        rows = f"{largest} rows on each device: a global batch of {largest_batch:,} × {length}"
        lines.append(_line("largest micro-batch", rows if largest else "none fits"))
    lines += [
        _line(
            "model FLOPs",
            f"{plan['flops_per_step'] / 1e12:,.2f} T a step, "
            f"{plan['flops_per_token'] / 1e6:,.1f} M a token; the program computes "
            f"{plan['program_flops_per_step'] / plan['flops_per_step']:.2f} times as many",
        ),
        _line(
            "each device sends", f"{plan['sent_bytes_per_device'] / 1e6:,.1f} MB a step, at least"
        ),
    ]
    for kind, total in plan["collectives"].items():
        lines.append(
            _line(
                f"  {kind}",
                f"{total['count']:4} times, {total['bytes'] / 1e6:9,.1f} MB of arrays, "
                f"{total['sent_bytes'] / 1e6:9,.1f} MB sent",
            )
        )
    return "\n".join([*lines, *_times(plan), "", _provenance(plan)])


def _times(plan: dict[str, Any]) -> list[str]:
    step_seconds = plan["step_floor_s"]
    if step_seconds is None:
        return [_line("step", "no peaks of this device are known")]
    parts = ", ".join(
        f"{name} {seconds * 1e3:.2f}"
        for name, seconds in plan["step_floor"].items()
        if seconds is not None
    )
    tokens = plan["global_batch_size"] * plan["length"] / step_seconds
    lines = [
        _line(
            "step, at least",
            f"{step_seconds * 1e3:.2f} ms ({parts}); at most {tokens:,.0f} tokens/s",
        ),
        _line(
            f"{plan['steps']:,} steps, at least",
            f"{plan['days_floor']:.2f} days, {plan['device_hours_floor']:,.1f} device hours",
        ),
    ]
    if plan["cost_floor"] is not None:
        lines.append(_line("cost, at least", f"{plan['cost_floor']:,.2f}"))
    return lines


def _heading(plan: dict[str, Any]) -> str:
    return (
        f"{plan['topology']}, {plan['devices']} devices: {plan['parameters'] / 1e6:,.1f} M "
        f"parameters, {plan['precision']}, batches of {plan['global_batch_size']:,} × "
        f"{plan['length']}"
    )


def _provenance(plan: dict[str, Any]) -> str:
    if plan["compile_s"] is None:
        return "Estimated from shapes, not compiled."
    if not plan["fits"] and plan["memory_per_device"] is None:
        return f"Refused by the compiler after {plan['compile_s']:.0f} s."
    return f"Compiled in {plan['compile_s']:.0f} s, not run."


def _peak(plan: dict[str, Any]) -> str:
    needed, available = plan["peak_bytes_per_device"], plan["available_bytes_per_device"]
    needed_gib = "more" if needed is None else f"{needed / 2**30:.2f}"
    return f"{needed_gib} of {_number(available, 2**30, 2)} GiB on each device"


def _busiest(parts: dict[str, float | None]) -> str:
    known = {name: seconds for name, seconds in parts.items() if seconds is not None}
    return max(known, key=lambda name: known[name]) if known else "?"


def _number(value: float | None, unit: float, digits: int, suffix: str = "") -> str:
    return "?" if value is None else f"{value / unit:,.{digits}f}{suffix}"


def _line(name: str, value: str) -> str:
    return f"{name:26}{value}"
