"""Exercises of the chapter on language models."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import torch
from measured_transformer.inference.sampling import keep_top_p

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    normal,
    number,
    tensor,
)
from measured_book.exercises.registry import Drawing, exercise

SUBJECT = "language"
"""The first word of the exercises' names."""
_CHAPTER = "book/translation/language-models"


@exercise(
    _CHAPTER,
    Drawing(
        "Two numbers: bits per byte of (a) a model of bytes with a perplexity of {byte} per byte and (b) one "
        "with a perplexity of {token} per token, where a token stands for {length} bytes.",
        lambda chance: {
            "byte": chance.choice((5, 6, 7, 10, 12)),
            "token": chance.choice((40, 50, 80, 100, 128, 200)),
            "length": chance.choice((3, 5)),
        },
    ),
)
def compared(answer: Answer, byte: int = 8, token: int = 64, length: int = 4) -> None:
    """Two numbers: bits per byte of (a) a model of bytes and (b) one of longer tokens."""
    of_bytes, of_tokens = answer.numbers("(a)", "(b)")
    slips = {
        float(byte): "that is the perplexity",
        math.log(byte): "those are nats; bits use the logarithm to base 2",
    }
    way = "a byte costs the logarithm of its perplexity"
    demand_number(of_bytes, math.log2(byte), name="(a)", within=1e-3, way=way, slips=slips)
    cost = math.log2(token)
    slips = {
        cost: "that is the cost of a token; how many bytes does it stand for?",
        token / length: "the logarithm comes first, the division second",
        cost * length: "a byte costs less than a token, not more",
    }
    way = "what a token costs is shared by its bytes"
    demand_number(of_tokens, cost / length, name="(b)", within=1e-3, way=way, slips=slips)


@exercise(_CHAPTER)
def bits_per_byte(answer: Answer) -> None:
    """Write `bits_per_byte(log_probs, pieces)`: of a text, from its tokens' log-probabilities and bytes."""
    for seed in range(4):
        log_probs = -normal(5 + seed, seed=seed).abs() - 0.1
        pieces = [b"x" * (1 + (seed + i) % 4) for i in range(5 + seed)]
        found = number(answer(log_probs.clone(), list(pieces)))
        cost, size = float(-log_probs.sum()), sum(map(len, pieces))
        expected = cost / size / math.log(2)
        each = [float(-p) / len(x) / math.log(2) for p, x in zip(log_probs, pieces, strict=True)]
        for value, words in {
            cost / size: "those are nats: divide by the logarithm of 2",
            cost / len(pieces) / math.log(2): "that is the cost of a token; divide by the bytes",
            sum(each) / len(each): "every byte counts alike: divide the sum by the sum",
            -expected: "a cost is the negative of a log-probability",
        }.items():
            demand(not close(found, value) or close(found, expected), words)
        demand(
            close(found, expected),
            f"expected {expected:.4g}, got {found:.4g}; the tokens cost {cost:.4g} nats, and there are "
            f"{size} bytes",
        )


@exercise(_CHAPTER)
def best_pair(answer: Answer) -> None:
    """Write `best_pair(words)`: the most frequent pair of neighbouring tokens, given counts of words."""
    cases: list[dict[tuple[str, ...], int]] = [
        {("l", "o", "w"): 5, ("l", "o", "t"): 2, ("n", "e", "w"): 6},
        {("a", "b", "a", "b"): 3, ("c", "a"): 4, ("c", "d"): 5},
        {("a", "b"): 1, ("b", "c"): 9, ("b", "c", "b"): 1, ("a", "b", "a"): 4},
    ]
    for words in cases:
        found = answer(dict(words))
        pairs: Counter[tuple[str, str]] = Counter()
        unweighted: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in itertools.pairwise(word):
                pairs[pair] += count
                unweighted[pair] += 1
        expected = pairs.most_common(1)[0][0]
        demand(isinstance(found, tuple) and len(found) == 2, "the result shall be a pair of tokens")
        if found != expected and found == unweighted.most_common(1)[0][0]:
            demand(False, "a pair counts as often as its word comes")
        demand(
            found == expected,
            f"expected {expected}, which comes {pairs[expected]} times, got {found}, which comes "
            f"{pairs.get(found, 0)} times",
        )


@exercise(_CHAPTER)
def nucleus(answer: Answer) -> None:
    """Write `nucleus(probabilities, p)`: the distribution that top-p leaves of one row of probabilities."""
    for seed, p in enumerate((0.5, 0.75, 0.9, 1.0, 0.1)):
        chances = normal(8, seed=seed).mul(2).softmax(-1)
        found = tensor(answer(chances.clone(), p), (8,))
        expected = keep_top_p(chances.log(), p).softmax(-1)
        kept = expected > 0
        demand(close(float(found.sum()), 1.0), "what is left shall sum to 1 again")
        ordered, order = chances.sort(descending=True)
        short = torch.zeros_like(chances, dtype=torch.bool)
        short[order] = ordered.cumsum(0) <= p
        if not torch.equal(found > 0, kept) and torch.equal(found > 0, short):
            demand(False, "the token with which the sum reaches p stays, too")
        demand(
            torch.equal(found > 0, kept),
            f"for p = {p} of {[round(x, 3) for x in chances.tolist()]} the tokens "
            f"{kept.nonzero().flatten().tolist()} stay",
        )
        demand(close(found, expected), "divide what stays by its sum")
