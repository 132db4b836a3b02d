"""Controls for findings on one model: matched heads, weights of the same spectrum, random directions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache

import torch
from jaxtyping import Float
from measured_transformer.models.decoder import Decoder
from measured_transformer.training.seeding import make_generator
from torch import Tensor
from torch.nn import functional as F

from measured_book.smollm2.model import smollm2
from measured_book.smollm2.spectrum import same_spectrum

Head = tuple[int, int]
"""Block and number of a head, both from 0."""


def matched_heads(
    norms: Float[Tensor, "block head"],
    group: Sequence[Head],
    sets: int,
    seed: int,
    *,
    exclude: Collection[Head] = (),
    near: int = 8,
) -> list[list[Head]]:
    """Random sets of heads that write about as much as the heads of a group.

    Head by head, in a random order, one of those is drawn whose norms are nearest by ratio, and which are
    neither of the group, nor excluded, nor in this set already.

    Args:
        norms: how much each head writes, such as `sweeps.Sweep.write_norms`.
        group: the heads to be matched.
        sets: number of sets.
        seed: of the draws.
        exclude: heads that may not be drawn, such as all of the kind in question.
        near: from how many of the nearest each is drawn.

    Returns:
        sets as large as the group; within each, entry i stands for head i of the group.

    Raises:
        ValueError: when too few heads are left to draw from.

    >>> norms = torch.tensor([[1.0, 8.0], [1.1, 8.8], [0.9, 7.5]])
    >>> matched_heads(norms, [(0, 0), (0, 1)], 1, seed=0, near=1)
    [[(1, 0), (2, 1)]]
    """
    allowed = {
        (block, head)
        for block in range(norms.shape[0])
        for head in range(norms.shape[1])
        if (block, head) not in {*group, *exclude}
    }
    if len(allowed) < len(group) or near < 1 or sets < 1:
        raise ValueError(
            f"expected at least {len(group)} heads to draw from, positive near and sets; got {len(allowed)} "
            f"heads, near={near} and sets={sets}"
        )
    logs = norms.double().clamp_min(1e-30).log().tolist()
    draws = make_generator(seed, "heads matched by norm")
    found = []
    for _ in range(sets):
        chosen: dict[int, Head] = {}
        for place in torch.randperm(len(group), generator=draws).tolist():
            block, head = group[place]
            wanted = logs[block][head]
            rest = sorted(
                allowed - set(chosen.values()),
                key=lambda one: (abs(logs[one[0]][one[1]] - wanted), one),
            )[:near]
            chosen[place] = rest[int(torch.randint(len(rest), (), generator=draws))]
        found.append([chosen[place] for place in range(len(group))])
    return found


def norm_ratio(
    norms: Float[Tensor, "block head"], one: Sequence[Head], other: Sequence[Head]
) -> float:
    """The summed norms of one set of heads over those of another; near 1 where a set is well matched."""
    first, second = (sum(float(norms[head]) for head in each) for each in (one, other))
    return first / second


@cache
def smollm2_of_same_spectrum(seed: int) -> Decoder:
    """SmolLM2 with the directions of its matrices redrawn, made once a process; see `same_spectrum`."""
    return same_spectrum(smollm2().model, seed)


def directions_of_equal_length(
    like: Float[Tensor, "*batch d_model"], seed: int, *, orthogonal: bool = False
) -> Float[Tensor, "*batch d_model"]:
    """Random directions, each as long as the vector that it stands for.

    Args:
        like: the vectors to be matched; double precision is kept.
        seed: of the draw.
        orthogonal: whether each is also at right angles to its vector, so that it carries nothing of it.
    """
    drawn = torch.randn(
        like.shape, generator=make_generator(seed, "random directions"), dtype=torch.float32
    ).to(like)
    if orthogonal:
        unit = F.normalize(like, dim=-1)
        drawn = drawn - (drawn * unit).sum(-1, keepdim=True) * unit
    return F.normalize(drawn, dim=-1) * like.norm(dim=-1, keepdim=True)
