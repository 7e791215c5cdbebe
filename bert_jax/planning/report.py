"""Plans as text for people: one plan in full, or several in a table."""

from collections.abc import Sequence
from typing import Any

from bert_jax.errors import counted
from bert_jax.metrics.tables import aligned

_YES_OR_NO = {True: "yes", False: "no"}
_NOTES = (
    "GiB: of each device at the peak; largest: rows of a micro-batch on each device that fit;",
    "step, days: lower bounds at the published peaks; sent: by each device in a step.",
)


# Units, the greatest first, as what is shown of a small training would else be zeros.
_BYTES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_FLOPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"))
_TIMES = ((86400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))
_DEVICE_TIMES = tuple((seconds, f"device {unit}") for seconds, unit in _TIMES[1:])
# The least number of a unit before the next one is taken.
_LEAST = 0.1


def as_text(plans: Sequence[dict[str, Any]]) -> str:
    """Formats results of `make_plan`: one mesh in full, several with one line each."""
    plan = plans[0]
    heading = (
        f"{plan['topology']}, {counted(plan['devices'], 'devices')}: "
        f"{plan['parameters'] / 1e6:,.1f} M parameters, {plan['precision']}, "
        f"batches of {plan['global_batch_size']:,} × {plan['length']}"
    )
    if plan["compile_s"] is None:
        provenance = "Estimated from shapes, not compiled."
    elif plan["memory_per_device"] is None:
        provenance = f"Refused by the compiler after {plan['compile_s']:.0f} s."
    else:
        provenance = f"Compiled in {plan['compile_s']:.0f} s, not run."
    lines = _in_full(plan) if len(plans) == 1 else ["", *_table(plans)]
    return "\n".join([heading, *lines, "", *(_NOTES if len(plans) > 1 else ()), provenance])


def _table(plans: Sequence[dict[str, Any]]) -> list[str]:
    head = ("mesh", "fits", "GiB", "largest", "step, ms", "busiest", "sent, MB", "days", "compile")
    rows = [
        (
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
        for plan in plans
    ]
    return aligned([head, *rows])


def _in_full(plan: dict[str, Any]) -> list[str]:
    rows, flops = plan["microbatch_per_device"], plan["flops_per_step"]
    needed, available = plan["peak_bytes_per_device"], plan["available_bytes_per_device"]
    peak = "more" if needed is None else _scaled(needed, _BYTES)
    peak += f" of {_number(available, 2**30, 2)} GiB on each device"
    lines = [
        ("fits", f"{_YES_OR_NO[plan['fits']]}: {peak}"),
        *(
            (f"  {name}", _scaled(size, _BYTES, 8))
            for name, size in (plan["memory_per_device"] or {}).items()
        ),
    ]
    if (largest := plan["largest_microbatch_per_device"]) is not None:
        batch = f"{plan['global_batch_size'] * largest // rows:,} × {plan['length']}"
        fitting = f"{counted(largest, 'rows')} on each device: a global batch of {batch}"
        lines.append(("largest micro-batch", fitting if largest else "none fits"))
    lines += [
        (
            "model FLOPs",
            f"{_scaled(flops, _FLOPS)} a step, {plan['flops_per_token'] / 1e6:,.1f} M a token; the "
            f"program computes {plan['program_flops_per_step'] / flops:.2f} times as many",
        ),
        ("each device sends", f"{plan['sent_bytes_per_device'] / 1e6:,.1f} MB a step, at least"),
        *(
            (
                f"  {kind}",
                f"{total['count']:4} times, {total['bytes'] / 1e6:9,.1f} MB of arrays, "
                f"{total['sent_bytes'] / 1e6:9,.1f} MB sent",
            )
            for kind, total in plan["collectives"].items()
        ),
        *_times(plan),
    ]
    mesh = f"mesh {plan['mesh']}, micro-batches of {counted(rows, 'rows')} on a device"
    return [mesh, "", *(f"{name:26}{value}" for name, value in lines)]


def _times(plan: dict[str, Any]) -> list[tuple[str, str]]:
    seconds = plan["step_floor_s"]
    if seconds is None:
        return [("step", "no peaks of this device are known")]
    busy = ", ".join(
        f"{name} {each * 1e3:.2f}" for name, each in plan["step_floor"].items() if each is not None
    )
    tokens = plan["global_batch_size"] * plan["length"] / seconds
    lines = [
        ("step, at least", f"{seconds * 1e3:.2f} ms ({busy}); at most {tokens:,.0f} tokens/s"),
        (
            f"{plan['steps']:,} steps, at least",
            f"{_scaled(plan['days_floor'] * 86400, _TIMES)}, "
            f"{_scaled(plan['device_hours_floor'] * 3600, _DEVICE_TIMES)}",
        ),
    ]
    cost = plan["cost_floor"]
    return lines if cost is None else [*lines, ("cost, at least", f"{cost:,.2f}")]


def _scaled(value: float, units: Sequence[tuple[float, str]], width: int = 0) -> str:
    """A value in the first of some units of which it is not a small part."""
    fitting = (each for each in units if value >= _LEAST * each[0])
    size, unit = next(fitting, units[-1])
    return f"{value / size:{width},.2f} {unit}"


def _busiest(seconds: dict[str, float | None]) -> str:
    known = {name: each for name, each in seconds.items() if each is not None}
    return max(known, key=lambda name: known[name]) if known else "?"


def _number(value: float | None, unit: float, digits: int, suffix: str = "") -> str:
    return "?" if value is None else f"{value / unit:,.{digits}f}{suffix}"
