"""How the results of *The workbench* are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

import numpy as np
import torch
from measured_transformer.analysis.examination import Examination, examine, mean_mixtures
from measured_transformer.tasks.grammar import VOCABULARY
from torch import Tensor
from xarray import Dataset

from measured_book.measuring import number
from measured_book.rooms.workbench.measure import encode, kept

# The sentences on the bench -----------------------------------------------------------------------

SENTENCES = {
    "manual": (
        "The object must be a class. The object must be a class",
        "A function definition defines a user-defined function object",
        "The value is None. If the value is None, the value is",
    ),
    "grammar": (
        "every uncle that needs some towers finds the nun while she arrives",
        "the kings near the river sleep .",
        "one old queen that sees many robots waits .",
    ),
}
"""What the two models read on the page."""


def on_the_bench(which: str) -> list[Tensor]:
    """The sentences of a model as it reads them: 'manual' or 'grammar'."""
    if which == "manual":
        return [encode(text) for text in SENTENCES[which]]
    return [torch.tensor([VOCABULARY.index(w) for w in text.split()]) for text in SENTENCES[which]]


_examined: dict[tuple[str, int], list[Examination]] = {}


def examinations(which: str, result: Dataset) -> list[Examination]:
    """What the workbench shows of each sentence of a model, from the result of its measurement."""
    key = (which, hash(result.weights.values.tobytes()))
    if key not in _examined:
        model, rows = kept(result, which), on_the_bench(which)
        means = mean_mixtures(model, rows)
        _examined[key] = [examine(model, row, means=means) for row in rows]
    return _examined[key]


def _found(manual: Dataset, grammar: Dataset, which: str, sentence: int) -> Examination:
    return examinations(which, {"manual": manual, "grammar": grammar}[which])[sentence]


@number
def weight(
    manual: Dataset,
    grammar: Dataset,
    *,
    which: str,
    sentence: int,
    layer: int,
    head: int,
    query: int,
    key: int,
) -> float:
    """The weight that one token gives to another in a sentence on the bench."""
    return float(_found(manual, grammar, which, sentence).pattern[layer, head, query, key])


@number
def on_average(
    manual: Dataset, grammar: Dataset, *, which: str, sentence: int, layer: int, head: int, to: str
) -> float:
    """The mean weight on the 'first' or the 'previous' token, over all tokens after the first."""
    pattern = _found(manual, grammar, which, sentence).pattern[layer, head]
    return float(pattern[1:, 0].mean() if to == "first" else pattern.diagonal(-1).mean())


@number
def largest_cost(
    manual: Dataset, grammar: Dataset, *, which: str, sentence: int, layer: int, head: int
) -> float:
    """The largest change of the loss, up or down, at any token of a sentence without a head."""
    gone = _found(manual, grammar, which, sentence).without["mean"].loss[layer, head]
    return float(np.nanmax(np.abs(gone)))


@number
def cost(
    manual: Dataset,
    grammar: Dataset,
    *,
    which: str,
    sentence: int,
    layer: int,
    head: int,
    at: int,
    instead: str,
) -> float:
    """Nats that the answer costs more at one token without a head."""
    gone = _found(manual, grammar, which, sentence).without[instead]
    return float(gone.loss[layer, head, at])


@number
def chance_left(
    manual: Dataset, grammar: Dataset, *, which: str, sentence: int, layer: int, head: int, at: int
) -> float:
    """Probability of the answer at one token without a head, its mean in its place."""
    gone = _found(manual, grammar, which, sentence).without["mean"]
    return float(gone.target_chance[layer, head, at])


@number
def said(
    manual: Dataset, grammar: Dataset, *, which: str, sentence: int, depth: int, at: int
) -> float:
    """Probability of the token that a depth finds most likely at a position."""
    chances = _found(manual, grammar, which, sentence).lens_chances
    assert chances is not None
    return float(chances[depth, at, 0])


@number
def pushed(
    manual: Dataset, grammar: Dataset, *, which: str, sentence: int, layer: int, head: int, at: int
) -> float:
    """By how much a head by itself moves the logit of the answer at a token."""
    direct = _found(manual, grammar, which, sentence).direct_target
    assert direct is not None
    return float(direct[layer, head, at])
