"""Mistakes in the exercises on language models."""

import math
from collections import Counter


def _pairs(words, weighted):
    found = Counter()
    for word, count in words.items():
        for pair in zip(word, word[1:]):  # noqa: B905, RUF007
            found[pair] += count if weighted else 1
    return found


def _size(pieces):
    return sum(map(len, pieces))


def _nucleus(probabilities, p, *, reached, scaled=True):
    ordered, order = probabilities.sort(descending=True)
    total = ordered.cumsum(0)
    stays = (total <= p + 1e-12) if reached else (total - ordered < p)
    stays[0] = True
    kept = probabilities * 0
    kept[order] = ordered * stays
    return kept / kept.sum() if scaled else kept


WRONG = {
    "language.compared": {
        "perplexities": ((8, 1.5), "that is the perplexity"),
        "nats": ((math.log(8), 1.5), "those are nats"),
        "a token": ((3, 6), "how many bytes"),
        "divided first": ((3, 16), "logarithm comes first"),
        "multiplied": ((3, 24), "not more"),
    },
    "language.bits_per_byte": {
        "nats": (lambda p, x: -float(p.sum()) / _size(x), "those are nats"),
        "per token": (lambda p, x: -float(p.mean()) / math.log(2), "divide by the bytes"),
        "mean of shares": (
            lambda p, x: (
                sum(-float(q) / len(y) for q, y in zip(p, x, strict=True)) / len(x) / math.log(2)
            ),
            "the sum by the sum",
        ),
        "sign": (lambda p, x: float(p.sum()) / _size(x) / math.log(2), "negative"),
        "a constant": (lambda p, x: 1.0, "the tokens cost"),
    },
    "language.best_pair": {
        "each word once": (lambda w: _pairs(w, False).most_common(1)[0][0], "as often as its word"),
        "the rarest": (lambda w: _pairs(w, True).most_common()[-1][0], "which comes"),
        "a token": (lambda w: "a", "pair of tokens"),
    },
    "language.nucleus": {
        "one too few": (lambda x, p: _nucleus(x, p, reached=True), "reaches p stays"),
        "not scaled": (lambda x, p: _nucleus(x, p, reached=False, scaled=False), "sum to 1"),
        "all": (lambda x, p: x, "stay"),
    },
}
