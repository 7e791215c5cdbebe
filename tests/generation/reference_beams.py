"""Both beam searches for one prompt in plain Python, written from their description."""

import math


def beams_of_transformers(
    next_log_probs, *, eos, vocabulary, beams, length, alpha, early_stopping=False
):
    """The ended sequences as (tokens, score), the best first.

    Args:
        next_log_probs: tokens → log-probability of each token after them.
        eos: end tokens.
        vocabulary: number of tokens.
        beams: K.
        length: largest number of new tokens.
        alpha: exponent of the length.
        early_stopping: False, True or "never".
    """
    live, ended = [([], 0.0)], []
    for count in range(1, length + 1):
        candidates = _candidates(live, next_log_probs, vocabulary)
        candidates = candidates[: max(2, 1 + len(eos)) * beams]
        for rank, (tokens, log_prob) in enumerate(candidates):
            if rank < beams and (tokens[-1] in eos or count == length):
                ended.append((tokens, log_prob / count**alpha))
        ended = sorted(ended, key=lambda item: -item[1])[:beams]
        live = [item for item in candidates if item[0][-1] not in eos][:beams]
        if not live:
            break
        if len(ended) == beams:
            best_length = length if early_stopping == "never" and alpha > 0 else count
            if early_stopping is True or live[0][1] / best_length**alpha <= ended[-1][1]:
                break
    return ended


def beams_of_wmt(next_log_probs, *, eos, vocabulary, beams, length, alpha):
    """Like `beams_of_transformers`; the live sequences if none has ended."""

    def penalty(count):
        return ((5 + count) / 6) ** alpha

    live, ended = [([], 0.0)], []
    for count in range(1, length + 1):
        candidates = _candidates(live, next_log_probs, vocabulary)[: 2 * beams]
        ended += [(t, s / penalty(count)) for t, s in candidates if t[-1] in eos]
        ended = sorted(ended, key=lambda item: -item[1])[:beams]
        live = [item for item in candidates if item[0][-1] not in eos][:beams]
        if not live:
            break
        if len(ended) == beams and ended[-1][1] > live[0][1] / penalty(length + 1):
            break
    return ended or live


def _candidates(live, next_log_probs, vocabulary):
    """All continuations by one token, the best first."""
    candidates = []
    for tokens, total in live:
        gained = next_log_probs(tokens)
        candidates += [([*tokens, token], total + gained[token]) for token in range(vocabulary)]
    candidates = [item for item in candidates if item[1] > -math.inf]
    return sorted(candidates, key=lambda item: -item[1])


def all_sequences(next_log_probs, *, eos, vocabulary, length, score):
    """Every sequence that ends, or has the largest length, as (tokens, score), the best first."""
    found, live = [], [([], 0.0)]
    for count in range(1, length + 1):
        candidates = _candidates(live, next_log_probs, vocabulary)
        live = [item for item in candidates if item[0][-1] not in eos and count < length]
        found += [(t, score(s, count)) for t, s in candidates if t[-1] in eos or count == length]
    return sorted(found, key=lambda item: -item[1])
