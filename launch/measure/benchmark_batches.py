"""How fast ready ids become masked batches, for each masking and objective.

    python launch/measure/benchmark_batches.py [--rows 256] [--length 128] [--batches 400]
        [--packing] [--corpus DIR]

Prints one JSON line per combination: million tokens/s (padding counted) through tf.data, which is
what training sees, and of the bare function on one core, medians of five rounds; the share of
padding among the tokens of 16 batches; the share of the corpus that the first epoch shows; and the
share of examples that packing leaves out.
"""

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from bert_jax.data.pipeline import Batch, batches_in_order
from bert_jax.data.pretraining.batches import PretrainingBatches
from bert_jax.data.pretraining.corpus import Corpus, CorpusSplit
from bert_jax.data.pretraining.coverage import shown_share
from bert_jax.data.pretraining.options import UNITS, PretrainingOptions
from bert_jax.data.pretraining.packing import PackedBatches
from bert_jax.tokenization import Tokenizer, load_tokenizer
from bert_jax.training.progress import padding_fraction

ROUNDS = 5


def synthetic_split(vocab_size: int, sentences: int = 400_000) -> CorpusSplit:
    """About 10 million random ids in sentences of 5-44 tokens and documents of 80 sentences."""
    random = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(random.integers(5, 45, sentences))])
    documents = np.append(np.arange(0, sentences, 80), sentences)
    tokens = random.integers(5, vocab_size, offsets[-1]).astype(np.uint16)
    return CorpusSplit(tokens, offsets, documents, np.array([0, len(documents) - 1]), np.ones(1))


def synthetic_tokenizer(folder: Path, vocab_size: int = 30_000) -> Tokenizer:
    """A vocabulary in which a fifth of the pieces continue a word, as in BERT's."""
    pieces = [f"##w{i}" if i % 5 == 0 else f"w{i}" for i in range(vocab_size - 5)]
    path = folder / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces]) + "\n")
    return load_tokenizer(path)


def seconds(batches: Iterator[Batch], count: int) -> float:
    """Time for the next `count` batches."""
    began = time.perf_counter()
    for _ in range(count):
        next(batches)
    return time.perf_counter() - began


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batches", type=int, default=400, help="of one round")
    parser.add_argument("--packing", action="store_true", help="several examples in a row")
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="in place of random ids")
    options = parser.parse_args()
    if options.corpus:
        corpus = Corpus.open(options.corpus)
        tokenizer, split = corpus.tokenizer(), corpus.splits["train"]
    else:
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = synthetic_tokenizer(Path(folder))
        split = synthetic_split(tokenizer.vocab_size)
    for masking in UNITS:
        for objective in ("nsp", "sop", "none"):
            left_out = 0.0
            chosen = PretrainingOptions(
                length=options.length,
                masking=masking,
                objective=objective,
                max_predictions=-(-options.length * 15 // 100),
            )
            examples = PretrainingBatches(split, tokenizer, chosen)
            maker: PretrainingBatches | PackedBatches = examples
            if options.packing:
                maker = packed = PackedBatches(examples)
                left_out = packed.statistics().left_out

            def make(number: int, batch: Callable[[int, int], Batch] = maker.batch) -> Batch:
                return batch(number, options.rows)

            stop = (ROUNDS + 1) * options.batches
            with contextlib.closing(batches_in_order(make, 0, stop)) as piped:
                seconds(piped, options.batches // 4)
                pipeline = [seconds(piped, options.batches) for _ in range(ROUNDS)]
            bare = [seconds(map(make, range(100)), 100) / 100 for _ in range(ROUNDS)]
            padding = statistics.mean(padding_fraction(make(number)) for number in range(16))
            tokens = options.rows * options.length / 1e6
            print(
                json.dumps(
                    {
                        "masking": masking,
                        "objective": objective,
                        "rows": options.rows,
                        "length": options.length,
                        "packing": options.packing,
                        "padding": round(padding, 4),
                        "shown": round(shown_share(split, tokenizer, chosen), 4),
                        "left_out": round(left_out, 4),
                        "tf_data_mtokens_per_s": round(
                            tokens * options.batches / statistics.median(pipeline), 1
                        ),
                        "one_core_mtokens_per_s": round(tokens / statistics.median(bare), 1),
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
