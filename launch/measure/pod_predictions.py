"""The README's two tables of predictions: what a pod would do, compiled here and not run.

    python launch/measure/pod_predictions.py --output plans        needs pip install "bert_jax[tpu]"

Each entry is of `bert-jax plan --json`, whose answer is kept in a folder of the output directory
that is named after the commit: a second call continues where the first one was interrupted. Two
dozen compilations take about half an hour on two CPU cores.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
CONFIGS = {128: "configs/pretrain.py", 512: "configs/pretrain_512.py"}
SLICES = {"v5e:2x4": 8, "v5e:16x16": 256, "v4:4x4x4": 64, "v5p:2x2x2": 8, "v6e:4x4": 16}
# Rows of a device, the same on every slice: about as many as a v5e holds without remat.
ROWS = {("base", 128): 32, ("base", 512): 8, ("large", 128): 32, ("large", 512): 4}
GROWING = {"v5e:2x4": 8, "v5e:8x8": 64, "v5e:16x16": 256}


def plan(directory: Path, topology: str, size: str, length: int, mesh: str, batch: int) -> Any:
    """The plan of one line, from its file if it is there."""
    name = f"{size}-{length}-{topology}-{mesh}-{batch}".replace(":", "_").replace(",", "_")
    path = directory / f"{name}.json"
    if not path.is_file():
        command = [
            *(sys.executable, "-m", "bert_jax", "plan", "--json", "--no-search"),
            *("--config", f"{CONFIGS[length]}:size={size}", "--topology", topology),
            *("--mesh", mesh, "--config.precision=bfloat16"),
            f"--config.train.global_batch_size={batch}",
        ]
        done = subprocess.run(
            command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True
        )
        path.write_text(done.stdout, encoding="utf-8")
    return json.loads(path.read_text(encoding="utf-8"))


def predictions(directory: Path) -> list[str]:
    """A line for each size and length; for each slice, the GiB of a device and the ms of a step."""
    lines, heads = [], dict.fromkeys(SLICES, "")
    for length in CONFIGS:
        for size in ("base", "large"):
            rows, cells, flops = ROWS[size, length], [], 0.0
            for topology, devices in SLICES.items():
                mesh = f"data={devices}"
                planned = plan(directory, topology, size, length, mesh, rows * devices)
                available = planned["available_bytes_per_device"] / 2**30
                heads[topology] = f"{topology}, of {available:.1f} GiB"
                peak = f"{planned['peak_bytes_per_device'] / 2**30:.1f}"
                floor = f"{planned['step_floor_s'] * 1e3:.1f}"
                cells.append(f"{peak} · {floor}" if planned["fits"] else "does not fit")
                flops = planned["flops_per_step"] / devices
            packed = ", packed" if length == 512 else ""
            first = [f"{size}, {length}{packed}", str(rows), f"{flops / 1e12:.1f}"]
            lines.append(_line(first + cells))
    head = ["model, length", "rows of a chip", "TFLOP a chip", *heads.values()]
    return [_line(head), "|---|" + "---:|" * (len(head) - 1), *lines]


def scaling(directory: Path) -> list[str]:
    """The MB that each device sends in a step on ever larger slices, and the analytic minimum."""
    head = ["v5e, mesh", *(f"{devices} chips" for devices in GROWING.values())]
    lines, least = [], {}
    for axis in ("data", "fsdp"):
        cells = [axis]
        for topology, devices in GROWING.items():
            mesh = f"data={devices}" if axis == "data" else f"data=1,fsdp={devices}"
            planned = plan(directory, topology, "base", 128, mesh, ROWS["base", 128] * devices)
            cells.append(f"{planned['sent_bytes_per_device'] / 1e6:,.0f}")
            least[topology] = f"{planned['least_sent_bytes_per_device'] / 1e6:,.0f}"
        lines.append(_line(cells))
    lines.append(_line(["analytic minimum of both", *least.values()]))
    return [_line(head), "|---|" + "---:|" * len(GROWING), *lines]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    command = ("git", "rev-parse", "--short", "HEAD")
    commit = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    directory = parser.parse_args().output / commit.stdout.strip()
    directory.mkdir(parents=True, exist_ok=True)
    print("\n".join([*predictions(directory), "", *scaling(directory)]))


if __name__ == "__main__":
    main()
