"""Repeats: what is lost from round to round, which heads match and copy, and how two of them fit."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.circuits import composition, copying_score, head_circuits
from measured_transformer.models.decoder import Decoder
from measured_transformer.training.seeding import make_generator
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.rooms.carry_over.drawn import (
    ARMS,
    BLOCKS,
    HEADS,
    gains,
    model_of,
    patterns_of,
    texts,
    unembedding,
)
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.sweeps import token_losses
from measured_book.smollm2.texts import DATA, repeated_strings

STRINGS, PERIOD, ROUNDS = 4, 12, 4
MATCHING = 0.3
"""Prefix-matching score from which a head counts as an induction head."""
OTHERS = 60
"""Random pairs of heads and ways to compose."""


@measurement(
    seeds=10,
    coords={
        "text": ("strings", "text"),
        "round": tuple(range(1, ROUNDS + 1)),
        "arm": ARMS,
        "heads": ("induction", "others"),
        "pair": ("own", "others"),
        "block": BLOCKS,
        "head": HEADS,
    },
    tolerance={"rounds": 0.05, "copying": 0.02, "composed": 0.01},
    pretrained=NEEDS,
    data=DATA,
)
@torch.no_grad()
def repeats(seed: int) -> dict[str, Any]:
    """The loss of strings and texts that come four times, and the circuits of the heads that match."""
    model = smollm2().model
    strings = repeated_strings(seed, STRINGS, PERIOD, ROUNDS)
    pieces = texts(seed, STRINGS // 2, PERIOD).repeat(1, ROUNDS)
    rounds = []
    for tokens in (strings, pieces):
        losses = token_losses(model, model.stream(tokens), tokens).double()
        rounds.append([float(one[:, -(PERIOD - 1) :].mean()) for one in by_round(losses)])
    scores = matched(model, strings)
    prefix, previous = scores
    induction = prefix >= MATCHING
    if not bool(induction.any()):  # then the strongest stands for all
        induction = prefix == prefix.max()
    copying = torch.stack([copies(arm) for arm in ARMS])
    own, others = composed(model, prefix, previous, seed)
    return {
        "rounds": (("text", "round"), rounds),
        "prefix": (("block", "head"), prefix.numpy()),
        "previous": (("block", "head"), previous.numpy()),
        "number": float(induction.sum()),
        "copying": (
            ("arm", "heads"),
            [[float(one[induction].mean()), float(one[~induction].mean())] for one in copying],
        ),
        "composed": (("pair",), [own, others]),
    }


def by_round(losses: Float[Tensor, "text target"]) -> list[Float[Tensor, "text target"]]:
    """Losses of each round; the first token of the first one is never asked for."""
    ends = [PERIOD * (i + 1) - 1 for i in range(ROUNDS)]
    return [losses[:, max(0, end - PERIOD) : end] for end in ends]


def matched(
    model: Decoder, tokens: Int[Tensor, "text position"]
) -> tuple[Float[Tensor, "block head"], Float[Tensor, "block head"]]:
    """Each head's weight right behind earlier copies of the query's token, and on the token before the query.

    Over queries from the second round on, and over all but the first.
    """
    n = tokens.shape[1]
    place = torch.arange(n)
    distance = place[:, None] + 1 - place
    behind = (distance > 1) & (distance % PERIOD == 0) & (place > 0)
    prefix, previous = [], []
    for pattern in patterns_of(model, tokens):
        prefix.append((pattern * behind)[:, :, PERIOD:].sum(-1).mean((0, -1)))
        previous.append(pattern.diagonal(-1, dim1=-2, dim2=-1).mean((0, -1)))
    return torch.stack(prefix), torch.stack(previous)


@cache
@torch.no_grad()
def copies(arm: str) -> Float[Tensor, "block head"]:
    """The copying score of each head: of its circuit from tokens to logits, with the gains of the norms."""
    model = model_of(arm)
    table = model.token_embedding.weight.double()
    through = (unembedding(model).double() * gains(model)).T @ table
    found = []
    for i in range(len(model.blocks)):
        row = []
        for head in range(model.config.n_heads):
            form = head_circuits(model, i, head, offset=1)[1].form
            inner = form.right.double() @ through @ form.left.double()
            row.append(copying_score(torch.linalg.eigvals(inner)))
        found.append(row)
    return torch.tensor(found, dtype=torch.float64)


def composed(
    model: Decoder,
    prefix: Float[Tensor, "block head"],
    previous: Float[Tensor, "block head"],
    seed: int,
) -> tuple[float, float]:
    """How well the strongest previous-token head fits the keys of the strongest induction head, and others fit.

    The other pairs are drawn at random, and so is whether queries, keys or values read. Queries and keys are
    those of offset 0, where rotary angles cancel.
    """
    later, head = divmod(int(prefix.flatten().argmax()), prefix.shape[1])
    early = previous[: max(later, 1)]
    source = divmod(int(early.flatten().argmax()), previous.shape[1])
    own = fit(model, source, (later, head), "k")
    draws = make_generator(seed, "pairs of heads")
    others: list[float] = []
    while len(others) < OTHERS:
        one, other = sorted(torch.randint(len(prefix), (2,), generator=draws).tolist())
        if one == other:
            continue
        heads = torch.randint(prefix.shape[1], (2,), generator=draws).tolist()
        way = "qkv"[int(torch.randint(3, (), generator=draws))]
        others.append(fit(model, (one, heads[0]), (other, heads[1]), way))
    return own, sum(others) / len(others)


def fit(model: Decoder, earlier: tuple[int, int], later: tuple[int, int], by: str) -> float:
    """The composition score of what one head writes with what another reads."""
    writes = head_circuits(model, *earlier, offset=0)[1].form
    qk, ov = head_circuits(model, *later, offset=0)
    reads = {"q": qk.form, "k": qk.form.T, "v": ov.form}[by]
    return composition(writes, reads)
