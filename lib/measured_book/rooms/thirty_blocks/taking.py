"""Heads of SmolLM2 taken away: one at a time, and in growing sets.

A head that is taken away hands on nothing, its mean over other texts (one for the first token, one for all
others), or what it hands on at the same position of another text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.training.seeding import make_generator
from torch import Tensor
from torch.nn import functional as F

from measured_book.measuring import measurement
from measured_book.rooms.thirty_blocks.passages import (
    BLOCKS,
    HEADS,
    LATER,
    by_variant,
    passages,
    read,
)
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.sweeps import begin
from measured_book.smollm2.texts import DATA

HOW = ("zero", "mean", "resample")
OTHERS = 8
"""Other texts of the draw: for means, for what stands in, and for the ranking of heads."""
Removed = Bool[Tensor, "block head"]


@dataclass(frozen=True)
class StandIns:
    """What heads hand on in other texts.

    Attributes:
        mixed: what each head gathered, by block: (text, head, position, d_head).
    """

    mixed: Sequence[Float[Tensor, "text head position d_head"]]

    def of(self, how: str, block: int, there: Tensor) -> Tensor:
        """What heads hand on instead.

        Args:
            how: 'zero', 'zero behind' (as they were at the first token), 'mean' or 'resample'.
            block: its number, from 0.
            there: what they hand on, (text, head, position, d_head).
        """
        seen = self.mixed[block]
        if how == "resample":
            return seen[: len(there), :, : there.shape[2]]
        other = torch.zeros_like(there)
        if how == "zero behind":
            other[:, :, 0] = there[:, :, 0]
        if how == "mean":
            other[:] = seen[:, :, 1:].mean((0, 2), keepdim=True)
            other[:, :, 0] = seen[:, :, 0].mean(0)
        return other


@torch.no_grad()
def stand_ins(others: Tensor) -> StandIns:
    """What all heads hand on in some texts."""
    with capture(smollm2(), "blocks.*.attention.mixed") as seen:
        begin(others)
    return StandIns([seen[f"blocks.{i}.attention.mixed"] for i in range(len(BLOCKS))])


@contextmanager
def without(variants: Sequence[tuple[str, Removed]], other: StandIns) -> Iterator[None]:
    """Inside the block the texts stand there once for each variant: how heads are taken away, and which."""

    def change(block: int) -> Callable[[Tensor], Tensor]:
        def replaced(mixed: Tensor) -> Tensor:
            rows = mixed.unflatten(0, (len(variants), -1))
            for row, (how, removed) in zip(rows, variants, strict=True):
                gone = removed[block]
                if gone.any():
                    row[:, gone] = other.of(how, block, row)[:, gone]
            return mixed

        return replaced

    names = {f"blocks.{i}.attention.mixed": change(i) for i in range(len(BLOCKS))}
    with intervene(smollm2(), names):
        yield


# One at a time ------------------------------------------------------------------------------------

EVERY = 5
"""A draw takes every fifth head; the last digit of a seed is that of its stream."""


@measurement(
    seeds=10, coords={"how": HOW, "block": BLOCKS, "head": HEADS}, pretrained=NEEDS, data=DATA,
)  # fmt: skip
def heads(seed: int) -> dict[str, Any]:
    """Loss without single heads, in three ways; a draw takes every fifth head."""
    texts, others = passages(seed, 40, 2, OTHERS)
    sweep, other = begin(texts), stand_ins(others)
    found: list[tuple[int, int, int]] = []
    stack = sweep.states[0][:0]
    for block in range(len(BLOCKS)):
        if len(stack):
            stack = sweep.run(block, stack)
        chosen = [
            h for h in range(len(HEADS)) if (len(HEADS) * block + h) % EVERY == seed // 10 % EVERY
        ]
        new = [(row, head) for row in range(len(HOW)) for head in chosen]
        variants = [(HOW[row], one_head(block, head)) for row, head in new]
        with without(variants, other):
            fresh = sweep.run(block, sweep.states[block].repeat(len(new), 1, 1))
        stack = torch.cat([stack, fresh])
        found += [(row, block, head) for row, head in new]
    loss = np.full((len(HOW), len(BLOCKS), len(HEADS)), np.nan)
    loss[tuple(np.array(found).T)] = by_variant(read(stack, texts, every=2)[0], len(texts))
    whole = float(read(sweep.states[-1], texts, every=2)[0].double().mean())
    return {"loss": (("how", "block", "head"), loss), "whole": whole}


def one_head(block: int, head: int) -> Removed:
    """A single head, marked among all."""
    marked = torch.zeros(len(BLOCKS), len(HEADS), dtype=torch.bool)
    marked[block, head] = True
    return marked


# In sets ------------------------------------------------------------------------------------------

BY = ("gradient", "anew", "length", "sign")
SIZES = (27, 54, 108)
"""Heads that are taken away: a tenth, a fifth and two fifths of them."""
ORDERS, OF_EACH_SIZE = 10, 4
"""Random orders, all at a fifth of the heads; the first few at the other sizes and in the other ways."""
RANKED = 4
"""Texts that heads are ranked on."""
STEP = 18
WAYS = ("zero", "zero behind", "mean", "resample")


@measurement(
    seeds=10,
    coords={"by": BY, "heads": SIZES, "order": tuple(range(1, ORDERS + 1)), "how": WAYS},
    pretrained=NEEDS,
    data=DATA,
    tolerance={"loss": 0.3},
)
def sets(seed: int) -> dict[str, Any]:
    """Loss without a tenth, a fifth and two fifths of the heads, in four orders and in random ones."""
    texts, others = passages(seed, 48, 2, OTHERS)
    sweep, other = begin(texts), stand_ins(others)
    ranked = rankings(others[:RANKED], other)
    draws = make_generator(seed, "orders of heads")
    total = len(BLOCKS) * len(HEADS)
    orders = [torch.randperm(total, generator=draws) for _ in range(ORDERS)]
    cases = [("mean", ranked[by][:size]) for by in BY for size in SIZES]
    cases += [
        ("mean", order[:size])
        for size in SIZES
        for order in (orders if size == SIZES[1] else orders[:OF_EACH_SIZE])
    ]
    cases += [
        (how, order[: SIZES[0]]) for how in WAYS if how != "mean" for order in orders[:OF_EACH_SIZE]
    ]
    losses: list[float] = []
    for start in range(0, len(cases), 12):
        some = [(how, marked(chosen)) for how, chosen in cases[start : start + 12]]
        with without(some, other):
            state = sweep.onward(0, sweep.states[0].repeat(len(some), 1, 1))
        losses += by_variant(read(state, texts)[0], len(texts)).tolist()
    left = iter(losses)
    loss = [[next(left) for _ in SIZES] for _ in BY]
    random, how = (np.full((size, ORDERS), np.nan) for size in (len(SIZES), len(WAYS)))
    for row, size in enumerate(SIZES):
        for order in range(ORDERS if size == SIZES[1] else OF_EACH_SIZE):
            random[row, order] = next(left)
    how[WAYS.index("mean")] = random[0]
    for row, name in enumerate(WAYS):
        if name != "mean":
            how[row, :OF_EACH_SIZE] = [next(left) for _ in range(OF_EACH_SIZE)]
    return {
        "loss": (("by", "heads"), loss),
        "random": (("heads", "order"), random),
        "taken": (("how", "order"), how),
        "whole": float(read(sweep.states[-1], texts)[0].double().mean()),
    }


def marked(chosen: Tensor) -> Removed:
    """Heads, by number over all blocks, marked among all."""
    found = torch.zeros(len(BLOCKS) * len(HEADS), dtype=torch.bool)
    found[chosen] = True
    return found.view(len(BLOCKS), len(HEADS))


def rankings(texts: Tensor, other: StandIns) -> Mapping[str, Tensor]:
    """Four orders in which heads are taken away, first those that matter least.

    'gradient': the size of the derivative of a text's loss by a factor on what the head hands on beyond its
    mean, mean over texts, over the root mean square of the block's heads (Michel et al. 2019); 'anew': the
    same, taken again after each 18 heads that have gone; 'length': of what the head adds to the stream;
    'sign': the derivative itself, first those without which the loss should fall most.
    """
    gone = torch.zeros(len(BLOCKS), len(HEADS), dtype=torch.bool)
    slopes = derivatives(texts, other, gone)
    order = importance(slopes).flatten().argsort()
    anew: list[int] = []
    current = slopes
    while len(anew) < SIZES[1]:
        if anew:
            current = derivatives(texts, other, gone)
        score = importance(current).masked_fill(gone, torch.inf).flatten()
        anew += score.argsort()[:STEP].tolist()
        gone = marked(torch.tensor(anew))
    rest = importance(current).masked_fill(gone, torch.inf).flatten().argsort()
    return {
        "gradient": order,
        "anew": torch.cat([torch.tensor(anew), rest])[: len(order)],
        "length": begin(texts).write_norms().flatten().argsort(),
        "sign": slopes.mean(0).flatten().argsort(descending=True),
    }


def importance(slopes: Float[Tensor, "text block head"]) -> Float[Tensor, "block head"]:
    """The size of each derivative, mean over texts, in units of the block's."""
    size = slopes.abs().mean(0)
    return size / size.square().mean(1, keepdim=True).sqrt().clamp_min(1e-12)


