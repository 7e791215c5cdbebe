"""Search by models that are trained step by step, and answers, with the commands of a user.

A contender is a row of a table. The artifacts that it needs, models, indexes and runs, are made by
`COMMANDS`, once for a seed, below `output`; an interrupted work continues there. Seconds of a row
are those of all artifacts that no row before needed.
"""

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.collection import collection, texts_of
from benchmarks.contender import Step
from benchmarks.samples import AT_THE_END

# Artifacts depend on these options, too.
SHARED = ("examples", "evaluated", "length", "epochs", "masked_lm_steps", "precision")
METRICS = ("ndcg@10", "map", "mrr@10", "recall@1", "recall@5", "recall@20", "recall@100")
LENGTHS = "length={length},query_length=32"
TRAIN = AT_THE_END + " --config.precision={precision} --config.seed={seed}"
EPOCHS = " --config.train.epochs={epochs}" + TRAIN
OF_NEW_HEADS = " --config.optimizer.learning_rate=5e-5" + EPOCHS
# Of Margin-MSE: margins of logits are far above those of cosines.
UNBOUNDED = " --config.data.similarity=dot --config.data.normalize=false" + EPOCHS
WORDS = "continue_pretraining:model={model},source=text:{text},length=64"
RERANK = (
    "rerank --run {mined} --queries {searched} --documents {searched} --top-k 100"
    " --option empty=skip --precision {precision} --model "
)
# Folders of artifacts, by what these depend on beside the model.
OF_TRAINING, OF_RUN, OF_SET, COMMON = "{trained_on}-{seed}", "{set}-{seed}", "{set}", "all"


def indexed(model: str, folder: str = OF_RUN, more: str = " --bm25") -> tuple[str, str, str]:
    """The entry of an index."""
    # Two documents of Cranfield are empty.
    command = "index --input {searched} --empty skip --max-length {length} --precision {precision}"
    return folder, "", f"{command} --model {{{model}}}{more}"


def searched(index: str, folder: str = OF_RUN, searcher: str = "") -> tuple[str, str, str]:
    """The entry of a run."""
    command = f"search --input {{searched}} --top-k {{depth}} --index {{{index}}}"
    return folder, ".run", command + (searcher and f" --searcher {searcher}")


# For each name its folder, its ending, and the command that makes it. Braces stand for options and
# for other names.
COMMANDS = {
    "bm25": searched("index", OF_SET, "bm25"),
    "as_it_is": searched("index", OF_SET),
    "tuned": searched("tuned_index"),
    "mined": searched("mined_index"),
    "distilled": searched("distilled_index"),
    "reranked": (OF_RUN, ".run", RERANK + "{cross_encoder}"),
    "late": (OF_RUN, ".run", RERANK + "{late_model}"),
    "sparse": searched("sparse_index"),
    "fused": searched("mined_index", searcher="faiss+bm25"),
    "index": indexed("model", OF_SET),
    "tuned_index": indexed("tuned_model"),
    "mined_index": indexed("mined_model"),
    "distilled_index": indexed("distilled_model"),
    "sparse_index": indexed("sparse_model", more=""),
    "tuned_model": (
        OF_TRAINING, "/model",
        f"train --config retrieval:train={{train}},init_from={{model}},{LENGTHS}" + EPOCHS,
    ),
    # A hard negative for each question.
    "pairs": (
        OF_TRAINING, ".jsonl",
        "mine --input {train} --model {tuned_model} --negatives 1 --relative-margin 0.05"
        " --precision {precision}",
    ),
    "mined_model": (
        OF_TRAINING, "/model",
        f"train --config retrieval:train={{pairs}},init_from={{model}},{LENGTHS}" + EPOCHS,
    ),
    # Easier negatives than `pairs` has: the head of the cross-encoder is untrained.
    "lists": (
        OF_TRAINING, ".jsonl",
        "mine --input {train} --model {tuned_model} --negatives 3 --range-max 200"
        " --sampling random --relative-margin 0.05 --precision {precision}",
    ),
    "cross_encoder": (
        OF_TRAINING, "/model",
        "train --config ranking:train={lists},init_from={model},loss=cross_entropy,length=192"
        " --config.train.global_batch_size=16 --config.optimizer.learning_rate=2e-4" + EPOCHS,
    ),
    "scored": (
        OF_TRAINING, ".jsonl",
        "rerank --input {pairs} --model {cross_encoder} --raw-scores --precision {precision}",
    ),
    "distilled_model": (
        OF_TRAINING, "/model",
        "train --config retrieval:train={scored},loss=margin_mse,init_from={mined_model},"
        + LENGTHS + UNBOUNDED,
    ),
    "late_model": (
        OF_TRAINING, "/model",
        "train --config late_interaction:train={pairs},init_from={model}" + OF_NEW_HEADS,
    ),
    # `model` has no head of words: it gets one from the paragraphs.
    "words": (COMMON, "", f"prepare --config {WORDS}"),
    "masked_lm": (
        COMMON, "/model",
        f"train --config {WORDS},corpus={{words}},steps={{masked_lm_steps}}"
        " --config.optimizer.learning_rate=3e-4 --config.precision={precision}",
    ),
    "sparse_model": (
        OF_TRAINING, "/model",
        f"train --config sparse:train={{pairs}},init_from={{masked_lm}},{LENGTHS}" + OF_NEW_HEADS,
    ),
    "reader": (
        OF_TRAINING, "/model",
        "train --config squad:train={train},init_from={model},length=256 --config.train.epochs=4"
        " --config.train.global_batch_size=16 --config.optimizer.learning_rate=2e-4" + TRAIN,
    ),
}  # fmt: skip
# Without a reader the accuracy of 100 passages; with it, the scores of answers from `read`.
ANSWER = "answer --questions {searched} --output /dev/null"
READ = " --reader {reader} --max-length 256 --top-k {read} --precision {precision}"
ANSWERS = {
    "bm25": " --index {index} --searcher bm25",
    "as_it_is": " --index {index}",
    "mined": " --index {mined_index}",
    "fused": " --index {mined_index} --searcher faiss+bm25",
    "reranked": " --index {mined_index} --reranker {cross_encoder} --precision {precision}",
}
GOLD = "evaluate --model {reader} --config squad:train={train},validation={searched},length=256"


