"""Blocks of SmolLM2 left out, swapped, run twice and reversed, one at a time and in runs.

All variants of a sweep run together: each joins a stack of states once the blocks are past that it changes, so
that no block runs twice on what nobody has changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from measured_transformer.training.seeding import make_generator
from torch import Tensor
from torch.nn import functional as F

from measured_book.measuring import measurement
from measured_book.rooms.thirty_blocks.passages import BLOCKS, by_variant, passages, read
from measured_book.smollm2.model import NEEDS
from measured_book.smollm2.sweeps import Sweep, begin
from measured_book.smollm2.texts import DATA

Plan = Sequence[int]
"""The blocks that run, in order, from 0."""
CHANGES = ("out", "swapped", "twice")
N = len(BLOCKS)


def changed(change: str, first: int, length: int = 1, n: int = N) -> list[int]:
    """The blocks that run when something is done to a run of them, from 0.

    Args:
        change: 'out', 'swapped' (with the block behind), 'twice' or 'reversed'.
        first: first block of the run, from 0.
        length: of the run.
        n: number of blocks.

    >>> changed("swapped", 1, n=4), changed("twice", 0, 2, n=3), changed("reversed", 1, 3, n=5)
    ([0, 2, 1, 3], [0, 1, 0, 1, 2], [0, 3, 2, 1, 4])
    """
    run = list(range(first, first + length))
    behind = list(range(first + length, n))
    within = {"out": [], "twice": run + run, "reversed": run[::-1], "swapped": behind[:1] + run}
    return list(range(first)) + within[change] + (behind[1:] if change == "swapped" else behind)


def onward(sweep: Sweep, plans: Sequence[Plan]) -> Tensor:
    """The final streams of plans that each agree with the usual order but for one run of blocks.

    Returns:
        the texts of the first plan, then those of the second, and so on.
    """
    n = sweep.blocks
    waiting: dict[int, list[tuple[int, Tensor]]] = {}
    for number, plan in enumerate(plans):
        head = next((i for i, one in enumerate(plan) if one != i), len(plan))
        tail = next((k for k, one in enumerate(reversed(plan)) if one != n - 1 - k), len(plan))
        tail = min(tail, len(plan) - head, n - head)
        state = sweep.states[head]
        for block in plan[head : len(plan) - tail]:
            state = sweep.run(block, state)
        waiting.setdefault(n - tail, []).append((number, state))
    numbers: list[int] = []
    stack: Tensor | None = None
    for block in range(n + 1):
        joining = waiting.get(block, [])
        numbers += [number for number, _ in joining]
        rows = [state for _, state in joining]
        if stack is not None or rows:
            stack = torch.cat([*([] if stack is None else [stack]), *rows])
            if block < n:
                stack = sweep.run(block, stack)
    assert stack is not None
    rows = stack.unflatten(0, (len(plans), -1))
    return rows[torch.tensor(numbers).argsort()].flatten(0, 1)


@measurement(
    seeds=10, coords={"change": CHANGES, "block": BLOCKS}, pretrained=NEEDS, data=DATA,
    tolerance={"same": 0.02},
)  # fmt: skip
def blocks(seed: int) -> dict[str, Any]:
    """Loss, and predictions that stay, with one block left out, swapped with the next, or run twice."""
    texts, _ = passages(seed, 48, 2)
    return block_by_block(begin(texts))


def block_by_block(sweep: Sweep) -> dict[str, Any]:
    """Each block of a model left out, swapped with the next and run twice: losses, and predictions that stay.

    The last block has no next one; there the values are missing (NaN).
    """
    n, texts = sweep.blocks, len(sweep.tokens)
    cases = [
        (row, block)
        for row, change in enumerate(CHANGES)
        for block in range(n)
        if change != "swapped" or block < n - 1
    ]
    stack = onward(sweep, [changed(CHANGES[row], block, n=n) for row, block in cases])
    losses, likely = read(stack, sweep.tokens, model=sweep.model)
    whole, usual = read(sweep.states[-1], sweep.tokens, model=sweep.model)
    stays = likely == usual.repeat(len(cases), 1)
    loss, same = (np.full((len(CHANGES), n), np.nan) for _ in range(2))
    places = tuple(np.array(cases).T)
    loss[places], same[places] = by_variant(losses, texts), by_variant(stays, texts)
    return {
        "loss": (("change", "block"), loss),
        "same": (("change", "block"), same),
        "whole": float(whole.double().mean()),
    }


LENGTHS = (4, 8)
OTHERS = 4
"""Other texts of the draw, on whose last tokens the run is chosen."""


@measurement(
    seeds=10, coords={"length": LENGTHS, "block": BLOCKS, "change": ("twice", "reversed")},
    pretrained=NEEDS, data=DATA, tolerance={"place": 28.0, "chosen": 1.0},
)  # fmt: skip
def runs(seed: int) -> dict[str, Any]:
    """Loss without each run of 4 and of 8 blocks, and without the run whose ends are most alike.

    Runs of 4 are also run twice and reversed.
    """
    texts, others = passages(seed, 48, 2, OTHERS)
    sweep = begin(texts)
    ends = begin(others).states[:, :, -1]
    firsts = [(length, first) for length in LENGTHS for first in inner(length)]
    plans = [changed("out", first, length) for length, first in firsts]
    plans += [changed(how, first, 4) for how in ("twice", "reversed") for first in inner(4)]
    found = by_variant(read(onward(sweep, plans), texts)[0], len(texts)).tolist()
    out, angle = (np.full((len(LENGTHS), N), np.nan) for _ in range(2))
    for (length, first), loss in zip(firsts, found, strict=False):
        out[LENGTHS.index(length), first] = loss
        cosine = F.cosine_similarity(ends[first], ends[first + length], dim=-1)
        angle[LENGTHS.index(length), first] = float(cosine.clamp(-1, 1).arccos().mean()) / math.pi
    kept = np.full((2, N), np.nan)
    kept[:, list(inner(4))] = np.reshape(found[len(firsts) :], (2, -1))
    place = np.nanargmin(angle, 1)
    return {
        "loss": (("length", "block"), out),
        "angle": (("length", "block"), angle),
        "place": ("length", place + 1.0),
        "chosen": ("length", out[np.arange(len(LENGTHS)), place]),
        "kept": (("change", "block"), kept),
        "whole": float(read(sweep.states[-1], texts)[0].double().mean()),
    }


def inner(length: int) -> range:
    """Where runs begin that hold neither the first nor the last block."""
    return range(1, N - length)


MIDDLE = ("out", "repeated", "reversed", "shuffled", "twice")
FIRST, BEHIND, CHOSEN = 10, 20, 14
"""The ten middle blocks, from 0, and the one that runs in place of all."""
SHUFFLES = 3


@measurement(seeds=10, coords={"change": MIDDLE}, pretrained=NEEDS, data=DATA)
def middle(seed: int) -> dict[str, Any]:
    """Loss with the ten middle blocks left out, with one in place of all, reversed, shuffled, and run twice."""
    texts, _ = passages(seed, 48, 2)
    sweep = begin(texts)
    plans = list(orders(seed))
    found = by_variant(read(onward(sweep, plans), texts)[0], len(texts))
    shuffled = found[4:].mean()
    return {
        "loss": ("change", [*found[:3], shuffled, found[3]]),
        "whole": float(read(sweep.states[-1], texts)[0].double().mean()),
    }


def orders(seed: int) -> Iterator[list[int]]:
    """The plans of `middle`: out, repeated, reversed, twice, and the shuffled ones."""
    ten = list(range(FIRST, BEHIND))
    draws = make_generator(seed, "orders of blocks")
    shuffles = [
        [ten[i] for i in torch.randperm(10, generator=draws).tolist()] for _ in range(SHUFFLES)
    ]
    for within in ([], [CHOSEN] * 10, ten[::-1], ten + ten, *shuffles):
        yield [*range(FIRST), *within, *range(BEHIND, N)]