def derivatives(texts: Tensor, other: StandIns, gone: Removed) -> Float[Tensor, "text block head"]:
    """Derivative of each text's loss by a factor on what each head hands on beyond its mean over texts.

    Above zero: the loss falls when the head is set to its mean, as far as the slope tells.

    Args:
        texts: of one length.
        other: what heads hand on in the mean.
        gone: heads that are set to their mean already; their derivatives are zero.
    """
    gates = torch.ones(len(texts), len(BLOCKS), len(HEADS), dtype=torch.float32)
    gates = gates.masked_fill(gone, 0.0).requires_grad_()

    def gate(block: int) -> Callable[[Tensor], Tensor]:
        def gated(mixed: Tensor) -> Tensor:
            mean = other.of("mean", block, mixed.detach())
            return mean + gates[:, block, :, None, None] * (mixed - mean)

        return gated

    model = smollm2()
    with intervene(model, {f"blocks.{i}.attention.mixed": gate(i) for i in range(len(BLOCKS))}):
        logits = model(texts)[:, LATER:-1]
    answers = texts[:, LATER + 1 :]
    losses = F.cross_entropy(logits.flatten(0, 1), answers.flatten(), reduction="none")
    losses.view(answers.shape).mean(1).sum().backward()
    assert gates.grad is not None
    return gates.grad.masked_fill(gone, 0.0)