class Artifacts(dict[str, Any]):
    """The options of a work, and the paths of its artifacts, each made when it is first read."""

    def __init__(self, options: argparse.Namespace, seed: int) -> None:
        """Begins with the options and the files of the set."""
        files = collection(options)
        # More documents than a set with lists has.
        super().__init__(vars(options), seed=seed, depth=10_000 if files.has_lists else 1000)
        self.update(files._asdict())
        names = [Path(options.model).name, *(str(self[name]) for name in SHARED)]
        self._root = Path(options.output, "-".join(names))

    def __missing__(self, name: str) -> str:
        """Makes an artifact, if it is not there, and returns its path."""
        if name == "text":
            return self.setdefault(name, texts_of(argparse.Namespace(**self)))
        folder, ending, command = COMMANDS[name]
        path = self._root / folder.format_map(self) / name
        artifact, done = f"{path}{ending}", path.with_suffix(".done")
        if not done.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            is_train = command.startswith("train")
            self.call(
                f"{command} --workdir {path}" if is_train else f"{command} --output {artifact}"
            )
            if command.startswith("search") and self["has_lists"]:
                keep_judged(artifact, self["searched"])
            done.touch()
        self[name] = artifact
        return artifact

    def call(self, command: str) -> Any:
        """The object that `bert-jax` prints on its last line."""
        words = shlex.split(command.format_map(self))
        print(f"bert-jax {shlex.join(words)}", file=sys.stderr, flush=True)
        program = [sys.executable, "-m", "bert_jax", *words]
        done = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            sys.exit(f"bert-jax {words[0]} ended with {done.returncode}")
        return json.loads((done.stdout.strip().splitlines() or ["null"])[-1])


def search(options: argparse.Namespace) -> Step:
    """The metrics of a run; the number of the round is the seed."""
    from bert_jax.data.readers.judgements import read_judgements
    from bert_jax.data.runs import read_run
    from bert_jax.metrics.ranking import ranking_metrics

    def step(seed: int) -> dict[str, float]:
        artifacts = Artifacts(options, seed)
        run = read_run(artifacts[options.contender])
        return ranking_metrics(read_judgements(artifacts["searched"]), run, METRICS)

    return step


def answer(options: argparse.Namespace) -> Step:
    """The accuracy of 100 passages, and the scores of answers from `read`, or the right one."""

    def step(seed: int) -> dict[str, float]:
        artifacts = Artifacts(options, seed)
        if options.contender == "gold":
            retrieval, reading = {}, artifacts.call(GOLD)
        else:
            command = ANSWER + ANSWERS[options.contender]
            retrieval = artifacts.call(command + " --top-k 100")
            reading = artifacts.call(command + READ)
        return retrieval | {name: reading[name] for name in ("exact_match", "f1")}

    return step


def keep_judged(path: str, judgements: str) -> None:
    """Leaves out the documents of a run that are no candidates of their query."""
    from bert_jax.data.readers.judgements import read_judgements
    from bert_jax.data.runs import read_run, write_run

    known, run = read_judgements(judgements), read_run(path)
    write_run(path, {query: {document: score for document, score in scores.items()
                             if document in known[query]}
                     for query, scores in run.items()})  # fmt: skip
