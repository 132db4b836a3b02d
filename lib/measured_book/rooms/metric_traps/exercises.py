"""Exercises of the chapter on metric traps."""

from __future__ import annotations

import random
from collections import Counter

import torch
from measured_transformer.analysis.bleu import corpus_statistics, score, statistics
from torch import Tensor

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    number,
)
from measured_book.exercises.registry import Drawing, exercise

SUBJECT = "metrics"
"""The first word of the exercises' names."""
_CHAPTER = "book/translation/metric-traps"
_WORDS = ("the", "cat", "sat", "on", "a", "mat")


@exercise(
    _CHAPTER,
    Drawing(
        "Two numbers: (a) the accuracy over all positions of a model that is right at {right} of the real "
        "tokens, where a share {padding} of the positions is padding, predicted perfectly; (b) the accuracy "
        "on real tokens where it is {printed} over all positions, a share {most} of them padding, all of it "
        "predicted correctly.",
        lambda chance: {
            "right": chance.choice((0.3, 0.4, 0.6)),
            "padding": chance.choice((0.6, 0.7, 0.8)),
            "printed": chance.choice((0.94, 0.96, 0.98)),
            "most": chance.choice((0.92, 0.85)),
        },
    ),
)
def counted(
    answer: Answer,
    right: float = 0.5,
    padding: float = 0.9,
    printed: float = 0.97,
    most: float = 0.95,
) -> None:
    """Two numbers: (a) an accuracy with padding from that on real tokens; (b) the other way round."""
    everywhere, real = answer.numbers("(a)", "(b)")
    slips = {
        padding * right: "the padding is right as well, all of it",
        1
        - padding
        * right: "the share of padding counts once, and of what is left of the positions only a part is right",
    }
    way = "add what padding brings and what real tokens bring"
    demand_number(
        everywhere, padding + (1 - padding) * right, name="(a)", within=1e-3, way=way, slips=slips
    )
    wanted = (printed - most) / (1 - most)
    slips = {
        printed: "that is what was printed; how much of it is padding?",
        printed - most: "so many positions are right and real: as a share of the real ones?",
        1 - wanted: "so many of the real ones are wrong",
    }
    way = "how many of a hundred positions are real, and how many of those are wrong?"
    demand_number(real, wanted, name="(b)", within=1e-3, way=way, slips=slips)


def _batch(seed: int) -> tuple[Tensor, Tensor]:
    """Guesses and targets of sentences of different lengths, padded with 0."""
    random_ = torch.Generator().manual_seed(seed)
    targets = torch.randint(1, 6, (5, 9), generator=random_)
    lengths = torch.tensor([1, 9, 3, 5, 2])[:, None]
    targets[torch.arange(9) >= lengths] = 0
    guesses = torch.randint(0, 6, (5, 9), generator=random_)
    copied = torch.rand(5, 9, generator=random_) < 0.5
    return torch.where(copied, targets, guesses), targets


@exercise(_CHAPTER)
def masked_accuracy(answer: Answer) -> None:
    """Write `masked_accuracy(guesses, targets, padding)`: share of real tokens that were guessed."""
    for seed in range(4):
        guesses, targets = _batch(seed)
        found = number(answer(guesses.clone(), targets.clone(), 0))
        right = guesses == targets
        real = targets != 0
        expected = float(right[real].double().mean())
        slips = {
            float(right.double().mean()): "padding is counted",
            float((right & real).double().sum() / targets.numel()): (
                "the sum leaves padding out, what it is divided by does not"
            ),
            float((right.double() * real).sum(1).div(real.sum(1)).mean()): (
                "each sentence counts alike there, however long: count tokens"
            ),
            float(right[guesses != 0].double().mean()): (
                "the model's own padding decides there what counts; ask the targets"
            ),
        }
        for value, words in slips.items():
            demand(not close(found, value) or close(found, expected), words)
        demand(
            close(found, expected),
            f"expected {expected:.4g}, got {found:.4g}; how many targets are real?",
        )


def _pairs(seed: int, sentences: int = 4) -> tuple[list[list[str]], list[list[str]]]:
    """Hypotheses and references: shuffled copies with words repeated, dropped and exchanged."""
    draw = random.Random(seed)
    references = [draw.choices(_WORDS, k=draw.randint(6, 11)) for _ in range(sentences)]
    hypotheses = []
    for words in references:
        kept = [w if draw.random() < 0.9 else draw.choice(_WORDS) for w in words]
        hypotheses.append(kept[: len(kept) - draw.randint(0, 2)])
    return hypotheses, references


@exercise(_CHAPTER)
def clipped(answer: Answer) -> None:
    """Write `clipped(hypothesis, reference, n)`: BLEU's matched n-grams over the hypothesis's n-grams."""
    cases = [(["the", "the", "the", "the"], ["the", "cat", "on", "the", "mat"], 1)]
    for seed in range(4):
        hypotheses, references = _pairs(seed)
        cases += [(hypotheses[0], references[0], n) for n in (1, 2, 3)]
    for hypothesis, reference, n in cases:
        found = number(answer(list(hypothesis), list(reference), n))
        counts = statistics(hypothesis, reference)
        expected = float(counts[n - 1] / counts[3 + n])
        grams = [tuple(hypothesis[i : i + n]) for i in range(len(hypothesis) - n + 1)]
        theirs = Counter(tuple(reference[i : i + n]) for i in range(len(reference) - n + 1))
        unclipped = sum(gram in theirs for gram in grams) / len(grams)
        recall = float(counts[n - 1]) / theirs.total()
        single = len(set(grams) & set(theirs)) / len(grams)
        for value, words in (
            (unclipped, "a word may count only as often as the reference has it"),
            (recall, "divide by the n-grams of the hypothesis: it is a precision"),
            (single, "an n-gram that stands in both twice counts twice"),
        ):
            demand(not close(found, value) or close(found, expected), words)
        demand(
            close(found, expected),
            f"expected {expected:.4g} for {n}-grams, got {found:.4g}; are they runs of neighbours?",
        )


@exercise(_CHAPTER)
def bleu(answer: Answer) -> None:
    """Write `bleu(hypotheses, references)`: of a corpus, each sentence a list of words."""
    for seed in range(4):
        hypotheses, references = _pairs(seed, sentences=6)
        found = number(answer([*map(list, hypotheses)], [*map(list, references)]))
        rows = corpus_statistics(hypotheses, references)
        whole = score(rows.sum(0))
        sentences = float(sum(score(row).value for row in rows) / len(rows))
        arithmetic = whole.brevity * sum(whole.precisions) / 4
        for value, words in (
            (sentences, "that is the mean over sentences; add up the counts of all first"),
            (whole.value / whole.brevity, "the hypotheses are too short: where is the penalty?"),
            (arithmetic, "the mean of the four precisions is the geometric one"),
        ):
            demand(not close(found, value) or close(found, whole.value), words)
        demand(
            close(found, whole.value),
            f"expected {whole.value:.4g}, got {found:.4g}; the four precisions are "
            f"{', '.join(f'{p:.3f}' for p in whole.precisions)}",
        )
