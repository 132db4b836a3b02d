"""What can be read off the stream early: by the unembedding, through an affine map, and who takes it back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.internals.capture import capture
from torch import Tensor
from torch.nn import functional as F

from measured_book.measuring import measurement
from measured_book.rooms.carry_over.drawn import STATES, gains, texts, unembedding
from measured_book.smollm2.model import NEEDS
from measured_book.smollm2.sweeps import Sweep, begin
from measured_book.smollm2.texts import DATA

READ, LENGTH = 2, 16
"""Texts of each kind that are judged, and their length; half of either kind chooses."""
FITTED, LONG = 4, 64
"""Texts of each kind that the affine maps are fitted on, and their length."""
DEPTHS = (5, 10, 15, 20, 25, 29)
"""Blocks behind which the affine map is compared with the unembedding alone."""
SAMPLES = ("chosen on", "measured on")
LENSES = ("logit", "tuned")
PENALTY = 0.01
"""Of the least squares, over the mean variance of an entry."""
UPPER = range(15, 30)
"""Blocks, from 0, whose heads are asked for suppression."""


@measurement(
    seeds=10,
    coords={"sample": SAMPLES, "state": STATES, "lens": LENSES, "depth": DEPTHS},
    tolerance={"read": 0.05, "decided": 0.05, "divergence": 0.1, "bias": 0.1, "aim": 0.2},
    pretrained=NEEDS,
    data=DATA,
)
@torch.no_grad()
def lenses(seed: int) -> dict[str, Any]:
    """The loss read off the stream at each depth, by two lenses, and the head that takes most of it back."""
    sweep = begin(texts(seed, READ, LENGTH))
    fitted = begin(texts(seed + 5, FITTED, LONG))
    final = sweep.model.unembed(sweep.states[-1])[:, :-1]
    named, answers = final.argmax(-1)[:, 1:], sweep.tokens[:, 1:].flatten()
    lost, decided = [], []
    for state in sweep.states:
        logits = sweep.model.unembed(state[:, :-1])
        lost.append(F.cross_entropy(logits.flatten(0, 1), answers, reduction="none"))
        decided.append(float((logits.argmax(-1)[:, 1:] == named).double().mean()))
    losses = torch.stack(lost).double().view(len(lost), len(sweep.tokens), -1)
    halves = torch.arange(len(sweep.tokens)) % 2  # one text of each kind in either half
    read = torch.stack([losses[:, halves == i].mean((1, 2)) for i in range(2)])
    chosen = int(read[0].diff().argmax())
    told = final[:, 1:].log_softmax(-1).flatten(0, 1)
    gaps: dict[str, list[tuple[float, float]]] = {lens: [] for lens in LENSES}
    for depth in DEPTHS:
        mapped = least_squares(fitted.states[depth], fitted.states[-1], sweep.states[depth])
        for lens, state in zip(LENSES, (sweep.states[depth], mapped), strict=True):
            logits = sweep.model.unembed(state[:, 1:-1]).flatten(0, 1).log_softmax(-1)
            gaps[lens].append(divergences(told, logits))
    both = np.array([gaps[lens] for lens in LENSES])  # lens, depth, which
    lowered, aim = suppression(sweep, halves)
    return {
        "read": (("sample", "state"), read.numpy()),
        "rises": float(read[1].diff()[chosen]),
        "decided": (("state",), decided),
        "divergence": (("lens", "depth"), both[..., 0]),
        "bias": (("lens", "depth"), both[..., 1]),
        "suppressed": lowered,
        "aim": aim,
    }


def least_squares(
    states: Float[Tensor, "text position d_model"],
    wanted: Float[Tensor, "text position d_model"],
    read: Float[Tensor, "other place d_model"],
) -> Float[Tensor, "other place d_model"]:
    """States mapped by the affine map that brings other states nearest to what is wanted; first tokens aside.

    Args:
        states, wanted: what the map is fitted on.
        read: what is mapped; its first tokens stay as they are.
    """
    x, y = (each[:, 1:].flatten(0, 1).double() for each in (states, wanted))
    centre, target = x.mean(0), y.mean(0)
    x, y = x - centre, y - target
    ridge = PENALTY * x.square().mean() * len(x)
    moments = x.T @ x + ridge * torch.eye(x.shape[1], dtype=torch.float64)
    weight = torch.linalg.solve(moments, x.T @ y)
    mapped = (read.double() - centre) @ weight + target
    return torch.cat((read[:, :1], mapped[:, 1:].to(read)), 1)


def divergences(
    told: Float[Tensor, "place vocab"], read: Float[Tensor, "place vocab"]
) -> tuple[float, float]:
    """Kullback-Leibler divergence of what is read from what is told: mean, and that of the mean predictions."""
    each = F.kl_div(read, told, reduction="batchmean", log_target=True)
    means = [one.double().exp().mean(0) for one in (told, read)]
    mean = (means[0] * (means[0].log() - means[1].log())).sum()
    return float(each.double()), float(mean)


def suppression(sweep: Sweep, halves: Int[Tensor, "text"]) -> tuple[float, float]:
    """What the head that lowers expected copies most does: to their logits, and its weight on them.

    At every position from the fourth on, and before every block of the upper half, the token of the context
    is taken to which the unembedding gives the largest logit. A head's effect is what it adds to that token's
    logit above the mean logit, at the final divisor; its aim the weight on that token's places over the weight
    that even attention has there. The head is chosen on one half of the texts and measured on the other.
    """
    model, tokens = sweep.model, sweep.tokens
    n = tokens.shape[1]
    rows = unembedding(model)[tokens] - unembedding(model).mean(0)
    rows = rows * gains(model)  # (text, token of the context, d_model)
    last = sweep.states[-1]
    divisor = (last.square().mean(-1) + model.config.norm_eps).sqrt()
    past = torch.ones(n, n, dtype=torch.bool).tril()
    asked = torch.arange(n) >= 3
    effects, aims = [], []
    for block in UPPER:
        names = [f"blocks.{block}.attention.{what}" for what in ("head_outputs", "pattern")]
        with capture(model, *names) as seen:
            sweep.onward(block, until=block + 1)
        expected = torch.einsum("tqd,tkd->tqk", sweep.states[block], rows)
        best = expected.masked_fill(~past, -torch.inf).argmax(-1)  # (text, query)
        toward = rows.gather(1, best[..., None].expand(*best.shape, rows.shape[-1]))
        added = torch.einsum("thqd,tqd->thq", seen[names[0]], toward) / divisor[:, None]
        chosen = tokens.gather(1, best)
        places = (tokens[:, None, :] == chosen[..., None]) & past
        weight = (seen[names[1]] * places[:, None]).sum(-1)
        even = places.sum(-1) / past.sum(-1)
        effects.append(added[..., asked].double().mean(-1))
        aims.append((weight / even[:, None])[..., asked].double().mean(-1))
    lowered, aim = (torch.stack(one, 1).flatten(1) for one in (effects, aims))  # (text, head)
    head = int(lowered[halves == 0].mean(0).argmin())
    return float(lowered[halves == 1, head].mean()), float(aim[halves == 1, head].mean())
