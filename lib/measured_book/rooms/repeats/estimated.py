"""Patching and its estimates by gradients, on indirect objects in SmolLM2.

One name of a sentence is exchanged, so that the other one is to be expected. What one part wrote in the
exchanged sentence is put into the other one, for one part after the other; and the same is estimated to first
order. A seed is a draw of names, places and things.
"""

from __future__ import annotations

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
from measured_book.rooms.repeats.names import Asked, asked
from measured_book.rooms.repeats.objects import BLOCKS, HEADS, gaps_after
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.sweeps import Sweep, begin

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


@torch.no_grad()
def effects(
    prompts: Asked, heads: Int[Tensor, "block"], points: int | None = None
) -> Float[Tensor, "part block prompt"]:
    """By how much the gap rises when one part is put in, at every position or for the stream at the name.

    Args:
        prompts: into which it is put.
        heads: the head of each block.
        points: of the gradient that estimates it; None for a run with each part by itself.
    """
    model, (source, last) = smollm2().model, exchanged(prompts)
    rows = torch.arange(len(source))
    of = [
        [component_of(part, block, int(head)) for block, head in enumerate(heads)] for part in PARTS
    ]
    if points is not None:
        flat = [one for some in of for one in some]
        found = attribution_patched(
            model, prompts.tokens, source, flat, lambda x: gaps_after(x, prompts), steps=points
        )
        return torch.stack(
            [
                torch.stack(
                    [
                        found[one][rows, last] if part == "stream" else found[one].sum(1)
                        for one in some
                    ]
                )
                for part, some in zip(PARTS, of, strict=True)
            ]
        )
    own, other = begin(prompts.tokens), begin(source)
    before = _gap(own, own.final(), prompts)
    found = []
    for part, some in zip(PARTS, of, strict=True):
        found.append(
            torch.stack(
                [
                    _gap(own, _with(own, other, part, block, one, last), prompts) - before
                    for block, one in enumerate(some)
                ]
            )
        )
    return torch.stack(found)


def _gap(sweep: Sweep, state: Tensor, prompts: Asked) -> Tensor:
    return gaps_after(sweep.last_logits(state)[:, None], prompts)


def _with(
    own: Sweep, other: Sweep, part: str, block: int, one: Component, last: Tensor
) -> Float[Tensor, "prompt position d_model"]:
    """The stream after the last block when one part comes from the other run."""
    if part == "stream":
        state, rows = own.states[block].clone(), torch.arange(len(last))
        state[rows, last] = other.states[block][rows, last]
        return own.onward(block, state)
    with capture(own.model, one.tap) as seen:
        other.onward(block, until=block + 1)
    value = seen[one.tap]
    change: Change = value if one.head is None else at(value[:, [one.head]], heads=one.head)
    with intervene(own.model, {one.tap: change}):
        return own.onward(block)


@measurement(
    seeds=10,
    coords={"part": PARTS, "points": POINTS, "block": BLOCKS},
    tolerance={"patched": 0.3, "estimated": 0.5, "correlation": 0.1, "fit": 0.5},
    pretrained=NEEDS,
)
def estimated(seed: int) -> dict[str, Any]:
    """What patching one part does to the gap, and what its gradient says; a draw takes one head of each block.

    ``correlation``: over all blocks and prompts; ``fit``: one minus the squares of what the estimates are off
    by, as a share of the squares of the effects.
    """
    prompts = rows_of(asked(seed, "judging", 1)[0], seed)
    heads = (torch.arange(len(BLOCKS)) + seed) % len(HEADS)
    return measured_on(prompts, heads)


def measured_on(prompts: Asked, heads: Int[Tensor, "block"]) -> dict[str, Any]:
    """What `estimated` keeps, for some prompts and one head of each block."""
    right = effects(prompts, heads).double()
    guesses = torch.stack([effects(prompts, heads, points).double() for points in POINTS])
    flat, given = right.flatten(1).numpy(), guesses.flatten(2).numpy()
    return {
        "patched": (("part", "block"), right.mean(-1)),
        "estimated": (("part", "block", "points"), guesses.mean(-1).permute(1, 2, 0)),
        "correlation": (
            ("part", "points"),
            [
                [float(np.corrcoef(flat[i], given[k, i])[0, 1]) for k in range(len(POINTS))]
                for i in range(len(PARTS))
            ],
        ),
        "fit": (
            ("part", "points"),
            [
                [
                    float(1 - ((given[k, i] - flat[i]) ** 2).sum() / (flat[i] ** 2).sum())
                    for k in range(len(POINTS))
                ]
                for i in range(len(PARTS))
            ],
        ),
    }
