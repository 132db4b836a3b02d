"""Patterns of text that a neuron responds to: found on one half of its contexts, scored on the other.

Activations are tables, a row for each context and a column for each neuron, as in `ffn_memory`.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from measured_transformer.tasks.task import Batch
from measured_transformer.tasks.text import TextLM
from measured_transformer.training.seeding import make_generator

CLASSES = (
    *(r"[a-z]", r"[A-Z]", r"[0-9]", r"[aeiou]", r"\n", r"\s\s", r"\n\s+", r"[^\w\s]", r"[.,;:]"),
    *(r"[(\[{]", r"[)\]}]", r"['\"`]", r"\W[a-z]", r"\W[a-z]{2}", r"[A-Z][a-z]", r"\w\s", r"\.\s+"),
)
"""Regular expressions that a context can end with, besides its n-grams."""


LETTERS = (r"[a-z]", r"[A-Z]", r"[0-9]", r"[aeiou]", r"\s", r"[^\w\s]")
"""Regular expressions for kinds of single characters."""


def letter_sets(task: TextLM) -> Bool[ndarray, "set token"]:
    """Which tokens of a text are of each kind of `LETTERS`."""
    letters = [task.text(torch.tensor([i])) for i in range(task.vocab)]
    return np.array([[re.fullmatch(kind, one) is not None for one in letters] for kind in LETTERS])


@dataclass(frozen=True)
class Contexts:
    """Places of a text, and which patterns the text before each of them ends with.

    Attributes:
        batch: the windows that the places belong to.
        first: places before this position of a window are left out.
        names: of the patterns: the characters of an n-gram in quotes, or a regular expression.
        matches: which patterns fit which places.
    """

    batch: Batch
    first: int
    names: tuple[str, ...]
    matches: Bool[ndarray, "pattern input"]

    @property
    def strings(self) -> Bool[ndarray, "pattern"]:
        """Which patterns are n-grams of more than one character."""
        return np.array([n not in CLASSES and len(literal_eval(n)) > 1 for n in self.names])


def contexts(
    task: TextLM, seed: int, size: int, *, least: int = 8, names: Sequence[str] | None = None
) -> Contexts:
    """Draw windows of a text and find the patterns that end at each place.

    Patterns are the n-grams of one to three tokens and the regular expressions of `CLASSES`.

    Args:
        task: whose part is drawn from.
        seed: of the windows.
        size: number of windows.
        least: an n-gram counts as a pattern when it ends at so many places.
        names: the patterns to look for, such as those of another call; when not given, they are found.
    """
    first = 3
    batch = task.batch(make_generator(seed, "contexts"), size)
    letters = [task.text(torch.tensor([i])) for i in range(task.vocab)]
    rows = [[letters[i] for i in row] for row in batch.inputs.tolist()]
    ends = [row[: i + 1] for row in rows for i in range(first, len(row))]
    grams: dict[str, list[int]] = {}
    for place, end in enumerate(ends):
        for n in (1, 2, 3):
            grams.setdefault(repr("".join(end[-n:])), []).append(place)
    if names is None:
        names = (*CLASSES, *sorted(gram for gram, found in grams.items() if len(found) >= least))
    matches = np.zeros((len(names), len(ends)), dtype=bool)
    texts = ["".join(end) for end in ends]
    for row, name in enumerate(names):
        if name in CLASSES:
            pattern = re.compile(f"(?:{name})$(?!\n)")
            matches[row] = [pattern.search(text) is not None for text in texts]
        else:
            matches[row, grams.get(name, [])] = True
    return Contexts(batch, first, tuple(names), matches)


def strongest(
    values: Float[ndarray, "input neuron"], share: float = 0.02
) -> Bool[ndarray, "input neuron"]:
    """For each neuron its strongest inputs: those in the top share that are above zero.

    Raises:
        ValueError: when the share does not lie in (0, 1).
    """
    if not 0 < share < 1:
        raise ValueError(f"share must lie in (0, 1), got {share}")
    return (values >= np.quantile(values, 1 - share, axis=0)) & (values > 0)


@dataclass(frozen=True)
class Detectors:
    """The pattern that fits each neuron's strongest contexts best, and how it fares on contexts kept aside.

    Attributes:
        pattern: number of the pattern, found on the first half.
        precision: of the contexts of the second half that it names, how many are strongest ones.
        recall: of the strongest contexts of the second half, how many it names.
        f1: harmonic mean of both.
        shuffled: the same F1 for the contexts of another neuron.
        counted: neurons with at least five strongest contexts in each half; the others respond to nothing.
    """

    pattern: Int[ndarray, "neuron"]
    precision: Float[ndarray, "neuron"]
    recall: Float[ndarray, "neuron"]
    f1: Float[ndarray, "neuron"]
    shuffled: Float[ndarray, "neuron"]
    counted: Bool[ndarray, "neuron"]


def detectors(
    found_on: Bool[ndarray, "pattern found"],
    strong_there: Bool[ndarray, "found neuron"],
    kept: Bool[ndarray, "pattern kept"],
    strong_kept: Bool[ndarray, "kept neuron"],
    *,
    seed: int = 0,
) -> Detectors:
    """Choose for each neuron the pattern of highest F1 on one half, and score it on the other.

    Args:
        found_on: which patterns fit which contexts of the first half.
        strong_there: the strongest contexts of each neuron there.
        kept: the same patterns on the second half.
        strong_kept: the strongest contexts there.
        seed: of the order in which neurons are shuffled, so that none keeps its own contexts.

    Raises:
        ValueError: when there is only one neuron, so that none can be shuffled.
    """
    neurons = strong_there.shape[1]
    if neurons < 2:
        raise ValueError(f"expected at least two neurons, got {neurons}")
    hits = found_on.astype(np.float32) @ strong_there.astype(np.float32)
    sizes = found_on.sum(1)[:, None] + strong_there.sum(0)[None]
    chosen = np.argmax(2 * hits / np.maximum(sizes, 1), axis=0)
    order = np.random.default_rng(seed).permutation(neurons)
    other = np.empty(neurons, dtype=int)
    other[order] = np.roll(order, 1)  # one cycle: nobody stays in place
    named = kept[chosen].T

    def scores(strong: Bool[ndarray, "kept neuron"]) -> tuple[ndarray, ndarray, ndarray]:
        both = (named & strong).sum(0)
        return (
            both / np.maximum(named.sum(0), 1),
            both / np.maximum(strong.sum(0), 1),
            2 * both / np.maximum(named.sum(0) + strong.sum(0), 1),
        )

    precision, recall, f1 = scores(strong_kept)
    counted = (strong_there.sum(0) >= 5) & (strong_kept.sum(0) >= 5)
    return Detectors(chosen, precision, recall, f1, scores(strong_kept[:, other])[2], counted)
