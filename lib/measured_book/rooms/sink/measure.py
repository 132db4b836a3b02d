"""What the chapter *The attention sink of a language model* measures on SmolLM2-135M-Instruct.

A seed is a draw of texts: half of them from the reference of the Python language, half from this book. Every
text begins in the middle of a sentence. Queries and targets count from the ninth position on, so that none of
them is near the first token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.internals.capture import capture
from measured_transformer.models.decoder import Decoder
from measured_transformer.training.seeding import make_generator
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.rooms.sink.passes import (
    Biases,
    alone,
    embedded,
    forbidding,
    from_block,
    loss,
    onward,
    renumbered,
    silent,
    states,
    windowed,
)
from measured_book.smollm2 import controls
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.texts import DATA, KINDS, draw

BLOCKS, HEADS = tuple(range(1, 31)), tuple(range(1, 10))
STATES = tuple(range(31))
TEXTS, LENGTH = 4, 64
SINCE = 8
"""Queries and targets from this position on, from 0."""

# What the texts are ---------------------------------------------------------------------------------

STARTS = ("text", "turn", "comma", "newline", "the", "drawn")
FIRST = {"turn": "<|im_start|>", "comma": ",", "newline": "\n", "the": " the"}


def texts(
    seed: int, *, count: int = TEXTS, length: int = LENGTH, other: bool = False
) -> Int[Tensor, "text position"]:
    """Texts of a draw, as many from each of the two sources; `other` ones have no token in common with them."""
    each = count // len(KINDS)
    rows = slice(each, None) if other else slice(each)
    drawn = [draw(seed, kind, 2 * each, length, begin="middle")[rows] for kind in KINDS]
    return torch.cat(drawn)


def begun(
    tokens: Int[Tensor, "text position"], start: str, seed: int
) -> Int[Tensor, "text position"]:
    """The texts with another first token: one of `STARTS`."""
    if start == "text":
        return tokens
    changed = tokens.clone()
    if start == "drawn":
        chance = make_generator(seed, "first token")
        changed[:, 0] = torch.randint(
            1000, smollm2().config.vocab, (len(tokens),), generator=chance
        )
    else:
        (changed[:, 0],) = smollm2().tokenizer.encode(FIRST[start], special=False)
    return changed


# Where attention goes, and what it fetches ------------------------------------------------------------

MIDDLE, BEHIND = 32, 40
"""The position that is made to see only itself, and the first query that is asked about it, from 0."""
SEES = ("all", "itself")


def to_first(
    model: Decoder, tokens: Int[Tensor, "text position"]
) -> Float[np.ndarray, "block head"]:
    """The weight on the first token, mean over texts and queries."""
    with capture(model, "blocks.*.attention.pattern") as cache:
        model(tokens)
    found = [
        cache[f"blocks.{i}.attention.pattern"][:, :, SINCE:, 0].mean((0, 2))
        for i in range(len(BLOCKS))
    ]
    return torch.stack(found).numpy()


def fetched(
    model: Decoder, tokens: Int[Tensor, "text position"]
) -> tuple[Float[np.ndarray, "block head"], Float[np.ndarray, "block head"]]:
    """Length of the vector that a head gets from the first token, and its share of all that it gets.

    The first is divided by the mean length of the vectors of the ordinary tokens, those from `SINCE` on; the
    second is the share of the lengths of all vectors, each times its weight, mean over queries.
    """
    with capture(model, "blocks.*.attention.pattern", "blocks.*.attention.values") as cache:
        model(tokens)
    ratio, share = [], []
    for i, block in enumerate(model.blocks):
        attention: Any = block.attention
        group = attention.n_heads // attention.n_kv_heads
        values = cache[f"blocks.{i}.attention.values"].repeat_interleave(group, dim=1)
        out = attention.output.weight.unflatten(1, (attention.n_heads, attention.d_head))
        lengths = torch.einsum("thke,dhe->thkd", values, out).norm(dim=-1)
        ratio.append((lengths[:, :, 0] / lengths[:, :, SINCE:].mean(-1)).mean(0))
        weighted = cache[f"blocks.{i}.attention.pattern"][:, :, SINCE:] * lengths[:, :, None]
        share.append((weighted[..., 0] / weighted.sum(-1)).mean((0, 2)))
    return torch.stack(ratio).numpy(), torch.stack(share).numpy()


def to_middle(
    model: Decoder, tokens: Int[Tensor, "text position"], biases: Biases
) -> Float[np.ndarray, "2 block"]:
    """The weight on the middle token and on the first one by queries behind both, mean over heads."""
    with capture(model, "blocks.*.attention.pattern") as cache:
        onward(model, embedded(model, tokens), biases=biases)
    found = [
        cache[f"blocks.{i}.attention.pattern"][:, :, BEHIND:, [MIDDLE, 0]].mean((0, 1, 2))
        for i in range(len(BLOCKS))
    ]
    return torch.stack(found, 1).numpy()


@measurement(
    seeds=10,
    coords={"start": STARTS, "sees": SEES, "block": BLOCKS, "head": HEADS},
    tolerance={
        "weight": 0.02,
        "control": 0.02,
        "length": 0.02,
        "part": 0.02,
        "middle": 0.02,
        "beside": 0.02,
    },
    data=DATA,
    pretrained=NEEDS,
)
@torch.no_grad()
def looking(seed: int) -> dict[str, Any]:
    """Weight on the first token, whatever it is; what heads fetch there; a token that sees only itself.

    ``same``: how far the state of that token is, before block 6 and relative to its length, from the state of
    the same token at the first position (``itself``), and how far the state of an undisturbed one is (``all``).
    """
    model, tokens = smollm2(), texts(seed)
    length, part = fetched(model, tokens)
    mask = alone(MIDDLE, LENGTH)
    seen: dict[str, Biases] = {"all": from_block(mask, len(BLOCKS)), "itself": from_block(mask, 0)}
    middle = {sees: to_middle(model, tokens, biases) for sees, biases in seen.items()}
    fronted = states(model, tokens[:, MIDDLE : MIDDLE + 1])[5, :, 0]
    distance = {}
    for sees, biases in seen.items():
        state = states(model, tokens, biases=biases)[5, :, MIDDLE]
        distance[sees] = float(((state - fronted).norm(dim=-1) / fronted.norm(dim=-1)).max())
    axes = ("block", "head")
    return {
        "weight": (
            ("start", *axes),
            np.stack([to_first(model, begun(tokens, start, seed)) for start in STARTS]),
        ),
        "control": (axes, to_first(controls.smollm2_of_same_spectrum(0), tokens)),
        "length": (axes, length),
        "part": (axes, part),
        "middle": (("sees", "block"), np.stack([middle[sees][0] for sees in SEES])),
        "beside": (("sees", "block"), np.stack([middle[sees][1] for sees in SEES])),
        "same": ("sees", [distance[sees] for sees in SEES]),
    }


# Forbidding a key ------------------------------------------------------------------------------------

ONWARD = (1, 2, 3, 4, 6, 8, 11, 16, 21, 26, 30)
KEYS = ("first", "fifth")


@measurement(
    seeds=10,
    coords={"key": KEYS, "onward": ONWARD},
    tolerance={"loss": 0.02, "plain": 0.02},
    data=DATA,
    pretrained=NEEDS,
)
@torch.no_grad()
def forbidden(seed: int) -> dict[str, Any]:
    """The loss when no later token sees the first key, or the fifth, from a block on."""
    model, tokens = smollm2(), texts(seed)
    before = states(model, tokens)

    def after(key: int, block: int) -> float:
        biases = from_block(forbidding(key, LENGTH), block - 1)
        state = onward(model, before[block - 1], start=block - 1, biases=biases)
        return loss(model, state, tokens, since=SINCE)

    losses = [[after(key, block) for block in ONWARD] for key in (0, 4)]
    return {
        "loss": (("key", "onward"), losses),
        "plain": loss(model, before[-1], tokens, since=SINCE),
    }


# The massive entry -----------------------------------------------------------------------------------

TOKENS = ("first", "ordinary")
BY = ("attention", "network")
CHANGES = (
    "largest to zero",
    "largest to its mean",
    "ordinary to zero",
    "ordinary state",
    "mean state",
    "first forbidden",
)
NEXT = 5
"""Entries of an ordinary token that are set to zero."""
ORDINARY = 20
"""The position of the ordinary token whose state is changed, or put in the place of the first one's."""


