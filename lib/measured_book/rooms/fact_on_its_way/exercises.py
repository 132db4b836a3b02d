"""Exercises of *A fact on its way*."""

from __future__ import annotations

import torch

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    normal,
    tensor,
)
from measured_book.exercises.registry import exercise

_CHAPTER = "book/real-language-model/fact-on-its-way"


@exercise(_CHAPTER)
def returned(answer: Answer) -> None:
    """A number: the share that returns, from 4 in the whole run, -2 with the other subject, 1 when patched."""
    slips = {
        0.25: "the run with the other subject starts at -2, not at 0",
        0.75: "divide by the whole difference, 4 - (-2)",
    }
    way = "(1 - (-2)) / (4 - (-2))"
    demand_number(answer.number(), 0.5, way=way, within=0.005, slips=slips)


@exercise(_CHAPTER)
def rewritten(answer: Answer) -> None:
    """Write `rewritten(matrix, key, vector)`: changed by rank one so that the key brings the vector on top."""
    for rows, columns, seed in ((2, 3, 0), (4, 5, 1), (3, 3, 2)):
        matrix = normal(rows, columns, seed=seed)
        key, vector = normal(columns, seed=seed + 10), normal(rows, seed=seed + 20)
        right = matrix + torch.outer(vector, key) / (key @ key)
        found = tensor(answer(matrix.clone(), key.clone(), vector.clone()), (rows, columns))
        slips = (
            (matrix + torch.outer(vector, key), "divide by the key's squared length"),
            (
                matrix + torch.outer(vector, key) / key.norm(),
                "divide by the key's squared length, not by its length",
            ),
            (
                matrix + torch.outer(vector - matrix @ key, key) / (key @ key),
                "the vector comes on top of what the key brought before",
            ),
        )
        for slip, text in slips:
            demand(not close(found, slip), text)
        demand(close(found, right), f"for a matrix of {rows} by {columns} another one is right")
