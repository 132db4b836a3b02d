"""Attention and networks of blocks: taken away in three ways, without skip connection, and what others do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.rooms.carry_over.drawn import (
    FRESH,
    MORE,
    PARTS,
    WRITERS,
    gains,
    number_of,
    ranks_agree,
    texts,
    unembedding,
)
from measured_book.rooms.carry_over.heads import LENGTH, PAIRS, READ, WAYS
from measured_book.smollm2.model import NEEDS
from measured_book.smollm2.sweeps import Sweep, begin
from measured_book.smollm2.texts import DATA

PLACES = 4
"""Blocks of a draw."""
THIRDS = {"middle": range(10, 20), "last": range(20, 30), "all": range(30)}
SKIPPED = (16, 18, 20, 22, 24, 30)
"""Blocks that are left out, counted from 1."""


def blocks_of(number: int) -> list[int]:
    """The blocks of a draw, from 0: every seventh, the first of all left out."""
    return list(range(1 + number % 7, 30, 7))[:PLACES]


@measurement(
    seeds=MORE,
    coords={
        "how": WAYS,
        "writer": WRITERS,
        "place": tuple(range(PLACES)),
        "pair": tuple(PAIRS),
        "measure": ("zero", "mean"),
        "third": tuple(THIRDS),
        "block": SKIPPED,
    },
    tolerance={
        "agree": 0.05,
        "by_length": 0.05,
        "gone": 0.1,
        **dict.fromkeys(("rise", "without_skip", "first_skip", "first_branch"), 0.05),
        **dict.fromkeys(("without_block", "direct", "later", "norm"), 0.02),
    },
    pretrained=NEEDS,
    data=DATA,
)
@torch.no_grad()
def sublayers(seed: int) -> dict[str, Any]:
    """By how much the loss rises without a sublayer or its skip connection, and what later ones make up."""
    seed += FRESH
    sweep, other = begin(texts(seed, READ, LENGTH)), begin(texts(seed + 5, READ, LENGTH))
    mine, theirs = Writes(sweep), Writes(other)
    plain = float(sweep.losses().double().mean())
    chosen = blocks_of(number_of(seed))

    def rise(block: int, change: dict[str, Any]) -> float:
        with intervene(sweep.model, change):
            return risen(sweep, sweep.onward(block), plain)

    def stood_in(block: int, writer: str, how: str) -> Tensor | float:
        if how == "zero":
            return 0.0
        if how == "mean":
            return theirs.of(block, writer).mean(0, keepdim=True)
        return theirs.of(block, writer)

    rises = torch.tensor(
        [
            [[rise(b, {tap(b, w): stood_in(b, w, how)}) for b in chosen] for w in WRITERS]
            for how in WAYS
        ],
        dtype=torch.float64,
    )
    flat = dict(zip(WAYS, rises.flatten(1), strict=True))
    ratios = torch.tensor([[mine.ratio(b, w) for b in chosen] for w in WRITERS]).flatten()
    repaired = torch.tensor([[mine.repair(theirs, b, w) for b in chosen] for w in WRITERS])
    gone = []
    for third in THIRDS.values():
        changes = {tap(b, w): stood_in(b, w, "mean") for b in third for w in WRITERS}
        gone.append(rise(third[0], changes))
    without = [
        risen(sweep, sweep.onward(block, sweep.states[block - 1]), plain) for block in SKIPPED
    ]
    return {
        "rise": (("how", "writer", "place"), rises.numpy()),
        "agree": (
            ("pair",),
            [ranks_agree(flat[one], flat[another]) for one, another in PAIRS.values()],
        ),
        "by_length": (("measure",), [ranks_agree(ratios, flat[how]) for how in ("zero", "mean")]),
        "without_skip": (
            ("writer", "place"),
            [[mine.rise_without_skip(b, w, plain) for b in chosen] for w in WRITERS],
        ),
        "first_skip": (("writer",), [mine.rise_without_skip(0, w, plain) for w in WRITERS]),
        "first_branch": (("writer",), [rise(0, {tap(0, w): 0.0}) for w in WRITERS]),
        "gone": (("third",), gone),
        "without_block": (("block",), without),
        **{
            name: (("writer", "place"), repaired[..., i].numpy())
            for i, name in enumerate(("direct", "later", "norm"))
        },
    }


def tap(block: int, writer: str) -> str:
    """The name of what a sublayer writes."""
    return f"blocks.{block}.{PARTS[writer]}.out"


def risen(sweep: Sweep, state: Float[Tensor, "text position d_model"], plain: float) -> float:
    """The loss of a state after the last block, less that of the whole model."""
    return float(sweep.losses(state).double().mean()) - plain


class Writes:
    """What each sublayer wrote in the run of a sweep, and what follows where one is changed."""

    def __init__(self, sweep: Sweep) -> None:
        """Run all blocks once more."""
        self.sweep, self.count = sweep, sweep.blocks
        with self._written() as seen:
            sweep.onward(0)
        self.seen = dict(seen)
        model = sweep.model
        weight, answers = unembedding(model), sweep.tokens[:, 1:]
        self.toward = (weight[answers] - weight.mean(0)) * gains(model)
        self.divisor = self._divisor(sweep.states[-1])

    @contextmanager
    def _written(self) -> Iterator[dict[str, Tensor]]:
        names = [f"blocks.*.{part}.out" for part in PARTS.values()]
        with capture(self.sweep.model, *names) as seen:
            yield seen

    def of(self, block: int, writer: str) -> Float[Tensor, "text position d_model"]:
        """What a sublayer wrote."""
        return self.seen[tap(block, writer)]

    def entered(self, block: int, writer: str) -> Float[Tensor, "text position d_model"]:
        """The stream that a sublayer read and that its write is added to."""
        before = self.sweep.states[block]
        return before if writer == "attention" else before + self.of(block, "attention")

    def ratio(self, block: int, writer: str) -> float:
        """Length of a write over that of the stream, the first token left out."""
        found = self.of(block, writer).norm(dim=-1) / self.entered(block, writer).norm(dim=-1)
        return float(found[:, 1:].double().mean())

    def rise_without_skip(self, block: int, writer: str, plain: float) -> float:
        """Rise of the loss when the stream behind a sublayer is what this wrote alone."""
        place = "residual_mid" if writer == "attention" else "residual_post"
        with intervene(self.sweep.model, {f"blocks.{block}.{place}": self.of(block, writer)}):
            return risen(self.sweep, self.sweep.onward(block), plain)

    def repair(self, other: Writes, block: int, writer: str) -> tuple[float, float, float]:
        """What happens to the right token's logit, less the mean logit, when a write becomes its mean.

        Returns:
            direct: change of the write's own part, at the whole run's divisor; later: change of the parts of
            all later sublayers, at that divisor; norm: what the changed divisor adds.
        """
        mean = other.of(block, writer).mean(0, keepdim=True)
        with intervene(self.sweep.model, {tap(block, writer): mean}), self._written():
            state = self.sweep.onward(block)
        direct = self._part(mean - self.of(block, writer), self.divisor)
        frozen = self._part(state - self.sweep.states[-1], self.divisor)
        changed = self._part(state, self._divisor(state)) - self._part(state, self.divisor)
        return direct, frozen - direct, changed

    def _part(self, written: Tensor, divisor: Float[Tensor, "text position 1"]) -> float:
        part = ((written / divisor)[:, :-1] * self.toward).sum(-1)
        return float(part.double().mean())

    def _divisor(self, state: Int[Tensor, "..."] | Tensor) -> Float[Tensor, "text position 1"]:
        return (state.square().mean(-1, keepdim=True) + self.sweep.model.config.norm_eps).sqrt()
