"""The verbs that write files, on data and models that are as small as can be.

Every case is run in an empty place; `result_of` gives everything in it that must not depend on
whether the work was interrupted.
"""

import dataclasses
import functools
import json
import logging
import os
import random
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np

from tests.campaign.processes import run, verb

PIECES = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "the", "a", "it", "was", "cat", "dog"),
    *("bird", "boy", "mat", "tree", "sea", "sat", "ran", "on", "to", "and", "up", "down", "warm"),
    *("long", "low", "##s", "##ed", "##er"),
)
# Texts whose ids show whether a tokenizer has changed.
SENTENCES = ("the cat sat on the mats .", "a bird walked up to the lower sea", "It was WARM.")
_MODEL = {
    "precision": "float32",
    "model.hidden_size": 16,
    "model.num_hidden_layers": 2,
    "model.num_attention_heads": 2,
    "model.intermediate_size": 32,
    "model.max_position_embeddings": 16,
    "data.length": 16,
    "data.max_predictions": 3,
    "optimizer.learning_rate": 1e-3,
    "optimizer.warmup_steps": 3,
    "train.global_batch_size": 8,
    "train.steps": 8,
    "train.log_every": 1,
    "train.eval_every": 4,
    "train.checkpoint_every": 2,
}
_FINE_TUNING = {
    "precision": "float32",
    "data.length": 16,
    "optimizer.learning_rate": 3e-3,
    "train.global_batch_size": 8,
    "train.log_every": 1,
    "train.checkpoint_every": 2,
}


@dataclasses.dataclass(frozen=True)
class Case:
    """One kind of work.

    Attributes:
        name: its name.
        work: the work in a place.
        complete: names that exist in the place only when what they belong to is complete.
        arguments: the same as a command line, if there is one.
        again: whether the place holds the result already, and the work replaces it.
    """

    name: str
    work: Callable[[Path], Callable[[], int]]
    complete: tuple[str, ...]
    arguments: Callable[[Path], list[str]] | None = None
    again: bool = False


# What the materials of a case are made of, in this order.
_NEEDS = {
    **dict.fromkeys(("pretrain", "hosts"), ("corpus",)),
    **dict.fromkeys(("finetune", "export", "convert"), ("corpus", "run")),
    **dict.fromkeys(("predict", "evaluate"), ("corpus", "run", "tuned")),
}


