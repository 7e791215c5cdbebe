"""Compares bert_jax's tokenizers with Hugging Face's, line by line.

    python launch/measure/compare_tokenizers.py --vocabulary vocab.txt --text udhr2.zip wiki.gz
    python launch/measure/compare_tokenizers.py --vocabulary models/roberta --text udhr2.zip wiki.gz

A vocabulary is a `vocab.txt`, read as that of a BERT, or a model directory of RoBERTa, CamemBERT or
XLM-R, whose class `tokenizer_config.json` names. Every line of the files (plain, .gz, each member
of a .zip), and `--nasty` generated strings, are encoded by both, alone and with the next line as a
pair; the generated ones also as pairs cut to 64 tokens. All must be equal: ids, type ids, tokens,
offsets, word ids, special-token masks. Prints a table and the first differences; exits with 1 when
there is one. Needs `pip install transformers`.
"""

import argparse
import gzip
import itertools
import json
import random
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bert_jax.tokenization import Encoding, Tokenizer, load_tokenizer
from bert_jax.tokenization.cleaning import looks_lowercased
from bert_jax.tokenization.interface import BYTE_LEVEL_BPE
from bert_jax.tokenization.wordpiece import read_vocabulary

FIELDS = ("ids", "type_ids", "tokens", "offsets", "word_ids", "special_tokens_mask")
BATCH, CUT, SHOWN = 1000, 64, 10

# What tokenizers stumble over, by kind, with a space between; then what has no such form.
NASTY = {
    "words": "the Unaffable WORLD don't e-mail 3.14 1,000 U.S.A. ##ing",
    "accents": "é e\u0301 Å A\u030a ﬁ İ ı ß ẞ Ǆ o\u0302\u0323 ﬀ ς",
    "combining alone": "\u0301 \u0300\u0301\u0302 \u20dd \u0327 \u3099",
    "scripts": "Ελλάς Москва עִבְרִית العَرَبِيَّة हिन्दी ภาษาไทย မြန်မာ አማርኛ ქართული",
    "Chinese": "中文 中a国 㐀 \U00020000 \U0002a6df 豈 \U0002f800 。 「 々",
    "Japanese, Korean": "ひらがな カタカナ ｶﾞ 한국어 \u1112\u1161\u11ab ー",
    "emoji": "😀 👩🏽\u200d🚀 🏳\ufe0f\u200d🌈 🇩🇪 1\ufe0f\u20e3 ❤\ufe0f \ufe0f \U0001f3fb",
    "zero width": "\u200b \u200c \u200d \u2060 \ufeff \u00ad \u034f \u180e",
    "directions": "\u200e \u200f \u202a \u202e \u2066 \u2069 \u061c",
    "private, unassigned": "\ue000 \uf8ff \U000f0000 \U0010fffd \u0378 \U0010ffff",
    "punctuation": "... — “ ” ¿ $ ^ ` ~ | € № § ٪ 、 _ - \\",
    "digits, symbols": "² ½ Ⅷ ① ٣ 𝟘 𝔸𝓫 ∑ ≠ ℃ ™",
    "special tokens": "[CLS] [SEP] [MASK] [PAD] [UNK] [mask] [MASK ] [ [[SEP]] a[MASK]b",
    "RoBERTa's": "<s> </s> <mask> <pad> <unk> <mask > < <<mask>> a<mask>b ▁ ▁a Ġ Ġa",
}
BLANK_AND_LONG = [
    ["\0", "\x01", "\x08", "\x0b", "\x0c", "\x1b[0m", "\x7f", "\x85", "\x9f", "\ufffd"],
    [" ", "  ", "\t", "\r", "\u00a0", "\u1680", "\u2003", "\u202f", "\u3000"],
    ["\n", "\n\n", "\r\n", "\u2028", "\u2029", "\x1c", "\x1d", "\x1e", "\x1f"],
    [*("a" * n for n in (99, 100, 101, 300)), "é" * 100, "e\u0301" * 60, "中" * 120],
]


def nasty_strings(count: int, seed: int) -> Iterator[str]:
    """Strings of some kinds of nasty parts, and of any characters there are."""
    draw = random.Random(seed)
    kinds = [*(parts.split(" ") for parts in NASTY.values()), *BLANK_AND_LONG]
    parts = [part for kind in kinds for part in kind]
    # Each part alone and beside letters and a space before the mixtures.
    yield from itertools.islice(("", *parts, *(f"a{part}B {part} c" for part in parts)), count)
    for _ in range(count - 1 - 2 * len(parts)):
        chosen = draw.choices(kinds, k=draw.randint(1, 4))
        pieces = [draw.choice(draw.choice(chosen)) for _ in range(draw.randint(1, 12))]
        if draw.random() < 0.3:
            pieces.insert(draw.randint(0, len(pieces)), any_characters(draw))
        yield draw.choice(["", " ", "\u00a0"]).join(pieces)


