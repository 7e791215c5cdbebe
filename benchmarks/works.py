"""The table of works: what each measures, its contenders, and its options."""

from benchmarks.harness import Work
from benchmarks.samples import AT_THE_END, RATE

OURS, PEERS = "benchmarks.ours:", "benchmarks.peers:"
STEP = {"size": "base", "batch": 8, "length": 128, "dropout": 0.1, "dtype": "float32"}
# Without a model, one of random weights of this size.
TEXTS = {"model": "", "size": "base", "texts": 1500, "length": 512, "dtype": "float32"}
SERVE = {"model": "", "size": "minilm", "data": "", "texts": 2048, "words": 40, "batch": 1,
         "clients": 64, "seconds": 60, "length": 256, "dtype": "float32"}  # fmt: skip
TRAIN = "bert-jax train --workdir {run} --config.seed={seed} --config {config}"
TEACHER = "{output}/runs/{name}-teacher-0/model"
STUDENTS = {
    "taught": f" --config.init_from={TEACHER} --config.distillation.teacher={TEACHER}"
    " --config.distillation.soft_weight=0.5 --config.distillation.task_weight=0.5",
    "alone": " --config.init_from={model}",
}
DRAWN = (
    " --config.data.train={train} --config.data.validation={validation} --config.init_from={model}"
    " --config.data.length={length} --config.precision={precision} --config.train.epochs={epochs}"
)
PEER = (
    "peer -m benchmarks.peers_finetuning {set} --train {train} --validation {validation}"
    " --model {model} --seed {seed} --epochs {epochs} --length {length} --precision {precision}"
)
ROWS = ("bm25", "as_it_is", "tuned", "mined", "distilled", "reranked", "late", "sparse", "fused")
OF_SEARCH = {"data": str, "model": str, "examples": 5000, "evaluated": 1000, "length": 256,
             "epochs": 1.0, "masked_lm_steps": 700, "precision": "auto",
             "set": "squad"}  # fmt: skip
METRICS = (
    *("accuracy", "f1", "macro_f1", "matthews_correlation", "pearson", "spearman", "exact_match"),
    *("has_answer_f1", "no_answer_f1"),
    # What a model that learns nothing gets.
    *("accuracy_majority", "matthews_correlation_majority", "spearman_overlap", "f1_no_answer"),
    *("f1_lexicon", "accuracy_chance"),
    # A student and its teacher.
    *("teacher_ms_per_text", "student_ms_per_text"),
)


def texts(kind: str, what: str, function: str = "pipeline", **options: object) -> Work:
    """A work from strings to results."""
    peer = "transformers" if kind != "embed" else "sentence_transformers"
    contenders = {"bert_jax": f"{OURS}on_texts", peer: f"{PEERS}{function}"}
    return Work(what, contenders, {"kind": kind} | TEXTS | options, rate="texts")


def command(what: str, words: str, options: dict[str, object], *figures: str) -> Work:
    """A command whose figures count."""
    return Work(what, {"bert_jax": words}, options, rounds=1, fresh=True, figures=figures)


