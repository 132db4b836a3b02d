"""When a lens reads the answer, and when the last token holds it: on fresh draws, with a fitted lens beside."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.rooms.fact_on_its_way.passes import Batch, draw_facts, joined, share, whole
from measured_book.smollm2.maps import linear_map
from measured_book.smollm2.model import NEEDS
from measured_book.smollm2.sweeps import begin
from measured_book.smollm2.texts import DATA, KINDS, draw

FRESH = 2000
"""What is added to a seed, so that its draw is a new one."""
FACTS, DEPTH = 3, 30
STATES = tuple(range(0, DEPTH, 3))
"""Blocks, from 0, before which is read."""
READ = ("patched", "logit", "fitted")
FITTED, LENGTH = 8, 64
"""Ordinary texts of each kind that the maps are fitted on; a quarter of them chooses the penalty."""


def maps_of(seed: int) -> list[Any]:
    """A linear map for each of `STATES`, from it to the state after the last block, fitted on texts."""
    rows = [draw(seed, kind, FITTED, LENGTH, first="end") for kind in KINDS]
    states = begin(torch.stack(rows, 1).flatten(0, 1)).states[:, :, 1:].flatten(1, 2)
    fitted = states.shape[1] * 3 // 4
    return [linear_map(states[before], states[-1], fitted) for before in STATES]


def read_in(batch: Batch, maps: list[Any]) -> dict[str, Tensor]:
    """Logit differences of one batch: whole, with the other subject, patched before a block, by both lenses."""
    clean, right, other, wrong = whole(batch)
    patched, logit, fitted = [], [], []
    for before, mapped in zip(STATES, maps, strict=True):
        own = clean.states[before][:, -1:]
        state = other.states[before].clone()
        # Before the first block the last tokens of both runs are the same.
        state[:, -1:] = own
        patched.append(batch.gap(clean.onward(before, state)) if before else wrong)
        logit.append(batch.gap(own))
        fitted.append(batch.gap(mapped(own)))
    read = torch.stack([torch.stack(one) for one in (patched, logit, fitted)])
    return {"right": right, "wrong": wrong, "read": read}


@measurement(
    seeds=40,
    coords={"read": READ, "state": STATES},
    tolerance={"share": 0.05, "depth": 1.0},
    pretrained=NEEDS,
    data=DATA,
)
@torch.no_grad()
def lenses(seed: int) -> dict[str, Any]:
    """Share of the last logit difference at the last token: patched, by the logit lens, by a fitted one."""
    batches, _ = draw_facts(seed + FRESH, FACTS)
    maps = maps_of(seed + FRESH)
    all_of = joined(read_in(batch, maps) for batch in batches)
    right, (patched, logit, fitted) = all_of["right"], all_of["read"]
    shares = np.array(
        [
            [share(one, all_of["wrong"], right) for one in patched],
            *[(some.sum(-1) / right.sum()).tolist() for some in (logit, fitted)],
        ]
    )
    return {
        "share": (("read", "state"), shares),
        "depth": ("read", DEPTH * (1 - shares.mean(-1))),
    }
