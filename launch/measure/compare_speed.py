r"""Speed side by side with other libraries, in alternating rounds.

    python launch/measure/compare_speed.py --output DIR [--works infer-128-float32 …] [--rounds 7]
    python launch/measure/compare_speed.py --output DIR --model DIR --works embed-float32 …

Each contender is a process of its own that prepares the work once: `speed_bert_jax.py`, and
`speed_peer.py` with PyTorch and transformers (eager, SDPA, compiled, bfloat16), ONNX Runtime,
OpenVINO or sentence-transformers. In each round all take a turn of some steps; the result is the
median over the rounds of the ratio of a contender's step to that of bert_jax in the same round. A
contender that is not installed is left out with a line; `--peer-python` names another environment
for them.

Writes `WORK.json` for each work, `speed.md` and `speed.png` to `--output`, and prints the table. A
work that is finished is not repeated.
"""

import argparse
import dataclasses
import statistics
import sys
from pathlib import Path
from typing import Any

from timed_rounds import Contender, ratios
from timed_runs import markdown, once

from bert_jax.errors import UserError
from bert_jax.files import write_atomically

HERE = Path(__file__).parent
LABELS = {
    "bert_jax": "bert_jax",
    "eager": "PyTorch, eager",
    "sdpa": "PyTorch, SDPA",
    "compile": "PyTorch, compiled",
    "onnx": "ONNX Runtime",
    "openvino": "OpenVINO",
    "collator": "transformers' collator",
    "sentence_transformers": "sentence-transformers",
}


@dataclasses.dataclass(frozen=True)
class Work:
    """What all contenders do.

    Attributes:
        kind: "infer", the encoder forward; "train", a step of MLM and NSP with dropout, clipping
            and AdamW (bert_jax scores the vocabulary at the masked tokens, transformers at all of
            them, a fifth more to compute); "masking", a masked batch of ready ids; "embed", the
            vectors of the texts of `uneven_texts.py`, from strings, by the model of `--model`.
        batch: rows; texts to embed.
        length: tokens of a row; the maximum for texts.
        dtype: float32 or bfloat16 (the peers train under autocast).
        peers: who else does it.
        repeats: how often it is done for one time.
    """

    kind: str
    batch: int
    length: int
    dtype: str
    peers: tuple[str, ...]
    repeats: int = 1

    def command(self, python: str, side: str, options: argparse.Namespace) -> list[str]:
        """Of one contender."""
        script = "speed_bert_jax.py" if side == "bert_jax" else "speed_peer.py"
        command = [
            python,
            str(HERE / script),
            self.kind,
            "--size",
            options.size,
            "--dtype",
            self.dtype,
        ]
        command += ["--batch", str(self.batch), "--length", str(self.length)]
        command += ["--repeats", str(self.repeats)]
        if self.kind == "embed":
            command += ["--model", str(options.model)]
        return command if side == "bert_jax" else [*command, "--with", side]


WORKS = {
    "infer-128-float32": Work(
        "infer", 8, 128, "float32", ("sdpa", "eager", "compile", "onnx", "openvino")
    ),
    "infer-128-bfloat16": Work("infer", 8, 128, "bfloat16", ("sdpa", "compile", "openvino")),
    "infer-512-float32": Work("infer", 8, 512, "float32", ("sdpa", "onnx", "openvino")),
    "infer-512-bfloat16": Work("infer", 8, 512, "bfloat16", ("sdpa", "openvino")),
    "train-128-float32": Work("train", 8, 128, "float32", ("sdpa", "compile")),
    "train-128-bfloat16": Work("train", 8, 128, "bfloat16", ("sdpa", "compile")),
    "masking": Work("masking", 256, 128, "float32", ("collator",), repeats=100),
    "embed-float32": Work("embed", 1500, 512, "float32", ("sentence_transformers",)),
    "embed-bfloat16": Work("embed", 1500, 512, "bfloat16", ("sentence_transformers",)),
}


