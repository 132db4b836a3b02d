"""Questions that ten draws of texts left open, asked on draws that nobody had looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.training.seeding import make_generator
from torch.nn import functional as F

from measured_book.measuring import measurement
from measured_book.rooms.thirty_blocks.order import MIDDLE as ORDERS
from measured_book.rooms.thirty_blocks.order import (
    OTHERS,
    changed,
    inner,
    middle,
    onward,
)
from measured_book.rooms.thirty_blocks.passages import (
    BLOCKS,
    LATER,
    by_variant,
    passages,
    read,
)
from measured_book.rooms.thirty_blocks.repair import repair
from measured_book.rooms.thirty_blocks.scores import FROM, times
from measured_book.rooms.thirty_blocks.taking import (
    OF_EACH_SIZE,
    RANKED,
    SIZES,
    derivatives,
    importance,
    marked,
    stand_ins,
    without,
)
from measured_book.rooms.thirty_blocks.taking import OTHERS as STAND_INS
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.sweeps import begin
from measured_book.smollm2.texts import DATA

FRESH = 2000
"""What is added to a seed, so that its draw is a new one."""
MIDDLE = BLOCKS[2:28]
"""Blocks 3 to 28, which LT-63.6 asks about."""
RUN = 4
UNDIVIDED = (1.0, 8.0)
"""Factors on all scores: as they are, and without the division by the root of 64."""


@measurement(
    seeds=20, coords={"block": MIDDLE}, pretrained=NEEDS, data=DATA, tolerance={"same": 0.05},
)  # fmt: skip
def out_again(seed: int) -> dict[str, Any]:
    """Predictions that stay with one of the middle blocks left out, on fresh draws."""
    texts, _ = passages(seed + FRESH, 48, 2)
    sweep = begin(texts)
    stack = onward(sweep, [changed("out", block - 1) for block in MIDDLE])
    usual = read(sweep.states[-1], texts)[1]
    stays = read(stack, texts)[1] == usual.repeat(len(MIDDLE), 1)
    return {"same": ("block", by_variant(stays, len(texts)))}


@measurement(seeds=30, pretrained=NEEDS, data=DATA, tolerance={"place": 28.0})
def place_again(seed: int) -> dict[str, Any]:
    """The first block of the run of 4 whose ends are most alike, on fresh draws."""
    _, others = passages(seed + FRESH, 48, 2, OTHERS)
    ends = begin(others).states[:, :, -1]
    firsts = list(inner(RUN))
    cosine = F.cosine_similarity(ends[firsts], ends[[first + RUN for first in firsts]], dim=-1)
    angle = cosine.clamp(-1, 1).arccos().mean(1)
    return {"place": firsts[int(angle.argmin())] + 1.0}


@measurement(seeds=60, coords={"factor": UNDIVIDED}, pretrained=NEEDS, data=DATA)
@torch.no_grad()
def largest_again(seed: int) -> dict[str, Any]:
    """The largest weight of a row behind the first key, with scores divided and undivided, on fresh draws."""
    texts, _ = passages(seed + FRESH, 64, 2)
    largest = []
    for factor in UNDIVIDED:
        with (
            intervene(smollm2(), {"blocks.*.attention.scores": times(factor)}),
            capture(smollm2(), "blocks.*.attention.pattern") as seen,
        ):
            begin(texts)
        rows = torch.stack([pattern[..., FROM:, 1:].amax(-1) for pattern in seen.values()])
        largest.append(float(rows.double().mean()))
    return {"largest": ("factor", largest)}


LATER_DRAWS = 9000
"""What is added to a seed of the measurements below, so that no other has looked at its draw."""


@measurement(seeds=30, coords={"change": ORDERS}, pretrained=NEEDS, data=DATA)
def middle_again(seed: int) -> Mapping[str, Any]:
    """Loss with the ten middle blocks left out, repeated, reversed, shuffled and run twice, on fresh draws."""
    return middle(LATER_DRAWS + seed)


@measurement(seeds=40, coords={"block": BLOCKS}, pretrained=NEEDS, data=DATA)
def repair_again(seed: int) -> Mapping[str, Any]:
    """What the right logit loses when an attention is silenced, and where, on fresh draws."""
    return repair(LATER_DRAWS + seed)


WAYS = ("out", "swapped")


@measurement(
    seeds=30, coords={"change": WAYS, "block": BLOCKS}, pretrained=NEEDS, data=DATA,
    tolerance={"right": 0.02, "usual": 0.02},
)  # fmt: skip
def kept_again(seed: int) -> dict[str, Any]:
    """Accuracy and loss with one block left out, or swapped with the next, and of the whole, on fresh draws.

    The last block has no next one; there the values are missing (NaN).
    """
    texts, _ = passages(LATER_DRAWS + seed, 48, 2)
    sweep = begin(texts)
    cases = [(row, block) for row in range(2) for block in range(len(BLOCKS) - row)]
    stack = onward(sweep, [changed(WAYS[row], block) for row, block in cases])
    answers, places = texts[:, LATER + 1 :], tuple(np.array(cases).T)
    losses, likely = read(stack, texts)
    whole, usual = read(sweep.states[-1], texts)
    loss, right = (np.full((2, len(BLOCKS)), np.nan) for _ in range(2))
    loss[places] = by_variant(losses, len(texts))
    right[places] = by_variant(likely == answers.repeat(len(cases), 1), len(texts))
    return {
        "loss": (("change", "block"), loss),
        "right": (("change", "block"), right),
        "usual": float((usual == answers).double().mean()),
        "whole": float(whole.double().mean()),
    }


@measurement(
    seeds=40, coords={"how": ("zero", "mean"), "order": tuple(range(1, OF_EACH_SIZE + 1))},
    pretrained=NEEDS, data=DATA, tolerance={"loss": 0.3},
)  # fmt: skip
def zero_again(seed: int) -> dict[str, Any]:
    """Loss with a random tenth of the heads set to zero and to their means, on fresh draws."""
    texts, others = passages(LATER_DRAWS + seed, 48, 2, STAND_INS)
    sweep, other = begin(texts), stand_ins(others)
    draws = make_generator(LATER_DRAWS + seed, "orders of heads")
    total = smollm2().config.n_layers * smollm2().config.n_heads
    orders = [torch.randperm(total, generator=draws)[: SIZES[0]] for _ in range(OF_EACH_SIZE)]
    cases = [(how, marked(order)) for how in ("zero", "mean") for order in orders]
    with without(cases, other):
        state = sweep.onward(0, sweep.states[0].repeat(len(cases), 1, 1))
    losses = by_variant(read(state, texts)[0], len(texts))
    return {"loss": (("how", "order"), np.reshape(losses, (2, OF_EACH_SIZE)))}


@measurement(seeds=80, pretrained=NEEDS, data=DATA, tolerance={"loss": 0.3})
def fifth_again(seed: int) -> dict[str, Any]:
    """Loss with a fifth of the heads, ranked by the gradient, set to their means, on fresh draws."""
    texts, others = passages(2 * LATER_DRAWS + seed, 48, 2, STAND_INS)
    sweep, other = begin(texts), stand_ins(others)
    kept = torch.zeros_like(marked(torch.tensor([], dtype=torch.long)))
    order = importance(derivatives(others[:RANKED], other, kept)).flatten().argsort()
    with without([("mean", marked(order[: SIZES[1]]))], other):
        state = sweep.onward(0, sweep.states[0])
    return {
        "loss": float(read(state, texts)[0].double().mean()),
        "whole": float(read(sweep.states[-1], texts)[0].double().mean()),
    }