def any_characters(draw: random.Random) -> str:
    """Up to eight code points; none of the surrogates, which are no characters."""
    points = (draw.randrange(0x110000) for _ in range(draw.randint(1, 8)))
    return "".join(chr(point) for point in points if not 0xD800 <= point < 0xE000)


def lines_of(path: Path) -> Iterator[str]:
    """Lines end with a line feed only; every other separator is for the tokenizers."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                yield from archive.read(name).decode(errors="replace").split("\n")
        return
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    yield from content.decode(errors="replace").split("\n")


def load_both(vocabulary: Path, lowercase: bool) -> tuple[Tokenizer, Any]:
    """The tokenizers of bert_jax and Hugging Face, each from the same files."""
    import transformers

    if vocabulary.is_dir():
        peer = transformers.AutoTokenizer.from_pretrained(vocabulary)
        return load_tokenizer(vocabulary, kind=BYTE_LEVEL_BPE), peer
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(vocabulary, Path(folder, "vocab.txt"))
        settings = {"do_lower_case": lowercase, "tokenizer_class": "BertTokenizer"}
        Path(folder, "tokenizer_config.json").write_text(json.dumps(settings))
        peer = transformers.AutoTokenizer.from_pretrained(folder)
        return load_tokenizer(folder), peer


def encode_both(
    tokenizer: Tokenizer, peer: Any, texts: list[str], pairs: list[str] | None, cut: int | None
) -> Iterator[tuple[Encoding, Any]]:
    """The encodings of both, side by side."""
    options: dict[str, Any] = {"truncation": "longest_first", "max_length": cut} if cut else {}
    encoding = tokenizer.encode_batch(texts, pairs, max_length=cut)
    expected = peer(texts, pairs, verbose=False, **options)
    return zip(encoding, expected.encodings, strict=True)


def compare(
    tokenizer: Tokenizer,
    peer: Any,
    lines: Iterable[str],
    cuts: Iterable[int | None],
    reports: list[str],
) -> list[int]:
    """Counts lines, encodings, tokens, differences; describes the first ones in `reports`."""
    read = encodings = tokens = differences = 0
    remaining = iter(lines)
    while batch := list(itertools.islice(remaining, BATCH)):
        read += len(batch)
        following = [*batch[1:], batch[0]]
        for pairs, cut in ((None, None), *((following, cut) for cut in cuts)):
            both = encode_both(tokenizer, peer, batch, pairs, cut)
            for row, (encoding, expected) in enumerate(both):
                encodings += 1
                tokens += len(encoding)
                wrong = [f for f in FIELDS if getattr(encoding, f) != getattr(expected, f)]
                differences += bool(wrong)
                if wrong and len(reports) < SHOWN:
                    second = pairs[row] if pairs else None
                    reports.append(
                        f"{batch[row]!r} with {second!r}, at most {cut}: {wrong[0]} "
                        f"{getattr(encoding, wrong[0])} is not {getattr(expected, wrong[0])}"
                    )
    return [read, encodings, tokens, differences]


def main() -> int:
    """Parses the arguments, compares, prints the table; 1 when something differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocabulary", type=Path, action="append", required=True)
    parser.add_argument("--text", type=Path, nargs="*", default=[])
    parser.add_argument(
        "--both-cases", action="store_true", help="also as the vocabulary was not made"
    )
    parser.add_argument("--nasty", type=int, default=2000, help="how many strings are generated")
    parser.add_argument("--seed", type=int, default=0, help="of those")
    arguments = parser.parse_args()
    try:
        import transformers  # noqa: F401
    except ModuleNotFoundError:
        sys.exit('transformers is not installed; run `pip install "transformers>=5,<6"`')
    for path in [*arguments.vocabulary, *arguments.text]:
        if not path.exists():
            sys.exit(f"{path} does not exist; give a file, or a directory of a tokenizer")
    start = time.perf_counter()
    print("| vocabulary | lower-cased | text | lines | encodings | tokens | differences |")
    print("|---|---|---|---:|---:|---:|---:|")
    reports: list[str] = []
    differences = 0
    for vocabulary in arguments.vocabulary:
        is_file = vocabulary.is_file()
        own = is_file and looks_lowercased(read_vocabulary(vocabulary))
        for lowercase in (own, not own) if arguments.both_cases and is_file else (own,):
            tokenizer, peer = load_both(vocabulary, lowercase)
            strings = nasty_strings(arguments.nasty, arguments.seed)
            texts = [(path.name, lines_of(path), (None,)) for path in arguments.text]
            for name, lines, cuts in [*texts, ("generated", strings, (None, CUT))]:
                counts = compare(tokenizer, peer, lines, cuts, reports)
                differences += counts[-1]
                case = "yes" if lowercase else "no"
                row = [vocabulary.name, case, name, *(f"{count:,}" for count in counts)]
                print("| " + " | ".join(row) + " |", flush=True)
    print(f"{differences:,} differences; {time.perf_counter() - start:.0f} s")
    for report in reports:
        print(report)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
