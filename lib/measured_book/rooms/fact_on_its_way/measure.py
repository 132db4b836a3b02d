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
from jaxtyping import Float
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import Change, intervene
from measured_transformer.training.seeding import make_generator
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.rooms.fact_on_its_way.facts import COUNTRIES, RELATIONS
from measured_book.rooms.fact_on_its_way.lenses import lenses
from measured_book.rooms.fact_on_its_way.passes import (
    FLOOR,
    Asked,
    Batch,
    batches_of,
    blurred,
    candidates,
    draw_facts,
    edit,
    hidden,
    joined,
    known,
    network_writes,
    networks_back,
    put_back,
    rewritten,
    share,
    whole,
)
from measured_book.rooms.fact_on_its_way.steering import questions, steered
from measured_book.rooms.fact_on_its_way.tails import Tail, begin_at
from measured_book.smollm2.controls import matched_heads
from measured_book.smollm2.model import NEEDS
from measured_book.smollm2.sweeps import begin

__all__ = ["edited", "heads", "lenses", "networks", "questions", "ripples", "steered", "traced"]

FACTS = 3
STATES = tuple(range(0, 30, 3))
"""Blocks, from 0, before which a state is put back."""
BASES, PLACES = ("noise", "name"), ("subject", "last")
DEPTH = 30


# Where the fact is ------------------------------------------------------------------------------------


def traced_in(batch: Batch, seed: int) -> dict[str, Tensor]:
    """Logit differences of one batch: whole, with each base, with one state put back, and by the lens."""
    clean, right, other, wrong = whole(batch)
    noisy = blurred(batch, clean, seed)
    bases = torch.stack([batch.gap(noisy[-1]), wrong])
    # Before the first block the subject is all that differs.
    first = torch.stack([right.expand_as(bases), bases], 1)
    later = [put_back(batch, clean, [noisy, other.states], before) for before in STATES[1:]]
    lens = torch.stack([batch.gap(clean.states[before]) for before in STATES])
    return {"right": right, "base": bases, "back": torch.stack([first, *later]), "lens": lens}


@measurement(
    seeds=10,
    coords={"base": BASES, "position": PLACES, "state": STATES},
    tolerance={"effect": 0.03, "depth": 0.4, "lens": 0.4, "lens_share": 0.03, "gap": 0.2},
    pretrained=NEEDS,
)
@torch.no_grad()
def traced(seed: int) -> dict[str, Any]:
    """Share that returns with one state; what the lens reads; both as depths in blocks."""
    batches, knows = draw_facts(seed, FACTS)
    all_of = joined(traced_in(batch, seed) for batch in batches)
    right, back = all_of["right"], all_of["back"]
    effect = np.array(
        [
            [[share(state, base, right) for state in back[:, i, j]] for j in range(len(PLACES))]
            for i, base in enumerate(all_of["base"])
        ]
    )
    held = effect.mean(-1) * DEPTH
    held[:, 1] = DEPTH - held[:, 1]
    lens = (all_of["lens"].sum(-1) / right.sum()).tolist()
    return {
        "effect": (("base", "position", "state"), effect),
        "depth": (("base", "position"), held),
        "lens": DEPTH * (1 - float(np.mean(lens))),
        "lens_share": ("state", lens),
        "known": knows,
        "gap": float(right.mean()),
        "facts": len(right),
    }


# Who brings it ---------------------------------------------------------------------------------------

WINDOWS = (5, 10, 15, 20, 25, 30)
"""The last block of each run of five, from 1."""
HALVES = ("lower", "upper")
HIDDEN = {"subject": 0, "before": -1}
"""The key that is hidden, by its place from the subject."""


def networks_in(batch: Batch, seed: int) -> dict[str, Tensor]:
    """Logit differences of one batch: whole, blurred, with networks put back, with a key hidden."""
    clean = begin_at(batch.tokens, batch.start)
    noisy, writes = blurred(batch, clean, seed), network_writes(clean)
    back = [networks_back(batch, clean, noisy, writes, range(end - 5, end)) for end in WINDOWS]
    unseen = [
        hidden(batch, clean, blocks, tuple(HIDDEN.values()))
        for blocks in (range(10), range(15, 25))
    ]
    return {
        "right": batch.gap(clean.states[-1]),
        "base": batch.gap(noisy[-1]),
        "back": torch.stack(back, 1),
        "hidden": torch.stack(unseen, 1),
    }


