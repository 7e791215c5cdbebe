r"""Measures on a GPU or TPU, part by part, each in a separate process with a budget of time.

    bash launch/measure/accelerator.sh --output DIR [--budget 600] [--parts kernels …] [--rehearse]

A part that fails, hangs or takes all memory does not lose the others; parts that are left when the
budget is used up are skipped. Writes `accelerator.json`, `accelerator.md` and a log of each part to
`--output`, after each part. `--rehearse` runs all of it at a tiny size, as on a CPU. Exit code 1: a
part failed, was too slow, or a result is outside its limit. `accelerator_parts.py` has the parts.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from accelerator_scale import FULL, REHEARSAL, Scale
from timed_runs import last_json, markdown

from bert_jax.files import write_atomically

HERE = Path(__file__).parent
# A part is not started with less than this many seconds.
LEAST = 10.0


def budgets_of(scale: Scale) -> dict[str, float]:
    """The parts in the order of their importance, with the most seconds that each may take."""
    speed = {f"bench-{size}-{length}": 75.0 for size in scale.sizes for length in scale.lengths}
    peers = {f"peer-{length}": 130.0 for length in scale.lengths}
    return {
        "machine": 40.0,
        "kernels": 110.0,
        "precision": 70.0,
        **speed,
        "attention": 80.0,
        "embed": 50.0,
        "checkpoint": 50.0,
        **peers,
    }


def environment_of(part: str) -> dict[str, str]:
    """The variables of a part: parity needs the CPU, too; processes side by side share a GPU."""
    variables = dict(os.environ)
    if platforms := variables.get("JAX_PLATFORMS"):
        variables["JAX_PLATFORMS"] = ",".join(dict.fromkeys((*platforms.split(","), "cpu")))
    if part.startswith("peer"):
        variables["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    return variables


def measure(part: str, scale: Scale, seconds: float, log: Path) -> dict[str, Any]:
    """Runs a part in a separate process.

    Returns:
        `status`, "done", "skipped", "failed" or "too slow"; `seconds`; `reason` unless it is done;
        and what the part returns.
    """
    command = [sys.executable, str(HERE / "accelerator_parts.py"), part]
    command += ["--rehearse"] if scale is REHEARSAL else []
    began = time.perf_counter()
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment_of(part),
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            reason = f"ended after {seconds:.0f} s"
            return {"status": "too slow", "seconds": seconds, "reason": reason}
        finally:
            if process.poll() is None:  # also after Ctrl-C, which a session of its own does not get
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # its own processes, too
                process.wait()
    taken = {"seconds": round(time.perf_counter() - began, 1)}
    if process.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        reason = lines[-1] if lines else "no message"
        return {"status": "failed", **taken, "reason": f"exit code {process.returncode}: {reason}"}
    return {"status": "done", **taken, **last_json(output)}


def as_markdown(results: dict[str, Any]) -> str:
    """The machine, a table of all figures, and what was not measured."""
    machine = results.get("machine", {}).get("machine", {})
    lines = [f"{name}: {value}  \n" for name, value in machine.items()]
    rows = [[part, *row] for part, result in results.items() for row in result.get("rows", [])]
    table = markdown(["part", "what", "figure", "spread or limit"], rows, texts=4)
    left = [
        f"- {part}: {result['status']}, {result['reason']}\n"
        for part, result in results.items()
        if result["status"] != "done"
    ]
    outside = [
        f"- {part}: outside its limit: {finding}\n"
        for part, result in results.items()
        for finding in result.get("outside", [])
    ]
    return "".join([*lines, "\n", table, "\n" if left or outside else "", *left, *outside])


def main(arguments: list[str] | None = None) -> int:
    """Measures the parts one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--output", type=Path, required=True, help="directory of the results")
    add("--budget", type=float, default=600.0, metavar="SECONDS", help="of all parts together")
    add("--parts", nargs="+", metavar="PART", help="only these (default: all)")
    add("--rehearse", action="store_true", help="a tiny size, to try the command itself")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    scale = REHEARSAL if options.rehearse else FULL
    budgets = budgets_of(scale)
    if unknown := set(options.parts or ()) - set(budgets):
        parser.error(f"unknown parts {', '.join(sorted(unknown))}; known are {', '.join(budgets)}")
    options.output.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    for part in options.parts or budgets:
        left = options.budget - (time.perf_counter() - began)
        if left < LEAST:
            results[part] = {"status": "skipped", "reason": "the budget is used up"}
        else:
            print(f"{part} … ({left:.0f} s left)", file=sys.stderr, flush=True)
            log = options.output / f"{part}.log"
            # A rehearsal, as in a test, may share its processor with much else.
            seconds = left if options.rehearse else min(left, budgets[part])
            results[part] = measure(part, scale, seconds, log)
        text = json.dumps({"scale": scale.name, "parts": results}, indent=2) + "\n"
        write_atomically(options.output / "accelerator.json", text.encode())
        write_atomically(options.output / "accelerator.md", as_markdown(results).encode())
    print(as_markdown(results))
    bad = [result for result in results.values() if result["status"] in ("failed", "too slow")]
    return 1 if bad or any(result.get("outside") for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
