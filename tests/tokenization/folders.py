"""Tokenizer folders as people publish them: each of a few small files."""

import io
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers
from tokenizers import (
    AddedToken,
    Regex,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "##s", "The", "cafe", "café"),
    *("中", "##国", "[", "]", "e", "E", "##1", "<", ">", "user", "covid", "-", "19", "mask"),
]
V = len(PIECES)  # 25
MARKERS = {"[E1]": V, "covid-19": V + 1, "<user>": V + 2}
FAIRSEQ_NAMES = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("d", "o"), ("do", "g"), ("Ġ", "dog")]
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
BPE = ["<s>", "<pad>", "</s>", "<unk>", *BYTES, *map("".join, MERGES), "<mask>"]  # 267
UNIGRAM = [
    *((piece, 0.0) for piece in ("<s>", "<pad>", "</s>", "<unk>")),
    *(("▁the", -2.0), ("▁dog", -2.5), ("▁", -3.0), ("the", -3.5), ("d", -4.0), ("o", -4.0)),
    *(("g", -4.0), ("s", -4.0), ("[", -5.0), ("E", -5.0), ("1", -5.0), ("]", -5.0)),
    ("<mask>", 0.0),
]  # 17

Content = Mapping[str, Any]


def token(content: str, **flags: bool) -> dict[str, Any]:
    keys = ("lstrip", "rstrip", "normalized", "single_word", "special")
    return {"content": content, **dict.fromkeys(keys, False), **flags}


def template(single: str, pair: str, **ids: int) -> processors.TemplateProcessing:
    special = ids or {"[CLS]": 2, "[SEP]": 3}
    return processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[*special.items()]
    )


def trained(lines: Iterable[str], **options: Any) -> bytes:
    """A small .model file."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, minloglevel=2, **options
    )
    return model.getvalue()


def named(names: tuple[str, ...]) -> dict[str, str]:
    keys = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return dict(zip(keys, names, strict=True))


def definition(
    model: Any, splitter: Any, post: Any, special: list[Any], added: tuple[Any, ...], **parts: Any
) -> Content:
    """The content of a `tokenizer.json`."""
    library = tokenizers.Tokenizer(model)
    library.pre_tokenizer = splitter
    for key, value in parts.items():
        setattr(library, key, value)
    if post is not None:
        library.post_processor = post
    library.add_special_tokens(special)
    library.add_tokens(list(added))
    return json.loads(library.to_str())


def wordpiece(
    post: Any = None, *added: Any, lowercase: bool = True, pieces: list[str] = PIECES, **parts: Any
) -> Content:
    model = models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]")
    parts = {"normalizer": normalizers.BertNormalizer(lowercase=lowercase), **parts}
    splitter = parts.pop("splitter", pre_tokenizers.BertPreTokenizer())
    return definition(
        model, splitter, post, pieces[:5], added, decoder=decoders.WordPiece(), **parts
    )


def bpe(post: Any, *added: Any, prefix_space: bool = False) -> Content:
    model = models.BPE(vocab={piece: i for i, piece in enumerate(BPE)}, merges=MERGES)
    splitter = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    special = [*BPE[:4], AddedToken("<mask>", lstrip=True)]
    return definition(model, splitter, post, special, added, decoder=decoders.ByteLevel())


def unigram(
    *added: Any, pieces: list[tuple[str, float]] = UNIGRAM, splitter: Any = None, **parts: Any
) -> Content:
    usual = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    special = [*(piece for piece, _ in UNIGRAM[:4]), AddedToken("<mask>", lstrip=True)]
    post = template("<s> $A </s>", "<s> $A </s> </s> $B </s>", **{"<s>": 0, "</s>": 2})
    model, splitter = models.Unigram(pieces, unk_id=3), splitter or pre_tokenizers.Sequence(usual)
    return definition(model, splitter, post, special, added, decoder=decoders.Metaspace(), **parts)


def of_converter(content: str = "▁") -> Content:
    """As a converter of transformers writes a SentencePiece model: spaces split nothing else."""
    strip, runs = normalizers.Strip(left=False, right=True), Regex(" {2,}")
    steps = normalizers.Sequence([strip, normalizers.Replace(runs, content)])
    return unigram(splitter=pre_tokenizers.Metaspace(), normalizer=steps)


BERT = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
FAST = {"tokenizer_class": "PreTrainedTokenizerFast"}
ROBERTA = {"tokenizer_class": "RobertaTokenizer"}
XLM_R = {"tokenizer_class": "XLMRobertaTokenizer"}
MPNET = {"tokenizer_class": "MPNetTokenizer"}
MPNET_PIECES = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>", *PIECES[5:]]
NAMED_PIECES = [*FAIRSEQ_NAMES, *PIECES[5:]]
EXTRA = {"additional_special_tokens": ["[E1]", "<user>"]}
SPECIALS = {str(i): token(piece, special=True) for i, piece in enumerate(PIECES[:5])}
DECODER = {
    **SPECIALS,
    str(V): token("[E1]", special=True),
    str(V + 1): token("covid-19", single_word=True),
    str(V + 2): token("<user>", normalized=True, lstrip=True),
}
BPE_FILES = {
    "vocab.json": {piece: i for i, piece in enumerate(BPE)},
    "merges.txt": "".join(f"{first} {second}\n" for first, second in MERGES),
}
ROBERTA_POST = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))


def bert(config: Content | None = BERT, pieces: list[str] = PIECES, **files: Any) -> Content:
    """A BERT's files; their names have "__" for the dot."""
    vocabulary = "".join(f"{piece}\n" for piece in pieces)
    if "tokenizer__json" not in files:
        files["vocab__txt"] = vocabulary
    return of("bert", config, **files)


