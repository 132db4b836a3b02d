"""Self-repair: what becomes of an attention's part of the right logit when its write is silenced."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from measured_transformer.internals.capture import capture
from measured_transformer.parts.norms import RMSNorm
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.rooms.thirty_blocks.passages import BLOCKS, LATER, by_variant, passages
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.sweeps import begin
from measured_book.smollm2.texts import DATA

OTHERS = 8
"""Other texts, over which the mean is taken that a write is replaced by."""


@measurement(seeds=10, coords={"block": BLOCKS}, pretrained=NEEDS, data=DATA)
@torch.no_grad()
def repair(seed: int) -> dict[str, Any]:
    """What the right logit loses when an attention is silenced: directly, by later sublayers, by the norm.

    The change of the right token's logit, less the mean logit, is *direct* + *later* + *norm*: that of the
    write's own part and of all later parts at the whole model's divisor, and what the new divisor adds.
    """
    texts, others = passages(seed, 48, 4, OTHERS)
    sweep = begin(texts)
    name = "blocks.*.attention.out"
    with capture(smollm2(), name) as here:
        begin(texts)
    with capture(smollm2(), name) as there:
        begin(others)
    toward = directions(texts)
    whole = sweep.states[-1][:, LATER:-1]
    scale = divisor(whole)
    direct, stack = [], sweep.states[0][:0]
    for block in range(sweep.blocks):
        if len(stack):
            stack = sweep.run(block, stack)
        tap = f"blocks.{block}.attention.out"
        change = there[tap].mean(0, keepdim=True) - here[tap]
        direct.append((change[:, LATER:-1] * toward).sum(-1) / scale)
        ahead: Any = smollm2().blocks[block]
        middle = sweep.states[block] + there[tap].mean(0, keepdim=True)
        stack = torch.cat([stack, middle + ahead.feedforward(ahead.feedforward_norm(middle))])
    silenced = stack[:, LATER:-1].unflatten(0, (-1, len(texts)))
    own = torch.stack(direct)
    at_frozen = ((silenced - whole) * toward).sum(-1) / scale
    total = (silenced * toward).sum(-1) / divisor(silenced) - (whole * toward).sum(-1) / scale
    parts = {"direct": own, "later": at_frozen - own, "norm": total - at_frozen, "total": total}
    return {
        key: ("block", by_variant(value.flatten(0, 1), len(texts))) for key, value in parts.items()
    }


def directions(texts: Tensor) -> Float[Tensor, "text target d_model"]:
    """What a state is multiplied by for the right token's logit less the mean logit, before the division."""
    model = smollm2()
    norm, unembedding = model.final_norm, model.unembedding
    assert isinstance(norm, RMSNorm)
    assert unembedding is not None
    rows = unembedding.weight[texts[:, LATER + 1 :]] - unembedding.weight.mean(0)
    return rows * norm.weight


def divisor(state: Float[Tensor, "*row d_model"]) -> Float[Tensor, "*row"]:
    """What the final norm divides a state by."""
    norm = smollm2().final_norm
    assert isinstance(norm, RMSNorm)
    return (state.square().mean(-1) + norm.eps).sqrt()
