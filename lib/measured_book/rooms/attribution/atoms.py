"""Which atom became which: what attention, gradients and deletion say, where chemistry knows the answer.

A model of chemistry reads reactions (`reactions`), and for some atoms of the product each method scores the
atoms before the arrow. Candidates are those of the same element; a method is right where the candidate that it
puts first is one that the atom may come from.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.attribution import (
    Target,
    attention_weights,
    embedded,
    gradients,
    rollout,
)
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.factorised import FactorisedEncoder
from measured_transformer.training.seeding import make_generator
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.rooms.attribution.chemistry import KNOWN, NEEDS, chemist, mask, numbers
from measured_book.rooms.attribution.molecules import element
from measured_book.rooms.attribution.reactions import Reaction, reactions
from measured_book.smollm2.spectrum import same_spectrum

ASKED = 3
"""Atoms of each product, drawn from those for which not all atoms of their element are right."""
WAYS = (
    "one head",
    "one head, hidden",
    "attention mean",
    "attention largest",
    "rollout",
    "gradient",
    "gradient times input",
    "deletion",
    "position",
    "chance",
)
"""How a product's atom is traced; *hidden*: with that atom masked, as gradients and deletion have it."""
STATES = ("trained", "same spectrum")
BLOCKS, HEADS = tuple(range(1, 13)), tuple(range(1, 9))
TAKEN = ("zero", "even")
"""What a head hands on in place of what it fetches: nothing, or from all tokens alike."""


@cache
def of_same_spectrum() -> FactorisedEncoder:
    """The model with the directions of its matrices redrawn: what it finds, it finds by habit."""
    return same_spectrum(chemist(), 0)


def drawn(seed: int, which: str = "judging") -> list[tuple[Reaction, list[int]]]:
    """The reactions of a draw, and of each the numbers of the product's atoms that are asked for."""
    chance = make_generator(seed, f"asked atoms, {which}")
    found = []
    for reaction in reactions(seed, which):
        asked = reaction.open()
        chosen = torch.randperm(len(asked), generator=chance)[:ASKED].tolist()
        found.append((reaction, [asked[i] for i in chosen]))
    return found


def hidden(tokens: Int[Tensor, "position"], places: list[int]) -> Int[Tensor, "asked position"]:
    """A row for each place, in which it is masked."""
    rows = tokens.repeat(len(places), 1)
    rows[torch.arange(len(places)), places] = mask()
    return rows


def named(places: list[int], answers: Int[Tensor, "asked"]) -> Target:
    """The log-probability of the hidden atom, in rows that hide one place each."""

    def target(logits: Tensor) -> Tensor:
        every = torch.arange(len(logits))
        return logits[every, places].log_softmax(-1)[every, answers]

    return target


def scores(
    model: FactorisedEncoder, reaction: Reaction, asked: list[int]
) -> tuple[dict[str, Float[Tensor, "asked position"]], Float[Tensor, "layer head asked position"]]:
    """What each way says of every token for each atom that is asked for, and what every head says.

    Attention is read in both directions, from the product's atom and from the other, as the package does.
    """
    tokens = numbers(reaction.tokens)
    places = [reaction.product[i] + 1 for i in asked]  # behind the token that begins
    rows, target = hidden(tokens, places), named(places, tokens[places])
    weights = attention_weights(model, tokens[None]).double()[:, 0]
    both = (weights + weights.transpose(-1, -2))[:, :, places]
    masked = attention_weights(model, rows).double()[KNOWN[0], :, KNOWN[1]]
    masked = masked + masked.transpose(-1, -2)
    every = torch.arange(len(places))
    slopes = gradients(model, rows, target).double()
    return {
        "one head": both[KNOWN],
        "one head, hidden": masked[every, places],
        "attention mean": both.mean((0, 1)),
        "attention largest": both.amax((0, 1)),
        "rollout": rollout(weights.mean(1)[:, None])[0, places],
        "gradient": slopes.norm(dim=-1),
        "gradient times input": (slopes * embedded(model, rows)).sum(-1).abs(),
        "deletion": deleted(model, reaction, rows, places, tokens[places]),
        "position": in_order(reaction, asked, len(tokens)),
    }, both


@torch.no_grad()
def deleted(
    model: FactorisedEncoder,
    reaction: Reaction,
    rows: Int[Tensor, "asked position"],
    places: list[int],
    answers: Int[Tensor, "asked"],
) -> Float[Tensor, "asked position"]:
    """By how much the hidden atom's log-probability changes when one more atom before the arrow is hidden."""
    others = [place + 1 for place in reaction.reactants]
    found = torch.zeros(rows.shape, dtype=torch.float64)
    for i, place in enumerate(places):
        more = rows[i].repeat(len(others) + 1, 1)
        more[torch.arange(len(others)), others] = mask()
        said = model(more)[:, place].log_softmax(-1)[:, answers[i]].double()
        found[i, others] = (said[-1] - said[:-1]).abs()
    return found


