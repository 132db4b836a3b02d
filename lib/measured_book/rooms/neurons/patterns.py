"""Patterns of text: which of them a neuron detects, and how far the last characters predict it."""

from __future__ import annotations

import lzma
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from measured_transformer.tasks.opened_text import TEXT, OpenedText
from measured_transformer.tasks.task import Batch
from measured_transformer.training.seeding import make_generator
from numpy import ndarray
from torch import Tensor

# Patterns of text ----------------------------------------------------------------------------------

CLASSES = (
    *(r"[a-z]", r"[A-Z]", r"[0-9]", r"[aeiou]", r"\n", r"\s\s", r"\n\s+", r"[^\w\s]", r"[.,;:]"),
    *(r"[(\[{]", r"[)\]}]", r"['\"`]", r"\W[a-z]", r"\W[a-z]{2}", r"[A-Z][a-z]", r"\w\s", r"\.\s+"),
)
"""Regular expressions that a context can end with, besides its n-grams."""
LENGTH, FROM = 64, 8
"""Characters in a window, and how many of them have seen too little to be asked."""
FEWEST = 12
"""So often an n-gram must end a context of the text that is searched."""
TOP = 0.02
"""The share of contexts that count as a neuron's strongest."""


@cache
def windows(part: Literal["train", "validation", "test"], size: int) -> Batch:
    """Windows of the text, the same for every model."""
    return OpenedText(LENGTH, part).batch(make_generator(0, "contexts"), size)


@cache
def alphabet() -> str:
    """The characters of the text, each at the place of its token."""
    return "".join(sorted(set(lzma.decompress(TEXT.read_bytes()).decode("utf-8"))))


def text_of(tokens: Sequence[int]) -> str:
    """The characters that tokens stand for; the start token is none."""
    return "".join(alphabet()[token] for token in tokens if token < len(alphabet()))


def contexts(batch: Batch) -> list[str]:
    """The text up to each place that is asked, in the order of `table`."""
    texts = [text_of(row) for row in batch.inputs.tolist()]
    return [text[:end] for text in texts for end in range(FROM, LENGTH)]


def frequent(ends: Sequence[str], least: int) -> tuple[str, ...]:
    """Strings of one to three characters that end so many contexts.

    >>> frequent(["ab", "cab", "b"], 2)
    ('ab', 'b')
    """
    counts = Counter(gram for end in ends for gram in {end[-n:] for n in (1, 2, 3)})
    return tuple(sorted(gram for gram, count in counts.items() if count >= least))


def matches(
    grams: Sequence[str], classes: Sequence[str], ends: Sequence[str]
) -> Bool[ndarray, "pattern input"]:
    """Which contexts end with which strings, and with which regular expressions.

    >>> matches(["b"], ["[a-z]"], ["ab", "aB"]).tolist()
    [[True, False], [True, False]]
    """
    strings = [[end.endswith(gram) for end in ends] for gram in grams]
    compiled = [re.compile(rf"(?:{one})\Z") for one in classes]
    return np.array(strings + [[bool(one.search(end)) for end in ends] for one in compiled])


@cache
def patterns() -> tuple[
    tuple[str, ...],
    Bool[ndarray, "pattern"],
    Bool[ndarray, "pattern found"],
    Bool[ndarray, "pattern kept"],
]:
    """The patterns that a neuron may be described by, and where they hold.

    Returns:
        Their names (strings in quotes, then regular expressions), which of them are strings of more than one
        character, and where they hold in the text that is searched and in the text that judges.
    """
    ends, kept = contexts(windows("validation", SEARCHED)), contexts(windows("test", SEARCHED))
    grams = frequent(ends, FEWEST)
    names = (*map(repr, grams), *CLASSES)
    longer = np.array([len(gram) > 1 for gram in grams] + [False] * len(CLASSES))
    return names, longer, matches(grams, CLASSES, ends), matches(grams, CLASSES, kept)


SEARCHED, READ, ASKED = 200, 600, 32
"""Windows that patterns are searched in (as many judge), that tables of characters are made from, and in which
neurons are forced and silenced."""


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
        searched: the pattern's F1 on the first half, for which it was chosen.
        shuffled: the same F1 for the contexts of another neuron.
        counted: neurons with at least five strongest contexts in each half; the others respond to nothing.
    """

    pattern: Int[ndarray, "neuron"]
    precision: Float[ndarray, "neuron"]
    recall: Float[ndarray, "neuron"]
    f1: Float[ndarray, "neuron"]
    searched: Float[ndarray, "neuron"]
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
    found = 2 * hits / np.maximum(sizes, 1)
    chosen = np.argmax(found, axis=0)
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
    shuffled = scores(strong_kept[:, other])[2]
    return Detectors(chosen, precision, recall, f1, found.max(0), shuffled, counted)


# A neuron as a table of characters -----------------------------------------------------------------

KNOWN = (1, 2, 3)
"""How many of the last characters one may know."""
PRIOR = 4
"""A string's own mean counts against that of the shorter string as so many of its contexts."""


def last(batch: Batch, k: int) -> Int[Tensor, "input"]:
    """A number for the last `k` characters at each place that is asked."""
    code = torch.zeros_like(batch.inputs)
    for i in range(k):
        code = code * OpenedText.vocab + batch.inputs.roll(i, 1)
    return code[:, FROM:].flatten()


def predicted_by_last(
    read: Float[ndarray, "read neuron"],
    kept: Float[ndarray, "kept neuron"],
    codes: Sequence[tuple[Int[Tensor, "read"], Int[Tensor, "kept"]]],
) -> Float[ndarray, "known neuron"]:
    """Share of each neuron's variance, on other text, that a table says from the last characters.

    For each string the table has the neuron's mean where the text ended with it, drawn towards the mean of the
    string that is one shorter; a string that was not read is looked up as the shorter one.

    Args:
        read: activations that the table is made from.
        kept: activations that it is judged by.
        codes: for one, two, ... characters, a number for the string at each place of both.
    """
    there, here = torch.from_numpy(read), torch.from_numpy(kept)
    said, says = there.mean(0).expand_as(there), there.mean(0).expand_as(here)
    whole = (here - here.mean(0)).square().sum(0).clamp(min=1e-9)
    shares = []
    for of_read, of_kept in codes:
        strings, row = of_read.unique(return_inverse=True)
        count = row.bincount()[:, None]
        zero = torch.zeros(len(strings), read.shape[1], dtype=there.dtype)
        own, shorter = zero.index_add(0, row, there), zero.index_add(0, row, said) / count
        entry = (own + PRIOR * shorter) / (count + PRIOR)
        place = torch.searchsorted(strings, of_kept).clamp(max=len(strings) - 1)
        says = torch.where((strings[place] == of_kept)[:, None], entry[place], says)
        said = entry[row]
        shares.append(1 - (here - says).square().sum(0) / whole)
    return torch.stack(shares).numpy()
