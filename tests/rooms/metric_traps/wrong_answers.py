"""Mistakes in the exercises on metric traps."""

import math
from collections import Counter


def _runs(words, n):
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def _precisions(pairs):
    found = []
    for n in (1, 2, 3, 4):
        matched = sum((_runs(h, n) & _runs(r, n)).total() for h, r in pairs)
        found.append(matched / sum(_runs(h, n).total() for h, _ in pairs))
    return found


def _brevity(pairs):
    c, r = (sum(len(pair[i]) for pair in pairs) for i in (0, 1))
    return min(1.0, math.exp(1 - r / c))


def _unpunished(hypotheses, references):
    return math.prod(_precisions(list(zip(hypotheses, references, strict=True)))) ** 0.25


def _sentences(hypotheses, references):
    pairs = list(zip(hypotheses, references, strict=True))
    each = [_brevity([pair]) * math.prod(_precisions([pair])) ** 0.25 for pair in pairs]
    return sum(each) / len(each)


def _arithmetic(hypotheses, references):
    pairs = list(zip(hypotheses, references, strict=True))
    return _brevity(pairs) * sum(_precisions(pairs)) / 4


def _bigrams(hypotheses, references):
    pairs = list(zip(hypotheses, references, strict=True))
    return _brevity(pairs) * math.prod(_precisions(pairs)[:2]) ** 0.5


def _unclipped(hypothesis, reference, n):
    written, known = _runs(hypothesis, n), _runs(reference, n)
    return sum(count for run, count in written.items() if run in known) / written.total()


def _recall(hypothesis, reference, n):
    known = _runs(reference, n)
    return (_runs(hypothesis, n) & known).total() / known.total()


def _single_words(hypothesis, reference, n):
    return (_runs(hypothesis, 1) & _runs(reference, 1)).total() / len(hypothesis)


def _by_sentence(guesses, targets, padding):
    real = targets != padding
    right = (guesses == targets) & real
    return float((right.sum(1) / real.sum(1)).double().mean())


WRONG = {
    "metrics.counted": {
        "no padding": ((0.45, 0.4), "padding is right"),
        "as printed": ((0.95, 0.97), "what was printed"),
        "of all": ((0.95, 0.02), "share of the real ones"),
        "wrong ones": ((0.95, 0.6), "are wrong"),
    },
    "metrics.masked_accuracy": {
        "all positions": (
            lambda guesses, targets, padding: float((guesses == targets).double().mean()),
            "padding is counted",
        ),
        "diluted": (
            lambda guesses, targets, padding: float(
                ((guesses == targets) & (targets != padding)).double().mean()
            ),
            "divided by",
        ),
        "by sentence": (_by_sentence, "count tokens"),
        "own padding": (
            lambda guesses, targets, padding: float(
                (guesses == targets)[guesses != padding].double().mean()
            ),
            "ask the targets",
        ),
        "a constant": (lambda guesses, targets, padding: 2.0, "how many targets"),
    },
    "metrics.clipped": {
        "not clipped": (_unclipped, "only as often"),
        "recall": (_recall, "precision"),
        "words": (_single_words, "runs of neighbours"),
    },
    "metrics.bleu": {
        "mean of sentences": (_sentences, "mean over sentences"),
        "no penalty": (_unpunished, "penalty"),
        "arithmetic": (_arithmetic, "geometric"),
        "two orders": (_bigrams, "four precisions"),
    },
}
