"""Scores of generated texts: BLEU and chrF by sacrebleu, and those of answers.

The former have a signature: the settings that another score must share to be compared with it.
There is no ROUGE: its library, rouge-score, has had no release since 2022, and needs NLTK.

Sources: Papineni et al., 2002 (BLEU); Popović, 2015 (chrF); Post, 2018 (sacrebleu).
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from bert_jax.errors import require_one_of
from bert_jax.metrics.squad import score_v1

TOKENIZERS = ("13a", "intl", "char", "zh", "none")
"""How a text is split into words for BLEU: those that need no further package or download."""


SCORES = ("bleu", "chrf", "exact_match", "f1")
"""The names of `text_scores`."""


class CorpusScore(NamedTuple):
    """The score of a set of texts.

    Attributes:
        value: from 0 to 100.
        signature: name of the settings, and the version of sacrebleu.
    """

    value: float
    signature: str


def text_scores(
    names: Sequence[str],
    references: Sequence[Sequence[str]],
    texts: Sequence[str],
    tokenizer: str = "13a",
) -> dict[str, CorpusScore]:
    """`bleu`, `chrf`, and, for answers to questions, `exact_match` and `f1` of SQuAD 1.1.

    Args:
        names: the scores to compute, some of `SCORES`.
        references: see `bleu`.
        texts: see `bleu`.
        tokenizer: see `bleu`.
    """
    gold = {str(number): accepted for number, accepted in enumerate(references)}
    answers = {str(number): text for number, text in enumerate(texts)}
    computed = {
        "bleu": lambda: bleu(references, texts, tokenizer),
        "chrf": lambda: chrf(references, texts),
        "exact_match": lambda: CorpusScore(score_v1(gold, answers)["exact_match"], "squad:1.1"),
        "f1": lambda: CorpusScore(score_v1(gold, answers)["f1"], "squad:1.1"),
    }
    return {name: computed[name]() for name in names}


def bleu(
    references: Sequence[Sequence[str]], texts: Sequence[str], tokenizer: str = "13a"
) -> CorpusScore:
    """BLEU of n ≥ 1 texts: runs of one to four words, case counts, exponential smoothing.

    Args:
        references: the accepted texts, one or more for each of the n.
        texts: the generated texts.
        tokenizer: one of `TOKENIZERS`; "zh" for Chinese, "char" for others without blanks.

    Raises:
        OptionError: the tokenizer is unknown.
    """
    from sacrebleu.metrics.bleu import BLEU

    require_one_of("data.bleu_tokenizer", tokenizer, TOKENIZERS)
    # Unless forced, it prints a warning where words and full stops are separated by blanks.
    return _score(BLEU(tokenize=tokenizer, force=True), references, texts)


def chrf(references: Sequence[Sequence[str]], texts: Sequence[str]) -> CorpusScore:
    """chrF2 of n ≥ 1 texts: runs of one to six characters; arguments as for `bleu`."""
    from sacrebleu.metrics.chrf import CHRF

    return _score(CHRF(), references, texts)


def _score(metric: Any, references: Sequence[Sequence[str]], texts: Sequence[str]) -> CorpusScore:
    # The first reference of each text, then the second of each that has one, …
    streams = list(itertools.zip_longest(*references))
    value = float(metric.corpus_score(list(texts), streams).score)
    return CorpusScore(value, str(metric.get_signature()))