def writes(
    model: Decoder, tokens: Int[Tensor, "text position"], dimension: int
) -> Float[Tensor, "block by text"]:
    """What each attention and each network adds to one entry of the first token's state."""
    with capture(model, "blocks.*.attention.out", "blocks.*.feedforward.out") as cache:
        model(tokens)
    return torch.stack(
        [
            torch.stack(
                [
                    cache[f"blocks.{i}.{part}.out"][:, 0, dimension]
                    for part in ("attention", "feedforward")
                ]
            )
            for i in range(len(BLOCKS))
        ]
    )


def plateau(sizes: Float[Tensor, "state"]) -> list[int]:
    """The states in which a largest entry exceeds half of its largest size."""
    return torch.nonzero(sizes > sizes.max() / 2).flatten().tolist()


def likeness(
    model: Decoder,
    of_starts: Float[Tensor, "start state text position d_model"],
    between: list[int],
) -> tuple[float, float]:
    """Cosine between what attention reads for two first tokens; and for two ordinary positions of a text."""
    first, ordinary = [], []
    for state in between:
        if state == len(model.blocks):
            continue
        norm: Any = model.blocks[state].attention_norm
        first.append(_mean_cosine(norm(of_starts[:, state, :, 0])))
        some = norm(of_starts[0, state, :, SINCE::8])
        ordinary.append(_mean_cosine(some.transpose(0, 1)))
    return float(np.mean(first)), float(np.mean(ordinary))


