"""Exercises of the chapter on encoder and decoder."""

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

SUBJECT = "encdec"
"""The first word of the exercises' names."""
_CHAPTER = "book/translation/encoder-decoder"


@exercise(
    _CHAPTER,
    Drawing(
        "A source has {source} tokens, a target {target}, and each attention layer {heads} heads. Three "
        "numbers: (a) the attention weights of the cross-attention of one block; (b) those of the "
        "self-attention of an encoder block; (c) how often the encoder runs while the decoder writes the "
        "{target} tokens one by one.",
        lambda chance: {
            "source": chance.randint(10, 14),
            "target": chance.randint(3, 7),
            "heads": chance.choice((4, 6, 12)),
        },
    ),
)
def counts(answer: Answer, source: int = 9, target: int = 5, heads: int = 8) -> None:
    """Three numbers: weights of a cross-attention, of the encoder's self-attention, and runs of the encoder."""
    cross, own, runs = answer.numbers("(a)", "(b)", "(c)")
    way = "a head has a row for each asking position and a column for each position that is asked"
    slips = {
        float(heads * source**2): f"the rows belong to the target: {target} of them",
        float(heads * target**2): f"the columns belong to the source: {source} of them",
        float(source * target): "that is one head",
    }
    demand_number(
        cross, float(heads * target * source), name="(a)", within=1e-6, way=way, slips=slips
    )
    slips = {
        float(source**2): "that is one head",
        float(
            heads * target * source
        ): f"the source asks itself: {source} rows and {source} columns",
    }
    demand_number(own, float(heads * source**2), name="(b)", within=1e-6, way=way, slips=slips)
    slips = {float(target): "does the memory change when a target word is written?"}
    way = "what of the encoder depends on the words that have been written?"
    demand_number(runs, 1.0, name="(c)", within=1e-6, way=way, slips=slips)


def _drawn(seed: int) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """States, a memory of which some places are padding, where it is real, and three matrices."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    states, memory = normal(3, 4, 6), normal(3, 7, 6)
    real = torch.arange(7) < torch.tensor([7, 5, 2])[:, None]
    return states, memory, real, [normal(6, 5) / math.sqrt(6) for _ in range(3)]


def _attended(asking: Tensor, asked: Tensor, told: Tensor, real: Tensor | None) -> Tensor:
    scores = asking @ asked.transpose(-1, -2) / math.sqrt(asking.shape[-1])
    if real is not None:
        scores = scores.masked_fill(~real[:, None], -math.inf)
    return scores.softmax(-1) @ told


@exercise(_CHAPTER)
def cross(answer: Answer) -> None:
    """Write `cross(states, memory, real, to_query, to_key, to_value)`: one head of cross-attention."""
    for seed in range(4):
        states, memory, real, (q, k, v) = _drawn(seed)
        found = answer(states.clone(), memory.clone(), real.clone(), q, k, v)
        demand(isinstance(found, Tensor), f"expected a tensor, got {type(found).__name__}")
        right = _attended(states @ q, memory @ k, memory @ v, real)
        demand(
            found.shape == right.shape,
            f"expected one row for each target position, shape {tuple(right.shape)}, got "
            f"{tuple(found.shape)}: who asks, and who is asked?",
        )
        unscaled = _attended(states @ q * math.sqrt(5), memory @ k, memory @ v, real)
        for wrong, words in (
            (_attended(states @ q, memory @ k, memory @ v, None), "padding is looked at too"),
            (
                _attended(states @ k, memory @ q, memory @ v, real),
                "the matrices of queries and keys are exchanged",
            ),
            (
                _attended(states @ q, memory @ k, memory @ v, ~real),
                "nothing but padding is looked at",
            ),
            (unscaled, "the scores are not divided by the root of the head's width"),
        ):
            demand(not torch.allclose(found, wrong, equal_nan=True), words)
        demand(
            torch.allclose(found, right),
            f"off by {float((found - right).abs().max()):.3g}; queries come from the states, keys and "
            "values from the memory",
        )


def _links(seed: int) -> tuple[list[int], list[int]]:
    """Links of seven target words and the right ones, some of which do not exist."""
    generator = torch.Generator().manual_seed(seed)
    right = torch.randint(-1, 6, (7,), generator=generator)
    right[0], right[1] = -1, 3
    noise = torch.rand(7, generator=generator) < 0.4
    links = torch.where(noise, torch.randint(0, 6, (7,), generator=generator), right.clamp_min(0))
    return links.tolist(), right.tolist()


@exercise(_CHAPTER)
def error_rate(answer: Answer) -> None:
    """Write `error_rate(links, right)`: the alignment error rate of one sentence."""
    for seed in range(6):
        links, gold = _links(seed)
        found = number(answer(list(links), list(gold)))
        agree = sum(a == b for a, b in zip(links, gold, strict=True))
        aligned = sum(b >= 0 for b in gold)
        right = 1 - 2 * agree / (len(links) + aligned)
        for wrong, words in (
            (1 - right, "an error rate is one minus the agreement"),
            (1 - agree / aligned, "links of words that have no right one are errors too"),
            (1 - agree / len(links), "count the right alignments below the line as well"),
            (
                1 - agree / (len(links) + aligned),
                "an agreement counts twice: in the links and in the right ones",
            ),
        ):
            demand(not close(found, wrong) or close(found, right), words)
        demand(
            close(found, right),
            f"expected {right:.4g}, got {found:.4g}; {agree} of {len(links)} links are right, and there are "
            f"{aligned} right ones",
        )


def _texts(seed: int) -> list[tuple[list[float], bool]]:
    """Texts of a beam: the log-probabilities of their pieces, and whether each has ended."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 9, (6,), generator=generator).tolist()
    found = []
    for place, length in enumerate(lengths):
        chances = torch.rand(length, generator=generator, dtype=torch.float64) * 0.9 + 0.05
        found.append((chances.log().tolist(), place != 2))
    return found


def _best(texts: list[tuple[list[float], bool]], penalty: float, *, ended: bool = True) -> int:
    scores = {
        place: sum(logs) / len(logs) ** penalty
        for place, (logs, done) in enumerate(texts)
        if done or not ended
    }
    return max(scores, key=lambda place: scores[place])


@exercise(_CHAPTER)
def best_text(answer: Answer) -> None:
    """Write `best_text(texts, penalty)`: which text of a beam is its translation."""
    shorter = [([-0.1], False), ([-0.5, -0.5], True)]
    cases = [(shorter, 0.0), *((_texts(seed), p) for seed in range(12) for p in (0.0, 0.6, 1.0))]
    for texts, penalty in cases:
        found = number(answer([(list(logs), done) for logs, done in texts], penalty))
        right = _best(texts, penalty)
        told = f"with a penalty of {penalty:g} expected text {right}, got {found:g}"
        running = _best(texts, penalty, ended=False)
        unended = "a text that has not ended is no translation yet"
        demand(found != running or running == right, f"{told}; {unended}")
        for other in (1.0 if penalty == 0 else 0.0, -penalty):
            wrong = _best(texts, other)
            way = "divide by the length to the power of the penalty"
            demand(found != wrong or wrong == right, f"{told}; {way}")
        demand(
            found == right, f"{told}; add up the log-probabilities, divide, and take the largest"
        )
