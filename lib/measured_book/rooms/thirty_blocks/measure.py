"""What the chapter *Thirty blocks* measures on SmolLM2-135M-Instruct: the stream, and early readings of it.

A seed is a draw of texts, half from the reference of the Python language, half from paragraphs of this book;
the model is always the same. Modules by question: `order` (blocks left out, swapped, repeated, reversed),
`taking` (heads one at a time and in sets), `repair`, `far` (positions), `scores`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from measured_transformer.internals.capture import capture
from measured_transformer.models.decoder import Decoder
from numpy import ndarray
from torch import Tensor
from torch.nn import functional as F

from measured_book.measuring import measurement
from measured_book.rooms.thirty_blocks.again import (
    LATER_DRAWS,
    fifth_again,
    kept_again,
    largest_again,
    middle_again,
    out_again,
    place_again,
    repair_again,
    zero_again,
)
from measured_book.rooms.thirty_blocks.far import far, pairs
from measured_book.rooms.thirty_blocks.needle import (
    needle,
    needle_again,
    needle_apart,
    needle_apart_again,
)
from measured_book.rooms.thirty_blocks.order import blocks, middle, runs
from measured_book.rooms.thirty_blocks.passages import BLOCKS, passages
from measured_book.rooms.thirty_blocks.repair import repair
from measured_book.rooms.thirty_blocks.scores import scores
from measured_book.rooms.thirty_blocks.taking import heads, sets
from measured_book.smollm2.controls import smollm2_of_same_spectrum
from measured_book.smollm2.maps import linear_map
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.sweeps import begin
from measured_book.smollm2.texts import DATA

__all__ = [
    "blocks",
    "far",
    "fifth_again",
    "heads",
    "kept_again",
    "largest_again",
    "lens",
    "lens_again",
    "middle",
    "middle_again",
    "needle",
    "needle_again",
    "needle_apart",
    "needle_apart_again",
    "out_again",
    "pairs",
    "place_again",
    "repair",
    "repair_again",
    "runs",
    "scores",
    "sets",
    "stream",
    "stream_again",
    "zero_again",
]

STATES = (0, *BLOCKS)
ARMS = ("trained", "same spectrum")
TOKENS = ("first", "other")
PARTS = ("attention", "network")
CURVES = ("exponential", "line")
LAST = 29
"""Growth is judged up to this state: the last block prepares the reading."""


@measurement(
    seeds=10,
    coords={
        "arm": ARMS,
        "token": TOKENS,
        "state": STATES,
        "other": STATES,
        "block": BLOCKS,
        "part": PARTS,
        "curve": CURVES,
    },
    pretrained=NEEDS,
    data=DATA,
)
def stream(seed: int) -> dict[str, Any]:
    """How long the stream is, what each sublayer adds, how far a block turns it; the first token apart."""
    texts, _ = passages(seed, 64, 4)
    found = [account(model, texts) for model in (smollm2(), smollm2_of_same_spectrum(0))]
    states = begin(texts).states[:, :, 1:].flatten(1, 2)
    unit = F.normalize(states, dim=-1)
    alike = torch.einsum("apd,bpd->ab", unit, unit) / unit.shape[1]
    lengths = np.stack([one["length"] for one in found])
    return {
        "length": (("arm", "token", "state"), lengths),
        "written": (
            ("arm", "part", "token", "block"),
            np.stack([one["written"] for one in found]),
        ),
        "kept": (("arm", "token", "block"), np.stack([one["kept"] for one in found])),
        "fit": (
            ("arm", "token", "curve"),
            [[fits(row[1 : LAST + 1]) for row in arm] for arm in lengths],
        ),
        "alike": (("state", "other"), alike),
    }


@torch.no_grad()
def account(model: Decoder, texts: Tensor) -> dict[str, ndarray]:
    """Mean length of the stream, of each write over the stream it is added to, and cosine over each block."""
    with capture(model, "blocks.*.residual_mid") as seen:
        states = begin(texts, model=model).states
    middle = torch.stack([seen[f"blocks.{i}.residual_mid"] for i in range(len(states) - 1)])
    before, after = states[:-1], states[1:]
    ratios = [
        apart((middle - before).norm(dim=-1)) / apart(before.norm(dim=-1)),
        apart((after - middle).norm(dim=-1)) / apart(middle.norm(dim=-1)),
    ]
    return {
        "length": apart(states.norm(dim=-1)),
        "written": np.stack(ratios),
        "kept": apart(F.cosine_similarity(before, after, dim=-1)),
    }


def apart(values: Float[Tensor, "depth text position"]) -> Float[ndarray, "token depth"]:
    """Means over texts: of the first token, and of all others."""
    exact = values.double()
    return torch.stack([exact[:, :, 0].mean(1), exact[:, :, 1:].mean((1, 2))]).numpy()


def fits(lengths: Float[ndarray, "state"]) -> tuple[float, float]:
    """Share of the variance of log lengths that an exponential curve and that a straight line explain.

    Both are fitted by least squares, the one to the logarithms, the other to the lengths.

    >>> [round(x, 3) for x in fits(np.exp(0.1 * np.arange(20.0)))]
    [1.0, 0.714]
    """
    place, logs = np.arange(len(lengths)), np.log(lengths)
    curve = np.polyval(np.polyfit(place, logs, 1), place)
    line = np.polyval(np.polyfit(place, lengths, 1), place).clip(1e-3 * lengths.min())
    spread = np.square(logs - logs.mean()).sum()
    return tuple(  # type: ignore[return-value]
        float(1 - np.square(logs - one).sum() / spread) for one in (curve, np.log(line))
    )


# What is read early -------------------------------------------------------------------------------

LENSES = ("logit", "linear")
HALVES = ("first", "second")
PLACES = slice(8, 63, 7)
"""Positions that are read, of 64."""
FITTED = 16
"""Texts of 64 tokens that the linear maps are fitted on; a quarter of them chooses the penalty."""


@measurement(
    seeds=10,
    coords={"lens": LENSES, "state": STATES, "half": HALVES},
    pretrained=NEEDS,
    data=DATA,
)
def lens(seed: int) -> dict[str, Any]:
    """The loss that is read off the stream after each number of blocks, as it is and through a linear map."""
    texts, others = passages(seed, 64, 8, FITTED)
    states = begin(texts).states[:, :, PLACES]
    fitted = begin(others).states[:, :, 1:]
    final = fitted[-1].flatten(0, 1)
    read = []
    for state, seen in zip(states, fitted, strict=True):
        mapped = linear_map(seen.flatten(0, 1), final, len(final) * 3 // 4)
        read.append([early(one, texts) for one in (state, mapped(state))])
    return {"read": (("state", "lens", "half"), read)}


@torch.no_grad()
def early(state: Float[Tensor, "text place d_model"], texts: Tensor) -> list[float]:
    """The loss that the model's own reading of a state gives, on each half of the texts."""
    answers = texts[:, 1:][:, PLACES]
    logits = smollm2().unembed(state).float().flatten(0, 1)
    losses = F.cross_entropy(logits, answers.flatten(), reduction="none").view(answers.shape)
    return [float(half.double().mean()) for half in losses.chunk(2)]


@measurement(
    seeds=30,
    coords={"lens": LENSES, "state": STATES, "half": HALVES},
    pretrained=NEEDS,
    data=DATA,
)
def lens_again(seed: int) -> Mapping[str, Any]:
    """The loss that is read off the stream, as it is and through a linear map, on fresh draws."""
    return lens(LATER_DRAWS + seed)


@measurement(
    seeds=20,
    coords={"token": TOKENS, "state": STATES, "block": BLOCKS, "curve": CURVES},
    pretrained=NEEDS,
    data=DATA,
)
def stream_again(seed: int) -> dict[str, Any]:
    """How the trained model's stream grows and how far a block turns it, on fresh draws."""
    texts, _ = passages(LATER_DRAWS + seed, 64, 4)
    found = account(smollm2(), texts)
    return {
        "fit": (("token", "curve"), [fits(row[1 : LAST + 1]) for row in found["length"]]),
        "kept": (("token", "block"), found["kept"]),
    }
