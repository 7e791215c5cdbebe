"""Measures `bert-jax prepare`: speed against the bare tokenizers library, and peak memory.

    python launch/measure/benchmark_prepare.py --source jsonl:books.jsonl.gz --vocabulary vocab.txt

Speed: whole preparations (reading, splitting, encoding, writing, checksums) and the tokenizers
library's `encode_batch_fast`, which counts no offsets, on the same sentences, already split and in
memory, take turns with the same number of threads; the medians are compared. Memory: peak resident
sets of all processes together, for the source once and ten times. Prints one line of
JSON. Linux only.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def prepare_once(source: str, vocabulary: str, output: Path, workers: int, copies: int = 1) -> int:
    """Prepares a corpus and returns how many tokens it has."""
    from bert_jax.data.pretraining.preparation.options import PrepareOptions
    from bert_jax.data.pretraining.preparation.prepare import prepare
    from bert_jax.data.pretraining.sources import source_specs

    options = PrepareOptions(source_specs([source] * copies), tokenizer=vocabulary)
    manifest = prepare(options, output, workers=workers, progress=False)
    return sum(counts.tokens for counts in manifest.splits.values())


def sentences_of(source: str) -> list[str]:
    """What `prepare` encodes."""
    from bert_jax.data.pretraining.preparation.sentences import split_sentences

    from bert_jax.data.pretraining.sources import open_source, source_specs

    blocks = open_source(source_specs(source)[0]).blocks()
    return [s for block in blocks for line in block.text.split("\n") for s in split_sentences(line)]


def time_bare_library(sentences: list[str], vocabulary: str) -> float:
    """Seconds that `encode_batch_fast` takes, ten thousand sentences at a time."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordPiece.from_file(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    start = time.perf_counter()
    for first in range(0, len(sentences), 10_000):
        part = sentences[first : first + 10_000]
        tokenizer.encode_batch_fast(part, add_special_tokens=False)
    return time.perf_counter() - start


def measure_speed(arguments: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Tokens per second of both sides."""
    sentences = sentences_of(arguments.source)
    prepare, bare = [], []
    for number in range(arguments.rounds):
        start = time.perf_counter()
        output = folder / f"speed{number}"
        tokens = prepare_once(arguments.source, arguments.vocabulary, output, arguments.threads)
        prepare.append(tokens / (time.perf_counter() - start))
        bare.append(tokens / time_bare_library(sentences, arguments.vocabulary))
    return {
        "tokens": tokens,
        "prepare_tokens_per_s": round(statistics.median(prepare)),
        "bare_tokens_per_s": round(statistics.median(bare)),
        "speed_ratio": round(statistics.median(prepare) / statistics.median(bare), 3),
    }


def peak_memory_mb(arguments: argparse.Namespace, output: Path, copies: int) -> float:
    """Sum over the processes of a preparation of each one's largest resident set, in MB."""
    command = [sys.executable, __file__, "--source", arguments.source, "--copies", str(copies)]
    command += ["--vocabulary", arguments.vocabulary, "--threads", str(arguments.threads)]
    process = subprocess.Popen([*command, "--output", str(output)])
    peaks: dict[str, int] = {}
    while process.poll() is None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        try:
            for pid in [str(process.pid), *children.read_text().split()]:
                status = Path(f"/proc/{pid}/status").read_text()
                if "VmHWM:" in status:  # gone from a process that has just ended
                    peaks[pid] = int(status.partition("VmHWM:")[2].split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue
        time.sleep(0.02)
    if process.returncode:
        sys.exit(process.returncode)
    return sum(peaks.values()) / 1024


def main() -> None:
    """Parses the arguments and prints the measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", required=True, help="for example jsonl:books.jsonl.gz")
    parser.add_argument("--vocabulary", required=True, help="an uncased vocab.txt")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="only prepare COPIES times the source, there")
    parser.add_argument("--copies", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.output:
        places = (arguments.source, arguments.vocabulary, arguments.output)
        prepare_once(*places, arguments.threads, arguments.copies)
        return
    os.environ["RAYON_NUM_THREADS"] = str(arguments.threads)  # of the bare library
    with tempfile.TemporaryDirectory() as folder:
        result = measure_speed(arguments, Path(folder))
        once, ten = (peak_memory_mb(arguments, Path(folder, f"memory{n}"), n) for n in (1, 10))
    result |= {
        "once_mb": round(once, 1),
        "ten_mb": round(ten, 1),
        "memory_ratio": round(ten / once, 3),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
