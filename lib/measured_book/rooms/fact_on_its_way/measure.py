"""What the chapter *A fact on its way* measures on SmolLM2-135M-Instruct.

A seed is a draw of facts, of the solved examples before them and of noise: three facts of each of four
relations that the model knows, from the half that judges. What is chosen, is chosen on facts of the other half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.training.seeding import make_generator
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.rooms.fact_on_its_way.facts import COUNTRIES, RELATIONS
from measured_book.rooms.fact_on_its_way.passes import (
    FLOOR,
    Asked,
    Batch,
    batch_of,
    blurred,
    candidates,
    draw_facts,
    edit,
    hidden,
    known,
    networks_back,
    put_back,
    rewritten,
    whole,
)
from measured_book.smollm2.controls import directions_of_equal_length, matched_heads
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.sweeps import Sweep, begin, heads_of
from measured_book.smollm2.texts import DATA, KINDS, draw

FACTS = 3
STATES = tuple(range(0, 30, 3))
"""Blocks, from 0, before which a state is put back."""
BASES, PLACES = ("noise", "name"), ("subject", "last")
DEPTH = 30


def share(changed: Tensor, base: Tensor, whole_gap: Tensor) -> float:
    """How much of a difference comes back: sums over facts, so that a large one counts more."""
    return float((changed - base).sum() / (whole_gap - base).sum())


# Where the fact is ------------------------------------------------------------------------------------


@measurement(
    seeds=10,
    coords={"base": BASES, "position": PLACES, "state": STATES, "relation": RELATIONS},
    tolerance={"effect": 0.03, "depth": 0.4, "lens": 0.4, "lens_share": 0.03, "gap": 0.2},
    pretrained=NEEDS,
)
@torch.no_grad()
def traced(seed: int) -> dict[str, Any]:
    """Share that returns with one state; what the lens reads; both as depths in blocks."""
    batch, knows = draw_facts(seed, FACTS)
    clean, right, other, wrong = whole(batch)
    noisy = blurred(batch, clean, seed)
    effects = []
    for states, base in ((noisy, batch.gap(noisy[-1])), (other.states, wrong)):
        for place in (batch.subject, batch.last):
            effects.append(
                [share(put_back(batch, clean, states, at, place), base, right) for at in STATES]
            )
    effect = np.array(effects).reshape(len(BASES), len(PLACES), len(STATES))
    held = effect.mean(-1) * DEPTH
    held[:, 1] = DEPTH - held[:, 1]
    lens = [float(batch.gap(clean.states[at]).sum() / right.sum()) for at in STATES]
    return {
        "effect": (("base", "position", "state"), effect),
        "depth": (("base", "position"), held),
        "lens": DEPTH * (1 - float(np.mean(lens))),
        "lens_share": ("state", lens),
        "known": knows,
        "gap": float(right.mean()),
        "facts": len(batch.asked),
    }


# Who brings it ---------------------------------------------------------------------------------------

WINDOWS = (5, 10, 15, 20, 25, 30)
"""The last block of each run of five, from 1."""
HALVES = ("lower", "upper")
HIDDEN = ("subject", "behind")


def network_writes(sweep: Sweep) -> dict[str, Tensor]:
    """What every network wrote in the run."""
    with capture(sweep.model, "blocks.*.feedforward.out") as seen:
        sweep.onward(0)
    return {
        f"blocks.{i}.feedforward.out": seen[f"blocks.{i}.feedforward.out"] for i in range(DEPTH)
    }


@measurement(
    seeds=10,
    coords={"position": PLACES, "window": WINDOWS, "hidden": HIDDEN, "blocks": HALVES},
    tolerance={"effect": 0.03, "fall": 0.03},
    pretrained=NEEDS,
)
@torch.no_grad()
def networks(seed: int) -> dict[str, Any]:
    """Share that returns with networks of five blocks; fall when the last token does not see the subject."""
    batch, _ = draw_facts(seed, FACTS)
    clean = begin(batch.tokens)
    right, noisy, writes = (
        batch.gap(clean.states[-1]),
        blurred(batch, clean, seed),
        network_writes(clean),
    )
    base = batch.gap(noisy[-1])
    effect = [
        [
            share(
                networks_back(batch, clean, noisy, writes, range(end - 5, end), place), base, right
            )
            for end in WINDOWS
        ]
        for place in (batch.subject, batch.last)
    ]
    halves = (range(10), range(15, 25))
    fall = [
        [1 - float(hidden(batch, clean, blocks, place).sum() / right.sum()) for blocks in halves]
        for place in (batch.subject, batch.subject + 1)
    ]
    return {"effect": (("position", "window"), effect), "fall": (("hidden", "blocks"), fall)}


HEADS, SETS = 10, 3
GROUPS = ("chosen", "random", "matched")


def written_for(batch: Batch, sweep: Sweep) -> Tensor:
    """What each head of each block writes at the last token along right minus other answer; mean over facts."""
    state = sweep.states[-1].clone().requires_grad_(True)
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(batch.gap(state).sum(), state)
    along = slope[batch.rows, batch.last]
    mixed = mixed_at_last(batch, sweep)
    found = []
    for block, some in zip(sweep.model.blocks, mixed, strict=True):
        out = block.attention.output.weight.unflatten(1, (block.attention.n_heads, -1))
        found.append(torch.einsum("rhe,dhe,rd->h", some, out, along) / len(along))
    return torch.stack(found)


def mixed_at_last(batch: Batch, sweep: Sweep) -> list[Tensor]:
    """What each head of each block hands on at the last token, (row head d_head)."""
    names = [f"blocks.{i}.attention.mixed" for i in range(sweep.blocks)]
    with torch.no_grad(), capture(sweep.model, *names) as seen:
        sweep.onward(0)
    return [seen[name][batch.rows, :, batch.last] for name in names]


def _other_heads(batch: Batch, which: list[int], new: Tensor, value: Tensor) -> Tensor:
    changed = value.clone()
    for head in which:
        changed[batch.rows, head, batch.last] = new[:, head]
    return changed


@measurement(
    seeds=10,
    coords={"heads": GROUPS, "block": tuple(range(1, DEPTH + 1))},
    tolerance={"fall": 0.03, "chosen": 0.5},
    pretrained=NEEDS,
)
@torch.no_grad()
def heads(seed: int) -> dict[str, Any]:
    """Fall of the logit difference when ten heads hand on what they do for the other subject."""
    choosing, _ = draw_facts(seed, FACTS, judge=False)
    first = begin(choosing.tokens)
    worth, norms = written_for(choosing, first), first.write_norms()
    every = [(block, head) for block in range(DEPTH) for head in range(worth.shape[1])]
    chosen = [every[i] for i in worth.flatten().topk(HEADS).indices.tolist()]
    rest, chance = [one for one in every if one not in chosen], make_generator(seed, "random heads")
    random = [
        [rest[i] for i in torch.randperm(len(rest), generator=chance)[:HEADS].tolist()]
        for _ in range(SETS)
    ]
    batch, _ = draw_facts(seed, FACTS)
    clean, right, other, wrong = whole(batch)
    mixed = mixed_at_last(batch, other)

    def fall(some: Sequence[tuple[int, int]]) -> float:
        of_block = heads_of(some)
        changes = {
            f"blocks.{block}.attention.mixed": partial(_other_heads, batch, which, mixed[block])
            for block, which in of_block.items()
        }
        with intervene(clean.model, changes):
            gap = batch.gap(clean.onward(min(of_block)))
        return share(gap, right, wrong)

    sets = {
        "chosen": [chosen],
        "random": random,
        "matched": matched_heads(norms, chosen, SETS, seed),
    }
    counts = [sum(block == one for block, _ in chosen) for one in range(DEPTH)]
    return {
        "fall": ("heads", [float(np.mean([fall(one) for one in sets[name]])) for name in GROUPS]),
        "chosen": ("block", counts),
    }


# Editing ---------------------------------------------------------------------------------------------

EDITED = (3, 8, 13, 18, 23, 28)
"""Blocks, from 1, whose networks are edited."""
WHERE = ("found", "edited")
ASKED = ("same", "others")


def shares(changed: Tensor, base: Tensor, whole_gap: Tensor) -> Tensor:
    """How much of a difference comes back for each fact; differences below `FLOOR` count as that."""
    return (changed - base) / (whole_gap - base).abs().clamp_min(FLOOR)


@measurement(
    seeds=10,
    coords={"what": WHERE, "block": EDITED},
    tolerance={"effect": 0.05, "correlation": 0.05},
    pretrained=NEEDS,
)
@torch.no_grad()
def edited(seed: int) -> dict[str, Any]:
    """What the network of a block restores, and what an edit of it turns, for one fact of each relation."""
    batch, _ = draw_facts(seed, 1)
    clean, right, _, wrong = whole(batch)
    noisy, writes = blurred(batch, clean, seed), network_writes(clean)
    base = batch.gap(noisy[-1])
    found, turned = [], []
    for block in EDITED:
        near = range(block - 2, block + 1)
        back = networks_back(batch, clean, noisy, writes, near, batch.subject)
        found.append(shares(back, base, right))
        write = writes[f"blocks.{block - 1}.feedforward.out"][batch.rows, batch.subject]
        _, gap = edit(batch, clean, block - 1, write)
        turned.append((right - gap) / (right - wrong).clamp_min(FLOOR))
    both = torch.stack([torch.stack(found), torch.stack(turned)])
    return {
        "effect": (("what", "block"), both.mean(-1).numpy()),
        "correlation": float(torch.corrcoef(both.flatten(1))[0, 1]),
    }


def best_block(seed: int) -> int:
    """The block, from 1, whose edit turns capitals best, on facts that choose."""
    batch = batch_of(candidates(seed, "capital", judge=False, tried=2))
    clean = begin(batch.tokens)
    writes = network_writes(clean)
    after = []
    for block in EDITED[:4]:
        write = writes[f"blocks.{block - 1}.feedforward.out"][batch.rows, batch.subject]
        after.append(float(edit(batch, clean, block - 1, write)[1].mean()))
    return EDITED[int(np.argmin(after))]


def of_countries(seed: int, names: Sequence[str], relation: str) -> list[Asked]:
    """What is asked for one relation of these countries, as a statement."""
    every = candidates(seed, relation, judge=True, tried=len(COUNTRIES))
    return [replace(one, wording=0) for one in every if one.subject in names]


def with_all() -> list[str]:
    """Countries of the judging half that have a capital, a language and a continent."""
    return [row[0] for row in COUNTRIES[1::2] if None not in row]


@measurement(
    seeds=10, coords={"asked": ASKED}, tolerance={"fall": 0.1, "done": 0.3}, pretrained=NEEDS
)
@torch.no_grad()
def ripples(seed: int) -> dict[str, Any]:
    """Fall of the logit difference of other facts after the capital of a country has been rewritten."""
    block = best_block(seed)
    asked = of_countries(seed, with_all(), "capital")
    batch = batch_of([one for one, yes in zip(asked, known(asked), strict=True) if yes][:4])
    clean = begin(batch.tokens)
    with capture(clean.model, f"blocks.{block - 1}.feedforward.neurons") as seen:
        clean.onward(block - 1, until=block)
    neurons = seen[f"blocks.{block - 1}.feedforward.neurons"][batch.rows, batch.subject]
    write = network_writes(clean)[f"blocks.{block - 1}.feedforward.out"][batch.rows, batch.subject]
    vectors, _ = edit(batch, clean, block - 1, write)
    names = [one.subject for one in batch.asked]
    probes = batch_of(
        [one for name in ("language", "continent") for one in of_countries(seed, names, name)]
    )
    before, own = probes.gap(smollm2().model.stream(probes.tokens)), batch.gap(clean.states[-1])
    same, others, done = [], [], []
    for i, name in enumerate(names):
        fall = before - rewritten(probes, block - 1, neurons[i], vectors[i])
        mine = torch.tensor([one.subject == name for one in probes.asked])
        same.append(float(fall[mine].mean()))
        others.append(float(fall[~mine].mean()))
        done.append(float((own - rewritten(batch, block - 1, neurons[i], vectors[i]))[i]))
    return {
        "fall": ("asked", [float(np.mean(same)), float(np.mean(others))]),
        "done": float(np.mean(done)),
        "block": block,
    }


# Steering --------------------------------------------------------------------------------------------

BEFORE = 15
"""The block, from 0, before which a vector is added."""
DOSES = (1, 2, 4)
DIRECTIONS = ("relation", "random")
COUNTRIES_STEERED, RANDOM = 6, 3


def states_of(batch: Batch) -> Tensor:
    """The last token's state before the block where vectors are added."""
    sweep = begin(batch.tokens)
    return sweep.states[BEFORE][batch.rows, batch.last]