@measurement(
    seeds=10,
    coords={"position": PLACES, "window": WINDOWS, "hidden": tuple(HIDDEN), "blocks": HALVES},
    tolerance={"effect": 0.03, "fall": 0.03},
    pretrained=NEEDS,
)
@torch.no_grad()
def networks(seed: int) -> dict[str, Any]:
    """Share that returns with networks of five blocks; fall when the last token does not see the subject."""
    batches, _ = draw_facts(seed, FACTS)
    all_of = joined(networks_in(batch, seed) for batch in batches)
    right, base = all_of["right"], all_of["base"]
    effect = [[share(one, base, right) for one in place] for place in all_of["back"]]
    fall = 1 - all_of["hidden"].sum(-1) / right.sum()
    return {
        "effect": (("position", "window"), effect),
        "fall": (("hidden", "blocks"), fall.numpy()),
    }


HEADS, SETS = 10, 3
GROUPS = ("chosen", "random", "matched")


def mixed_at_last(tail: Tail) -> list[Tensor]:
    """What each head of each block hands on at the last token, (row head d_head)."""
    names = [f"blocks.{i}.attention.mixed" for i in range(tail.blocks)]
    with torch.no_grad(), capture(tail.model, *names) as seen:
        tail.onward(0)
    return [seen[name][:, :, -1] for name in names]


def written_for(batch: Batch, tail: Tail) -> Float[Tensor, "block head row"]:
    """What each head of each block writes at the last token along right minus other answer."""
    state = tail.states[-1].clone().requires_grad_(True)
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(batch.gap(state).sum(), state)
    found = []
    for block, some in zip(tail.model.blocks, mixed_at_last(tail), strict=True):
        attention: Any = block.attention
        out = attention.output.weight.unflatten(1, (attention.n_heads, -1))
        found.append(torch.einsum("rhe,dhe,rd->hr", some, out, slope[:, -1]))
    return torch.stack(found)


def worth_and_norms(seed: int) -> tuple[Tensor, Tensor]:
    """Of each head of each block, on facts that choose: what it writes for the answer, and how much at all.

    Both at the last token, as means over facts.
    """
    worth, norms, rows = [], [], []
    for batch in draw_facts(seed, FACTS, judge=False)[0]:
        tail = begin_at(batch.tokens, batch.start)
        worth.append(written_for(batch, tail))
        norms.append(tail.write_norms(skip=range(tail.tokens.shape[1] - 1)))
        rows.append(len(batch.asked))
    share_of = torch.tensor(rows) / sum(rows)
    return torch.cat(worth, -1).mean(-1), (torch.stack(norms, -1) * share_of).sum(-1)


def without(batch: Batch, sets: Sequence[Sequence[tuple[int, int]]]) -> dict[str, Tensor]:
    """Logit differences of one batch: whole, and when heads hand on what they do for the other subject."""
    clean, right, other, wrong = whole(batch)
    mixed, rows = mixed_at_last(other), len(batch.asked)
    of_block: dict[int, list[tuple[int, int]]] = {}
    for i, some in enumerate(sets):
        for block, head in some:
            of_block.setdefault(block, []).append((i, head))

    def hand_on(block: int, value: Tensor) -> Tensor:
        changed = value.clone()
        for i, head in of_block[block]:
            changed[i * rows : (i + 1) * rows, head, -1] = mixed[block][:, head]
        return changed

    first = min(of_block)
    changes: dict[str, Change] = {
        f"blocks.{block}.attention.mixed": partial(hand_on, block) for block in of_block
    }
    with intervene(clean.model, changes):
        after = clean.onward(first, clean.states[first].repeat(len(sets), 1, 1))
    return {"right": right, "wrong": wrong, "after": batch.gap(after).view(len(sets), rows)}


@measurement(
    seeds=10,
    coords={"heads": GROUPS, "block": tuple(range(1, DEPTH + 1))},
    tolerance={"fall": 0.03, "chosen": 0.5},
    pretrained=NEEDS,
)
@torch.no_grad()
def heads(seed: int) -> dict[str, Any]:
    """Fall of the logit difference when ten heads hand on what they do for the other subject."""
    worth, norms = worth_and_norms(seed)
    every = [(block, head) for block in range(DEPTH) for head in range(worth.shape[1])]
    chosen = [every[i] for i in worth.flatten().topk(HEADS).indices.tolist()]
    rest, chance = [one for one in every if one not in chosen], make_generator(seed, "random heads")
    sets = {
        "chosen": [chosen],
        "random": [
            [rest[i] for i in torch.randperm(len(rest), generator=chance)[:HEADS].tolist()]
            for _ in range(SETS)
        ],
        "matched": matched_heads(norms, chosen, SETS, seed),
    }
    in_turn = [one for name in GROUPS for one in sets[name]]
    all_of = joined(without(batch, in_turn) for batch in draw_facts(seed, FACTS)[0])
    right, wrong = all_of["right"], all_of["wrong"]
    falls = iter([share(one, right, wrong) for one in all_of["after"]])
    counts = [sum(block == one for block, _ in chosen) for one in range(DEPTH)]
    return {
        "fall": ("heads", [float(np.mean([next(falls) for _ in sets[name]])) for name in GROUPS]),
        "chosen": ("block", counts),
    }


