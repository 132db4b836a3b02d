"""An exercise on batches, in *How long is long enough?*."""

from __future__ import annotations

from measured_book.exercises.answers import Answer, close, demand, number
from measured_book.exercises.registry import exercise

_CHAPTER = "book/training/ladder"


@exercise(_CHAPTER)
def scaled(answer: Answer) -> None:
    """Write `scaled(beta, old, new)`: how much an average keeps in a step of `new` windows instead of `old`."""
    for beta, old, new in ((0.95, 16, 4), (0.95, 16, 64), (0.999, 32, 8), (0.5, 1, 3)):
        found = number(answer(beta, old, new))
        right = beta ** (new / old)
        text = "a smaller batch forgets less in a step: the exponent is the other way round"
        demand(not close(found, beta ** (old / new)), text)
        text = "what is kept is multiplied from step to step, so the batch's size is an exponent"
        demand(not close(found, beta * new / old), text)
        text = "that scales what is forgotten, which is right only to first order"
        demand(not close(found, 1 - (1 - beta) * new / old) or close(found, right), text)
        text = f"after as many tokens as one step of {old} had, {beta} must be left"
        demand(close(found, right), text)
