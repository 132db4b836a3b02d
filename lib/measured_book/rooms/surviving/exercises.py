"""Exercises of the chapter `book/positions/surviving`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    number,
)
from measured_book.exercises.registry import Drawing, exercise

SUBJECT = "positions"
"""The first word of the exercises' names."""
_LAYERS = "book/positions/surviving"


@exercise(
    _LAYERS,
    Drawing(
        "The entries of a position vector have variance 1/2, and each of {sublayers} sublayers adds "
        "independent noise to every entry. Two numbers: (a) the variance of that noise at which half of the "
        "variance at the top is still due to the position; (b) what is left of the amplitude after "
        "{sublayers} sublayers with post-norm, where the stream has variance one before a sublayer writes "
        "with variance one.",
        lambda chance: {"sublayers": chance.choice((6, 8, 12, 16, 32, 48))},
    ),
)
def diluted(answer: Answer, sublayers: int = 24) -> None:
    """Two numbers: (a) the variance each of 24 sublayers writes; (b) what 24 norms leave of an amplitude."""
    variance, amplitude = answer.numbers("(a)", "(b)")
    slips = {
        1 / sublayers: "the position has not variance one",
        0.5: f"there are {sublayers} sublayers",
        1
        / (4 * sublayers): "half of the sum is the position's, so the other half is as large as it",
        math.sqrt(
            1 / (2 * sublayers)
        ): "asked for is a variance; of independent numbers variances add",
    }
    demand_number(
        variance, 1 / (2 * sublayers), name="(a)", within=1e-3, way="variances add", slips=slips
    )
    slips = {
        2.0**-sublayers: "a norm divides by the standard deviation, not by the variance",
        1
        / (
            sublayers + 1
        ): "without the norms it would be so, of the variance; each norm shrinks what is there",
        1
        / math.sqrt(
            sublayers + 1
        ): "without the norms it would be so; each norm shrinks what is there",
    }
    way = "what does one norm divide by, and how often?"
    demand_number(amplitude, 2 ** (-sublayers / 2), name="(b)", within=1e-3, way=way, slips=slips)


def _stream(sequences: int, width: int, noise: float, seed: int) -> Tensor:
    """Vectors of ten places in so many sequences: a direction for the place, a constant, and noise."""
    random = torch.Generator().manual_seed(seed)
    direction, constant = torch.randn(2, width, generator=random, dtype=torch.float64)
    places = torch.arange(10, dtype=torch.float64)[None, :, None]
    drawn = torch.randn(sequences, 10, width, generator=random, dtype=torch.float64)
    return places * direction / direction.norm() + 3 * constant + noise * drawn


def _held_out(known: Tensor, asked: Tensor) -> float:
    places = torch.arange(known.shape[1], dtype=torch.float64)

    def with_one(x: Tensor) -> Tensor:
        return torch.cat((x.flatten(0, 1), torch.ones(x.shape[0] * x.shape[1], 1).double()), 1)

    weights = torch.linalg.lstsq(with_one(known), places.repeat(len(known))[:, None]).solution
    truth = places.repeat(len(asked))
    error = truth - (with_one(asked) @ weights)[:, 0]
    return float(1 - error.pow(2).mean() / truth.var(correction=0))


@exercise(_LAYERS)
def probe(answer: Answer) -> None:
    """Write `probe(known, asked)`: R2 on `asked` of a linear map to the places, fitted on `known`."""
    for seed, (sequences, width, noise) in enumerate(((40, 6, 0.0), (40, 6, 2.0), (12, 40, 4.0))):
        known, asked = (_stream(sequences, width, noise, seed) for _ in range(2))
        asked = asked + noise * torch.randn(
            asked.shape, generator=torch.Generator().manual_seed(99), dtype=torch.float64
        )
        found = number(answer(known.clone(), asked.clone()))
        right = _held_out(known, asked)
        demand(
            not close(found, _held_out(known, known), 1e-4) or close(found, right, 1e-4),
            "that is the fit to the sequences it was trained on; ask it about the others",
        )
        demand(found <= 1 + 1e-6, f"R2 is at most one, got {found:.4g}")
        demand(
            close(found, right, 1e-3),
            f"expected an R2 of {right:.4g} on {sequences} sequences of width {width}, got {found:.4g}; "
            "does the map have a constant, and is the error compared with the variance of the places?",
        )


@exercise(_LAYERS)
def without_places(answer: Answer) -> None:
    """Write `without_places(x)`: the stream (batch, position, width) without what tells its positions apart."""
    random = torch.Generator().manual_seed(3)
    tokens = torch.randn(50, 6, 8, generator=random, dtype=torch.float64)
    stream = tokens + 4 * torch.randn(6, 8, generator=random, dtype=torch.float64)
    found = answer(stream.clone())
    demand(
        isinstance(found, Tensor) and found.shape == stream.shape,
        f"expected a tensor of shape {tuple(stream.shape)}, got "
        f"{tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__}",
    )
    means = found.mean(0)
    demand(
        close(means, means.mean(0).expand_as(means)),
        "the mean over the batch still differs from position to position",
    )
    demand(
        close(found.mean((0, 1)), stream.mean((0, 1))),
        "the mean over all positions has changed; it tells nothing about order, so let it stay",
    )
    demand(
        close(found - means, stream - stream.mean(0)),
        "what the tokens brought has changed: only the mean at each position may",
    )
