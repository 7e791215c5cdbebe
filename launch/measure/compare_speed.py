r"""Speed side by side with other libraries, in alternating rounds.

    python launch/measure/compare_speed.py --output DIR [--works infer-128-float32 …] [--rounds 7]
    python launch/measure/compare_speed.py --output DIR --size minilm --works infer-32x256-float32 …
    python launch/measure/compare_speed.py --output DIR --model DIR --works embed-float32 …

Each contender is a process of its own that prepares the work once: `speed_bert_jax.py`, and
`speed_peer.py` with PyTorch and transformers (eager, SDPA, compiled, bfloat16), ONNX Runtime,
OpenVINO, sentence-transformers or pipelines of transformers. In each round all take a turn of some
steps, in every other round in the reverse order; the first round does not count. The result is the
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

from timed_rounds import Contender, ratios, with_spread
from timed_runs import markdown, once

from bert_jax.errors import UserError
from bert_jax.files import write_atomically

HERE = Path(__file__).parent
LABELS = {
    "bert_jax": "bert_jax",
    "eager": "PyTorch, eager",
    "sdpa": "PyTorch, SDPA",
    "masked": "PyTorch, SDPA, words at masked tokens",
    "compile": "PyTorch, compiled",
    "onnx": "ONNX Runtime",
    "openvino": "OpenVINO",
    "collator": "transformers' collator",
    "sentence_transformers": "sentence-transformers",
    "transformers": "transformers",
}
# Works on texts by the model of `--model`.
TEXT_KINDS = ("embed", "classify", "tag", "answer")


@dataclasses.dataclass(frozen=True)
class Work:
    """What all contenders do.

    Attributes:
        kind: "infer", the encoder forward; "train", a step of MLM and NSP with dropout, clipping
            and AdamW (bert_jax scores words at the masked tokens, transformers at all tokens: 1.22
            times the FLOPs for BERT-base, 1.76 times for MiniLM; "masked" are PyTorch and the
            modules of transformers at the masked tokens); "masking", a masked batch of ready ids;
            from the strings of `uneven_texts.py`, by the model of `--model`: "embed", vectors;
            "classify" and "tag", labels and tags of short texts; "answer", answers from passages.
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
        if self.kind in TEXT_KINDS:
            command += ["--model", str(options.model)]
        return command if side == "bert_jax" else [*command, "--with", side]


DTYPES = ("float32", "bfloat16")
WORKS = {
    "infer-128-float32": Work(
        "infer", 8, 128, "float32", ("sdpa", "eager", "compile", "onnx", "openvino")
    ),
    "infer-128-bfloat16": Work("infer", 8, 128, "bfloat16", ("sdpa", "compile", "openvino")),
    "infer-512-float32": Work("infer", 8, 512, "float32", ("sdpa", "onnx", "openvino")),
    "infer-512-bfloat16": Work("infer", 8, 512, "bfloat16", ("sdpa", "openvino")),
    "train-128-float32": Work("train", 8, 128, "float32", ("sdpa", "masked", "compile")),
    "train-128-bfloat16": Work("train", 8, 128, "bfloat16", ("sdpa", "masked", "compile")),
    "masking": Work("masking", 256, 128, "float32", ("collator",), repeats=100),
}
USUAL = tuple(WORKS)
WORKS |= {
    f"infer-32x{length}-{dtype}": Work("infer", 32, length, dtype, ("sdpa", "openvino"))
    for length in (64, 128, 256, 512)
    for dtype in DTYPES
}
WORKS |= {
    f"train-32x128-{dtype}": Work("train", 32, 128, dtype, ("sdpa", "masked")) for dtype in DTYPES
}
WORKS |= {
    f"{kind}-{dtype}": Work(kind, texts, length, dtype, (peer,))
    for kind, texts, length, peer in (
        ("embed", 1500, 512, "sentence_transformers"),
        ("classify", 10_000, 512, "transformers"),
        ("tag", 10_000, 512, "transformers"),
        ("answer", 500, 384, "transformers"),
    )
    for dtype in DTYPES
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
    for number in range(options.rounds + 1):
        print(f"{name}: round {number} of {options.rounds}", file=sys.stderr, flush=True)
        for contender in contenders[:: 1 if number % 2 == 0 else -1]:
            if not contender.take_turn(options.steps):
                contender.end()
                line = f"{name}: {LABELS[contender.name]} ended in its turn, see {contender.log}"
                if contender.name == "bert_jax":
                    raise SystemExit(line)
                print(line, file=sys.stderr)
                contenders.remove(contender)
    for contender in contenders:
        contender.end()
        del contender.rounds[0]  # of two equal processes, the first to start led in it
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
    if options.texts is not None and work.kind in TEXT_KINDS:
        work = dataclasses.replace(work, batch=options.texts)
    settings = {key: getattr(options, key) for key in ("size", "rounds", "steps", "peer_python")}
    if work.kind in TEXT_KINDS:
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
            milliseconds = f"{1e3 * times['median_s']:.1f}"
            rows.append(
                [
                    name,
                    LABELS[side],
                    milliseconds,
                    with_spread(ratio) if side != "bert_jax" else "1",
                ]
            )
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
    parser.add_argument("--works", nargs="+", choices=WORKS, default=USUAL, metavar="WORK")
    parser.add_argument("--model", type=Path, help="directory of Hugging Face, for texts")
    parser.add_argument("--texts", type=int, help="how many, instead of the number of a work")
    parser.add_argument("--size", default="base")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=3, help="of each turn")
    parser.add_argument("--peer-python", default=sys.executable, help="environment of the peers")
    options = parser.parse_args(arguments)
    if options.model is None and any(WORKS[name].kind in TEXT_KINDS for name in options.works):
        parser.error("works on texts need --model")
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
