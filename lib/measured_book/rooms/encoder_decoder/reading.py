"""How the results of the chapter on encoder and decoder are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.encoder_decoder.measure import LENGTHS

# What the claims are judged by ------------------------------------------------------------------------


def _identity(exact: Dataset, error: str, control: str) -> dict[str, Any]:
    return {"error": exact[error].squeeze("seed"), "control": exact[control].squeeze("seed")}


@evidence("DA-2.20")
def _(exact: Dataset) -> dict[str, Any]:
    return {
        "formula": _identity(exact, "formula", "exchanged"),
        "apart": _identity(exact, "apart", "together"),
        "gradient": {"value": exact.gradient.squeeze("seed")},
        "shape": {"value": exact["shape"].squeeze("seed")},
    }


@evidence("DD-8.6")
def _(exact: Dataset) -> dict[str, Any]:
    return {
        "cross": _identity(exact, "formula", "exchanged"),
        "causal": _identity(exact, "reading_masked", "reading_open"),
    }


@evidence("DD-8.1")
def _(exact: Dataset) -> dict[str, Any]:
    return {"value": exact.reach.squeeze("seed"), "control": exact.causal_reach.squeeze("seed")}


@evidence("DA-2.23")
def _(exact: Dataset) -> dict[str, Any]:
    return _identity(exact, "alone_masked", "alone_open")


@evidence("DA-2.24")
def _(exact: Dataset) -> dict[str, Any]:
    pairs = {"sum": "logits_sum", "log": "sigmoid", "tied": "untied"}
    return {part: _identity(exact, part, control) for part, control in pairs.items()}


def _best_head(alignment: Dataset, variable: str, model: str) -> DataArray:
    """A score of the head that is best on the validation numbers, for each seed."""
    heads = alignment.sel(model=model).stack(place=("layer", "head"))
    best = heads.validation.argmax("place")
    found: DataArray = heads[variable].isel(place=best)
    return found.reset_coords(drop=True)


@evidence("DA-2.21")
def _(alignment: Dataset) -> dict[str, Any]:
    mean = alignment.accuracy.mean(("layer", "head"))
    values = {
        "best": [_best_head(alignment, "accuracy", one) for one in ("trained", "untrained")],
        "error": [_best_head(alignment, "error", one) for one in ("trained", "untrained")],
        "mean": [mean.sel(model=one) for one in ("trained", "untrained")],
    }
    return {part: {"treatment": a, "baseline": b} for part, (a, b) in values.items()}


@evidence("DA-2.22")
def _(worth: Dataset) -> dict[str, Any]:
    return {
        **{
            f"reversal_{reads}": {
                "treatment": worth.reversal.sel(reads="all"),
                "baseline": worth.reversal.sel(reads=reads),
            }
            for reads in ("none", "mean", "last")
        },
        "numbers_mean": {
            "treatment": worth.numbers.sel(fewer="all"),
            "baseline": worth.numbers.sel(fewer="mean"),
        },
    }


@evidence("DD-8.2")
def _(fill: Dataset, classify: Dataset) -> dict[str, Any]:
    return {
        "fill": {
            "treatment": fill.accuracy.sel(side="both"),
            "baseline": fill.accuracy.sel(side="left"),
        },
        "last": {
            "treatment": classify.accuracy.sel(way="both"),
            "baseline": classify.accuracy.sel(way="back"),
        },
    }


@evidence("LT-11.1")
def _(worth: Dataset) -> dict[str, Any]:
    lost = worth.by_length.sel(reads="all") - worth.by_length
    return {
        reads: {
            "treatment": lost.sel(reads=reads, length=LENGTHS[-1]),
            "baseline": lost.sel(reads=reads, length=LENGTHS[0]),
        }
        for reads in ("mean", "last")
    }


@evidence("LT-11.2")
def _(captions: Dataset) -> dict[str, Any]:
    plain = captions.bleu.sel(penalty=0.0)
    return {
        "narrow": {"treatment": plain.sel(beams=4), "baseline": plain.sel(beams=1)},
        "wide": {"treatment": plain.sel(beams=64), "baseline": plain.sel(beams=4)},
    }


@evidence("LT-11.3")
def _(captions: Dataset) -> dict[str, Any]:
    lost = captions.bleu.sel(beams=64) - captions.bleu.sel(beams=4)
    return {"treatment": lost.sel(penalty=1.0), "baseline": lost.sel(penalty=0.0)}


# Numbers that the prose names -----------------------------------------------------------------------------


@number
def best_head(alignment: Dataset, *, variable: str, model: str) -> DataArray:
    """A score of the head of cross-attention that aligns best on other numbers."""
    return _best_head(alignment, variable, model)


@number
def lost_at(worth: Dataset, *, reads: str, length: int) -> float:
    """By how much fewer reversals of a length are wholly right than where the decoder reads all states."""
    shares = worth.by_length.sel(length=length).mean("seed")
    return float(shares.sel(reads="all") - shares.sel(reads=reads))


@number
def points(captions: Dataset, *, beams: int, penalty: float) -> DataArray:
    """BLEU of translated captions, from 0 to 100."""
    found: DataArray = 100 * captions.bleu.sel(beams=beams, penalty=penalty)
    return found


@number
def points_more(captions: Dataset, *, beams: int, than: int, penalty: float) -> DataArray:
    """By how many points of BLEU one number of beams is above another."""
    bleu = captions.bleu.sel(penalty=penalty)
    found: DataArray = 100 * (bleu.sel(beams=beams) - bleu.sel(beams=than))
    return found


@number
def mismatched_points(captions: Dataset) -> DataArray:
    """BLEU of translations against the references of other captions, from 0 to 100."""
    return 100 * captions.mismatched


@number
def caption_perplexity(captions: Dataset, *, source: str) -> float:
    """Perplexity of a piece of a test caption, read with its own source or another's: of the mean loss."""
    names = {"own": "own", "other": "another's"}
    return float(np.exp(captions.loss.sel(source=names[source]).mean()))
