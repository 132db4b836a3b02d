"""Steering: a vector that turns one question into another, its price, and when the question arrives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.rooms.fact_on_its_way.facts import COUNTRIES
from measured_book.rooms.fact_on_its_way.passes import Batch, batches_of, candidates, joined, share
from measured_book.rooms.fact_on_its_way.tails import Tail, begin_at
from measured_book.smollm2.controls import directions_of_equal_length
from measured_book.smollm2.model import NEEDS
from measured_book.smollm2.sweeps import begin
from measured_book.smollm2.texts import DATA, KINDS, draw

STATES = tuple(range(0, 30, 3))
"""Blocks, from 0, before which another question comes in."""
BEFORE = 15
"""The block, from 0, before which a vector is added."""
DOSES = (1, 2, 4)
DIRECTIONS = ("relation", "random")
COUNTRIES_STEERED, RANDOM = 6, 3


def pair_of(seed: int, *, judge: bool) -> tuple[list[Batch], list[Batch]]:
    """The same countries asked for their capital and for their language, each in one wording."""
    languages = {
        one.subject: one for one in candidates(seed, "language", judge=judge, tried=len(COUNTRIES))
    }
    capitals = [
        one
        for one in candidates(seed, "capital", judge=judge, tried=len(COUNTRIES))
        if one.subject in languages
    ][:COUNTRIES_STEERED]
    same = [replace(languages[one.subject], wording=one.wording) for one in capitals]
    first = [replace(one, wrong=other.right) for one, other in zip(capitals, same, strict=True)]
    second = [
        replace(other, right=one.right, wrong=other.right)
        for one, other in zip(capitals, same, strict=True)
    ]
    return batches_of(first), batches_of(second)


def relation_vector(seed: int) -> Float[Tensor, "d_model"]:
    """Mean over countries that choose: the last token's state, asked for the language minus the capital."""
    means = []
    for batches in pair_of(seed, judge=False):
        tails = [begin_at(batch.tokens, batch.start) for batch in batches]
        means.append(torch.cat([tail.states[BEFORE][:, -1] for tail in tails]).mean(0))
    capital, language = means
    return language - capital


def steered_in(batch: Batch, tail: Tail, vectors: Float[Tensor, "vector d_model"]) -> Tensor:
    """The logit differences of one batch with each vector added at the last token, (vector, fact)."""
    state = tail.states[BEFORE].repeat(len(vectors), 1, 1)
    state[:, -1] += vectors.repeat_interleave(len(batch.asked), 0)
    return batch.gap(tail.onward(BEFORE, state)).view(len(vectors), -1)


@measurement(
    seeds=10,
    coords={"direction": DIRECTIONS, "dose": DOSES},
    tolerance={"turned": 0.03, "price": 0.05, "length": 1.0},
    data=DATA,
    pretrained=NEEDS,
)
@torch.no_grad()
def steered(seed: int) -> dict[str, Any]:
    """How far a vector turns capitals into languages, and what it costs ordinary text, by dose."""
    vector = relation_vector(seed)
    random = directions_of_equal_length(vector.expand(RANDOM, -1), seed)
    # The vector, then random ones, each at every dose.
    vectors = torch.cat([dose * torch.cat([vector[None], random]) for dose in DOSES])
    parts = []
    for batch, asked in zip(*pair_of(seed, judge=True), strict=True):
        tail, goal = (begin_at(one.tokens, one.start) for one in (batch, asked))
        parts.append(
            {
                "before": batch.gap(tail.states[-1]),
                "there": asked.gap(goal.states[-1]),
                "after": steered_in(batch, tail, vectors),
                "length": tail.states[BEFORE][:, -1].norm(dim=-1),
            }
        )
    all_of = joined(parts)
    texts = begin(torch.cat([draw(seed, kind, 1, 64, begin="middle") for kind in KINDS]))
    plain = texts.losses()

    def price(by: Tensor) -> float:
        state = texts.states[BEFORE].clone()
        state[:, 1:] += by
        return float((texts.losses(texts.onward(BEFORE, state)) - plain).mean())

    turned = [share(after, all_of["before"], all_of["there"]) for after in all_of["after"]]

    def by_direction(values: list[float]) -> np.ndarray:
        table = np.array(values).reshape(len(DOSES), 1 + RANDOM)
        return np.stack([table[:, 0], table[:, 1:].mean(-1)])

    return {
        "turned": (("direction", "dose"), by_direction(turned)),
        "price": (("direction", "dose"), by_direction([price(one) for one in vectors])),
        "length": float(vector.norm()),
        "stream": float(all_of["length"].mean()),
    }


WAYS = ("subject", "last", "vector")
"""How another question comes in: with one of two states, or with the mean difference of both questions."""


def means_at_last(batches: Sequence[Batch]) -> Float[Tensor, "state d_model"]:
    """The last token's state before each of `STATES`, as a mean over prompts."""
    tails = [begin_at(batch.tokens, batch.start) for batch in batches]
    return torch.cat([tail.states[list(STATES), :, -1] for tail in tails], 1).mean(1)


def questioned_in(batch: Batch, asked: Batch, vectors: Float[Tensor, "state d_model"]) -> Tensor:
    """Logit differences of one batch when the other question comes in before a block, (way, state, fact).

    The ways: the state at the subject is that of the other question; that at the last token is; a vector
    is added at the last token.
    """
    tail, goal = (begin_at(one.tokens, one.start) for one in (batch, asked))
    found = []
    for before, vector in zip(STATES, vectors, strict=True):
        ways = tail.states[before].repeat(len(WAYS), 1, 1).unflatten(0, (len(WAYS), -1))
        ways[0, :, 0] = goal.states[before][:, 0]
        ways[1, :, -1] = goal.states[before][:, -1]
        ways[2, :, -1] += vector
        found.append(batch.gap(tail.onward(before, ways.flatten(0, 1))).view(len(WAYS), -1))
    return torch.stack(found, 1)


@measurement(
    seeds=10,
    coords={"way": WAYS, "state": STATES},
    tolerance={"turned": 0.03},
    pretrained=NEEDS,
)
@torch.no_grad()
def questions(seed: int) -> dict[str, Any]:
    """Before which block another question, for the language instead of the capital, turns the answer."""
    capital, language = (means_at_last(one) for one in pair_of(seed, judge=False))
    before, there, after = [], [], []
    for batch, asked in zip(*pair_of(seed, judge=True), strict=True):
        before.append(batch.gap(begin_at(batch.tokens, batch.start).states[-1]))
        there.append(asked.gap(begin_at(asked.tokens, asked.start).states[-1]))
        after.append(questioned_in(batch, asked, language - capital))
    whole_gap, base = torch.cat(there), torch.cat(before)
    turned = [[share(one, base, whole_gap) for one in way] for way in torch.cat(after, -1)]
    return {"turned": (("way", "state"), turned)}
