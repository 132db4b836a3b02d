"""Patching and its estimates by gradients, on indirect objects in SmolLM2.

One name of a sentence is exchanged, so that the other one is to be expected. What one part wrote in the
exchanged sentence is put into the other one, for one part after the other; and the same is estimated to first
order. A seed is a draw of names, places and things.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.ablation import Component
from measured_transformer.analysis.attribution_patching import attribution_patched
from measured_transformer.internals.at import at
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import Change, intervene
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.smollm2.indirect_objects import Asked, asked
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.prompts import gap
from measured_book.smollm2.sweeps import Sweep, begin

BLOCKS, HEADS = tuple(range(1, 31)), tuple(range(1, 10))
PARTS = ("heads", "networks", "stream")
"""What is put in: what one head of a block writes, what its network writes, or the stream before the block."""
POINTS = (1, 5)
"""Points between the two sentences at which the gradient is taken."""
ROWS = 2
"""Prompts of a draw, each of another form."""


def exchanged(prompts: Asked) -> tuple[Tensor, Int[Tensor, "prompt"]]:
    """The sentences in which the other name comes twice, and the position of the name that differs."""
    twice = (prompts.tokens == prompts.wrong[:, None]).int()
    last = prompts.tokens.shape[1] - 1 - twice.flip(1).argmax(1)
    tokens = prompts.tokens.clone()
    tokens[torch.arange(len(tokens)), last] = prompts.right
    return tokens, last


def rows_of(prompts: Asked, first: int) -> Asked:
    """A prompt of each of a few forms, from a form on that is counted round and round."""
    forms = prompts.form.unique()
    wanted = [forms[(first + i) % len(forms)] for i in range(ROWS)]
    rows = [int((prompts.form == form).nonzero()[0]) for form in wanted]
    return Asked(*(getattr(prompts, name)[rows] for name in Asked.__dataclass_fields__))


def component_of(part: str, block: int, head: int) -> Component:
    """What of a block is put in, as the library names it; blocks count from 0."""
    match part:
        case "heads":
            return Component(f"blocks.{block}.attention.mixed", head)
        case "networks":
            return Component(f"blocks.{block}.feedforward.out")
    return Component("embedding" if block == 0 else f"blocks.{block - 1}.residual_post")


def gaps_of(
    logits: Float[Tensor, "prompt position vocab"], prompts: Asked
) -> Float[Tensor, "prompt"]:
    """The logit of the right name less that of the other, at the last position."""
    return gap(logits[:, -1], prompts.right, prompts.wrong)


@torch.no_grad()
def effects(
    prompts: Asked, heads: Int[Tensor, "block"], parts: Sequence[str] = PARTS
) -> Float[Tensor, "part block prompt"]:
    """By how much the gap rises when one part is put in, at every position or for the stream at the name.

    Args:
        prompts: into which it is put.
        heads: the head of each block.
        parts: which of `PARTS`.
    """
    source, last = exchanged(prompts)
    own, other = begin(prompts.tokens), begin(source)
    before = _gap(own, own.final(), prompts)

    def effect(part: str, block: int, head: int) -> Tensor:
        return _gap(own, _with(own, other, part, block, head, last), prompts) - before

    return torch.stack(
        [
            torch.stack([effect(part, block, int(head)) for block, head in enumerate(heads)])
            for part in parts
        ]
    )


def _gap(sweep: Sweep, state: Tensor, prompts: Asked) -> Tensor:
    return gaps_of(sweep.last_logits(state)[:, None], prompts)


def _with(
    own: Sweep, other: Sweep, part: str, block: int, head: int, last: Tensor
) -> Float[Tensor, "prompt position d_model"]:
    """The stream after the last block when one part comes from the other run."""
    if part == "stream":
        state, rows = own.states[block].clone(), torch.arange(len(last))
        state[rows, last] = other.states[block][rows, last]
        return own.onward(block, state)
    one = component_of(part, block, head)
    with capture(own.model, one.tap) as seen:
        other.onward(block, until=block + 1)
    value = seen[one.tap]
    change: Change = value if one.head is None else at(value[:, [one.head]], heads=one.head)
    with intervene(own.model, {one.tap: change}):
        return own.onward(block)


def estimates(
    prompts: Asked, heads: Int[Tensor, "block"], parts: Sequence[str] = PARTS, *, points: int
) -> Float[Tensor, "part block prompt"]:
    """The same, estimated by the gap's gradient at one point, or by its mean over several on the way."""
    source, last = exchanged(prompts)
    rows = torch.arange(len(last))
    of = {
        part: [component_of(part, block, int(head)) for block, head in enumerate(heads)]
        for part in parts
    }
    found = attribution_patched(
        smollm2().model, prompts.tokens, source, [one for some in of.values() for one in some],
        lambda logits: gaps_of(logits, prompts), steps=points,
    )  # fmt: skip

    def estimate(part: str, one: Component) -> Tensor:
        return found[one][rows, last] if part == "stream" else found[one].sum(1)

    return torch.stack(
        [torch.stack([estimate(part, one) for one in some]) for part, some in of.items()]
    )


def agreement(
    right: Float[Tensor, "part block prompt"], guessed: Float[Tensor, "part block prompt"]
) -> tuple[list[float], list[float]]:
    """The correlation of estimates with effects, and their fit, for each part over all blocks and prompts."""
    pairs = [(a.flatten().double().numpy(), b.flatten().double().numpy())
             for a, b in zip(right, guessed, strict=True)]  # fmt: skip
    fits = [1 - float(((b - a) ** 2).sum() / (a**2).sum()) for a, b in pairs]
    return [float(np.corrcoef(a, b)[0, 1]) for a, b in pairs], fits


def drawn(seed: int) -> tuple[Asked, Int[Tensor, "block"]]:
    """Two prompts of two forms, and one head of each block."""
    heads = (torch.arange(len(BLOCKS)) + seed) % len(HEADS)
    return rows_of(asked(seed, "judging", 1)[0], seed), heads


@measurement(
    seeds=10,
    coords={"part": PARTS, "points": POINTS, "block": BLOCKS},
    tolerance={"patched": 0.3, "estimated": 0.5, "correlation": 0.1, "fit": 0.5},
    pretrained=NEEDS,
)
def estimated(seed: int) -> dict[str, Any]:
    """What patching one part does to the gap, and what the gradient says; a draw takes one head of each block.

    ``correlation``: over all blocks and prompts; ``fit``: one minus the squares of what the estimates are off
    by, as a share of the squares of the effects.
    """
    prompts, heads = drawn(seed)
    right = effects(prompts, heads)
    guessed = [estimates(prompts, heads, points=points) for points in POINTS]
    told = [agreement(right, some) for some in guessed]
    return {
        "patched": (("part", "block"), right.mean(-1)),
        "estimated": (("points", "part", "block"), torch.stack(guessed).mean(-1)),
        "correlation": (("points", "part"), [one for one, _ in told]),
        "fit": (("points", "part"), [one for _, one in told]),
    }


FRESH = 1000
"""What is added to the seeds of `heads_afresh`."""


@measurement(seeds=60, tolerance={"correlation": 0.1, "fit": 0.3}, pretrained=NEEDS)
def heads_afresh(seed: int) -> dict[str, Any]:
    """The same for heads and the gradient at one point, on sixty fresh draws."""
    prompts, heads = drawn(FRESH + seed)
    some = PARTS[:1]
    (correlation,), (fit,) = agreement(
        effects(prompts, heads, some), estimates(prompts, heads, some, points=1)
    )
    return {"correlation": correlation, "fit": fit}