def _mean_cosine(vectors: Float[Tensor, "one text d_model"]) -> float:
    """The mean cosine between two different vectors of a text."""
    unit = vectors / vectors.norm(dim=-1, keepdim=True)
    count = len(unit)
    total = unit.sum(0).square().sum(-1)  # all pairs, each with itself included
    return float(((total - count) / (count * (count - 1))).mean())


@measurement(
    seeds=10,
    coords={"token": TOKENS, "state": STATES, "block": BLOCKS, "by": BY, "change": CHANGES},
    tolerance={
        "size": 20.0,
        "ratio": 200.0,
        "written": 0.02,
        "read": 0.02,
        "loss": 0.05,
        "plain": 0.02,
    },
    data=DATA,
    pretrained=NEEDS,
)
@torch.no_grad()
def massive(seed: int) -> dict[str, Any]:
    """The largest entry of the first token's state: its size, who writes it, and what happens without it."""
    model, tokens = smollm2(), texts(seed)
    before = states(model, tokens)
    sizes = before.abs()
    largest = sizes.amax(-1)  # state text position
    ratio = largest / sizes.median(-1).values
    entry = int(sizes[:, :, 0].mean(1).amax(0).argmax())
    top = sizes[:, :, 0, entry].mean(1)
    steady = plateau(top)
    turned = before[int(top.argmax()), :, 0, entry].sign()
    written = (writes(model, tokens, entry) * turned).mean(-1) / top.max()
    starts = torch.stack([states(model, begun(tokens, start, seed)) for start in STARTS])
    first, ordinary = likeness(model, starts, steady)
    others = states(model, texts(seed, other=True))
    same = largest[steady][:, :, 0] == sizes[steady][:, :, 0, entry]
    return {
        "size": (("token", "state"), _two(largest)),
        "ratio": (("token", "state"), _two(ratio)),
        "entry": entry,
        "one_entry": float(same.double().mean()),
        "from_state": steady[0],
        "to_state": steady[-1],
        "written": (("block", "by"), written.numpy()),
        "read": ("token", [first, ordinary]),
        "loss": ("change", _losses_after(model, tokens, before, others, steady[0], entry)),
        "plain": loss(model, before[-1], tokens, since=SINCE),
    }


def _two(values: Float[Tensor, "state text position"]) -> Float[np.ndarray, "token state"]:
    """Of the first token and of the ordinary ones, mean over texts (and positions)."""
    return torch.stack([values[:, :, 0].mean(1), values[:, :, SINCE:].mean((1, 2))]).numpy()


def _losses_after(
    model: Decoder,
    tokens: Int[Tensor, "text position"],
    before: Float[Tensor, "state text position d_model"],
    others: Float[Tensor, "state text position d_model"],
    start: int,
    entry: int,
) -> list[float]:
    """The loss after each of `CHANGES`, made in the stream before block `start` (from 0)."""
    state = before[start]

    def changed(name: str) -> Tensor:
        new = state.clone()
        if name == "largest to zero":
            new[:, 0, entry] = 0
        elif name == "largest to its mean":
            new[:, 0, entry] = others[start, :, 0, entry].mean()
        elif name == "ordinary to zero":
            for row in new[:, ORDINARY]:
                row[row.abs().topk(NEXT).indices] = 0
        elif name == "ordinary state":
            new[:, 0] = state[:, ORDINARY]
        elif name == "mean state":
            new[:, 0] = others[start, :, 0].mean(0)
        return new

    found = []
    for name in CHANGES:
        first = start if name == "first forbidden" else len(BLOCKS)
        biases = from_block(forbidding(0, tokens.shape[1]), first)
        found.append(
            loss(
                model, onward(model, changed(name), start=start, biases=biases), tokens, since=SINCE
            )
        )
    return found


