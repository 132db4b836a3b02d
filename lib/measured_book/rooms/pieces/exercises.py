"""Exercises of the chapter on pieces that are left out."""

from __future__ import annotations

import math

import torch

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    first,
    normal,
    number,
    tensor,
)
from measured_book.exercises.registry import exercise

_CHAPTER = "book/residual/pieces"


@exercise(_CHAPTER)
def no_attention_floor(answer: Answer) -> None:
    """Write `no_attention_floor(n, vocab)`: the lowest loss on reversal for a model without attention."""
    for n, vocab in ((6, 6), (2, 10), (5, 8), (1, 4), (9, 3)):
        found = number(answer(n, vocab))
        shown = f"for n={n} and vocab={vocab} it gives {found:.4g}"
        right = math.log(vocab) * (1 - (n % 2) / n)
        if n % 2:
            demand(
                not close(found, math.log(vocab)),
                f"{shown}: with an odd length there is one position that can know its answer",
            )
        demand(
            right == 0 or not close(found, right / math.log(2)),
            f"{shown}: that is in bits; nats are asked for",
        )
        demand(
            n == 1 or not close(found, right * n),
            f"{shown}: that is the loss of a whole sequence; it is asked for per position",
        )
        if n > 1 and vocab != n:
            demand(
                not close(found, math.log(n)),
                f"{shown}: which tokens the sequence has is not known to a position that sees only itself",
            )
        demand(
            not close(found, math.log(vocab) * (1 - 1 / n)) or n % 2,
            f"{shown}: with an even length, is there a position in the middle?",
        )
        demand(
            close(found, right),
            f"{shown}; what does a position know of the token that it must say, and is that so for each?",
        )


@exercise(_CHAPTER)
def bag_answer(answer: Answer) -> None:
    """Write `bag_answer(tokens, vocab)`: the best probabilities on reversal without positions, for n even."""
    for listed, vocab in (
        ([1, 0, 1, 1, 2, 0], 4),
        ([4, 1, 0, 2], 5),
        ([0, 2, 2, 0], 3),
        ([3, 3, 3, 1], 4),
    ):
        tokens = torch.tensor(listed)
        n = len(tokens)
        found = tensor(answer(tokens, vocab), shape=(n, vocab))
        counts = torch.nn.functional.one_hot(tokens, vocab).double()
        every = counts.sum(0)
        right = (every - counts) / (n - 1)
        demand(
            not close(found, counts.flip(0)),
            "it gives the right answer with certainty: that takes knowing the position",
        )
        demand(
            not close(found, every.expand(n, -1) / n),
            "all positions get the shares of the whole sequence; with an even length, can a token be its own "
            "answer?",
        )
        demand(
            not close(found, (every - counts)),
            "those are counts, not probabilities",
        )
        demand(
            not close(found, (every - counts) / n),
            "a row does not sum to one: how many tokens are left as candidates?",
        )
        present = ((every - counts) > 0).double()
        uneven = not close(right, present / present.sum(1, keepdim=True))
        demand(
            not (uneven and close(found, present / present.sum(1, keepdim=True))),
            "a token that comes twice among the others is the answer twice as often",
        )
        demand(
            close(found.sum(1), torch.ones(n)),
            "the rows must be probabilities; one of them does not sum to one",
        )
        demand(
            close(found, right),
            f"the probabilities are others, first at {first((found - right).abs() > 1e-6)}; which tokens could "
            "be the answer of this position, each as likely as the next?",
        )


