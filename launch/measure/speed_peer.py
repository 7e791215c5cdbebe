r"""The peers' side of `compare_speed.py`: serves steps of other libraries.

    python launch/measure/speed_peer.py infer --with sdpa --size base --batch 8 --length 128

With: eager, sdpa and compile (PyTorch and transformers), masked (sdpa, which scores words at the
masked tokens alone), onnx (ONNX Runtime), openvino; collator for masking; sentence_transformers for
embed, transformers for classify, tag and answer. The weights are random but for the works on texts,
whose heads are. PyTorch computes on a GPU if there is one.
Nothing of bert_jax is imported here.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from timed_rounds import serve
from uneven_texts import SHORT, TAGS, questions, uneven_texts

# Layers, width, heads.
SIZES = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "minilm": (6, 384, 12),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}
PREDICTED = 0.15
# Of the pipelines, tried on so many texts.
BATCH_SIZES = (1, 8, 32, 128)
SAMPLED = 512
# Tokens that neighbouring windows of a passage share.
OVERLAP = 128
VOCABULARY = 30522
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def config_of(options: argparse.Namespace) -> Any:
    """The architecture."""
    layers, width, heads = SIZES[options.size]
    return transformers.AutoConfig.for_model(
        "bert",
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        hidden_dropout_prob=options.dropout,
        attention_probs_dropout_prob=options.dropout,
        attn_implementation="eager" if options.with_ == "eager" else "sdpa",
    )


def random_inputs(options: argparse.Namespace) -> dict[str, torch.Tensor]:
    """Token ids of full rows."""
    ids = torch.randint(1000, 30000, (options.batch, options.length), device=DEVICE)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def train(options: argparse.Namespace) -> Callable[[], Any]:
    """A step of pre-training: MLM and NSP, forward, backward, clipping and AdamW."""
    model = transformers.BertForPreTraining(config_of(options)).train().to(DEVICE)
    run = torch.compile(model) if options.with_ == "compile" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    inputs = random_inputs(options)
    ids = inputs["input_ids"]
    inputs["token_type_ids"] = torch.zeros_like(ids)
    count = -(-round(100 * PREDICTED) * options.length // 100)
    places = torch.rand(ids.shape, device=DEVICE).topk(count, dim=1).indices
    originals = ids.gather(1, places)
    labels = torch.full_like(ids, -100).scatter_(1, places, originals)
    pairs = torch.randint(0, 2, (options.batch,), device=DEVICE)
    labelled = inputs | {"labels": labels, "next_sentence_label": pairs}

    def loss_of_masked() -> torch.Tensor:
        encoded = model.bert(**inputs)
        hidden = encoded.last_hidden_state
        chosen = hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[-1]))
        words, relation = model.cls(chosen, encoded.pooler_output)
        entropy = torch.nn.functional.cross_entropy
        return entropy(words.flatten(0, 1), originals.flatten()) + entropy(relation, pairs)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=options.dtype == "bfloat16"):
            loss = loss_of_masked() if options.with_ == "masked" else run(**labelled).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        wait()

    return step


def infer(options: argparse.Namespace) -> Callable[[], Any]:
    """The encoder forward."""
    model = transformers.BertModel(config_of(options), add_pooling_layer=False).eval()
    inputs = random_inputs(options)
    if options.with_ == "onnx":
        return with_onnx(model, inputs)
    if options.with_ == "openvino":
        return with_openvino(model, inputs, options.dtype)
    model = model.to(DEVICE, getattr(torch, options.dtype))
    run = torch.compile(model) if options.with_ == "compile" else model

    def step() -> None:
        with torch.inference_mode():
            run(**inputs)
        wait()

    return step


def wait() -> None:
    """Returns when the device has done what it was given."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def with_onnx(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> Callable[[], Any]:
    """By ONNX Runtime, all optimisations on."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        with torch.inference_mode():
            torch.onnx.export(model, (), path, kwargs=inputs, dynamo=True, verbose=False)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feed = {name: array.numpy().astype(np.int64) for name, array in inputs.items()}
    return lambda: session.run(None, feed)


def with_openvino(
    model: torch.nn.Module, inputs: dict[str, torch.Tensor], dtype: str
) -> Callable[[], Any]:
    """By OpenVINO, in this precision."""
    import openvino

    converted = openvino.convert_model(model, example_input=inputs)
    converted.reshape({name: list(array.shape) for name, array in inputs.items()})
    precision = {"float32": "f32", "bfloat16": "bf16"}[dtype]
    compiled = openvino.compile_model(converted, "CPU", {"INFERENCE_PRECISION_HINT": precision})
    request = compiled.create_infer_request()
    feed = {name: array.numpy() for name, array in inputs.items()}
    return lambda: request.infer(feed)


def masking(options: argparse.Namespace) -> Callable[[], Any]:
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
    return lambda: collate(rows)


def embed(options: argparse.Namespace) -> Callable[[], Any]:
    """The vectors of texts, in batches of 32, the default of sentence-transformers."""
    import sentence_transformers

    model = sentence_transformers.SentenceTransformer(
        options.model, device=DEVICE, model_kwargs={"dtype": getattr(torch, options.dtype)}
    )
    model.max_seq_length = options.length
    texts = uneven_texts(options.batch)
    # bfloat16 has no counterpart in NumPy.
    return lambda: model.encode(texts, batch_size=32, convert_to_tensor=True)


def in_best_batches(run: Callable[..., Any], inputs: list[Any]) -> Callable[[], Any]:
    """A pipeline on all inputs, with the fastest of some batch sizes."""

    def seconds(batch_size: int) -> float:
        began = time.perf_counter()
        run(inputs[:SAMPLED], batch_size=batch_size)
        return time.perf_counter() - began

    seconds(1)
    best = min(BATCH_SIZES, key=seconds)
    return lambda: run(inputs, batch_size=best)


def pipeline(task: Any, options: argparse.Namespace, classes: int) -> Callable[[], Any]:
    """A pipeline of transformers on short texts."""
    kinds = {
        "text-classification": transformers.AutoModelForSequenceClassification,
        "token-classification": transformers.AutoModelForTokenClassification,
    }
    dtype = getattr(torch, options.dtype)
    model = kinds[task].from_pretrained(options.model, num_labels=classes, dtype=dtype)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    tokenizer.model_max_length = options.length
    # The pipeline of tokens cuts long texts by itself.
    cut: dict[str, Any] = {"truncation": True} if task == "text-classification" else {}
    run = transformers.pipeline(task, model=model, tokenizer=tokenizer, device=DEVICE, **cut)
    texts = uneven_texts(options.batch, words=SHORT)
    return in_best_batches(run, texts)


def classify(options: argparse.Namespace) -> Callable[[], Any]:
    """Labels of short texts."""
    return pipeline("text-classification", options, 2)


def tag(options: argparse.Namespace) -> Callable[[], Any]:
    """Tags of the tokens of short texts."""
    return pipeline("token-classification", options, len(TAGS))


def answer(options: argparse.Namespace) -> Callable[[], Any]:
    """Answers to questions, by the pipeline of transformers 4.

    transformers 5 has none: there only the scores of the windows, the longest first, no answers.
    """
    dtype = getattr(torch, options.dtype)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(options.model, dtype=dtype)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    asked, passages = questions(options.batch)
    task: Any = "question-answering"  # unknown to the types of version 5
    if task in transformers.pipelines.get_supported_tasks():
        run = transformers.pipeline(
            task, model=model, tokenizer=tokenizer, device=DEVICE,
            max_seq_len=options.length, doc_stride=OVERLAP,
        )  # fmt: skip
        rows = [
            {"question": question, "context": passage}
            for question, passage in zip(asked, passages, strict=True)
        ]
        return in_best_batches(run, rows)
    model = model.eval().to(DEVICE)

    def step() -> None:
        windows = tokenizer(
            asked, passages, max_length=options.length, truncation="only_second", stride=OVERLAP,
            return_overflowing_tokens=True,
        )  # fmt: skip
        order = sorted(
            range(len(windows["input_ids"])), key=lambda n: -len(windows["input_ids"][n])
        )
        names = ("input_ids", "token_type_ids", "attention_mask")
        for start in range(0, len(order), 32):
            chosen = order[start : start + 32]
            rows = {name: [windows[name][n] for n in chosen] for name in names}
            with torch.inference_mode():
                model(**tokenizer.pad(rows, return_tensors="pt").to(DEVICE))
        wait()

    return step


def main() -> None:
    """Parses the arguments and serves."""
    works = {
        "train": train,
        "infer": infer,
        "masking": masking,
        "embed": embed,
        "classify": classify,
        "tag": tag,
        "answer": answer,
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", choices=works)
    parser.add_argument(
        "--with", dest="with_", default="sdpa",
        choices=["eager", "sdpa", "masked", "compile", "onnx", "openvino", "collator",
                 "sentence_transformers", "transformers"],
    )  # fmt: skip
    parser.add_argument("--size", default="base", choices=SIZES)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--model", help="directory, for works on texts")
    parser.add_argument("--repeats", type=int, default=1, help="steps for one time")
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    torch.manual_seed(0)
    serve(works[options.work](options), options.repeats)


if __name__ == "__main__":
    main()
