"""Options of preparation and of pre-training examples that are out of range or conflict."""

import pytest

from bert_jax.data.pretraining.batches import PretrainingBatches
from bert_jax.data.pretraining.options import (
    PrepareOptions,
    PretrainingOptions,
    VocabularyOptions,
)
from bert_jax.data.pretraining.sources import SourceSpec
from bert_jax.errors import UserError


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length": 7}, "data.length is 7; it must be at least 8"),
        ({"objective": "mlm"}, "data.objective is 'mlm'; known are nsp, sop"),
        ({"masking": "words"}, "data.masking is 'words'; known are token, "),
        ({"max_predictions": 0}, "data.max_predictions is 0; it must be at least 1"),
        ({"short_probability": -0.1}, "data.short_probability is -0.1; it must be at least 0"),
        ({"short_probability": 1.1}, "data.short_probability is 1.1; it must be at least 0"),
        ({"cross_documents": True}, "data.cross_documents is True; only data.objective=none"),
        ({"span_boundary": True}, "data.span_boundary is True; set data.masking=span, which is"),
        (
            {"span_boundary": True, "masking": "span"},
            "data.span_boundary is True; set data.objective=none",
        ),
        (
            {"mask_replace_prob": 0.95},
            "data.random_replace_prob is 0.1; with data.mask_replace_prob, 0.95",
        ),
        ({"mask_rounding": "down"}, "data.mask_rounding is 'down'; known are nearest, up, random"),
        ({"random_tokens": "words"}, "data.random_tokens is 'words'; known are vocabulary, "),
        ({"sources": ()}, "there is no source of text; set data.source, for "),
        ({"validation_fraction": 1.0}, "data.validation_fraction is 1.0; it must be"),
        ({"sentences": "words"}, "data.sentences is 'words'; known are split, lines"),
        ({"language": "English"}, "data.language is 'English'; it must be a language code"),
        ({"kind": "bpe"}, "tokenizer.kind is 'bpe'; known are"),
        ({"kind": "byte_level_bpe"}, "tokenizer.lowercase is True; byte-level BPE"),
        ({"kind": "gpt2"}, "tokenizer.lowercase is True; byte-level BPE keeps"),
        ({"model_type": "word"}, "tokenizer.model_type is 'word'; known are unigram, bpe"),
        (
            {"kind": "t5", "model_type": "bpe"},
            "tokenizer.model_type is 'bpe'; it is for sentencepiece and marian: set tokenizer.kind",
        ),
        ({"train_characters": 0}, "tokenizer.train_characters is 0; it must"),
    ],
)
def test_wrong_options(changes, message):
    defaults = {
        PretrainingOptions: {},
        PrepareOptions: {"sources": (SourceSpec("text:a"),), "language": "zh-hant"},
        VocabularyOptions: {},
    }
    (kind,) = (kind for kind in defaults if changes.keys() <= kind.__dataclass_fields__.keys())
    kind(**defaults[kind])
    with pytest.raises(UserError, match=f"^{message}"):
        kind(**defaults[kind] | changes)


def test_an_empty_split(make_split, tokenizer):
    with pytest.raises(UserError, match="the corpus has no document; prepare it from more text"):
        PretrainingBatches(make_split([]), tokenizer, PretrainingOptions())
