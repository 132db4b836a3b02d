"""How the results of the chapter on probes and lenses are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.probes_and_lenses.measure import LENSES, STATES, WHATS

INNER = STATES[1:-1]


# What the claims are judged by ----------------------------------------------------------------------


def _after_erasing(found: Dataset, states: list[int]) -> dict[str, DataArray]:
    """The model's accuracy after LEACE, and after LEACE for shuffled labels, mean over states."""
    kept = found.kept.sel(state=states).mean("state")
    return {"treatment": kept.sel(eraser="leace"), "baseline": kept.sel(eraser="drawn")}


def _selectivity(found: Dataset, states: list[int]) -> dict[str, DataArray]:
    """Accuracy of the probe, and on control tasks, mean over states."""
    chosen = found.sel(state=states).mean("state")
    return {"treatment": chosen.accuracy, "baseline": chosen.control}


@evidence("DD-11.4")
def _(sentences: Dataset) -> dict[str, Any]:
    subject, place = (sentences.sel(what=what) for what in WHATS)
    after, last = list(STATES[1:]), [STATES[-1]]
    shares = (subject.bits / subject.control_bits).sel(state=after).mean("state")
    return {
        "selectivity": _selectivity(subject, after),
        "length": {"value": 1 - shares},
        "used": _after_erasing(subject, last),
        "used_place": _after_erasing(place, last),
    }


@evidence("DD-14.10")
def _(sentences: Dataset) -> dict[str, Any]:
    subject = sentences.sel(what="subject")
    return {
        "selectivity": _selectivity(subject, list(INNER)),
        "used": _after_erasing(subject, list(INNER)),
    }


@evidence("LT-17.1")
def _(sentences: Dataset) -> dict[str, Any]:
    last = sentences.sel(what="place", state=STATES[-1])
    return {
        "accurate": {"value": last.accuracy},
        "selective": {"value": last.accuracy - last.control},
    }


@evidence("LT-17.2")
def _(guarantee: Dataset) -> dict[str, Any]:
    return {
        "means": {"error": guarantee.gap, "control": guarantee.gap_once},
        "probe": {"error": guarantee.gain, "control": guarantee.gain_before},
        "least": {"value": guarantee.excess},
    }


@evidence("LT-17.3")
def _(sentences: Dataset, positions: Dataset) -> dict[str, Any]:
    place, position = (
        one.sel(state=STATES[-1]) for one in (sentences.sel(what="place"), positions)
    )
    return {
        "place_read": {"value": place.accuracy},
        "place_unused": {
            "treatment": place.kept.sel(eraser="leace"),
            "baseline": sentences.whole,
        },
        "position_read": {"value": position.accuracy},
        "position_unused": {
            "treatment": position.kept.sel(eraser="leace"),
            "baseline": positions.whole,
        },
    }


@evidence("LT-17.4")
def _(lenses: Dataset) -> dict[str, Any]:
    before = lenses.sel(state=list(STATES[:-1]))
    logit, tuned_one = (before.sel(lens=lens) for lens in LENSES)
    return {
        "closer": {"value": (tuned_one.kl / logit.kl).max("state")},
        "bias": {"value": tuned_one.bias.mean("state") / logit.bias.mean("state")},
    }


@evidence("LT-17.5")
def _(positions: Dataset) -> dict[str, Any]:
    kept = positions.kept.sel(state=list(STATES[1:])).mean("state")
    return {"treatment": kept.sel(eraser="mean"), "baseline": kept.sel(eraser="leace")}


# Numbers of the prose --------------------------------------------------------------------------------


@number
def selectivity(sentences: Dataset, *, what: str, state: int) -> DataArray:
    """Accuracy of the probe less that on the control tasks."""
    one = sentences.sel(what=what, state=state)
    return one.accuracy - one.control


def _of(what: str, sentences: Dataset, facts: Dataset, positions: Dataset) -> Dataset:
    """One of `WHATS`, the object or the position, after the last block."""
    if what in WHATS:
        return sentences.sel(what=what, state=STATES[-1])
    return {"object": facts, "position": positions}[what].sel(state=STATES[-1])


@number
def read_last(sentences: Dataset, facts: Dataset, positions: Dataset, *, what: str) -> DataArray:
    """Accuracy of the probe after the last block."""
    return _of(what, sentences, facts, positions).accuracy


@number
def kept_last(sentences: Dataset, facts: Dataset, positions: Dataset, *, what: str) -> DataArray:
    """Accuracy of the model when LEACE has erased a property after the last block."""
    return _of(what, sentences, facts, positions).kept.sel(eraser="leace")
