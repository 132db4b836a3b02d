"""Exercises of the chapter on a real model."""

from __future__ import annotations

import torch
from measured_transformer.analysis.bench import outsized
from torch import Tensor

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    number,
    tensor,
)
from measured_book.exercises.registry import Drawing, exercise

_CHAPTER = "book/inside/real-model"


@exercise(
    _CHAPTER,
    Drawing(
        "A model has {pieces} pieces, a stream of width {width} and {blocks} blocks, with networks four "
        "times as wide as the stream; leave out positions, norms, biases and heads. Two numbers: the share "
        "of the table of pieces in all parameters, and of the networks in the blocks.",
        lambda chance: {
            "pieces": chance.choice((32000, 50257, 128000)),
            "width": chance.choice((512, 1024, 2048)),
            "blocks": chance.choice((6, 16, 24)),
        },
    ),
)
def budget(answer: Answer, pieces: int = 30522, width: int = 768, blocks: int = 12) -> None:
    """Two numbers: the share of the word table in all parameters, of the networks in the blocks."""
    table, networks = answer.numbers("(a)", "(b)")
    entries, weights = pieces * width, 12 * width**2 * blocks
    way = "a table of V d numbers, and 12 d d in each block"
    slips = {
        entries
        / weights: "that is the table over the blocks; asked for is its share in both together",
    }
    demand_number(
        table, entries / (entries + weights), way=way, name="(a)", within=0.005, slips=slips
    )
    way = "8 d d in the network, 4 d d in attention"
    slips = {0.5: "the network is four times as wide as the stream: 4 d d each way"}
    demand_number(networks, 2 / 3, way=way, name="(b)", within=0.005, slips=slips)


def _drawn(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@exercise(_CHAPTER)
def sticks_out(answer: Answer) -> None:
    """Write `sticks_out(states)`: largest over median magnitude of each state's entries, (..., d_model)."""
    for shape, seed in (((3, 5), 0), ((2, 4, 7), 1), ((6, 9), 2)):
        states = _drawn(shape, seed)
        right = outsized(states)
        found = tensor(answer(states.clone()), tuple(right.shape))
        magnitude = states.abs()
        for slip, text in (
            (states.amax(-1) / magnitude.median(-1).values, "the largest *magnitude*: signs apart"),
            (magnitude.amax(-1) / states.median(-1).values, "the median *magnitude*: signs apart"),
            (magnitude.amax(-1) / magnitude.mean(-1), "that divides by the mean, not the median"),
            (magnitude.amax(-1) / magnitude.median(), "the median of the same state's entries"),
        ):
            demand(not close(found, slip), text)
        demand(close(found, right), f"for states of shape {shape} the ratios are others")


@exercise(_CHAPTER)
def arriving(answer: Answer) -> None:
    """Write `arriving(weights, values)`: for each query the share of key 0 in all weighted lengths."""
    for queries, keys, width, seed in ((2, 3, 4, 0), (4, 6, 3, 1), (1, 5, 8, 2)):
        weights = _drawn((queries, keys), seed).softmax(-1)
        values = _drawn((keys, width), seed + 10)
        lengths = weights * values.norm(dim=-1)
        right = lengths[:, 0] / lengths.sum(-1)
        found = tensor(answer(weights.clone(), values.clone()), (queries,))
        total = (weights @ values).norm(dim=-1)
        for slip, text in (
            (weights[:, 0], "that is the weight alone; multiply by the length of the vector"),
            (lengths[:, 0], "that is a length; divide by the sum over all keys"),
            (lengths[:, 0] / total, "divide by the sum of the lengths, not the length of the sum"),
        ):
            demand(not close(found, slip), text)
        demand(close(found, right), "the shares are others")


@exercise(_CHAPTER)
def rank(answer: Answer) -> None:
    """Write `rank(vectors)`: the mean reciprocal rank of partners 2i and 2i + 1, among all other vectors."""
    for count, seed in ((4, 0), (8, 1), (12, 2)):
        vectors = torch.nn.functional.normalize(_drawn((count, 5), seed), dim=-1)
        likeness = vectors @ vectors.T
        itself = likeness.clone()
        likeness = likeness.fill_diagonal_(-torch.inf)
        own = likeness[torch.arange(count), torch.arange(count) ^ 1]
        places = (likeness > own[:, None]).sum(-1) + 1
        right = float((1 / places.double()).mean())
        found = number(answer(vectors.clone()))
        with_itself = ((itself > own[:, None]).sum(-1) + 1).double()
        demand(
            not close(found, float((1 / with_itself).mean())),
            "a text is no candidate for itself: leave the diagonal out",
        )
        demand(
            not close(found, float(places.double().mean())),
            "that is the mean rank; asked for is the mean of one over the rank",
        )
        demand(
            not close(found, float(1 / places.double().mean())),
            "take the mean of one over the rank, not one over the mean",
        )
        demand(close(found, right), f"expected {right:.4f} for {count} texts, got {found:.4f}")


def _explained(
    states: Tensor, tokens: Tensor, *, seen: Tensor, asked: Tensor, unknown: Tensor, middle: Tensor
) -> float:
    """Share of what is asked, around `middle`, that the means of what was seen with each token explain."""
    said = torch.stack(
        [
            states[same].mean(0) if bool((same := seen & (tokens == token)).any()) else unknown
            for token in tokens[asked]
        ]
    )
    left = (states[asked] - said).square().sum()
    return float(1 - left / (states[asked] - middle).square().sum())


@exercise(_CHAPTER)
def token_alone(answer: Answer) -> None:
    """Write `token_alone(states, tokens, held)`: share of the held-out variance that token means explain."""
    for count, seed in ((60, 0), (90, 1)):
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(0, 8, (count,), generator=generator)
        tokens[-3:] = 8  # comes only where it is held out
        held = torch.arange(count) >= 2 * count // 3
        states = _drawn((9, 4), seed + 5)[tokens] + _drawn((count, 4), seed + 9) / 2 + 2
        here: dict[str, Tensor] = {
            "seen": ~held,
            "asked": held,
            "unknown": states[~held].mean(0),
            "middle": states[held].mean(0),
        }
        zero = torch.zeros_like(states[0])
        found = number(answer(states.clone(), tokens.clone(), held.clone()))
        slips: tuple[tuple[dict[str, Tensor], str], ...] = (
            (
                {"seen": torch.ones_like(held)},
                "the means must not see the places that are held out",
            ),
            (
                {"unknown": zero},
                "a token that comes only where it is held out gets the mean of all other states",
            ),
            ({"middle": zero}, "variance is around the mean: subtract it before you square"),
            (
                {"asked": ~held, "middle": states[~held].mean(0)},
                "score the places that are held out",
            ),
        )
        for slip, text in slips:
            demand(not close(found, _explained(states, tokens, **(here | slip))), text)
        right = _explained(states, tokens, **here)
        demand(close(found, right), f"expected {right:.4f}, got {found:.4f}")
