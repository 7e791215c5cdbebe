r"""The bert_jax side of `compare_speed.py`: serves steps of one piece of work.

python launch/measure/speed_bert_jax.py infer --size base --batch 8 --length 128 --dtype float32
"""

import argparse
import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from timed_rounds import serve
from uneven_texts import SHORT, TAGS, questions, uneven_texts

import bert_jax
from bert_jax.benchmarks import batch_making, first_batches, forward_pass, training_step
from bert_jax.config import load_config
from bert_jax.experiment import Experiment
from bert_jax.tasks.question_answering.predict import AnswerOptions

# The encoder of all-MiniLM-L6-v2, as changes of BERT-base.
MINILM = {"num_hidden_layers": 6, "hidden_size": 384, "intermediate_size": 1536}
CONFIG = Path(__file__).parents[2] / "configs" / "pretrain.py"


def make_run(options: argparse.Namespace) -> Callable[[], Any]:
    """The step of a work, to its end."""
    if options.work in TEXT_WORKS:
        return TEXT_WORKS[options.work](options)
    overrides = {
        "precision": options.dtype,
        "train.global_batch_size": options.batch,
        "model.hidden_dropout_prob": options.dropout,
        "model.attention_probs_dropout_prob": options.dropout,
    }
    size = options.size
    if size == "minilm":
        overrides |= {f"model.{key}": value for key, value in MINILM.items()}
        size = "base"
    config = load_config(
        f"{CONFIG}:size={size},length={options.length}",
        [(key, str(value)) for key, value in overrides.items()],
    )
    # Without data: on a synthetic corpus.
    experiment = dataclasses.replace(Experiment.from_config(config), with_data=False)
    numbers = itertools.count()
    if options.work == "masking":
        make, made = batch_making(experiment.task)

        def mask() -> None:
            make(next(numbers))
            made.clear()

        return mask
    task, mesh = experiment.task, experiment.mesh
    batches = first_batches(task)
    if options.work == "infer":
        run = forward_pass(task, experiment.model_init.execution, mesh, batches)
    else:
        parts = experiment.options.microbatches
        run = training_step(task, experiment.optimizer, mesh, parts, batches)
    return lambda: jax.block_until_ready(run(next(numbers)))


def embed(options: argparse.Namespace) -> Callable[[], Any]:
    """Vectors of texts."""
    model = bert_jax.load(options.model, precision=options.dtype)
    texts = uneven_texts(options.batch)
    return lambda: model.embed(texts, max_length=options.length)


def classify(options: argparse.Namespace) -> Callable[[], Any]:
    """Labels of short texts, by a new head of two classes."""
    model = bert_jax.load(
        options.model, "classification", precision=options.dtype, labels=["no", "yes"]
    )
    texts = uneven_texts(options.batch, words=SHORT)
    return lambda: model.classify(texts, max_length=options.length)


def tag(options: argparse.Namespace) -> Callable[[], Any]:
    """Tags of the words of short texts, by a new head."""
    model = bert_jax.load(options.model, "tagging", precision=options.dtype, labels=list(TAGS))
    texts = uneven_texts(options.batch, words=SHORT)
    return lambda: model.tag(texts, max_length=options.length)


def answer(options: argparse.Namespace) -> Callable[[], Any]:
    """Answers to questions from passages, by a new head."""
    model = bert_jax.load(options.model, "question_answering", precision=options.dtype)
    asked, passages = questions(options.batch)
    # About as many windows as the peer has, which overlap by 128 tokens: a question has some 25
    # tokens, and 3 are special.
    windows = AnswerOptions(max_length=options.length, window_step=options.length - 28 - 128)
    return lambda: model.answer(asked, passages, options=windows)


TEXT_WORKS = {"embed": embed, "classify": classify, "tag": tag, "answer": answer}


def main() -> None:
    """Parses the arguments and serves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", choices=["train", "infer", "masking", *TEXT_WORKS])
    parser.add_argument("--size", default="base")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--dtype", default="float32", help="float32, bfloat16 or auto")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--model", help="directory, for works on texts")
    parser.add_argument("--repeats", type=int, default=1, help="steps for one time")
    options = parser.parse_args()
    serve(make_run(options), options.repeats)


if __name__ == "__main__":
    main()