# Windows ---------------------------------------------------------------------------------------------

LONG, WINDOW, TARGETS = 160, 32, 64
ATTENDED = ("all", "window", "one sink", "four sinks", "one sink renumbered")


@measurement(
    seeds=10, coords={"keys": ATTENDED}, tolerance={"loss": 0.02}, data=DATA, pretrained=NEEDS
)
@torch.no_grad()
def windows(seed: int) -> dict[str, Any]:
    """The loss behind the window, by which keys are kept and how their positions are counted."""
    model, tokens = smollm2(), texts(seed, length=LONG)
    start = embedded(model, tokens)
    masks = {
        "window": windowed(WINDOW, 0, LONG),
        "one sink": windowed(WINDOW, 1, LONG),
        "four sinks": windowed(WINDOW, 4, LONG),
    }
    found = {"all": loss(model, onward(model, start), tokens, since=TARGETS)}
    for name, mask in masks.items():
        state = onward(model, start, biases=from_block(mask, 0))
        found[name] = loss(model, state, tokens, since=TARGETS)
    with renumbered(model, WINDOW):
        state = onward(model, start, biases=from_block(masks["one sink"], 0))
    found["one sink renumbered"] = loss(model, state, tokens, since=TARGETS)
    return {"loss": ("keys", [found[name] for name in ATTENDED])}


# Dormant heads ---------------------------------------------------------------------------------------

REMOVED, SETS = 45, 5
GROUPS = ("sinking", "random", "matched")


def lengths_written(
    model: Decoder, tokens: Int[Tensor, "text position"]
) -> Float[Tensor, "block head"]:
    """The mean length of what each head writes, from position `SINCE` on."""
    with capture(model, "blocks.*.attention.mixed") as cache:
        model(tokens)
    found = []
    for i, block in enumerate(model.blocks):
        attention: Any = block.attention
        out = attention.output.weight.unflatten(1, (attention.n_heads, attention.d_head))
        mixed = cache[f"blocks.{i}.attention.mixed"][:, :, SINCE:]
        found.append(torch.einsum("thqe,dhe->thqd", mixed, out).norm(dim=-1).mean((0, 2)))
    return torch.stack(found)


@measurement(
    seeds=10,
    coords={"heads": GROUPS},
    tolerance={"loss": 0.05, "plain": 0.02, "length": 0.1},
    data=DATA,
    pretrained=NEEDS,
)
@torch.no_grad()
def dormant(seed: int) -> dict[str, Any]:
    """The loss without the heads that rest most on the first token, and without others, as quiet or not."""
    model, chosen_on = smollm2(), texts(seed, other=True)
    tokens = texts(seed)
    weights = torch.from_numpy(to_first(model, chosen_on)).flatten()
    lengths = lengths_written(model, chosen_on)
    every = [(block, head) for block in range(len(BLOCKS)) for head in range(len(HEADS))]
    sinking = [every[i] for i in weights.topk(REMOVED).indices.tolist()]
    chance = make_generator(seed, "dormant")
    rest = [head for head in every if head not in set(sinking)]
    random = [
        [rest[i] for i in torch.randperm(len(rest), generator=chance)[:REMOVED].tolist()]
        for _ in range(SETS)
    ]
    matched = controls.matched_heads(lengths, sinking, SETS, seed)
    sets = {"sinking": [sinking], "random": random, "matched": matched}

    def after(heads: list[tuple[int, int]]) -> float:
        with silent(model, heads):
            return loss(model, onward(model, embedded(model, tokens)), tokens, since=SINCE)

    def written(heads: list[tuple[int, int]]) -> float:
        return float(np.mean([float(lengths[head]) for head in heads]))

    def mean_of(what: Callable[[list[tuple[int, int]]], float]) -> list[float]:
        return [float(np.mean([what(one) for one in sets[name]])) for name in GROUPS]

    return {
        "loss": ("heads", mean_of(after)),
        "length": ("heads", mean_of(written)),
        "plain": loss(model, onward(model, embedded(model, tokens)), tokens, since=SINCE),
    }
