"""Contenders of bert_jax: steps of a model on synthetic text, and works on texts."""

import argparse
import dataclasses
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import bert_jax
from benchmarks.contender import Step
from benchmarks.texts import (
    PAIR_BATCHES,
    SHORT,
    TAGS,
    lines_or_prompts,
    questions,
    uneven_texts,
    words,
)
from bert_jax.checkpoints import model_directory
from bert_jax.checkpoints.config_file import ModelDescription
from bert_jax.config import load_config
from bert_jax.experiment import Experiment
from bert_jax.families import bert, gpt2
from bert_jax.models.config import EncoderConfig
from bert_jax.models.encoder import init_params
from bert_jax.models.execution import Execution
from bert_jax.planning.bench import make_step
from bert_jax.tasks.generate import GenerationOptions
from bert_jax.tasks.question_answering.predict import AnswerOptions
from bert_jax.tokenization import BertSwitches, WordPieceTokenizer
from bert_jax.tokenization.training import train_gpt2
from bert_jax.training.progress import computed_tokens, padding_fraction

# The encoder of all-MiniLM-L6-v2, as changes of BERT-base.
MINILM = {"num_hidden_layers": 6, "hidden_size": 384, "intermediate_size": 1536}
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MARKS = ".,;:()'-"


def model_step(options: argparse.Namespace) -> Step:
    """Steps of the training, of the encoder, or of the pipeline that makes batches.

    The batches of the pipeline are from a synthetic corpus, or from `corpus`.
    """
    run, batches = _prepared(options, options.dtype)
    numbers = itertools.count()

    def step(number: int) -> dict[str, float]:
        if options.kind != "pipeline":
            jax.block_until_ready(run(next(numbers)))
            return {}
        batches.clear()
        for _ in range(options.batches):
            run(next(numbers))
        config = EncoderConfig()  # of text: any counts the same
        padding = float(np.mean([padding_fraction(batch, config) for batch in batches]))
        tokens = sum(computed_tokens(batch, config) for batch in batches)
        return {"tokens": tokens, "padding": padding}

    return step


def precision(options: argparse.Namespace) -> Step:
    """The losses of the same steps in bfloat16 and in float32."""

    def losses(dtype: str) -> np.ndarray:
        with jax.default_matmul_precision("highest" if dtype == "float32" else "default"):
            run, _ = _prepared(options, dtype)
            return np.array([float(run(number)["loss"]) for number in range(options.compared)])

    def step(number: int) -> dict[str, float]:
        full, half = losses("float32"), losses("bfloat16")
        difference = float(abs(half / full - 1).max())
        return {"first loss": full[0], "last loss": full[-1], "difference": difference}

    return step


def _prepared(options: argparse.Namespace, dtype: str) -> tuple[Callable[[int], Any], list[Any]]:
    values = vars(options)
    keys = {
        "precision": dtype,
        "train.global_batch_size": options.batch,
        "model.hidden_dropout_prob": values.get("dropout", 0.1),
        "model.attention_probs_dropout_prob": values.get("dropout", 0.1),
        **{
            f"data.{key}": values[key]
            for key in ("masking", "objective", "packing")
            if key in values
        },
    }
    if options.size == "minilm":
        keys |= {f"model.{key}": value for key, value in MINILM.items()}
    size, corpus = options.size.replace("minilm", "base"), values.get("corpus", "")
    name = f"pretrain:size={size},length={options.length},corpus={corpus}"
    config = load_config(name, [(key, str(value)) for key, value in keys.items()])
    experiment = Experiment.from_config(config)
    experiment = dataclasses.replace(experiment, with_data=bool(corpus))
    return make_step(options.kind, experiment.workload)


def on_texts(options: argparse.Namespace) -> Step:
    """Vectors; labels, tags and answers by new heads."""
    heads: dict[str, Any] = {
        "embed": (None, None),
        "classify": ("classification", ["no", "yes"]),
        "tag": ("tagging", list(TAGS)),
        "answer": ("question_answering", None),
    }
    head, labels = heads[options.kind]
    model = bert_jax.load(model_path(options), head, precision=options.dtype, labels=labels)
    inputs: Any = (uneven_texts(options.texts, 40 if options.kind == "embed" else SHORT),)
    more: dict[str, Any] = {"max_length": options.length}
    if options.kind == "answer":
        inputs = questions(options.texts)
        # About as many windows as the peer has, which overlap: a question has some 25 tokens, and
        # 3 are special.
        advance = max(1, options.length - 28 - options.overlap)
        windows = AnswerOptions(max_length=options.length, window_step=advance)
        more = {"options": windows}

    def step(number: int) -> dict[str, int]:
        getattr(model, options.kind)(*inputs, **more)
        return {"texts": options.texts}

    return step


