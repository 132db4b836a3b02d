"""What the chapter on the length of training reads from its results, and the numbers that its prose names."""

from __future__ import annotations

from measured_transformer.tasks.standard_library import StandardLibrary

from measured_book.ladder import BATCH, WINDOW, steps_for, weights_of
from measured_book.measuring import number


@number
def weights(*, width: int) -> float:
    """The number of weights of a model of this width."""
    return weights_of(width)


@number
def steps(*, width: int, tokens: int) -> float:
    """The number of steps in which it sees so many tokens a weight."""
    return steps_for(width, tokens)


@number
def seen(*, width: int, tokens: int) -> float:
    """How many bytes these steps read."""
    return steps_for(width, tokens) * BATCH * WINDOW


@number
def guessing() -> float:
    """What it costs to guess held-out bytes by how frequent they are, in nats."""
    return StandardLibrary(part="validation").unigram_loss()