@exercise(_CHAPTER)
def bigram(answer: Answer) -> None:
    """Write `bigram(counts)`: the loss of the best guess from one token, counts[a, b] of b after a."""
    tables = [
        torch.tensor([[3.0, 1.0], [2.0, 2.0]]),
        torch.tensor([[8.0, 0.0], [1.0, 7.0]]),
        torch.tensor([[1.0, 2.0, 3.0], [4.0, 0.0, 4.0], [0.0, 5.0, 1.0]]),
    ]
    for counts in tables:
        counts = counts.double()
        found = number(answer(counts))
        shown = f"it gives {found:.4g}"
        total, before = counts.sum(), counts.sum(1, keepdim=True)
        logs = torch.where(counts > 0, (counts / before).log(), torch.zeros_like(counts))
        right = float(-(counts * logs).sum() / total)
        rows = -(counts / before * logs).sum(1)
        demand(
            not close(found, right / math.log(2)),
            f"{shown}: that is in bits; nats are asked for",
        )
        demand(
            close(right, float(rows.mean())) or not close(found, float(rows.mean())),
            f"{shown}: rows that come more often count more",
        )
        shares = counts.sum(0) / total
        single = float(-(shares * shares.log()).sum())
        demand(
            not close(found, single),
            f"{shown}: that is the loss of a model that does not even know the token before",
        )
        joint = torch.where(counts > 0, counts / total * (counts / total).log(), 0.0)
        demand(
            not close(found, float(-joint.sum())),
            f"{shown}: that is what a *pair* costs; its first token is given",
        )
        wrong_way = counts / counts.sum(0, keepdim=True)
        back = torch.where(counts > 0, counts * wrong_way.log(), torch.zeros_like(counts))
        demand(
            close(right, float(-back.sum() / total))
            or not close(found, float(-back.sum() / total)),
            f"{shown}: that guesses the token *before* from the one after it",
        )
        demand(
            close(found, right),
            f"{shown}; what does each pair cost when b is guessed from a, and how often does it come?",
        )


@exercise(_CHAPTER)
def mean_write(answer: Answer) -> None:
    """Write `mean_write(writes, reference)`: writes replaced by their mean over other sequences."""
    for seed, shape in ((0, (2, 3, 4)), (1, (5, 2, 3)), (2, (1, 4, 2))):
        writes = normal(*shape, seed=seed)
        reference = normal(7, *shape[1:], seed=seed + 10)
        found = tensor(answer(writes, reference), shape=shape)
        right = reference.mean(0).expand(shape)
        demand(
            not close(found, torch.zeros(shape)), "that sets them to zero, which is the cruder way"
        )
        demand(not close(found, writes), "the writes have stayed as they are")
        if shape[0] > 1:
            demand(
                not close(found, writes.mean(0).expand(shape)),
                "the mean is that of the very sequences; it must come from the reference",
            )
        demand(
            not close(found, reference.mean((0, 1)).expand(shape)),
            "all positions get the same: a write that depends on the position alone must stay",
        )
        demand(
            not close(found, writes - right),
            "the mean is taken off; it must be what is left",
        )
        demand(
            close(found, right),
            f"another value is expected, first at {first((found - right).abs() > 1e-6)}; over which axis is "
            "the mean taken, and of which tensor?",
        )


@exercise(_CHAPTER)
def even(answer: Answer) -> None:
    """Write `even(d, matrices)`: the neurons at which a network has as many weights as attention, no biases."""
    for d, matrices in ((64, 2), (96, 3), (1, 2), (768, 3)):
        found = number(answer(d, matrices))
        shown = f"for d={d} and {matrices} matrices it gives {found:.5g}"
        right = 4 * d / matrices
        demand(
            not close(found, 4.0 * d),
            f"{shown}: that is the usual width; what does a network of that width weigh?",
        )
        demand(
            not close(found, 4 * d * d / matrices) or d == 1,
            f"{shown}: those are weights of one matrix, not neurons",
        )
        demand(
            not close(found, 3 * d / matrices),
            f"{shown}: that leaves out one of attention's matrices",
        )
        demand(
            matrices == 2 or not close(found, 2.0 * d),
            f"{shown}: that is for a network of two matrices",
        )
        demand(
            close(found, right),
            f"{shown}; how many weights have attention's matrices, and how many the network's?",
        )
