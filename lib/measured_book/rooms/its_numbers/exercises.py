"""Exercises of *Its numbers*."""

from __future__ import annotations

import torch

from measured_book.exercises.answers import Answer, close, demand, demand_number, normal, tensor
from measured_book.exercises.registry import exercise

_CHAPTER = "book/real-language-model/its-numbers"


@exercise(_CHAPTER)
def bits_and_bytes(answer: Answer) -> None:
    """Two numbers: bits a weight with its group's two of 16 bits, bytes that a token adds to a cache."""
    bits, size = answer.numbers("(a)", "(b)")
    slips = {
        4.0: "the two numbers of each group take room, too",
        4.5: "each group has two numbers: the least and the step",
    }
    way = "(32 * 4 + 2 * 16) / 32"
    demand_number(bits, 5.0, way=way, name="(a)", within=1e-6, slips=slips)
    slips = {
        2.0 * 30 * 9 * 64 * 2: "nine heads of queries share three of keys and values",
        30.0 * 3 * 64 * 2: "a cache keeps keys and values",
        2.0 * 3 * 64 * 2: "each of the 30 blocks has a cache of its own",
    }
    way = "2 * 30 blocks * 3 heads * 64 numbers * 2 bytes"
    demand_number(size, 23040.0, way=way, name="(b)", slips=slips)


@exercise(_CHAPTER)
def stepped(answer: Answer) -> None:
    """Write `stepped(values, bits)`: rows rounded to equal steps between the least and the largest of each."""
    for rows, width, bits, seed in ((2, 6, 2, 0), (3, 16, 3, 1), (1, 32, 4, 2)):
        values = normal(rows, width, seed=seed) + 1.5
        right = _stepped(values, bits, values.amin(-1, keepdim=True), 2**bits - 1)
        found = tensor(answer(values.clone(), bits), (rows, width))
        zero = torch.zeros(rows, 1)
        for slip, text in (
            (
                _stepped(values, bits, values.amin(-1, keepdim=True), 2**bits),
                "between so many levels there is one step less",
            ),
            (
                _stepped(values, bits, values.amin(), 2**bits - 1, values.amax()),
                "each row has its own least and largest number",
            ),
            (
                _stepped(values, bits, zero, 2**bits - 1),
                "the levels begin at the least number, not at zero",
            ),
            (
                right - values.amin(-1, keepdim=True),
                "add the least number again behind the rounding",
            ),
        ):
            demand(close(slip, right) or not close(found, slip), text)
        demand(close(found, right), f"with {bits} bits the rows are rounded to other numbers")


def _stepped(
    values: torch.Tensor,
    bits: int,
    least: torch.Tensor,
    count: int,
    largest: torch.Tensor | None = None,
) -> torch.Tensor:
    del bits
    largest = values.amax(-1, keepdim=True) if largest is None else largest
    step = (largest - least) / count
    return least + step * ((values - least) / step).round()


@exercise(_CHAPTER)
def draft(answer: Answer) -> None:
    """Write `draft(tokens, length)`: what followed the last time that the last tokens stood there, or -1."""
    for tokens, length, right, slip, text in (
        ([5, 7, 8, 5, 7], 2, 8, None, ""),
        ([1, 2, 3, 1, 2, 4, 1, 2], 2, 4, 3, "take the latest earlier place, not the first"),
        ([1, 2, 3], 1, -1, 3, "where nothing matches there is no draft: -1"),
        ([9, 4, 4], 1, 4, None, "a place may be the one just before"),
        ([6, 3, 2, 3], 2, -1, 2, "all of the last `length` tokens must match"),
        ([3, 1, 3], 1, 1, 3, "the draft is the token behind the place, not the one at it"),
    ):
        found = answer(list(tokens), length)
        demand(found == right or found != slip or not text, text)
        demand(found == right, f"draft({tokens}, {length}) should be {right}, got {found!r}")
