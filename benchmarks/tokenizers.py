"""The tokenizers of bert_jax against Hugging Face's: every encoding must be equal.

Equal are ids, type ids, tokens, offsets, word ids, masks of special tokens; of every line alone and
with the next one as a pair, and of generated strings also as pairs of at most 64 tokens.
"""

import argparse
import gzip
import itertools
import json
import random
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.contender import Step
from bert_jax.tokenization import Tokenizer, load_tokenizer
from bert_jax.tokenization.cleaning import looks_lowercased
from bert_jax.tokenization.interface import BYTE_LEVEL_BPE
from bert_jax.tokenization.wordpiece import read_vocabulary

FIELDS = ("ids", "type_ids", "tokens", "offsets", "word_ids", "special_tokens_mask")
BATCH, LIMIT, SHOWN = 1000, 64, 10
GENERATED = "generated"
# Pieces that tokenizers treat differently, by kind.
PIECES = [
    pieces.split(" ")
    for pieces in (
        "the Unaffable WORLD don't e-mail 3.14 1,000 U.S.A. ##ing",
        "é e\u0301 Å A\u030a ﬁ İ ı ß ẞ Ǆ o\u0302\u0323 ﬀ ς",
        "\u0301 \u0300\u0301\u0302 \u20dd \u0327 \u3099",  # combining alone
        "Ελλάς Москва עִבְרִית العَرَبِيَّة हिन्दी ภาษาไทย မြန်မာ አማርኛ ქართული",
        "中文 中a国 㐀 \U00020000 \U0002a6df 豈 \U0002f800 。 「 々",
        "ひらがな カタカナ ｶﾞ 한국어 \u1112\u1161\u11ab ー",
        "😀 👩🏽\u200d🚀 🏳\ufe0f\u200d🌈 🇩🇪 1\ufe0f\u20e3 ❤\ufe0f \ufe0f \U0001f3fb",
        "\u200b \u200c \u200d \u2060 \ufeff \u00ad \u034f \u180e",  # of no width
        "\u200e \u200f \u202a \u202e \u2066 \u2069 \u061c",  # directions
        "\ue000 \uf8ff \U000f0000 \U0010fffd \u0378 \U0010ffff",  # private, unassigned
        "... — “ ” ¿ $ ^ ` ~ | € № § ٪ 、 _ - \\",
        "² ½ Ⅷ ① ٣ 𝟘 𝔸𝓫 ∑ ≠ ℃ ™",
        "[CLS] [SEP] [MASK] [PAD] [UNK] [mask] [MASK ] [ [[SEP]] a[MASK]b",
        "<s> </s> <mask> <pad> <unk> <mask > < <<mask>> a<mask>b ▁ ▁a Ġ Ġa",
    )
]
PIECES += [
    ["\0", "\x01", "\x08", "\x0b", "\x0c", "\x1b[0m", "\x7f", "\x85", "\x9f", "\ufffd"],
    [" ", "  ", "\t", "\r", "\u00a0", "\u1680", "\u2003", "\u202f", "\u3000"],
    ["\n", "\n\n", "\r\n", "\u2028", "\u2029", "\x1c", "\x1d", "\x1e", "\x1f"],
    [*("a" * n for n in (99, 100, 101, 300)), "é" * 100, "e\u0301" * 60, "中" * 120],
]


def generated_strings(count: int, seed: int) -> Iterator[str]:
    """Each piece alone and beside letters and a space, then mixtures, and any characters."""
    draw = random.Random(seed)
    pieces = [piece for kind in PIECES for piece in kind]
    alone = ["", *pieces, *(f"a{piece}B {piece} c" for piece in pieces)]
    yield from alone[:count]
    for _ in range(count - len(alone)):
        kinds = draw.choices(PIECES, k=draw.randint(1, 4))
        chosen = [draw.choice(draw.choice(kinds)) for _ in range(draw.randint(1, 12))]
        if draw.random() < 0.3:  # surrogates are not characters
            points = (draw.randrange(0x110000) for _ in range(draw.randint(1, 8)))
            text = "".join(chr(point) for point in points if not 0xD800 <= point < 0xE000)
            chosen.insert(draw.randint(0, len(chosen)), text)
        yield draw.choice(["", " ", "\u00a0"]).join(chosen)


def lines_of(path: Path) -> Iterator[str]:
    """Lines end with a line feed only; every other separator is for the tokenizers."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                yield from archive.read(name).decode(errors="replace").split("\n")
        return
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    yield from content.decode(errors="replace").split("\n")


def load_both(vocabulary: Path, *, other_case: bool) -> tuple[Tokenizer, Any]:
    """The tokenizers of bert_jax and Hugging Face, of a `vocab.txt` or a model directory."""
    import transformers

    if vocabulary.is_dir():
        peer = transformers.AutoTokenizer.from_pretrained(vocabulary)
        return load_tokenizer(vocabulary, kind=BYTE_LEVEL_BPE), peer
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(vocabulary, Path(folder, "vocab.txt"))
        lowercase = looks_lowercased(read_vocabulary(vocabulary)) != other_case
        settings = {"do_lower_case": lowercase, "tokenizer_class": "BertTokenizer"}
        Path(folder, "tokenizer_config.json").write_text(json.dumps(settings))
        return load_tokenizer(folder), transformers.AutoTokenizer.from_pretrained(folder)


def compare(options: argparse.Namespace) -> Step:
    """Encodings of all lines of `text`, a file (plain, .gz, .zip), or "generated"."""
    tokenizer, peer = load_both(Path(options.vocabulary), other_case=options.other_case)
    is_generated = options.text == GENERATED

    def step(number: int) -> dict[str, int]:
        strings = generated_strings(options.strings, options.seed)
        lines = strings if is_generated else lines_of(Path(options.text))
        counts = dict.fromkeys(("lines", "encodings", "tokens", "differences"), 0)
        while batch := list(itertools.islice(lines, BATCH)):
            counts["lines"] += len(batch)
            following = [*batch[1:], batch[0]]
            for pairs, limit in [(None, None), (following, None), (following, LIMIT)][
                : 3 if is_generated else 2
            ]:
                cut = {"truncation": "longest_first", "max_length": limit} if limit else {}
                encodings = tokenizer.encode_batch(batch, pairs, max_length=limit)
                expected = peer(batch, pairs, verbose=False, **cut).encodings
                for text, encoding, truth in zip(batch, encodings, expected, strict=True):
                    counts["encodings"] += 1
                    counts["tokens"] += len(encoding)
                    wrong = [f for f in FIELDS if getattr(encoding, f) != getattr(truth, f)]
                    counts["differences"] += bool(wrong)
                    if wrong and counts["differences"] <= SHOWN:
                        print(f"{text!r}, at most {limit}: {wrong}", file=sys.stderr)
        return counts

    return step