def pairs_step(options: argparse.Namespace) -> Step:
    """Training steps of multiple negatives, also with cached vectors."""
    path = Path(options.output, f"{options.name}-{options.contender}.jsonl")
    pairs = zip(*questions(PAIR_BATCHES * options.batch), strict=True)
    lines = [json.dumps({"query": query, "positive": positive}) for query, positive in pairs]
    path.write_text("\n".join(lines), encoding="utf-8")
    keys = {
        "precision": options.dtype,
        "train.global_batch_size": options.batch,
        "train.microbatches": options.parts if options.contender.endswith("cached") else 1,
        "data.validation": path,
    }
    name = f"retrieval:train={path},init_from={model_path(options)},length={options.length}"
    config = load_config(name, [(key, str(value)) for key, value in keys.items()])
    run, _ = make_step("train", Experiment.from_config(config).workload)
    numbers = itertools.count()

    def step(number: int) -> dict[str, int]:
        jax.block_until_ready(run(next(numbers)))
        return {"pairs": options.batch}

    return step


def rerank(options: argparse.Namespace) -> Step:
    """Scores of queries with documents by a cross-encoder with a new head."""
    head = {"labels": ["relevance"], "precision": options.dtype}
    model = bert_jax.load(model_path(options), "classification", **head)
    pairs = list(zip(*questions(options.texts), strict=True))

    def step(number: int) -> dict[str, int]:
        model.classify(pairs, max_length=options.length)
        return {"texts": options.texts}

    return step


def generate(options: argparse.Namespace) -> Step:
    """Generations for lines of the file `data`, or after prompts."""
    model = bert_jax.load(options.model or _gpt(options), precision="float32")
    texts = lines_or_prompts(options.data, options.texts)
    search = search_of_peer(options.new_tokens, options.beams)

    def step(number: int) -> dict[str, float]:
        made = model.generate(texts, batch_size=options.batch, options=search)
        written = sum(len(generations[0].token_ids) for generations in made)
        return {"texts": options.texts, "tokens": written}

    return step


def search_of_peer(new_tokens: int, beams: int) -> GenerationOptions:
    """Greedy search or beams, with the rules of transformers."""
    return GenerationOptions(
        new_tokens, beams, length_penalty=1.0, penalty="transformers", early_stopping="false"
    )


def _gpt(options: argparse.Namespace) -> str:
    """A GPT-2 of random weights of this `size` in `output`, with a vocabulary of `texts.py`."""
    directory = Path(options.output, f"gpt2-{options.size}")
    if not directory.exists():
        tokenizer = train_gpt2(uneven_texts(200), vocab_size=1000)
        config = gpt2.FAMILY.new_config(options.size)
        description = ModelDescription(config, "causal_lm", family=gpt2.FAMILY)
        module = description.make_module(Execution())
        params = jax.jit(lambda key: init_params(module, key))(jax.random.key(0))
        model_directory.save(directory, description, params, tokenizer)
    return str(directory)


def model_path(options: argparse.Namespace) -> str:
    """The model directory `model`, else one of random weights of this `size` in `output`.

    Its vocabulary has the words of `texts.py`.
    """
    directory = Path(options.output, f"model-{options.size}")
    if options.model or directory.exists():
        return options.model or str(directory)
    changes = MINILM if options.size == "minilm" else {}
    config = bert.FAMILY.new_config(options.size.replace("minilm", "base"), **changes)
    known = dict.fromkeys(word.lower().strip(MARKS) for word in words())
    pieces = [*SPECIAL, *MARKS, *filter(None, known)]
    pieces += [f"w{number}" for number in range(config.vocab_size - len(pieces))]
    tokenizer = WordPieceTokenizer.from_vocabulary(pieces, BertSwitches(True, None, True))
    description = ModelDescription(config, "encoder")
    module = description.make_module(Execution())
    params = jax.jit(lambda key: init_params(module, key))(jax.random.key(0))
    model_directory.save(directory, description, params, tokenizer)
    return str(directory)
