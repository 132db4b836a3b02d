"""Exercises of the chapter on what keeps a model from over-fitting."""

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

_CHAPTER = "book/training/regularisation"


@exercise(_CHAPTER)
def relative_noise(answer: Answer) -> None:
    """Write `relative_noise(p, n)`: deviation over mean of a sum of n equal terms behind dropout."""
    for p, n in ((0.1, 8), (0.1, 512), (0.3, 20), (0.5, 1)):
        found = number(answer(p, n))
        right = (p / ((1 - p) * n)) ** 0.5
        mistakes = {
            right**2: "that is a variance relative to the squared mean; take the root",
            right * n: "the mean grows with n as well",
            right * n**0.5: "one term is that noisy; n of them average",
            (p * (1 - p) / n) ** 0.5: "without the division by 1 - p the mean is lower as well",
            ((1 - p) / (p * n)) ** 0.5: "p and 1 - p are exchanged",
        }
        for wrong, words in mistakes.items():
            demand(n == 1 or not close(found / wrong, 1.0), words)
        keep = torch.rand(4000, n, generator=torch.Generator().manual_seed(n)) >= p
        sums = keep.double().sum(1)
        drawn = float(sums.std() / sums.mean())
        text = f"masks drawn at random give another value than your {found:.4g}"
        demand(abs(found - drawn) < 0.03 * drawn, text)
        demand(close(found / right, 1.0), "near, but not exact")


@exercise(_CHAPTER)
def dropout(answer: Answer) -> None:
    """Write `my_dropout(x, rate, training)` with `torch.rand_like` and no function that drops for you."""
    ones = torch.ones(200, 500)
    for rate in (0.2, 0.5):
        rest = tensor(answer(ones, rate, False), (200, 500))
        demand(close(rest, ones), "outside of training something changes")
        found = tensor(answer(ones, rate, True), (200, 500))
        demand(not close(found, ones), "in training nothing changes")
        dropped = found == 0
        text = "whole columns are dropped at once: all rows share one mask"
        demand(not dropped.all(dim=0).any(), text)
        demand(
            not dropped.all(dim=1).any(),
            "whole rows are dropped at once: all columns share one mask",
        )
        share = float(dropped.double().mean())
        text = f"a share of {share:.2f} is dropped; asked for was {rate:.2f}"
        demand(abs(share - rate) < 0.01, text)
        kept = found[~dropped]
        demand(close(kept, kept[:1].expand_as(kept)), "entries that are kept do not all grow alike")
        mean = float(found.mean())
        demand(
            abs(mean - 1) < 0.01,
            f"the mean of ones becomes {mean:.2f}, so a layer behind it sees another size",
        )
    again = tensor(answer(ones, 0.5, True))
    demand(not close(again, found), "two calls drop the same entries")
    demand(
        close(tensor(answer(ones, 0.0, True)), ones), "with rate 0 something changes in training"
    )
    x = normal(40, 30, seed=1)
    found = tensor(answer(x, 0.4, True), (40, 30))
    at = first((found != 0) & ((found / x) - 1 / 0.6).abs().gt(1e-6))
    demand(not at, "what is kept of numbers that are not 1 is no multiple of them")


@exercise(_CHAPTER)
def gap(answer: Answer) -> None:
    """Write `gap(epsilon, vocab)`: how far the right logit exceeds the others where smoothed loss is least."""
    for epsilon, vocab in ((0.1, 13), (0.3, 5), (0.5, 2), (0.1, 37000)):
        found = number(answer(epsilon, vocab))
        demand(found > 0, "your gap puts the answer's logit below the others")
        target = 1 - epsilon + epsilon / vocab
        demand(
            not close(found, target / (epsilon / vocab)),
            "that is a ratio of probabilities, not of logits",
        )
        given = 1 / (1 + (vocab - 1) * math.exp(-min(found, 700)))
        text = "there the answer has the probability 1 - epsilon; its share of the even part is missing"
        demand(not close(given, 1 - epsilon, 1e-6), text)
        text = f"with this gap softmax gives the answer the probability {given:.4f}, which is not its target"
        demand(close(given, target, 1e-6), text)


@exercise(_CHAPTER)
def settled(answer: Answer) -> None:
    """Write `settled(rate, decay, push)`: the length at which a weight vector settles, and a step's turn there.

    A step first multiplies the vector by 1 - rate * decay and then adds a push of this length at right angles.
    """
    for rate, decay, push in (
        (0.2, 1.0, 0.6),
        (0.01, 0.5, 0.1),
        (0.05, 0.4, 0.02),
        (0.5, 1.0, 3.0),
    ):
        found = answer(rate, decay, push)
        demand(
            isinstance(found, (tuple, list)) and len(found) == 2,
            "expected two numbers, the length and the turn in degrees",
        )
        length, turn = number(found[0], "the length"), number(found[1], "the turn")
        kept = 1 - rate * decay
        right, angle = push / math.sqrt(1 - kept**2), math.degrees(math.acos(kept))
        shown = f"for rate={rate:g}, decay={decay:g}, push={push:g} it gives {length:.4g} and {turn:.4g}"
        demand(
            not close(length, push / (1 - kept)),
            f"{shown}: a push at right angles adds to the squared length, not to the length",
        )
        demand(
            not close(length, push / math.sqrt(2 * rate * decay)),
            f"{shown}: near, but the square of 1 - rate * decay has a third term",
        )
        after = math.hypot(kept * length, push)
        demand(
            close(length, right),
            f"{shown}: the next step makes that length {after:.4g}, so it has not settled",
        )
        demand(not close(turn, math.acos(kept)), f"{shown}: the turn is asked for in degrees")
        demand(
            not close(turn, math.degrees(math.atan(push / length))),
            f"{shown}: the push meets a vector that has shrunk already",
        )
        demand(
            not close(turn, math.degrees(math.sqrt(2 * rate * decay))),
            f"{shown}: that is the turn for small steps; its cosine can be had exactly",
        )
        demand(
            close(turn, angle),
            f"{shown}; what is the cosine between the vector before a step and after it, both of that length?",
        )


@exercise(_CHAPTER)
def stopped(answer: Answer) -> None:
    """Write `stopped(losses, patience)`: which evaluation's model early stopping keeps, counted from 0.

    It gives up after `patience` evaluations in a row without a new minimum and sees nothing of the rest.
    """
    cases = [
        ([3.0, 2.0, 1.0], 2, 2, "the loss fell to the end"),
        ([3.0, 2.0, 2.5, 2.6, 2.7], 2, 1, "the loss rose after number 1"),
        ([3.0, 2.0, 2.5, 1.5, 1.6, 1.0, 2.0], 2, 5, "each rise ended before patience did"),
        (
            [3.0, 2.0, 2.5, 2.6, 1.0, 0.5],
            2,
            1,
            "patience ended before the later minimum, which nobody saw",
        ),
        ([2.0, 2.0, 2.0, 1.0], 2, 0, "an equal loss is no new minimum"),
        ([1.0, 2.0, 0.5], 1, 0, "patience of 1 ends at the first evaluation that is not better"),
        ([1.0], 3, 0, "there is one evaluation"),
    ]
    for losses, patience, right, words in cases:
        found = number(answer(list(losses), patience))
        text = f"here {words}"
        demand(
            found not in losses or found == round(found),
            f"{text}: a loss came, its number is asked for",
        )
        demand(found == right, f"{text}, and number {found:g} is kept")