# Editing ---------------------------------------------------------------------------------------------

EDITED = (3, 8, 13, 18, 23, 28)
"""Blocks, from 1, whose networks are edited."""
WHERE = ("found", "edited")
ASKED = ("same", "others")
COUNTRIES_EDITED = 4


def shares(changed: Tensor, base: Tensor, whole_gap: Tensor) -> Tensor:
    """How much of a difference comes back for each fact; differences below `FLOOR` count as that."""
    return (changed - base) / (whole_gap - base).abs().clamp_min(FLOOR)


def edited_in(batch: Batch, seed: int) -> dict[str, Tensor]:
    """Shares of one batch, by block and fact: what networks restore, and what an edit of one turns."""
    clean, right, _, wrong = whole(batch)
    noisy, writes = blurred(batch, clean, seed), network_writes(clean)
    base = batch.gap(noisy[-1])
    found = [
        networks_back(batch, clean, noisy, writes, range(block - 2, block + 1))[0]
        for block in EDITED
    ]
    _, gaps = edit(batch, clean, writes, [block - 1 for block in EDITED])
    return {
        "found": torch.stack([shares(one, base, right) for one in found]),
        "edited": (right - gaps) / (right - wrong).clamp_min(FLOOR),
    }


@measurement(
    seeds=10,
    coords={"what": WHERE, "block": EDITED},
    tolerance={"effect": 0.05, "correlation": 0.05},
    pretrained=NEEDS,
)
@torch.no_grad()
def edited(seed: int) -> dict[str, Any]:
    """What the network of a block restores, and what an edit of it turns, for one fact of each relation."""
    all_of = joined(edited_in(batch, seed) for batch in draw_facts(seed, 1)[0])
    both = torch.stack([all_of[what] for what in WHERE])
    return {
        "effect": (("what", "block"), both.mean(-1).numpy()),
        "correlation": float(torch.corrcoef(both.flatten(1))[0, 1]),
    }


def best_block(seed: int) -> int:
    """The block, from 1, whose edit turns capitals best, on two facts that choose."""
    blocks, after = EDITED[:4], torch.zeros(4)
    for batch in batches_of(candidates(seed, "capital", judge=False, tried=2)):
        clean = begin_at(batch.tokens, batch.start)
        _, gaps = edit(batch, clean, network_writes(clean), [block - 1 for block in blocks])
        after += gaps.sum(-1)
    return blocks[int(after.argmin())]


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
    kept = [one for one, yes in zip(asked, known(asked), strict=True) if yes][:COUNTRIES_EDITED]
    (batch,), names = batches_of(kept), [one.subject for one in kept]
    clean = begin_at(batch.tokens, batch.start)
    with capture(clean.model, f"blocks.{block - 1}.feedforward.neurons") as seen:
        clean.onward(block - 1, until=block)
    keys = seen[f"blocks.{block - 1}.feedforward.neurons"][:, 0]
    (vectors,), _ = edit(batch, clean, network_writes(clean), [block - 1])
    # The edited capitals first, then what else is asked; all as statements, so that they are one batch.
    probes = [one for name in RELATIONS[1:3] for one in of_countries(seed, names, name)]
    (every,) = batches_of([*kept, *probes])
    sweep = begin(every.tokens)
    before = every.gap(sweep.states[-1])
    same, others, done = [], [], []
    for i, name in enumerate(names):
        fall = before - rewritten(every, sweep, block - 1, keys[i], vectors[i])
        mine = torch.tensor([one.subject == name for one in probes])
        done.append(float(fall[i]))
        same.append(float(fall[len(kept) :][mine].mean()))
        others.append(float(fall[len(kept) :][~mine].mean()))
    return {
        "fall": ("asked", [float(np.mean(same)), float(np.mean(others))]),
        "done": float(np.mean(done)),
        "block": block,
    }