def compare(name: str, work: Work, options: argparse.Namespace) -> dict[str, Any]:
    """The rounds of one work."""
    contenders = []
    for side in ("bert_jax", *work.peers):
        python = sys.executable if side == "bert_jax" else options.peer_python
        print(f"{name}: {LABELS[side]} prepares …", file=sys.stderr, flush=True)
        log = options.output / f"{name}-{side}.log"
        contender = Contender(side, work.command(python, side, options), log)
        if contender.first is None:
            contender.end()
            line = f"{name}: {LABELS[side]} does not run here, see {log}"
            if side == "bert_jax":
                raise SystemExit(line)
            print(line, file=sys.stderr)
        else:
            contenders.append(contender)
    for number in range(options.rounds):
        print(f"{name}: round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
        for contender in tuple(contenders):
            if not contender.take_turn(options.steps):
                contender.end()
                line = f"{name}: {LABELS[contender.name]} ended in its turn, see {contender.log}"
                if contender.name == "bert_jax":
                    raise SystemExit(line)
                print(line, file=sys.stderr)
                contenders.remove(contender)
    for contender in contenders:
        contender.end()
    reference = contenders[0]
    return {
        one.name: {
            "first_s": one.first,
            "rounds_s": one.rounds,
            "median_s": statistics.median(one.rounds),
            "ratio": ratios(reference.rounds, one.rounds),
        }
        for one in contenders
    }


def compare_once(name: str, options: argparse.Namespace) -> Any:
    """The rounds of one work, from its file if it has been done."""
    work = WORKS[name]
    settings = {key: getattr(options, key) for key in ("size", "rounds", "steps")}
    if work.kind == "embed":
        settings["model"] = str(options.model)
    return once(
        options.output / f"{name}.json",
        {**settings, **dataclasses.asdict(work)},
        lambda: {"sides": compare(name, work, options)},
    )


def table(results: dict[str, Any]) -> str:
    """All works and contenders."""
    rows = []
    for name, result in results.items():
        for side, times in result["sides"].items():
            ratio = times["ratio"]
            spread = f"{ratio['median']:.2f} ({ratio['least']:.2f}–{ratio['greatest']:.2f})"
            milliseconds = f"{1e3 * times['median_s']:.1f}"
            rows.append([name, LABELS[side], milliseconds, spread if side != "bert_jax" else "1"])
    return markdown(["work", "by", "ms a step", "times as long as bert_jax"], rows, texts=2)


def draw(results: dict[str, Any], path: Path) -> None:
    """Bars from 1 to how many times as long as bert_jax, with the spread over the rounds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    bars = [
        (f"{name}: {LABELS[side]}", times["ratio"])
        for name, result in results.items()
        for side, times in result["sides"].items()
        if side != "bert_jax"
    ]
    figure = Figure(figsize=(8, 1 + 0.3 * len(bars)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    medians = [ratio["median"] for _, ratio in bars]
    spread = [
        [ratio["median"] - ratio["least"] for _, ratio in bars],
        [ratio["greatest"] - ratio["median"] for _, ratio in bars],
    ]
    labels = [label for label, _ in bars]
    colors = ["#4c72b0" if median >= 1 else "#dd8452" for median in medians]
    axes.barh(labels, [median - 1 for median in medians], left=1, xerr=spread, color=colors)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xscale("log", base=2)  # half as long is as far from 1 as twice as long
    axes.xaxis.set_major_formatter("{x:g}")
    axes.invert_yaxis()
    axes.set_xlabel("times as long as bert_jax")
    figure.savefig(path, dpi=150)


def main(arguments: list[str] | None = None) -> None:
    """Parses the arguments and compares work after work."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="directory of the results")
    usual = [name for name, work in WORKS.items() if work.kind != "embed"]
    parser.add_argument("--works", nargs="+", choices=WORKS, default=usual, metavar="WORK")
    parser.add_argument("--model", type=Path, help="directory of Hugging Face, for embed-…")
    parser.add_argument("--size", default="base")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=3, help="of each turn")
    parser.add_argument("--peer-python", default=sys.executable, help="environment of the peers")
    options = parser.parse_args(arguments)
    if options.model is None and any(WORKS[name].kind == "embed" for name in options.works):
        parser.error("embed-… needs --model")
    options.output.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    try:
        for name in options.works:
            results[name] = compare_once(name, options)
            write_atomically(options.output / "speed.md", table(results).encode())
    except UserError as error:
        raise SystemExit(f"compare_speed: {error}") from None
    draw(results, options.output / "speed.png")
    print(table(results))


if __name__ == "__main__":
    main()
