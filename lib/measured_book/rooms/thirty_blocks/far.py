"""Positions of SmolLM2: distances that it was not trained with, and fast and slow pairs of its rotations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from measured_transformer.internals.capture import capture
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.positions import Rotation, frequencies
from measured_transformer.parts.rotary_scaling import Yarn, interpolation, ntk_aware
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.rooms.thirty_blocks.passages import BLOCKS, LATER, passages, read
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.sweeps import begin, token_losses
from measured_book.smollm2.texts import DATA

TRAINED = 8192
"""Positions that the model was trained with."""
SCHEMES = ("raw", "interpolated", "NTK", "YaRN")
GAPS = (0, 1024, 4096, 16384, 65536)
HALF = 40
"""Tokens on either side of the gap."""


@measurement(seeds=10, coords={"scheme": SCHEMES, "gap": GAPS}, pretrained=NEEDS, data=DATA)
def far(seed: int) -> dict[str, Any]:
    """Loss behind a gap in the positions: on the tokens from before it once more, and on the text's own next.

    Up to the trained length all schemes are one.
    """
    texts, _ = passages(seed, 2 * HALF + 1, 2)
    again = torch.cat([texts[:, : HALF + 1], texts[:, 1 : HALF + 1]], 1)
    both = torch.cat([again, texts])
    copied, fresh = np.zeros((2, len(SCHEMES), len(GAPS)))
    for place, gap in enumerate(GAPS):
        positions = torch.arange(both.shape[1]).double()
        positions[HALF + 1 :] += gap
        factor = max(1.0, (gap + both.shape[1]) / TRAINED)
        for row, scheme in enumerate(SCHEMES):
            if row and factor == 1:
                continue
            omega, stretch = speeds(smollm2(), scheme, factor)
            state = turned_by(smollm2(), both, positions[:, None] * omega, stretch)
            losses = token_losses(smollm2(), state, both)[:, HALF + LATER + 1 :].double()
            copied[row, place], fresh[row, place] = (float(x.mean()) for x in losses.chunk(2))
        if factor == 1:
            copied[1:, place], fresh[1:, place] = copied[0, place], fresh[0, place]
    return {"loss": (("scheme", "gap"), copied), "fresh": (("scheme", "gap"), fresh)}


def speeds(model: Decoder, scheme: str, factor: float) -> tuple[Float[Tensor, "pair"], float]:
    """Radians a position of each pair, and the factor on turned queries and keys."""
    assert model.rotary is not None
    d, base = model.rotary.d_head, model.rotary.base
    omega = frequencies(d, base=base)
    if factor == 1 or scheme == "raw":
        return omega, 1.0
    if scheme == "interpolated":
        return interpolation(omega, factor), 1.0
    if scheme == "NTK":
        return ntk_aware(d, factor, base=base), 1.0
    yarn = Yarn(factor=factor, trained=TRAINED)
    return yarn.frequencies(d, base, TRAINED), yarn.factor_of_vectors


@torch.no_grad()
def turned_by(
    model: Decoder,
    tokens: Tensor,
    angles: Float[Tensor, "position pair"],
    stretch: float = 1.0,
) -> Float[Tensor, "text position d_model"]:
    """The stream after the last block when queries and keys are turned by these angles."""
    assert model.rotary is not None
    x = model.embed(tokens, model.resolve_positions(tokens))[0]
    cos, sin = ((stretch * table).to(x.dtype) for table in (angles.cos(), angles.sin()))
    rotation = Rotation(cos, sin, model.rotary.pairing)
    for block in model.blocks:
        x = block(x, causal=True, rotation=rotation)
    return x


# Fast and slow pairs ------------------------------------------------------------------------------

GROUPS = ("fastest", "fast", "slow", "slowest")
SPANS = tuple(2**i for i in range(14))
"""Distances from each of these up to twice as far are taken together."""


@measurement(
    seeds=10, coords={"group": GROUPS, "distance": SPANS}, pretrained=NEEDS, data=DATA,
)  # fmt: skip
@torch.no_grad()
def pairs(seed: int) -> dict[str, Any]:
    """Loss with a quarter of the pairs not turned; how long pairs are, and what scores do with distance."""
    texts, _ = passages(seed, 96, 2)
    model = smollm2()
    assert model.rotary is not None
    omega = frequencies(model.rotary.d_head, base=model.rotary.base)
    eight = len(omega) // len(GROUPS)
    loss = []
    for group in range(len(GROUPS)):
        still = omega.clone()
        still[group * eight : (group + 1) * eight] = 0.0
        angles = torch.arange(texts.shape[1]).double()[:, None] * still
        loss.append(float(read(turned_by(model, texts, angles), texts)[0].double().mean()))
    with capture(model, "blocks.*.attention.queries", "blocks.*.attention.keys") as seen:
        whole = begin(texts).states[-1]
    use, curve = [], []
    for queries, keys in by_block(seen):
        length = queries.square().sum(-1).sqrt().mean((0, 2)) * keys.square().sum(-1).sqrt().mean(
            (0, 2)
        )
        shares = length / length.sum(-1, keepdim=True)
        use.append(shares.unflatten(-1, (len(GROUPS), eight)).sum(-1).mean(0))
        curve.append(over_distance(queries, keys, omega))
    scores = torch.stack(curve).mean((0, 1))
    ends = [scores[: one + 1].sum() for one in range(len(scores))]
    near = ends[15] / 16
    distant = (ends[1023] - ends[511]) / 512
    spans = [(ends[2 * one - 2] - (ends[one - 2] if one > 1 else 0.0)) / one for one in SPANS]
    return {
        "loss": ("group", loss),
        "whole": float(read(whole, texts)[0].double().mean()),
        "use": ("group", torch.stack(use).mean(0)),
        "curve": ("distance", torch.stack(spans)),
        "decay": float(near - distant),
    }


def by_block(seen: dict[str, Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Queries and keys of each block before they are turned: (text, head, position, pair, 2).

    The first token is left out; keys stand there once for each head that asks them.
    """
    rotary = smollm2().rotary
    assert rotary is not None
    for block in range(len(BLOCKS)):
        queries, keys = (
            seen[f"blocks.{block}.attention.{name}"][:, :, 1:].double()
            for name in ("queries", "keys")
        )
        keys = keys.repeat_interleave(queries.shape[1] // keys.shape[1], 1)
        if rotary.pairing == "halves":
            yield torch.stack(queries.chunk(2, -1), -1), torch.stack(keys.chunk(2, -1), -1)
        else:
            yield queries.unflatten(-1, (-1, 2)), keys.unflatten(-1, (-1, 2))


def over_distance(
    queries: Float[Tensor, "text head position pair 2"],
    keys: Float[Tensor, "text head position pair 2"],
    omega: Float[Tensor, "pair"],
) -> Float[Tensor, "head distance"]:
    """The mean score of a query of one text and a key of the other, at distances from 1 on.

    In standard deviations of such scores at distance 64, and less their mean there. A score is linear in the
    query and in the key, so that the mean over all pairs is the score of the means.
    """
    asked, keyed = (torch.view_as_complex(x.contiguous()) for x in (queries, keys.flip(0)))
    reach = 2 * SPANS[-1] - 1
    turns = torch.arange(1, reach + 1).double()[:, None] * omega
    mean = (asked.mean(2) * keyed.mean(2).conj()).mean(0)  # head, pair
    scores = torch.einsum("hp,dp->hd", mean, torch.polar(torch.ones_like(turns), turns)).real
    there = torch.einsum(
        "thqp,thkp->thqk", asked * torch.polar(torch.ones_like(omega), 64 * omega), keyed.conj()
    ).real
    spread = there.transpose(0, 1).flatten(1).std(1, keepdim=True)
    return (scores - scores[:, 63:64]) / spread
