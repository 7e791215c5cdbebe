"""BLEU and chrF: worked by hand where that is short, and with sacrebleu's signatures."""

import math

import pytest

from bert_jax.errors import UserError
from bert_jax.metrics.generated_texts import SCORES, bleu, chrf, text_scores


def test_bleu_by_hand():
    """Of "a b c d e": 5 of 5 words, 4 of 4 pairs, … and a text that is one word too short."""
    assert bleu([["a b c d e"]], ["a b c d e"]).value == pytest.approx(100)
    assert bleu([["a b c d e f"]], ["a b c d e"]).value == pytest.approx(100 * math.exp(1 - 6 / 5))
    # 5 of 6 words, 3 of 5 pairs, 1 of 4 triples, 0 of 3 fours, which smoothing counts as 1/2.
    found = bleu([["a b c x y z"]], ["a b c y z q"])
    expected = (5 / 6 * 3 / 5 * 1 / 4 * 0.5 / 3) ** (1 / 4)
    assert found.value == pytest.approx(100 * expected)
    assert found.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.")


def test_the_corpus_is_scored_together():
    """Matches are added up before they are divided."""
    references = [["a b c d"], ["e f g h"]]
    both = bleu(references, ["a b c d", "e f g x"]).value
    assert both == pytest.approx(100 * (7 / 8 * 5 / 6 * 3 / 4 * 1 / 2) ** (1 / 4))


def test_several_references():
    references = [["x y z q", "a b c d"], ["e f g h"]]
    found = bleu(references, ["a b c d", "e f g h"])
    assert found.value == pytest.approx(100)
    assert found.signature.startswith("nrefs:var|")
    assert chrf(references, ["a b c d", "e f g h"]).value == pytest.approx(100)


def test_chrf_by_hand():
    """Runs of "abc": 2 of 3 and 1 of 2 are right, 0 of 1; longer ones do not exist."""
    found = chrf([["abd"]], ["abc"])
    assert found.value == pytest.approx(100 * (2 / 3 + 1 / 2 + 0) / 3)
    assert found.signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.")


def test_tokenizers():
    assert bleu([["a b c d."]], ["a b c d ."], "none").value < 60
    assert bleu([["a b c d."]], ["a b c d ."]).value == pytest.approx(100)
    assert bleu([["今天天气"]], ["今天天气"], "zh").signature.split("|")[3] == "tok:zh"
    with pytest.raises(UserError, match="bleu_tokenizer is 'x'; known are 13a"):
        bleu([["a"]], ["a"], "x")


def test_all_scores_of_texts():
    references, texts = [["The cat", "a dog"], ["one two three"]], ["cat", "one three"]
    scores = text_scores(SCORES, references, texts, "none")
    assert list(text_scores(["f1", "chrf"], references, texts)) == ["f1", "chrf"]
    assert scores["bleu"] == bleu(references, texts, "none")
    assert scores["chrf"] == chrf(references, texts)
    assert scores["exact_match"] == (50, "squad:1.1")
    assert scores["f1"].value == pytest.approx(100 * (1 + 0.8) / 2)
