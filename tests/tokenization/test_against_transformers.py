"""Tokenizers of all kinds that Hugging Face has, trained here: not one encoding differs."""

import argparse
import json

import pytest

from benchmarks import tokenizers
from bert_jax.tokenization import load_tokenizer, train_byte_level_bpe
from bert_jax.tokenization.interface import BYTE_LEVEL_BPE
from tests.tokenization.folders import trained

pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

LINES = [
    "BERT reads a text from both sides; RoBERTa doesn't predict the next sentence.",
    "Le chat d'à côté mange 1,000 souris, n'est-ce pas ?",
    "Ελλάς Москва 中文 한국어 naïve café ﬁn 😀",
] * 20
MASK = {"__type": "AddedToken", "content": "<mask>", "lstrip": True, "normalized": False}


def roberta(directory, **options):
    train_byte_level_bpe(LINES, vocab_size=500, **options).save(directory / "bare")
    load_tokenizer(directory / "bare").save(directory)


def hugging_face_roberta(directory):
    """The files of a hub directory of 2019: a vocabulary, merges, and hardly any config."""
    roberta(directory, add_prefix_space=False)
    (directory / "tokenizer.json").unlink()
    config = {"tokenizer_class": "RobertaTokenizer", "mask_token": MASK}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


def roberta_with_words(directory):
    roberta(directory)
    tokenizer = load_tokenizer(directory, kind=BYTE_LEVEL_BPE)
    tokenizer.with_words(["Unaffable", "中文", "don"]).save(directory)


def sentencepiece_model(directory, class_name, rule):
    model = trained(LINES, vocab_size=70, normalization_rule_name=rule)
    (directory / "sentencepiece.bpe.model").write_bytes(model)
    config = {"tokenizer_class": class_name, "mask_token": MASK}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


def saved_sentencepiece_model(directory, class_name):
    """What bert_jax saves, read by both."""
    sentencepiece_model(directory, class_name, "nmt_nfkc")
    load_tokenizer(directory).save(directory)
    (directory / "sentencepiece.bpe.model").unlink()


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (roberta, ()),
        (hugging_face_roberta, ()),
        (roberta_with_words, ()),
        (sentencepiece_model, ("CamembertTokenizer", "nmt_nfkc")),
        (sentencepiece_model, ("CamembertTokenizer", "identity")),
        (sentencepiece_model, ("XLMRobertaTokenizer", "nmt_nfkc")),
        (saved_sentencepiece_model, ("CamembertTokenizer",)),
        (saved_sentencepiece_model, ("XLMRobertaTokenizer",)),
    ],
)
def test_no_encoding_differs(make, arguments, tmp_path):
    make(tmp_path, *arguments)
    text = tmp_path / "lines.txt"
    text.write_text("\n".join(LINES))
    for source in (str(text), tokenizers.GENERATED):
        options = argparse.Namespace(
            vocabulary=str(tmp_path), text=source, strings=1500, seed=0, other_case=False
        )
        counts = tokenizers.compare(options)(0)
        assert (counts["differences"], counts["encodings"] > 100) == (0, True)
