"""An exercise on attribution patching, in *Repeats and rules*."""

from __future__ import annotations

from measured_book.exercises.answers import Answer, close, demand, normal, tensor
from measured_book.exercises.registry import exercise

_CHAPTER = "book/real-language-model/repeats"


@exercise(_CHAPTER)
def guessed(answer: Answer) -> None:
    """Write `guessed(own, other, gradient)`: how much the answer rises if a head's vector is exchanged."""
    for heads, width, seed in ((3, 4, 0), (1, 5, 1), (6, 2, 2)):
        own, other = normal(heads, width, seed=seed), normal(heads, width, seed=seed + 10)
        gradient = normal(heads, width, seed=seed + 20)
        found = tensor(answer(own.clone(), other.clone(), gradient.clone()), (heads,))
        right = ((other - own) * gradient).sum(1)
        demand(
            not close(found, (other * gradient).sum(1)),
            "that is the product with the new vector; what counts is by how much the vector changes",
        )
        demand(not close(found, -right), "the change leads from the head's own vector to the other")
        demand(
            close(found, right), "another number than the change of the vector times the gradient"
        )
