"""Exercises of the chapter on entropy as a signal."""

from __future__ import annotations

import math

import numpy as np

from measured_transformer.chapters.entropy_as_a_signal.measure import area
from measured_transformer.exercises.answers import Answer, close, demand, demand_number, number
from measured_transformer.exercises.registry import exercise

SUBJECT = "entropy_signal"
"""The first word of the exercises' names."""

_CHAPTER = "book/attention/entropy-as-a-signal"


@exercise(_CHAPTER)
def rows(answer: Answer) -> None:
    """Three entropies of rows over eight keys, as shares of the largest: two keys, one key, half and rest."""
    two, one, half = answer.numbers("(a)", "(b)", "(c)")
    slips = {
        math.log(2): "divide by the largest value, ln 8",
        0.25: "a quarter of the keys, but the logarithm counts doublings",
        1.0: "that is even attention over all eight",
    }
    way = "two equal weights have the entropy ln 2"
    demand_number(two, 1 / 3, way=way, name="(a)", within=0.01, slips=slips)
    slips = {
        1.0: "one key is the least even attention there is",
        1 / 8: "a logarithm of one is zero",
    }
    demand_number(one, 0.0, way="what is 1 ln 1?", name="(b)", within=0.005, slips=slips)
    right = math.log(2) + math.log(7) / 2
    slips = {
        right: "divide by the largest value, ln 8",
        0.5: "half the weight is not half the entropy",
        (math.log(2) / 2 + math.log(7) / 2)
        / math.log(8): "the seven share a half: their weights are 1/14",
    }
    way = "one term for the leader, seven equal terms for the rest"
    demand_number(half, right / math.log(8), way=way, name="(c)", within=0.005, slips=slips)


@exercise(_CHAPTER)
def curve(answer: Answer) -> None:
    """Write `area(failed, others)`: the chance that a failed run's score is the higher one, ties half."""
    rng = np.random.default_rng(0)
    cases = [
        (np.array([3.0, 4.0]), np.array([1.0, 2.0])),
        (np.array([1.0, 1.0]), np.array([1.0])),
        (np.array([1.0]), np.array([2.0, 0.0, 0.0])),
        (rng.normal(size=7), rng.normal(size=5)),
        (rng.integers(0, 3, size=9).astype(float), rng.integers(0, 3, size=4).astype(float)),
    ]
    for failed, others in cases:
        found = number(answer(failed, others))
        both = np.concatenate([failed, others])
        labels = np.arange(len(both)) < len(failed)
        right = area(both, labels)
        shown = f"for {len(failed)} failed runs and {len(others)} others it gives {found:.4g}"
        mirrored = close(found, 1 - right) and not close(right, 0.5)
        demand(not mirrored, f"{shown}: that is the chance that the *other* one is higher")
        strict = float((failed[:, None] > others[None, :]).mean())
        tied = close(found, strict) and not close(strict, right)
        demand(not tied, f"{shown}: what about ties?")
        demand(close(found, right), f"{shown}; compare every failed run with every other one")


@exercise(_CHAPTER)
def ends(answer: Answer) -> None:
    """Three areas for failed runs at both ends of a scale: half and half, three quarters low, by distance."""
    half, mostly, distance = answer.numbers("(a)", "(b)", "(c)")
    slips = {
        1.0: "the other half of the failed runs has the highest entropies of all",
        0.0: "half of them do have the lowest",
    }
    way = "how often does a random failed run lie below a random other one?"
    demand_number(half, 0.5, way=way, name="(a)", within=0.005, slips=slips)
    slips = {
        0.25: "that is high entropy as the sign",
        0.5: "three quarters lie below all others now",
    }
    demand_number(mostly, 0.75, way=way, name="(b)", within=0.005, slips=slips)
    slips = {
        0.5: "it does not matter on which side they lie",
        0.75: "those above are far away, too",
    }
    way = "who is farther from the middle of the good runs?"
    demand_number(distance, 1.0, way=way, name="(c)", within=0.005, slips=slips)
