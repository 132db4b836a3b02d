"""What the chapter *What carries over* measures: where heads look, and where parameters lie.

The other themes stand in modules beside this one. A seed draws texts and prompts; the model is always the same.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.bench import parameter_map
from measured_transformer.internals.capture import capture
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.attention import MultiHeadAttention
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.rooms.carry_over.attributing import attributing
from measured_book.rooms.carry_over.drawn import (
    ARMS,
    BLOCKS,
    HEADS,
    Patterns,
    model_of,
    patterns_of,
    texts,
)
from measured_book.rooms.carry_over.heads import heads, orders
from measured_book.rooms.carry_over.lenses import lenses
from measured_book.rooms.carry_over.neurons import neurons
from measured_book.rooms.carry_over.prompted import probing, tracing, writing
from measured_book.rooms.carry_over.repeats import repeats
from measured_book.rooms.carry_over.stream import stream
from measured_book.rooms.carry_over.sublayers import sublayers
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.texts import DATA

__all__ = [
    "attributing",
    "counted",
    "heads",
    "lenses",
    "looking",
    "neurons",
    "orders",
    "probing",
    "repeats",
    "stream",
    "sublayers",
    "tracing",
    "writing",
]

# Where parameters lie -----------------------------------------------------------------------------

LENGTHS = {"equal": 1, "four": 4}
"""Tokens, as multiples of the width, at which the operations of a block are counted."""


@measurement(seeds=1, coords={"tokens": tuple(LENGTHS)}, pretrained=NEEDS)
def counted(seed: int) -> dict[str, Any]:
    """Parameters by part, and the share of the network in the operations of a block."""
    model = smollm2().model
    parts, config = parameter_map(model), model.config
    network, attention = parts["feed-forward"], parts["attention"]
    weights = (network / config.n_layers, attention / config.n_layers)  # multiplied with each token
    work = []
    for times in LENGTHS.values():
        n = times * config.d_model
        pairs = 2 * n * n * config.n_heads * config.head_width  # scores and mixing
        work.append(n * weights[0] / (n * sum(weights) + pairs))
    return {
        "wider": config.neurons / config.d_model,
        "share": network / sum(parts.values()),
        "ratio": network / attention,
        "of_blocks": network / (network + attention),
        "work": ("tokens", work),
    }


# Where heads look ---------------------------------------------------------------------------------

READ, LENGTH = 2, 48
"""Texts of each kind, and their length."""
ROWS = slice(9, None, 9)
"""Queries at which all heads are compared with one another."""


@measurement(
    seeds=10,
    coords={"arm": ARMS, "block": BLOCKS, "head": HEADS},
    tolerance={"best_previous": 0.02, "best_boundary": 0.02, "length": 0.01},
    pretrained=NEEDS,
    data=DATA,
)
@torch.no_grad()
def looking(seed: int) -> dict[str, Any]:
    """Where each head looks, before and after training, and how heads differ."""
    tokens = texts(seed, READ, LENGTH)
    found: dict[str, list[Any]] = {}
    for arm in ARMS:
        patterns, values = looked(model_of(arm), tokens)
        by_block = [statistics(pattern) for pattern in patterns]
        for name in by_block[0]:
            found.setdefault(name, []).append(torch.stack([one[name] for one in by_block]).numpy())
        rows = torch.cat(patterns, 1)[:, :, ROWS]
        found.setdefault("between_most", []).append(largest_divergence(rows))
        itself = divergence(rows, rows.roll(1, 0)).mean(0)
        found.setdefault("itself_most", []).append(float(itself.max()))
        if arm == "trained":
            best = [chosen_apart(patterns, tokens, what) for what in ("previous", "boundary")]
            length, part = handed_over(model_of(arm), patterns, values)
    axes: dict[str, tuple[str, ...]] = {
        **dict.fromkeys(("between", "itself"), ("arm", "block")),
        **dict.fromkeys(("between_most", "itself_most"), ("arm",)),
    }
    return {
        **{name: (axes.get(name, ("arm", "block", "head")), one) for name, one in found.items()},
        "length": (("block", "head"), length.numpy()),
        "part": (("block", "head"), part.numpy()),
        "best_previous": best[0],
        "best_boundary": best[1],
        "even": float(torch.arange(1, LENGTH).double().mean() / 2),
    }


def statistics(pattern: Patterns) -> dict[str, Tensor]:
    r"""What one block's heads do, as means over texts and all queries but the first.

    - distance: $\sum_k A_{qk} (q - k)$; within: the same over all keys but the first, scaled to sum to one;
    - adjacent, own, first: weight on the token before, on the query's own, on the first;
    - entropy: over the logarithm of the number of keys; apart_entropy: without the first key, from the third
      query on; effective: exponential of the entropy; gini: see `analysis.layers.gini`;
    - by_place: share of the variance about even attention that the mean over texts has;
    - between: divergence of two heads, mean over pairs; itself: of a head from itself on the next text.
    """
    n = pattern.shape[-1]
    place = torch.arange(n, dtype=torch.float64)
    back = place[:, None] - place
    rows = pattern[..., 1:, :]
    ordinary = pattern[..., 2:, 1:]
    ordinary = ordinary / ordinary.sum(-1, keepdim=True).clamp_min(1e-12)
    nats = torch.special.entr(rows).sum(-1)
    inner = torch.special.entr(ordinary).sum(-1) / place[2:].log().clamp_min(math.log(2))
    pairs = torch.triu_indices(pattern.shape[1], pattern.shape[1], offset=1)
    even = torch.ones(n, n, dtype=torch.float64).tril()
    centred = pattern - even / even.sum(-1, keepdim=True)
    whole = centred.square().mean(0).sum((-2, -1))
    means = {
        "distance": (rows * back[1:]).sum(-1),
        "within": (ordinary * back[2:, 1:]).sum(-1),
        "adjacent": pattern.diagonal(-1, dim1=-2, dim2=-1),
        "own": pattern.diagonal(dim1=-2, dim2=-1)[..., 1:],
        "first": rows[..., 0],
        "entropy": nats / (place[1:] + 1).log(),
        "apart_entropy": inner,
        "effective": nats.exp(),
        "gini": unevenness(pattern),
    }
    return {
        **{name: values.mean((0, -1)) for name, values in means.items()},
        "by_place": centred.mean(0).square().sum((-2, -1)) / whole.clamp_min(1e-300),
        "between": divergence(rows[:, pairs[0]], rows[:, pairs[1]]).mean(),
        "itself": divergence(rows, rows.roll(1, 0)).mean(),
    }


def unevenness(pattern: Patterns) -> Float[Tensor, "text head later"]:
    """The Gini coefficient of each row's weights over the keys that it may see, all rows but the first."""
    n = pattern.shape[-1]
    rising = pattern.sort(dim=-1).values
    seen = torch.arange(1, n + 1, dtype=torch.float64)[:, None]
    rank = torch.arange(1, n + 1) - (n - seen)
    weight = torch.where(rank > 0, 2 * rank - seen - 1, 0.0)
    return (weight * rising).sum(-1)[..., 1:] / (seen[1:, 0] - 1)