WORKS = {
    "infer": Work(
        "the encoder, token ids to hidden states",
        {"bert_jax": f"{OURS}model_step"}
        | dict.fromkeys(("sdpa", "openvino", "compile", "onnx"), f"{PEERS}infer"),
        {"kind": "infer"} | STEP,
    ),
    "train": Work(
        "a training step of MLM and NSP; `masked` scores words at the masked tokens, as bert_jax",
        {"bert_jax": f"{OURS}model_step"}
        | dict.fromkeys(("sdpa", "masked", "compile"), f"{PEERS}train"),
        {"kind": "train"} | STEP,
    ),
    "embed": texts("embed", "vectors of texts", "embed"),
    "classify": texts("classify", "labels of short texts", texts=10_000),
    "tag": texts("tag", "tags of short texts", texts=10_000),
    "answer": texts(
        "answer", "answers from passages; of transformers the windows' scores alone",
        "answer", texts=500, length=384, overlap=128,
    ),
    "contrast": Work(
        "a training step of multiple negatives on pairs of texts, and with cached vectors",
        {f"{one}{how}": f"{where}pairs_step" for how in ("", "_cached")
         for one, where in (("bert_jax", OURS), ("sentence_transformers", PEERS))},
        {"model": "", "size": "minilm", "batch": 64, "length": 256, "parts": 4,
         "dtype": "float32"}, rate="pairs",
    ),
    "rerank": Work(
        "scores of queries with documents by a cross-encoder",
        {"bert_jax": f"{OURS}rerank", "sentence_transformers": f"{PEERS}rerank"},
        TEXTS | {"size": "minilm", "texts": 1000}, rate="texts",
    ),
    "search": Work(
        "the nearest of many vectors, exactly",
        {"bert_jax": "benchmarks.search:exact", "faiss": "benchmarks.search:flat"},
        {"vectors": 1_000_000, "width": 384, "queries": 64, "top_k": 10}, rounds=5, rate="queries",
    ),
    "index": Work(
        "`bert-jax index` of passages",
        {"bert_jax": "bert-jax index --model {model} --input {passages_file} --output {run}"
         " --precision {precision} --max-length {length}"},
        {"model": str, "passages": 25_000, "length": 512, "precision": "float32"},
        rounds=1, fresh=True, prepare="passages", figures=("documents",), rate="documents",
    ),
    "interrupted": Work(
        "`bert-jax index`, killed and continued at three points: no file may differ",
        {"bert_jax": "benchmarks.interrupted:index"},
        {"model": str, "passages": 50_000, "length": 512, "precision": "float32"},
        rounds=1, fresh=True, limits={"differing files": 0},
    ),
    "retrieve": Work(
        "search by models that are trained step by step, see benchmarks/retrieval.py",
        dict.fromkeys(ROWS, "benchmarks.retrieval:search"),
        OF_SEARCH, fresh=True,
    ),
    "open_qa": Work(
        "answers to SQuAD's questions from all its paragraphs, and from the right one",
        dict.fromkeys(("gold", "bm25", "as_it_is", "mined", "fused", "reranked"),
                      "benchmarks.retrieval:answer"),
        OF_SEARCH | {"read": 10}, rounds=1, fresh=True,
    ),
    "generate": Work(
        "generation: of the lines of a file, or without a model after prompts by a new GPT-2",
        {"bert_jax": f"{OURS}generate"}
        | dict.fromkeys(("transformers", "transformers_best"), f"{PEERS}generate"),
        {"model": "", "size": "base", "data": "", "texts": 1000, "batch": 32, "beams": 1,
         "new_tokens": 64}, rate="texts",
    ),
    "serve": Work(
        "a server with many clients and with one; a plain server, one request at a time",
        {"bert_jax": "benchmarks.serving:clients", "one_client": "benchmarks.serving:clients",
         "sentence_transformers": "benchmarks.peers_serving:clients"},
        SERVE, rate="texts", limits={"errors": 0, "lost": 0},
    ),
    "overload": Work(
        "a server whose queue is full: answers with 429 say when to retry, and there is room again",
        {"bert_jax": "benchmarks.serving:overload"}, SERVE | {"seconds": 20},
        rounds=1, fresh=True, limits={"errors": 0, "lost": 0, "not told when": 0, "recovery s": 5},
    ),
    "soak": Work(
        "a server with many clients for 20 minutes: no more memory in the end",
        {"bert_jax": "benchmarks.serving:soak"}, SERVE | {"seconds": 1200},
        rounds=1, fresh=True, limits={"errors": 0, "lost": 0, "growth in %": 5},
    ),
    "masking": Work(
        "masked batches of ready ids through tf.data, and their padding",
        {"bert_jax": f"{OURS}model_step", "collator": f"{PEERS}collator"},
        {"kind": "pipeline", "size": "base", "batch": 256, "length": 128, "dtype": "float32",
         "masking": "token", "objective": "nsp", "packing": False, "corpus": "", "batches": 400},
        rounds=5, rate="tokens",
    ),
    "tokenizers": Work(
        "encodings against Hugging Face's: none may differ",
        {"bert_jax": "benchmarks.tokenizers:compare"},
        {"vocabulary": str, "text": "generated", "strings": 2000, "seed": 0, "other_case": False},
        rounds=1, fresh=True, limits={"differences": 0},
    ),
    "finetune": Work(
        "scores of a data set", {"bert_jax": TRAIN + " --config.init_from={model}"},
        {"data": str, "model": str, "set": "mrpc"}, fresh=True, prepare="config", figures=METRICS,
    ),
    "distill": Work(
        "students with 3 and 2 of a teacher's layers, taught by it and alone",
        {"teacher": TRAIN + " --config.init_from={model}"}
        | {f"{layers}-layers-{how}": f"{TRAIN} --config.model.keep_layers={layers}{init}"
           for layers in (3, 2) for how, init in STUDENTS.items()},
        {"data": str, "model": str, "set": "trec"}, fresh=True, prepare="config", figures=METRICS,
    ),
    "compare": Work(
        "the same fine-tuning by bert_jax and by PyTorch with transformers, whole commands",
        {"bert_jax": TRAIN + DRAWN + RATE + AT_THE_END, "transformers": PEER},
        {"data": str, "model": str, "set": "mrpc", "examples": 0, "evaluated": 0, "epochs": 3.0,
         "length": 128, "precision": "auto"},
        fresh=True, prepare="drawn", figures=METRICS,
    ),
    "plan": command(
        "what `bert-jax plan` predicts for a slice",
        "bert-jax plan --json --no-search --config {config}:size={size} --topology {topology}"
        " --mesh {mesh} --config.precision=bfloat16 --config.train.global_batch_size={batch}",
        {"config": "pretrain", "size": "base", "topology": str, "mesh": str, "batch": int},
        *("peak_bytes_per_device", "step_floor_s", "flops_per_step"),
        *("sent_bytes_per_device", "least_sent_bytes_per_device"),
    ),
    "bench": command(
        "`bert-jax bench`: time, MFU and memory of a training step on all devices",
        "bert-jax bench --work train --steps {timed} --config pretrain:size={size},length={length}"
        " --config.data.packing={packing} --config.train.global_batch_size={batch}"
        " --config.precision={dtype} --config.model.attention={attention}",
        {"size": "base", "length": 128, "batch": 128, "packing": False, "timed": 20,
         "dtype": "auto", "attention": "auto"},
        *("median_s", "min_s", "real_tokens_per_s", "mfu", "compile_s", "peak_bytes"),
    ),
    "kernels": Work(
        "attention kernels against float32 on the CPU: greatest errors of outputs and gradients",
        {"bert_jax": "benchmarks.kernels:parity"}, {"length": 128}, rounds=1, fresh=True,
        # As in tests/models/test_kernels.py, relative to the greatest value.
        limits={"float32": 2e-5, "bfloat16": 3e-2},
    ),
    "precision": Work(
        "losses in bfloat16 against float32", {"bert_jax": f"{OURS}precision"},
        {"kind": "train", "size": "base", "length": 128, "batch": 32, "compared": 50},
        rounds=1, fresh=True, limits={"difference": 0.01},  # as in tests/training/test_precision.py
    ),
}  # fmt: skip
# What only an accelerator can show, in the order of its importance.
ACCELERATOR = (
    "kernels length=64,128,256,512",
    "precision",
    "bench size=base batch=256 attention=auto,xla",
    "bench size=large batch=128",
    "bench packing=true length=512 size=base batch=64 attention=auto,xla",
    "bench packing=true length=512 size=large batch=32",
    "embed texts=4000 dtype=bfloat16",
    "train batch=32 length=128,512 dtype=bfloat16",
)
# To try a work, also on a CPU.
TINY = {"overlap": 4, "size": "tiny", "length": 64, "batch": 2, "texts": 20, "timed": 2,
        "compared": 3, "strings": 400, "batches": 2, "examples": 12, "evaluated": 12,
        "vectors": 2000, "parts": 2, "passages": 60, "new_tokens": 4,
        "masked_lm_steps": 3, "epochs": 1.0, "read": 2, "clients": 24, "seconds": 1}  # fmt: skip