def make_materials(root: Path, names: Collection[str]) -> None:
    """Writes texts and tables, and makes what the named cases need of them."""
    root.mkdir(parents=True)
    draw = random.Random(0)
    (root / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES))
    (root / "text.txt").write_text(
        "\n\n".join("\n".join(_sentence(draw) for _ in range(6)) for _ in range(60)) + "\n"
    )
    rows = [f"{_sentence(draw)}\t{draw.choice(('animal', 'thing'))}" for _ in range(48)]
    (root / "rows.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    (root / "questions.txt").write_text("\n".join(_sentence(draw) for _ in range(400)) + "\n")
    needed = {made for name in names for made in _NEEDS.get(name.removesuffix(" again"), ())}
    for name, work in (
        ("corpus", prepare_work(root, root / "corpus")),
        ("run", verb(*pretrain_arguments(root, root / "run"))),
        ("tuned", verb(*_finetune(root, root / "tuned"))),
    ):
        if name in needed and (ended := run(work, root)).code != 0:
            raise RuntimeError(f"{name} cannot be made: {ended.errors}")


def cases(root: Path) -> list[Case]:
    """All cases, with the materials in a directory."""
    predict, evaluate = functools.partial(_predict, root), functools.partial(_evaluate, root)
    export = functools.partial(_export, root)
    convert = functools.partial(_convert, root)
    pretrain = functools.partial(pretrain_arguments, root)
    finetune = functools.partial(_finetune, root)

    def case(name: str, complete: tuple[str, ...], arguments: Callable[[Path], list[str]]) -> Case:
        def command(place: Path) -> list[str]:
            return arguments(place / name)

        return Case(name, lambda place: verb(*command(place)), complete, command)

    once = [
        case("pretrain", ("pretrain/result.json", "pretrain/model/model.safetensors"), pretrain),
        case("finetune", ("finetune/result.json", "finetune/model/model.safetensors"), finetune),
        Case(
            "prepare",
            lambda place: prepare_work(root, place / "prepare"),
            ("prepare/manifest.json",),
        ),
        Case(
            "predict",
            lambda place: recorded_work(predict(place / "predict")),
            ("predict",),
            lambda place: predict(place / "predict"),
        ),
        Case(
            "evaluate",
            lambda place: recorded_work(evaluate(place / "evaluate")),
            ("evaluate/validation.jsonl",),
            lambda place: evaluate(place / "evaluate"),
        ),
        case("export", ("export/model.safetensors",), export),
        case("convert", ("convert/bert_model.ckpt.index",), convert),
    ]
    replacing = ("predict", "evaluate", "export", "convert")
    replaced = [dataclasses.replace(case, name=f"{case.name} again", again=True)
                for case in once if case.name in replacing]  # fmt: skip
    return once + replaced


def pretrain_on_hosts(root: Path, place: Path, port: int, number: int) -> Callable[[], int]:
    """The pre-training by two processes, of which this is one."""
    hosts = ["--coordinator", f"127.0.0.1:{port}", "--processes", "2", "--process-id", str(number)]
    return verb(*pretrain_arguments(root, place / "hosts"), *hosts)


def recorded_work(arguments: list[str]) -> Callable[[], int]:
    """A verb with a record after every window of 64 predicted texts, or evaluated batch."""
    return functools.partial(_recorded, arguments)


def _recorded(arguments: list[str]) -> int:
    from bert_jax.files import journal

    journal.RECORD_SECONDS = 0.0
    return verb(*arguments)()


def prepare_work(root: Path, output: Path) -> Callable[[], int]:
    """The corpus, in batches of a few sentences."""
    return functools.partial(_prepare, root, output)


def _prepare(root: Path, output: Path) -> int:
    from bert_jax.data.pretraining.preparation.options import PrepareOptions
    from bert_jax.data.pretraining.preparation.prepare import prepare
    from bert_jax.data.pretraining.sources import SourceSpec
    from bert_jax.errors import UserError
    from bert_jax.process import BAD_INPUT, say

    options = PrepareOptions(
        (SourceSpec(f"text:{root}/text.txt"),),
        tokenizer=str(root / "vocab.txt"),
        validation_fraction=0.1,
        sentences="lines",
    )
    try:
        prepare(options, output, workers=1, progress=False, batch_characters=500)
    except UserError as error:
        say(f"bert-jax: {error}")
        return BAD_INPUT
    return 0


def pretrain_arguments(root: Path, output: Path | str) -> list[str]:
    """The command line that pre-trains; the work directory may be in a bucket."""
    keys = _MODEL | {"data.corpus": root / "corpus"}
    return ["train", "--config", "pretrain", "--workdir", str(output), *_overrides(keys)]


def _finetune(root: Path, output: Path) -> list[str]:
    keys = _FINE_TUNING | {"data.train": root / "rows.tsv", "init_from": root / "run" / "model"}
    return ["train", "--config", "classification", "--workdir", str(output), *_overrides(keys)]


def _predict(root: Path, output: Path) -> list[str]:
    model, texts = root / "tuned" / "model", root / "questions.txt"
    files = ["--model", str(model), "--input", str(texts), "--output", str(output)]
    return ["predict", *files, "--output-format", "jsonl", "--batch-size", "1"]


def _evaluate(root: Path, output: Path) -> list[str]:
    keys = _overrides({"data.validation": repr((str(root / "rows.tsv"),))})
    files = ["--workdir", str(root / "tuned"), "--output", str(output)]
    return ["evaluate", *files, *keys, "--config.train.global_batch_size=2"]


def _export(root: Path, output: Path) -> list[str]:
    return ["export", "--workdir", str(root / "run"), "--output", str(output)]


def _convert(root: Path, output: Path) -> list[str]:
    model = str(root / "run" / "model")
    return ["convert", "--input", model, "--output", str(output), "--to", "google"]


def _overrides(keys: dict[str, object]) -> list[str]:
    return [f"--config.{key}={value}" for key, value in keys.items()]


def _sentence(draw: random.Random) -> str:
    words = [piece for piece in PIECES[6:] if not piece.startswith("#")]
    return " ".join(draw.choice(words) for _ in range(draw.randint(3, 9))) + " ."


def result_of(place: Path) -> dict[str, bytes]:
    """What the work has made, by name: contents, and the arrays of checkpoints.

    Without what may differ between runs: times, and the number of event files.
    """
    found: dict[str, bytes] = {}
    for path in sorted(place.rglob("*")):
        name = path.relative_to(place).as_posix()
        parts = name.split("/")
        if "checkpoints" in parts:
            depth = len(parts) - parts.index("checkpoints")
            if depth == 2:
                found |= {f"{name}/{key}": value for key, value in _arrays(path).items()}
        elif "tensorboard" in parts:
            found[name.split("tensorboard")[0] + "tensorboard"] = b""
        elif path.name == "metrics.jsonl":
            found[name] = without_times(path.read_text())
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


def differences(found: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
    """The names of what differs, is missing or is left over."""
    return [
        *(f"{name} is missing" for name in sorted({*expected} - {*found})),
        *(f"{name} is left over" for name in sorted({*found} - {*expected})),
        *(f"{name} differs" for name in sorted({*expected} & {*found})
          if found[name] != expected[name]),
    ]  # fmt: skip


def without_times(text: str) -> bytes:
    """The lines of `metrics.jsonl`."""
    records = [json.loads(line) for line in text.splitlines()]
    for record in records:
        for name in ("tokens_per_second", "real_tokens_per_second"):
            record.pop(name, None)
    return json.dumps(records).encode()


def _arrays(checkpoint: Path) -> dict[str, bytes]:
    """The arrays of a checkpoint, and the position of the data; or that it cannot be read."""
    if not checkpoint.is_dir() or not checkpoint.name.isdecimal():
        return {"": b""}
    try:
        return _restored(checkpoint)
    except Exception as error:  # of any library: a finding, in the words of `differences`
        return {f"(cannot be read: {str(error)[:100]})": b""}


def _restored(checkpoint: Path) -> dict[str, bytes]:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax
    import orbax.checkpoint as ocp

    logging.getLogger("absl").setLevel(logging.CRITICAL)
    place, reader = checkpoint.absolute() / "state", ocp.PyTreeCheckpointer()
    on_host = ocp.RestoreArgs(restore_type=np.ndarray)  # it may lie on several hosts
    kinds = jax.tree.map(lambda _: on_host, reader.metadata(place).item_metadata.tree)
    state = reader.restore(place, ocp.args.PyTreeRestore(restore_args=kinds))
    arrays = {
        jax.tree_util.keystr(path): np.asarray(value).tobytes()
        for path, value in jax.tree_util.tree_leaves_with_path(state)
    }
    return arrays | {"position": (checkpoint / "position" / "metadata").read_bytes()}
