"""How the results of the chapter on layers in order are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from measured_transformer.analysis.layers import centre_of_gravity, slope, states_by_depth
from measured_transformer.analysis.probing import probe
from measured_transformer.tasks.task import Batch
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.layers.measure import (
    GRAMMAR,
    IN_THIRDS,
    STATES,
    THIRDS,
    carrying_model,
)

EARLY = 8
"""Blocks passed before the last third."""


# What the claims are judged by --------------------------------------------------------------------


def climb(values: DataArray) -> DataArray:
    """By how much a statistic climbs from the first layer to the last, along the line of least squares."""
    rows = values.transpose(..., "layer")
    rise = np.apply_along_axis(lambda row: slope(row) * (len(row) - 1), -1, rows.values)
    return rows.isel(layer=0, drop=True).copy(data=rise)


def in_third(values: DataArray, third: str) -> DataArray:
    """The mean of a statistic over the layers of one of `THIRDS`."""
    layers = [i + 1 for i in IN_THIRDS[THIRDS.index(third)]]
    return values.sel(layer=layers).mean("layer")


def centres(knowing: Dataset) -> DataArray:
    """Centres of gravity of what probes gain, over their controls, as shares of the depth."""
    found = (knowing.accuracy - knowing.control).transpose(..., "state")
    rows = np.apply_along_axis(centre_of_gravity, -1, found.values)
    return found.isel(state=0, drop=True).copy(data=rows)


def _value(values: DataArray) -> dict[str, Any]:
    return {"value": values}


def _pair(treatment: DataArray, baseline: DataArray, **more: DataArray) -> dict[str, Any]:
    return {"treatment": treatment, "baseline": baseline, **more}


@evidence("DD-2.9")
def _(looking: Dataset) -> dict[str, Any]:
    steep = climb(looking.distance)
    own = steep.sel(kind="sentences")
    return {
        "distance": _value(own),
        "adjacent": _value(climb(looking.adjacent).sel(kind="sentences")),
        "untrained": _pair(own, steep.sel(kind="untrained")),
        "shuffled": _pair(own, steep.sel(kind="shuffled")),
    }


def _pronouns_after_agreement(knowing: Dataset) -> dict[str, Any]:
    centre = centres(knowing).sel(kind="sentences")
    return _pair(centre.sel(what="pronouns"), centre.sel(what="agreement"))


@evidence("DD-2.10")
def _(knowing: Dataset) -> dict[str, Any]:
    return {
        "later": _pronouns_after_agreement(knowing),
        "middle": _value(centres(knowing).sel(kind="sentences", what="pronouns")),
    }


@evidence("DD-2.11")
def _(looking: Dataset) -> dict[str, Any]:
    entropy, uneven = (each.sel(kind="sentences") for each in (looking.entropy, looking.gini))
    return {
        "entropy": _pair(
            in_third(entropy, "last"),
            in_third(entropy, "middle"),
            headroom=in_third(entropy, "middle"),
        ),
        "gini": _pair(
            in_third(uneven, "last"),
            in_third(uneven, "middle"),
            headroom=1 - in_third(uneven, "middle"),
        ),
    }


@evidence("DD-2.12")
def _(doing: Dataset) -> dict[str, Any]:
    missed = doing.without_thirds.sel(kind="sentences")
    return {
        "share": _value(missed.sel(third="last") / doing.without_any.sel(kind="sentences")),
        "middle": _pair(np.log(missed.sel(third="last")), np.log(missed.sel(third="middle"))),
        "lens": _value(doing.word_kinds.sel(kind="sentences", state=EARLY)),
    }


def falls(looking: Dataset) -> DataArray:
    """By how much the normalised entropy falls from the middle to the last third."""
    return in_third(looking.entropy, "middle") - in_third(looking.entropy, "last")


def lags(knowing: Dataset) -> DataArray:
    """How far the centre of gravity of pronouns lies behind that of agreement."""
    found = centres(knowing)
    return found.sel(what="pronouns", drop=True) - found.sel(what="agreement", drop=True)


@evidence("DD-2.13")
def _(looking: Dataset, knowing: Dataset) -> dict[str, Any]:
    def against(values: DataArray, control: str) -> dict[str, Any]:
        return _pair(values.sel(kind="sentences"), values.sel(kind=control))

    steep, sharper = climb(looking.distance), falls(looking)
    return {
        "distance_untrained": against(steep, "untrained"),
        "distance_shuffled": against(steep, "shuffled"),
        "order": _pronouns_after_agreement(knowing),
        "order_shuffled": against(lags(knowing), "shuffled"),
        "focus_untrained": against(sharper, "untrained"),
        "focus_shuffled": against(sharper, "shuffled"),
    }


@evidence("DD-14.12")
def _(looking: Dataset, knowing: Dataset) -> dict[str, Any]:
    entropy = looking.entropy.sel(kind="sentences")
    return {
        "distance": _value(climb(looking.distance).sel(kind="sentences")),
        "order": _pronouns_after_agreement(knowing),
        "focus": _pair(in_third(entropy, "last"), in_third(entropy, "middle")),
    }


# Numbers that the prose names ---------------------------------------------------------------------


def _mean(values: DataArray) -> float:
    return float(values.mean())


@number
def floor() -> float:
    """The smallest expected loss of one who knows the grammar, nats a word."""
    return GRAMMAR.bayes_loss()


@number
def even_first() -> float:
    """Weight of even attention on the first token."""
    n = GRAMMAR.length
    return float(np.mean([1 / (i + 1) for i in range(1, n)]))


@number
def in_middle(looking: Dataset) -> float:
    """Mean normalised entropy of the middle third, models of sentences."""
    return _mean(in_third(looking.entropy.sel(kind="sentences"), "middle"))


@number
def in_last(looking: Dataset) -> float:
    """The same of the last third."""
    return _mean(in_third(looking.entropy.sel(kind="sentences"), "last"))


def _late_heads(doing: Dataset, kind: str) -> DataArray:
    return doing["head_rise"].sel(kind=kind, layer=slice(EARLY + 1, None))


@number
def late_head_sentences(doing: Dataset) -> float:
    """Median rise of the loss when one head of the last third attends evenly, sentences."""
    return float(_late_heads(doing, "sentences").median())


@number
def late_head_shuffled(doing: Dataset) -> float:
    """The same, shuffled words."""
    return float(_late_heads(doing, "shuffled").median())


@number
def third_even(doing: Dataset, *, kind: str, third: str) -> float:
    """Rise of the loss when a third of the layers attends evenly."""
    return _mean(doing.even_thirds.sel(kind=kind, third=third))


@number
def third_gone(doing: Dataset, *, kind: str, third: str) -> float:
    """Rise of the loss when all that a third of the layers writes is replaced by its mean."""
    return _mean(doing.without_thirds.sel(kind=kind, third=third))


@number
def loss_without_any(doing: Dataset) -> float:
    """The loss of models of sentences when all that every layer writes is replaced by its mean."""
    here = doing.sel(kind="sentences")
    return _mean(here.read.sel(state=STATES[-1]) + here.without_any)


def by_hand(what: str) -> tuple[float, float]:
    """Accuracy and control of a probe for the class of the word one place back, in a `carrying_model`."""
    words = torch.randint(16, (600, 6), generator=torch.Generator().manual_seed(0))
    reading = Batch(words, words, torch.ones_like(words, dtype=torch.bool))
    before, first_half = words[:, 2], torch.arange(600) < 300
    states = states_by_depth(carrying_model(what, vocab=16, length=6), reading)[:, :, 3]
    random = torch.Generator().manual_seed(1)
    found = probe(states, before % 2, before, first_half, random, n_labels=2)
    return float(found.accuracy[-1]), float(found.control[-1])


@number
def class_probe() -> float:
    """Accuracy where the class was copied."""
    return by_hand("class")[0]


@number
def class_control() -> float:
    """Its control."""
    return by_hand("class")[1]


@number
def word_probe() -> float:
    """Accuracy where the word was copied."""
    return by_hand("word")[0]


@number
def word_control() -> float:
    """Its control."""
    return by_hand("word")[1]


def _known(knowing: Dataset, what: str, state: int = 3) -> float:
    return _mean(knowing.accuracy.sel(kind="sentences", what=what, state=state))


@number
def known_agreement(knowing: Dataset) -> float:
    """Accuracy of the probe for agreement after three layers."""
    return _known(knowing, "agreement")


@number
def known_pronouns(knowing: Dataset) -> float:
    """Accuracy of the probe for pronouns after three layers."""
    return _known(knowing, "pronouns")


@number
def centre_agreement(knowing: Dataset) -> float:
    """Mean centre of gravity of agreement."""
    return _mean(centres(knowing).sel(kind="sentences", what="agreement"))


@number
def centre_pronouns(knowing: Dataset) -> float:
    """Mean centre of gravity of pronouns."""
    return _mean(centres(knowing).sel(kind="sentences", what="pronouns"))


def _early(values: DataArray) -> DataArray:
    return values.sel(kind="sentences", state=EARLY)


@number
def early_word(doing: Dataset) -> float:
    """Share of positions at which the word read before the last third is the final one."""
    return _mean(_early(doing.words))


@number
def early_kind(doing: Dataset) -> float:
    """The same for the kind of word."""
    return _mean(_early(doing.word_kinds))


@number
def early_missing(doing: Dataset) -> float:
    """Nats that are missing in what is read before the last third."""
    final = doing.read.sel(kind="sentences", state=STATES[-1])
    return _mean(_early(doing.read) - final)


@number
def gained(doing: Dataset) -> float:
    """Nats that the layers gain over what is read in the embedding."""
    read = doing.read.sel(kind="sentences")
    return _mean(read.sel(state=0) - read.sel(state=STATES[-1]))
