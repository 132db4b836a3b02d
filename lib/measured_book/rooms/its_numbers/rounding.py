"""Fewer bits: matrices and the cache of *Its numbers*, rounded to a few levels.

Numbers of a group share their levels. `steps` puts them at equal distances between the least and the largest of
the group, `symmetric` alike on both sides of zero.
"""

from __future__ import annotations

import functools
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from measured_transformer.internals.intervene import Change, intervene
from measured_transformer.models.decoder import Decoder
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.rooms.its_numbers.passages import loss, passages
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.texts import DATA

GRIDS = ("own levels", "eight by row", "four by group", "four by row")
GROUP = 32
"""Weights that share their levels in the file of the model."""
WAYS = (
    "both",
    "keys by channel",
    "keys by token",
    "values by channel",
    "values by token",
    "first exact",
    "fifth exact",
)
BITS = (8, 4, 2)
CHANNEL, TOKEN = -2, -1
"""The axis over which a group of the cache goes: all tokens of a channel, all channels of a token."""


def steps(values: Float[Tensor, "*group"], bits: int, axis: int) -> Float[Tensor, "*group"]:
    """Numbers rounded to equal steps between the least and the largest of their group.

    Args:
        values: of any shape.
        bits: of each number; there are two to this power of levels.
        axis: along which the numbers of a group lie.

    >>> steps(torch.tensor([0.0, 0.4, 0.6, 3.0]), 2, 0).tolist()
    [0.0, 0.0, 1.0, 3.0]
    """
    least, largest = values.amin(axis, keepdim=True), values.amax(axis, keepdim=True)
    step = ((largest - least) / (2**bits - 1)).clamp_min(torch.finfo(values.dtype).tiny)
    return least + step * ((values - least) / step).round()


def symmetric(values: Float[Tensor, "*group"], bits: int, axis: int) -> Float[Tensor, "*group"]:
    """Numbers rounded to multiples of their group's largest size over the largest whole number of so many bits.

    Args:
        values, bits, axis: as in `steps`; there is one level less, so that they lie alike around zero.

    >>> symmetric(torch.tensor([-0.4, 0.6, 3.0]), 3, 0).tolist()
    [0.0, 1.0, 3.0]
    """
    most = 2 ** (bits - 1) - 1
    step = (values.abs().amax(axis, keepdim=True) / most).clamp_min(torch.finfo(values.dtype).tiny)
    return step * (values / step).round() + 0.0  # no negative zero


def rounded_matrix(weight: Float[Tensor, "row column"], grid: str) -> Float[Tensor, "row column"]:
    """A matrix on one of `GRIDS`.

    Raises:
        ValueError: when there is no such grid, or rows do not part into groups.
    """
    if grid not in GRIDS:
        raise ValueError(f"expected a grid of {', '.join(GRIDS)}; got {grid!r}")
    if grid.endswith("row"):
        return symmetric(weight, 8 if grid.startswith("eight") else 4, -1)
    if weight.shape[1] % GROUP:
        raise ValueError(f"expected rows of a multiple of {GROUP} weights, got {weight.shape[1]}")
    groups = weight.unflatten(1, (-1, GROUP))
    found = steps(groups, 4, -1) if grid == "own levels" else symmetric(groups, 4, -1)
    return found.flatten(1)


@torch.no_grad()
def rounded(model: Decoder, grid: str) -> Decoder:
    """A copy of a model with the matrices of its blocks on one of `GRIDS`; all else stays."""
    other = deepcopy(model)
    for name, weight in other.blocks.named_parameters():
        if weight.ndim == 2 and "norm" not in name:
            weight.copy_(rounded_matrix(weight, grid))
    return other


@functools.cache
def rounded_smollm2(grid: str) -> Decoder:
    """SmolLM2 on one of `GRIDS`, made once a process."""
    return rounded(smollm2().model, grid)


@measurement(
    seeds=10,
    coords={"grid": GRIDS},
    tolerance={"loss": 0.02, "whole": 0.01, "moved": 0.001},
    pretrained=NEEDS,
    data=DATA,
)
def weights(seed: int) -> dict[str, Any]:
    """The loss with matrices rounded to eight and four bits, by row and by group; how far weights move."""
    texts = passages(seed)
    return {
        "loss": ("grid", [loss(rounded_smollm2(grid), texts) for grid in GRIDS]),
        "whole": loss(smollm2().model, texts),
        "moved": ("grid", [moved_smollm2(grid) for grid in GRIDS]),
    }


@functools.cache
def moved_smollm2(grid: str) -> float:
    """How far SmolLM2's matrices move to one of `GRIDS`; see `moved`."""
    return moved(smollm2().model, rounded_smollm2(grid))


@torch.no_grad()
def moved(one: Decoder, other: Decoder) -> float:
    """The length of the difference of the matrices in blocks over their own, all matrices together."""
    between = whole = 0.0
    for first, second in zip(one.blocks.parameters(), other.blocks.parameters(), strict=True):
        if first.ndim == 2:
            between += float((first - second).double().square().sum())
            whole += float(first.double().square().sum())
    return float((between / whole) ** 0.5)


def of_cache(way: str, bits: int) -> dict[str, Change]:
    """Interventions that round keys (after their rotation) and values as one of `WAYS` says.

    Raises:
        ValueError: when there is no such way.
    """
    if way not in WAYS:
        raise ValueError(f"expected {', '.join(WAYS)}; got {way!r}")
    exact = {"first exact": 0, "fifth exact": 4}.get(way)

    def along(axis: int) -> Change:
        def change(values: Tensor) -> Tensor:
            if exact is None:
                return steps(values, bits, axis)
            others = [i for i in range(values.shape[-2]) if i != exact]
            new = values.clone()
            new[..., others, :] = steps(values[..., others, :], bits, axis)
            return new

        return change

    axes = {"by channel": CHANNEL, "by token": TOKEN}
    keys, values = "blocks.*.attention.rotated_keys", "blocks.*.attention.values"
    if way.startswith("keys"):
        return {keys: along(axes[way.removeprefix("keys ")])}
    if way.startswith("values"):
        return {values: along(axes[way.removeprefix("values ")])}
    return {keys: along(CHANNEL), values: along(TOKEN)}


@measurement(
    seeds=10,
    coords={"rounded": WAYS, "bits": BITS},
    tolerance={"loss": 0.05, "whole": 0.01},
    pretrained=NEEDS,
    data=DATA,
)
def cache(seed: int) -> dict[str, Any]:
    """The loss with keys and values rounded, by channel and by token; with the first or the fifth exact."""
    texts, model = passages(seed), smollm2().model
    found = np.full((len(WAYS), len(BITS)), np.nan)
    for i, way in enumerate(WAYS):
        for j, bits in enumerate(BITS):
            if way == "both" or bits == 2:
                with intervene(model, of_cache(way, bits)):
                    found[i, j] = loss(model, texts)
    return {"loss": (("rounded", "bits"), found), "whole": loss(model, texts)}
