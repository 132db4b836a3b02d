"""What the workbench shows of its sentences: arrays, which no result holds, for the text of the page."""

from __future__ import annotations

import torch
from measured_transformer.analysis.examination import Examination, examine, mean_mixtures
from measured_transformer.tasks.grammar import VOCABULARY
from torch import Tensor
from xarray import DataArray, Dataset

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
def pattern(manual: Dataset, grammar: Dataset, *, which: str, sentence: int) -> DataArray:
    """The weight that each token gives to each in a sentence on the bench."""
    found = _found(manual, grammar, which, sentence).pattern
    return DataArray(found, dims=("layer", "head", "query", "key"))


@number
def previous(manual: Dataset, grammar: Dataset, *, which: str, sentence: int) -> DataArray:
    """The weight that each token after the first gives to the one before it."""
    found = _found(manual, grammar, which, sentence).pattern
    return DataArray(found.diagonal(-1, -2, -1), dims=("layer", "head", "query"))


@number
def cost(
    manual: Dataset, grammar: Dataset, *, which: str, sentence: int, instead: str
) -> DataArray:
    """Nats that the answer at each token costs more without a head."""
    found = _found(manual, grammar, which, sentence).without[instead]
    return DataArray(found.loss, dims=("layer", "head", "at"))


@number
def chance_left(manual: Dataset, grammar: Dataset, *, which: str, sentence: int) -> DataArray:
    """Probability of the answer at each token without a head, its mean in its place."""
    found = _found(manual, grammar, which, sentence).without["mean"]
    return DataArray(found.target_chance, dims=("layer", "head", "at"))


@number
def said(manual: Dataset, grammar: Dataset, *, which: str, sentence: int) -> DataArray:
    """Probability of the token that each depth finds most likely at each position."""
    chances = _found(manual, grammar, which, sentence).lens_chances
    assert chances is not None
    return DataArray(chances[..., 0], dims=("depth", "at"))


@number
def pushed(manual: Dataset, grammar: Dataset, *, which: str, sentence: int) -> DataArray:
    """By how much each head by itself moves the logit of the answer at each token."""
    direct = _found(manual, grammar, which, sentence).direct_target
    assert direct is not None
    return DataArray(direct, dims=("layer", "head", "at"))