def pair_of(seed: int, *, judge: bool) -> tuple[Batch, Batch]:
    """The same countries asked for their capital and for their language, one wording for each."""
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
    return batch_of(first), batch_of(second)


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
    capitals, languages = pair_of(seed, judge=False)
    vector = (states_of(languages) - states_of(capitals)).mean(0)
    random = directions_of_equal_length(vector.expand(RANDOM, -1), seed)
    batch, asked = pair_of(seed, judge=True)
    sweep, start = begin(batch.tokens), begin(asked.tokens)
    before, there = batch.gap(sweep.states[-1]), asked.gap(start.states[-1])
    texts = begin(torch.cat([draw(seed, kind, 1, 64, begin="middle") for kind in KINDS]))
    plain = texts.losses()

    def turned(by: Tensor) -> float:
        state = sweep.states[BEFORE].clone()
        state[batch.rows, batch.last] += by
        return share(batch.gap(sweep.onward(BEFORE, state)), before, there)

    def price(by: Tensor) -> float:
        state = texts.states[BEFORE].clone()
        state[:, 1:] += by
        return float((texts.losses(texts.onward(BEFORE, state)) - plain).mean())

    ways = {"relation": [vector], "random": list(random)}
    return {
        name: (
            ("direction", "dose"),
            [
                [float(np.mean([what(dose * one) for one in ways[way]])) for dose in DOSES]
                for way in DIRECTIONS
            ],
        )
        for name, what in (("turned", turned), ("price", price))
    } | {
        "length": float(vector.norm()),
        "stream": float(sweep.states[BEFORE][batch.rows, batch.last].norm(dim=-1).mean()),
    }