def of(model_type: str, config: Content | None, **files: Any) -> Content:
    rows = files.pop("rows", 400)
    files["config__json"] = {"model_type": model_type, "vocab_size": rows}
    if config is not None:
        files["tokenizer_config__json"] = config
    return {name.replace("__", "."): content for name, content in files.items()}


FOLDERS: dict[str, Callable[[], Content]] = {
    # Added tokens, in each file that has them.
    "added_tokens.json": lambda: bert(added_tokens__json=MARKERS),
    "with special_tokens_map.json": lambda: bert(
        added_tokens__json=MARKERS, special_tokens_map__json=EXTRA
    ),
    "special in the config": lambda: bert(BERT | EXTRA, added_tokens__json=MARKERS),
    "only in the config": lambda: bert(BERT | EXTRA),
    "extra_special_tokens": lambda: bert(BERT | {"extra_special_tokens": ["[E1]"]}),
    "extra_special_tokens by name": lambda: bert(
        BERT | {"extra_special_tokens": {"entity_token": "[E1]"}}
    ),
    "only in the map": lambda: bert(special_tokens_map__json=EXTRA),
    "added_tokens_decoder": lambda: bert(BERT | {"added_tokens_decoder": DECODER}),
    "a token of the vocabulary": lambda: bert(
        BERT | {"added_tokens_decoder": SPECIALS | {"6": token("dog")}}
    ),
    "in tokenizer.json": lambda: bert(
        tokenizer__json=wordpiece(None, "[E1]", AddedToken("<user>", normalized=False))
    ),
    "in tokenizer.json and the map": lambda: bert(
        tokenizer__json=wordpiece(None, "[E1]"), special_tokens_map__json=EXTRA
    ),
    "no mask, rows for one": lambda: bert(BERT | EXTRA, [p for p in PIECES if p != "[MASK]"]),
    "no mask, no rows": lambda: bert(BERT, [p for p in PIECES if p != "[MASK]"], rows=V - 1),
    # Classes and their rules.
    "a cased BertTokenizer": lambda: bert(BERT | {"do_lower_case": False}),
    **{
        f"rules of a {name}": lambda name=name: bert(
            {"tokenizer_class": name, "strip_accents": False, "tokenize_chinese_chars": False}
        )
        for name in (
            *("DistilBertTokenizer", "ElectraTokenizerFast", "MobileBertTokenizer"),
            *("DPRReaderTokenizer", "ConvBertTokenizer"),
        )
    },
    "a class in config.json": lambda: (
        bert({"do_lower_case": False})
        | {
            "config.json": {
                "model_type": "bert",
                "vocab_size": V,
                "tokenizer_class": "DistilBertTokenizer",
            }
        }
    ),
    "the config against tokenizer.json": lambda: bert(
        BERT | {"do_lower_case": False}, tokenizer__json=wordpiece()
    ),
    "a class without a key": lambda: bert(
        {"tokenizer_class": "BertTokenizer"}, tokenizer__json=wordpiece(lowercase=False)
    ),
    "tokenizer.json alone": lambda: bert(
        None, tokenizer__json=wordpiece(template("[CLS] $A", "[CLS] $A $B:1"), lowercase=False)
    ),
    # Names and vocabularies.
    "other names": lambda: bert(BERT | named(FAIRSEQ_NAMES), NAMED_PIECES),
    "other names in the map": lambda: bert(
        BERT, NAMED_PIECES, special_tokens_map__json=named(FAIRSEQ_NAMES)
    ),
    "pieces twice": lambda: bert(BERT, [*PIECES, "the", "##s", "zebra"]),
    "blanks after pieces": lambda: bert(BERT, [p + " \t"[i % 2] for i, p in enumerate(PIECES)]),
    # Templates and token types.
    "a template with [CLS] only": lambda: bert(
        FAST, tokenizer__json=wordpiece(template("[CLS] $A", "[CLS] $A $B:1"))
    ),
    "no template": lambda: bert(FAST, tokenizer__json=wordpiece()),
    "BertProcessing": lambda: bert(
        FAST, tokenizer__json=wordpiece(processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)))
    ),
    "RobertaProcessing": lambda: bert(
        FAST, tokenizer__json=wordpiece(processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2)))
    ),
    "token types asked for": lambda: bert(
        FAST | {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]},
        tokenizer__json=wordpiece(template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")),
    ),
    "no token types asked for": lambda: bert(
        BERT | {"model_input_names": ["input_ids", "attention_mask"]}
    ),
    "a marker in the template": lambda: bert(
        FAST,
        tokenizer__json=wordpiece(
            template("[CLS] [Q] $A", "[CLS] [Q] $A $B", **{"[CLS]": 2, "[Q]": V}),
            pieces=[*PIECES, "[Q]"],
        ),
    ),
    "other rules": lambda: bert(
        FAST | EXTRA | {"cls_token": "[CLS]"},
        tokenizer__json=wordpiece(
            template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]"),
            normalizer=normalizers.Sequence(
                [normalizers.Strip(), normalizers.NFKC(), normalizers.Lowercase()]
            ),
            splitter=pre_tokenizers.Whitespace(),
        ),
    ),
    "an unknown class": lambda: bert(
        {"tokenizer_class": "MyTokenizer"},
        tokenizer__json=wordpiece(template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")),
    ),
    "RoBERTa with BERT's tokenizer": lambda: {
        **bert(),
        "config.json": {"model_type": "roberta", "vocab_size": V},
    },
    # WordPiece with the special tokens of RoBERTa.
    "MPNet": lambda: of("mpnet", MPNET, vocab__txt="".join(f"{p}\n" for p in MPNET_PIECES)),
    "MPNet, no class": lambda: of(
        "mpnet",
        {"do_lower_case": False, "mask_token": "<mask>"},
        vocab__txt="".join(f"{p}\n" for p in MPNET_PIECES),
    ),
    "MPNet, tokenizer.json": lambda: of(
        "mpnet",
        MPNET,
        tokenizer__json=wordpiece(
            template("<s> $A </s>", "<s> $A </s> </s> $B:1 </s>:1", **{"<s>": 0, "</s>": 2}),
            "[E1]",
            pieces=MPNET_PIECES,
        ),
    ),
    # Byte-level BPE.
    "BPE, added_tokens.json": lambda: (
        of(
            "roberta",
            ROBERTA | {"add_prefix_space": True},
            added_tokens__json={"[E1]": 267, "<user>": 268},
            special_tokens_map__json={"mask_token": token("<mask>", lstrip=True)},
        )
        | BPE_FILES
    ),
    "BPE, added_tokens_decoder": lambda: (
        of(
            "roberta",
            ROBERTA
            | {
                "added_tokens_decoder": {
                    "266": token("<mask>", lstrip=True, special=True),
                    "267": token("[E1]", normalized=True),
                    "268": token("covid-19", single_word=True, lstrip=True),
                }
            },
        )
        | BPE_FILES
    ),
    "BPE, tokenizer.json": lambda: of(
        "roberta", ROBERTA, tokenizer__json=bpe(ROBERTA_POST, "[E1]", prefix_space=True)
    ),
    "BPE, tokenizer.json decides": lambda: of(
        "roberta", FAST, tokenizer__json=bpe(ROBERTA_POST, "[E1]", prefix_space=True)
    ),
    "BPE in a BERT": lambda: bert(
        FAST,
        tokenizer__json=bpe(
            processors.Sequence(
                [
                    processors.ByteLevel(trim_offsets=False),
                    template("<s> $A </s>", "<s> $A </s> $B </s>", **{"<s>": 0, "</s>": 2}),
                ]
            )
        ),
    ),
    # Unigram models.
    "XLM-R, tokenizer.json": lambda: of(
        "xlm-roberta",
        XLM_R,
        tokenizer__json=unigram(
            AddedToken("[E1]", normalized=False), AddedToken("<user>", special=True)
        ),
    ),
    "XLM-R, added_tokens_decoder": lambda: of(
        "xlm-roberta",
        XLM_R
        | {
            "added_tokens_decoder": {
                "16": token("<mask>", lstrip=True, special=True),
                "17": token("[E1]", normalized=True),
                "18": token("<user>", rstrip=True, special=True),
            }
        },
        tokenizer__json=unigram(),
    ),
    "XLM-R in a BERT": lambda: bert(XLM_R, tokenizer__json=unigram()),
    "XLM-R, pieces twice": lambda: of(
        "xlm-roberta",
        XLM_R,
        tokenizer__json=unigram(pieces=[*UNIGRAM[:-1], ("▁dog", -1.0), UNIGRAM[-1]]),
    ),
    "XLM-R of a converter": lambda: of("xlm-roberta", XLM_R, tokenizer__json=of_converter()),
    "Unigram of a converter": lambda: of("xlm-roberta", FAST, tokenizer__json=of_converter()),
    "Unigram, runs of spaces": lambda: of("xlm-roberta", FAST, tokenizer__json=of_converter(" ")),
    "Unigram, tokenizer.json decides": lambda: of(
        "xlm-roberta",
        FAST,
        tokenizer__json=unigram("[E1]", splitter=pre_tokenizers.Metaspace(prepend_scheme="first")),
    ),
}


def write_folder(path: Path, name: str) -> str:
    """Writes a folder; returns its `model_type`."""
    path.mkdir(parents=True)
    content = FOLDERS[name]()
    for file, value in content.items():
        text = value if isinstance(value, str) else json.dumps(value)
        (path / file).write_text(text, encoding="utf-8")
    return content["config.json"]["model_type"]
