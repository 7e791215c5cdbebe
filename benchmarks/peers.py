"""Contenders of other libraries: PyTorch and transformers, ONNX Runtime, OpenVINO, and others.

The contender's name says which: sdpa, compile; masked, which is sdpa with words scored at the
masked tokens alone; onnx; openvino. PyTorch computes on a GPU if there is one. Weights are random
but for works on texts, whose heads are. Nothing of bert_jax is imported here.
"""

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from benchmarks.contender import Step
from benchmarks.texts import (
    PAIR_BATCHES,
    SHORT,
    TAGS,
    lines_or_prompts,
    questions,
    uneven_texts,
)

# Layers, width, heads.
SIZES = {
    "tiny": (2, 128, 2),
    "minilm": (6, 384, 12),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}
PREDICTED = 0.15
# Pipelines are tried with these on so many texts; the fastest counts.
BATCH_SIZES, SAMPLED = (1, 8, 32, 128), 512
VOCABULARY = 30522
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


def _config(options: argparse.Namespace) -> Any:
    layers, width, heads = SIZES[options.size]
    dropout = getattr(options, "dropout", 0.0)
    return transformers.AutoConfig.for_model(
        "bert",
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        attn_implementation="sdpa",
    )


def _inputs(options: argparse.Namespace) -> dict[str, torch.Tensor]:
    ids = torch.randint(1000, 30000, (options.batch, options.length), device=DEVICE)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _awaited(run: Callable[[], Any], **figures: int) -> Step:
    """Runs until the device has finished."""

    def step(number: int) -> dict[str, int]:
        run()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        return figures

    return step


def train(options: argparse.Namespace) -> Step:
    """A step of pre-training: MLM and NSP, forward, backward, clipping and AdamW."""
    model = transformers.BertForPreTraining(_config(options)).train().to(DEVICE)
    call = torch.compile(model) if options.contender == "compile" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    inputs = _inputs(options)
    ids = inputs["input_ids"]
    inputs["token_type_ids"] = torch.zeros_like(ids)
    count = -(-round(100 * PREDICTED) * options.length // 100)
    masked = torch.rand(ids.shape, device=DEVICE).topk(count, dim=1).indices
    originals = ids.gather(1, masked)
    labels = torch.full_like(ids, -100).scatter_(1, masked, originals)
    pairs = torch.randint(0, 2, (options.batch,), device=DEVICE)
    labelled = inputs | {"labels": labels, "next_sentence_label": pairs}

    def loss_of_masked() -> torch.Tensor:
        encoded = model.bert(**inputs)
        hidden = encoded.last_hidden_state
        chosen = hidden.gather(1, masked[..., None].expand(-1, -1, hidden.shape[-1]))
        words, relation = model.cls(chosen, encoded.pooler_output)
        entropy = torch.nn.functional.cross_entropy
        return entropy(words.flatten(0, 1), originals.flatten()) + entropy(relation, pairs)

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=options.dtype == "bfloat16"):
            loss = loss_of_masked() if options.contender == "masked" else call(**labelled).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return _awaited(run)


def infer(options: argparse.Namespace) -> Step:
    """The encoder without dropout."""
    model = transformers.BertModel(_config(options), add_pooling_layer=False).eval()
    inputs = _inputs(options)
    feed = {name: array.cpu().numpy() for name, array in inputs.items()}
    if options.contender == "onnx":
        import onnxruntime

        with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
            path = Path(folder) / "model.onnx"
            torch.onnx.export(model, (), path, kwargs=inputs, dynamo=True, verbose=False)
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return _awaited(lambda: session.run(None, feed))
    if options.contender == "openvino":
        import openvino

        converted = openvino.convert_model(model, example_input=inputs)
        converted.reshape({name: list(array.shape) for name, array in inputs.items()})
        precision = {"float32": "f32", "bfloat16": "bf16"}[options.dtype]
        hint = {"INFERENCE_PRECISION_HINT": precision}
        request = openvino.compile_model(converted, "CPU", hint).create_infer_request()
        return _awaited(lambda: request.infer(feed))
    model = model.to(DEVICE, getattr(torch, options.dtype))
    call = torch.compile(model) if options.contender == "compile" else model

    def run() -> None:
        with torch.inference_mode():
            call(**inputs)

    return _awaited(run)