def in_order(reaction: Reaction, asked: list[int], length: int) -> Float[Tensor, "asked position"]:
    """A baseline that reads no chemistry: the first nitrogen of the product is the first before the arrow.

    Places are shares of the way through all atoms of one element, before the arrow and behind it.
    """
    found = torch.full((len(asked), length), -1.0, dtype=torch.float64)
    for row, number in enumerate(asked):
        place = reaction.product[number]
        candidates = reaction.candidates(place)
        wanted = element(reaction.tokens[place])
        behind = [one for one in reaction.product if element(reaction.tokens[one]) == wanted]
        share = (behind.index(place) + 0.5) / len(behind)
        for i, one in enumerate(candidates):
            found[row, one + 1] = 1 - abs((i + 0.5) / len(candidates) - share)
    return found


def right(
    reaction: Reaction, asked: list[int], said: Float[Tensor, "*batch asked position"]
) -> Float[Tensor, "*batch asked"]:
    """Whether the candidate that is put first is one that the atom may come from."""
    found = torch.zeros(said.shape[:-1], dtype=torch.float64)
    for row, number in enumerate(asked):
        candidates = reaction.candidates(reaction.product[number])
        best = said[..., row, [one + 1 for one in candidates]].argmax(-1)
        good = torch.tensor([one in reaction.right[number] for one in candidates])
        found[..., row] = good[best].double()
    return found


def by_chance(reaction: Reaction, asked: list[int]) -> Float[Tensor, "asked"]:
    """How often a candidate drawn alike from all would be right."""
    every = [(reaction.candidates(reaction.product[i]), reaction.right[i]) for i in asked]
    return torch.tensor([len(good & set(some)) / len(some) for some, good in every]).double()


@measurement(
    seeds=10,
    coords={"state": STATES, "by": WAYS, "block": BLOCKS, "head": HEADS},
    tolerance={"found": 0.1, "heads": 0.1},
    pretrained=NEEDS,
)
def atoms(seed: int) -> dict[str, Any]:
    """How often each way, and each head, traces a product's atom, in the trained model and its control."""
    found, heads = [], []
    for model in (chemist(), of_same_spectrum()):
        shares: dict[str, list[Tensor]] = {by: [] for by in WAYS}
        every = []
        for reaction, asked in drawn(seed):
            said, both = scores(model, reaction, asked)
            for by, one in said.items():
                shares[by].append(right(reaction, asked, one))
            shares["chance"].append(by_chance(reaction, asked))
            every.append(right(reaction, asked, both))
        found.append([float(torch.cat(shares[by]).mean()) for by in WAYS])
        heads.append(torch.cat(every, dim=-1).mean(-1))
    return {
        "found": (("state", "by"), found),
        "heads": (("state", "block", "head"), torch.stack(heads)),
    }


def without(head: int, how: str) -> Any:
    """An intervention on the pattern of a block: one head fetches nothing, or from all tokens alike."""

    def change(pattern: Float[Tensor, "row head query key"]) -> Float[Tensor, "row head query key"]:
        other = pattern.clone()
        other[:, head] = 0.0 if how == "zero" else 1 / pattern.shape[-1]
        return other

    return change


@measurement(
    seeds=10,
    coords={"how": TAKEN, "head": HEADS},
    tolerance={"rise": 0.05, "plain": 0.05},
    pretrained=NEEDS,
)
@torch.no_grad()
def needed(seed: int) -> dict[str, Any]:
    """What hidden atoms of the product cost, and what more without each head of the block of the known one."""
    model = chemist()
    plain: list[Tensor] = []
    rises: list[Tensor] = []
    for reaction, asked in drawn(seed):
        tokens = numbers(reaction.tokens)
        places = [reaction.product[i] + 1 for i in asked]
        rows, target = hidden(tokens, places), named(places, tokens[places])
        whole = -target(model(rows)).double()
        taken = []
        for how in TAKEN:
            for head in range(len(HEADS)):
                with intervene(model, {f"blocks.{KNOWN[0]}.attention.pattern": without(head, how)}):
                    taken.append(-target(model(rows)).double() - whole)
        plain.append(whole)
        rises.append(torch.stack(taken).view(len(TAKEN), len(HEADS), -1))
    return {
        "plain": float(torch.cat(plain).mean()),
        "rise": (("how", "head"), torch.cat(rises, dim=-1).mean(-1)),
    }