def divergence(
    first: Float[Tensor, "*head query key"], second: Float[Tensor, "*head query key"]
) -> Float[Tensor, "*head"]:
    """Jensen-Shannon divergence of two patterns, mean over the queries, in units of its largest value.

    >>> one = torch.eye(2)
    >>> divergence(one, one).item(), divergence(one, one.flip(0)).item()
    (0.0, 1.0)
    """
    middle = torch.special.entr((first + second) / 2)
    apart = middle - (torch.special.entr(first) + torch.special.entr(second)) / 2
    return (apart.sum(-1).mean(-1) / math.log(2)).clamp(0, 1)


def largest_divergence(rows: Patterns) -> float:
    """The largest divergence of any two heads of the model, mean over texts."""
    rows = rows.float()
    nats = torch.special.entr(rows).sum(-1)  # (text, head, query)
    largest = 0.0
    for i in range(rows.shape[1] - 1):
        middle = torch.special.entr((rows[:, i : i + 1] + rows[:, i + 1 :]) / 2).sum(-1)
        apart = middle - (nats[:, i : i + 1] + nats[:, i + 1 :]) / 2
        largest = max(largest, float(apart.mean((0, -1)).max()))
    return largest / math.log(2)


def chosen_apart(
    patterns: list[Patterns], tokens: Int[Tensor, "text position"], what: str
) -> float:
    """The weight of the head with most of it: chosen on the first half of the texts, measured on the rest."""
    if what == "previous":
        weights = [one.diagonal(-1, dim1=-2, dim2=-1).mean(-1) for one in patterns]
    else:
        tokenizer = smollm2().tokenizer
        stops = [t for t in tokens.unique().tolist() if tokenizer.string(t).strip() == "."]
        meant = torch.isin(tokens, torch.tensor(stops, dtype=tokens.dtype))
        meant[:, 0] = True
        weights = [(one[..., 1:, :] * meant[:, None, None]).sum(-1).mean(-1) for one in patterns]
    both = torch.stack(weights, 1).flatten(2).flatten(1)  # text, head of the model
    half = len(tokens) // 2
    return float(both[half:].mean(0)[int(both[:half].mean(0).argmax())])


def looked(
    model: Decoder, tokens: Int[Tensor, "text position"]
) -> tuple[list[Patterns], list[Tensor]]:
    """The patterns of each block, in double precision, and the values."""
    with capture(model, "blocks.*.attention.values") as seen:
        patterns = patterns_of(model, tokens)
    return patterns, [seen[f"blocks.{i}.attention.values"] for i in range(len(patterns))]


def handed_over(
    model: Decoder, patterns: list[Patterns], values: list[Tensor]
) -> tuple[Float[Tensor, "block head"], Float[Tensor, "block head"]]:
    """What the first token hands over: its length over an ordinary token's, and its share of what arrives.

    Lengths are those of a head's value after its part of the output projection (Kobayashi et al., 2020).
    """
    lengths, parts = [], []
    for block, pattern, value in zip(model.blocks, patterns, values, strict=True):
        attention = block.attention
        assert isinstance(attention, MultiHeadAttention)
        shared = value.repeat_interleave(attention.n_heads // attention.n_kv_heads, dim=1)
        by_head = attention.output.weight.unflatten(1, (attention.n_heads, attention.d_head))
        gram = torch.einsum("dhe,dhf->hef", by_head, by_head)
        squared = torch.einsum("bhke,hef,bhkf->bhk", shared, gram, shared)
        length = squared.clamp_min(0).sqrt().double()
        weighed = pattern * length[:, :, None]
        share = weighed[..., 1:, 0] / weighed[..., 1:, :].sum(-1)
        lengths.append(length[..., 0].mean(0) / length[..., 1:].mean((0, -1)))
        parts.append(share.mean((0, -1)))
    return torch.stack(lengths), torch.stack(parts)