def collator(options: argparse.Namespace) -> Step:
    """Dynamic masking of ready ids by the collator of transformers."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *(f"w{number}" for number in range(VOCABULARY - len(special)))]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "vocab.txt").write_text("\n".join(words), encoding="utf-8")
        Path(folder, "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    collate = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=PREDICTED)
    drawn = np.random.default_rng(0).integers(1000, 30000, (options.batch, options.length))
    rows = [{"input_ids": row} for row in drawn.tolist()]
    count = options.batches * options.batch * options.length
    return _awaited(lambda: [collate(rows) for _ in range(options.batches)], tokens=count)


def _directory(options: argparse.Namespace) -> str:
    return options.model or f"{options.output}/model-{options.size}"


def embed(options: argparse.Namespace) -> Step:
    """The vectors of texts, in batches of 32, the default of sentence-transformers."""
    import sentence_transformers

    dtype = {"dtype": getattr(torch, options.dtype)}
    model = sentence_transformers.SentenceTransformer(
        _directory(options), device=DEVICE, model_kwargs=dtype
    )
    model.max_seq_length = options.length
    texts = uneven_texts(options.texts)

    def run() -> None:  # bfloat16 has no counterpart in NumPy
        model.encode(texts, batch_size=32, convert_to_tensor=True)

    return _awaited(run, texts=len(texts))


def pairs_step(options: argparse.Namespace) -> Step:
    """Training steps of multiple negatives, also with cached vectors; texts are encoded before."""
    import sentence_transformers
    from sentence_transformers import losses

    model = sentence_transformers.SentenceTransformer(_directory(options), device=DEVICE).train()
    model.max_seq_length = options.length
    if options.contender.endswith("cached"):
        rows = -(-options.batch // options.parts)
        loss: Any = losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=rows)
    else:
        loss = losses.MultipleNegativesRankingLoss(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.01, fused=True)
    sides = questions(PAIR_BATCHES * options.batch)
    batches = itertools.cycle(
        [
            [
                {name: each.to(DEVICE) for name, each in model.preprocess(rows).items()
                 if isinstance(each, torch.Tensor)}
                for rows in (side[start : start + options.batch] for side in sides)
            ]
            for start in range(0, PAIR_BATCHES * options.batch, options.batch)
        ]
    )  # fmt: skip

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=options.dtype == "bfloat16"):
            # A loss gets features of its own, to which the model adds its outputs.
            value = loss([dict(rows) for rows in next(batches)], None)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return _awaited(run, pairs=options.batch)


def rerank(options: argparse.Namespace) -> Step:
    """Scores of queries with documents by a cross-encoder with a new head."""
    import sentence_transformers

    dtype = {"dtype": getattr(torch, options.dtype)}
    model = sentence_transformers.CrossEncoder(
        _directory(options), num_labels=1, device=DEVICE, model_kwargs=dtype
    )
    model.max_seq_length = options.length
    pairs = list(zip(*questions(options.texts), strict=True))
    return _awaited(lambda: model.predict(pairs, batch_size=32), texts=len(pairs))


def pipeline(options: argparse.Namespace) -> Step:
    """Labels and tags of short texts, with the best of some sizes of batches."""
    is_tagging = options.kind == "tag"
    kind, count = ("Token", len(TAGS)) if is_tagging else ("Sequence", 2)
    auto = getattr(transformers, f"AutoModelFor{kind}Classification")
    dtype = getattr(torch, options.dtype)
    model = auto.from_pretrained(_directory(options), num_labels=count, dtype=dtype)
    tokenizer = transformers.AutoTokenizer.from_pretrained(_directory(options))
    tokenizer.model_max_length = options.length
    # That of tokens truncates long texts by itself.
    more: Any = {} if is_tagging else {"truncation": True}
    task: Any = "token-classification" if is_tagging else "text-classification"
    run: Any = transformers.pipeline(task, model=model, tokenizer=tokenizer, device=DEVICE, **more)
    texts = uneven_texts(options.texts, SHORT)

    def seconds(batch_size: int) -> float:
        began = time.perf_counter()
        run(texts[:SAMPLED], batch_size=batch_size)
        return time.perf_counter() - began

    seconds(1)
    best = min(BATCH_SIZES, key=seconds)
    return _awaited(lambda: run(texts, batch_size=best), texts=len(texts))


def generate(options: argparse.Namespace) -> Step:
    """Generations of texts in sorted batches; `best`: in the fastest of some batch sizes."""
    directory = options.model or f"{options.output}/gpt2-{options.size}"
    auto: Any = transformers.AutoModelForSeq2SeqLM
    if not options.model:
        auto = transformers.AutoModelForCausalLM
    model = auto.from_pretrained(directory, dtype=torch.float32).eval().to(DEVICE)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    texts = lines_or_prompts(options.data, options.texts)
    search = {"num_beams": options.beams, "max_new_tokens": options.new_tokens, "do_sample": False}
    search |= {"length_penalty": 1.0, "early_stopping": False}
    if not options.model:  # a new tokenizer has no padding; prompts end in the same column
        tokenizer.pad_token, tokenizer.padding_side = tokenizer.eos_token, "left"
        search |= {"pad_token_id": tokenizer.pad_token_id}

    def run(texts: list[str], size: int) -> None:
        ordered = sorted(texts, key=len, reverse=True)
        for start in range(0, len(ordered), size):
            rows = ordered[start : start + size]
            batch = tokenizer(rows, return_tensors="pt", padding=True).to(DEVICE)
            with torch.inference_mode():
                made = model.generate(**batch, **search)
            # A new model writes tokens that a new tokenizer lacks.
            tokenizer.batch_decode(made.clamp(max=len(tokenizer) - 1), skip_special_tokens=True)

    def seconds(size: int) -> float:
        began = time.perf_counter()
        run(texts[:SAMPLED], size)
        return time.perf_counter() - began

    size = options.batch
    if options.contender.endswith("best"):
        size = min(BATCH_SIZES[1:], key=seconds)
    return _awaited(lambda: run(texts, size), texts=len(texts))


def answer(options: argparse.Namespace) -> Step:
    """The scores of windows of passages, the longest first: no pipeline searches for answers."""
    dtype = getattr(torch, options.dtype)
    auto = transformers.AutoModelForQuestionAnswering
    model = auto.from_pretrained(_directory(options), dtype=dtype).eval().to(DEVICE)
    tokenizer = transformers.AutoTokenizer.from_pretrained(_directory(options))
    asked, passages = questions(options.texts)

    def windows_alone() -> None:
        windows = tokenizer(
            asked, passages, max_length=options.length, truncation="only_second",
            stride=options.overlap, return_overflowing_tokens=True,
        )  # fmt: skip
        lengths = [len(ids) for ids in windows["input_ids"]]
        order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
        names = ("input_ids", "token_type_ids", "attention_mask")
        for start in range(0, len(order), 32):
            chosen = order[start : start + 32]
            rows = {name: [windows[name][number] for number in chosen] for name in names}
            with torch.inference_mode():
                model(**tokenizer.pad(rows, return_tensors="pt").to(DEVICE))

    return _awaited(windows_alone, texts=len(asked))
