"""How the results of the chapter on Transformers and recurrent networks are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import xarray
from jaxtyping import Float
from measured_transformer.training.loop import make_model
from measured_transformer.variants.recurrent import state_width
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number
from measured_book.rooms.transformer_or_recurrent.measure import (
    EPOCHS,
    GAPS,
    PAIRS,
    SPLITS,
    TEXT,
    WIDTH,
    kind,
)

DEFAULT = 1e-3
"""The learning rate that Adam has where nobody chooses one."""


# What the claims are judged by -----------------------------------------------------------------------------


def expected_best(losses: Float[np.ndarray, "setting"], trials: int) -> float:
    """The mean of the smallest of so many different settings, drawn evenly.

    >>> expected_best(np.array([3.0, 1.0, 2.0]), 2)  # pairs: 1, 1 and 2
    1.3333333333333333
    """
    values, n = np.sort(losses), len(losses)
    ways = [math.comb(n - 1 - i, trials - 1) for i in range(n)]
    return float(values @ np.array(ways, dtype=float) / math.comb(n, trials))


def against(treatment: DataArray, baseline: DataArray) -> dict[str, DataArray]:
    """Two arms of a comparison."""
    return {"treatment": treatment, "baseline": baseline}


def at_best_rate(losses: DataArray) -> DataArray:
    """For each seed the loss at the rate that is best in the mean of the *other* seeds.

    Args:
        losses: over seeds and rates, and other axes, which choose each for itself.
    """
    chosen = [
        losses.sel(seed=seed).isel(rate=losses.drop_sel(seed=seed).mean("seed").argmin("rate"))
        for seed in losses.seed.values
    ]
    return xarray.concat([one.drop_vars("rate") for one in chosen], "seed")


def best_of(field: Dataset, family: str, trials: int) -> DataArray:
    """The expected best validation loss of a family after so many settings, for each seed."""
    losses = field.sheet if family == "sheet" else field.lstm
    flat = losses.stack(setting=[axis for axis in losses.dims if axis != "seed"])
    return DataArray(
        [expected_best(row.values, trials) for row in flat.transpose("seed", "setting")],
        coords={"seed": losses.seed},
        dims="seed",
    )


def one_epoch(field: Dataset, name: str, *, tuned_rate: bool = True) -> DataArray:
    """Validation loss of a kind of model after an epoch, at its best rate or at Adam's default."""
    losses = field.one.sel(kind=name)
    return at_best_rate(losses) if tuned_rate else losses.sel(rate=DEFAULT)


@evidence("EX-3.13")
def _(field: Dataset) -> dict[str, Any]:
    return {
        "sheet": against(*(one_epoch(field, n, tuned_rate=False) for n in ("sheet", "LSTM"))),
        "tuned": against(*(one_epoch(field, n) for n in ("sheet", "LSTM"))),
    }


@evidence("EX-3.20")
def _(epochs: Dataset) -> dict[str, Any]:
    found = epochs.validation
    late, first = found.sel(epoch=EPOCHS), found.sel(epoch=1)
    return {
        "equal": against(late.sel(kind="sheet"), first.sel(kind="LSTM")),
        "gap": against(late.sel(kind="sheet"), late.sel(kind="LSTM")),
    }


@evidence("EX-3.25")
def _(epochs: Dataset) -> dict[str, Any]:
    best = epochs.validation.min("epoch")
    return against(best.sel(kind="sheet"), best.sel(kind="LSTM"))


TRIALS = 20


@evidence("EX-3.24")
def _(field: Dataset) -> dict[str, Any]:
    return {"value": best_of(field, "sheet", TRIALS) - best_of(field, "lstm", TRIALS)}


def chosen_loss(field: Dataset, *, own: bool) -> DataArray:
    """Loss of the setting that one half of the validation text chooses, on that half or on the other.

    Less the mean of all settings on the half that is read; the mean of both ways round.
    """
    losses = field.halves.stack(setting=("heads", "layers", "rate"))
    found = []
    for half, other in (SPLITS, SPLITS[::-1]):
        chosen = losses.sel(half=half).argmin("setting")
        read = losses.sel(half=half if own else other)
        found.append((read.isel(setting=chosen) - read.mean("setting")).drop_vars("setting"))
    return DataArray((found[0] + found[1]).drop_vars("half", errors="ignore") / 2)


@evidence("EX-3.27")
def _(field: Dataset) -> dict[str, Any]:
    return against(chosen_loss(field, own=False), chosen_loss(field, own=True))


@evidence("EX-3.16")
def _(epochs: Dataset) -> dict[str, Any]:
    ways = epochs.ways.sel(kind="sheet")
    return {
        "tokens": {"value": 0.0},
        "unknown": {"value": 0.0},
        "context": against(ways.sel(way="side by side"), ways.sel(way="overlapping")),
    }


@evidence("EX-3.17")
def _(sizes: Dataset) -> dict[str, Any]:
    ratio = (sizes.weights.sel(family="Transformer") / sizes.weights.sel(family="LSTM")).squeeze(
        "seed"
    )
    return {name: {"value": ratio.sel(count=name)} for name in ("all", "body")}


@evidence("EX-3.28")
def _(dropout: Dataset) -> dict[str, Any]:
    sheet = dropout.loss.sel({"drop": "sheet, 0.1"})
    gaps = [sheet - dropout.loss.sel({"drop": f"LSTM, {rate}"}) for rate in ("0", "0.1")]
    layer = torch.nn.TransformerEncoderLayer(8, 2)
    return {
        "defaults": {"value": layer.dropout.p - torch.nn.LSTM(8, 8).dropout},
        "gap": against(*gaps),
    }


@evidence("DA-1.1")
def _(chains: Dataset) -> dict[str, Any]:
    found = chains.squeeze("seed")
    last = found.rounds.sel(length=1024)
    ratio = found.operations.sel(kind="Transformer") / found.operations.sel(kind="LSTM")
    return {
        "steps": {"value": last.sel(kind=["Transformer", "LSTM"])},
        "short": {"value": ratio.sel(length=32)},
        "long": {"value": ratio.sel(length=1024)},
    }


def bias_gap(epochs: Dataset, data: str) -> DataArray:
    """Best validation loss, Transformer less LSTM, on a `tenth` or `all` of the text."""
    if data == "tenth":
        found: DataArray = epochs.tenth.sel(racer="sheet") - epochs.tenth.sel(racer="LSTM")
        return found
    best = epochs.validation.min("epoch")
    return DataArray(best.sel(kind="sheet") - best.sel(kind="LSTM"))


@evidence("EX-3.18")
def _(epochs: Dataset) -> dict[str, Any]:
    def arms(values: DataArray) -> dict[str, DataArray]:
        return against(values.sel(kind="sheet"), values.sel(kind="LSTM"))

    gaps = [bias_gap(epochs, data) for data in ("tenth", "all")]
    return {
        "training": arms(epochs.end.sel(part="train")),
        "validation": arms(epochs.end.sel(part="validation")),
        "bias": against(*gaps),
    }


@evidence("EX-3.22")
def _(depth: Dataset) -> dict[str, Any]:
    losses = depth.training.sel(placed="sheet")
    return against(losses.sel(blocks=6), losses.sel(blocks=3))


@evidence("EX-3.21")
def _(depth: Dataset) -> dict[str, Any]:
    found = {}
    for part, placed in (("post", "sheet"), ("pre", "Transformer")):
        losses = depth.validation.sel(placed=placed)
        for word, blocks in (("one", 1), ("three", 3), ("six", 6)):
            found[f"{part}_{word}"] = against(losses.sel(blocks=blocks), losses.sel(blocks=2))
    return found


@evidence("EX-3.19")
def _(field: Dataset) -> dict[str, Any]:
    losses = at_best_rate(field.sheet)
    heads, layers = losses.mean("layers"), losses.mean("heads")
    return {
        "heads": against(heads.sel(heads=2), heads.sel(heads=8)),
        "one": against(layers.sel(layers=1), layers.sel(layers=2)),
        "two": against(layers.sel(layers=2), layers.sel(layers=6)),
    }


RIVALS = {"": "LSTM", "_open": "open LSTM", "_linear": "linear"}


@evidence("DA-2.2")
def _(far: Dataset) -> dict[str, Any]:
    found, logs = {}, DataArray(np.log(far.steps))
    right = far.accuracy.sel(gap=max(GAPS))
    for suffix, name in RIVALS.items():
        found[f"accuracy{suffix}"] = against(
            right.sel(reader="Transformer"), right.sel(reader=name)
        )
        found[f"steps{suffix}"] = against(logs.sel(reader="Transformer"), logs.sel(reader=name))
    return found


@evidence("LT-14.1")
def _(far: Dataset, quiet: Dataset) -> dict[str, Any]:
    def arms(result: Dataset) -> dict[str, DataArray]:
        right = result.accuracy.sel(gap=max(GAPS))
        return against(right.sel(reader="open LSTM"), right.sel(reader="LSTM"))

    return {"one": arms(quiet), "words": arms(far)}


def lost(recall: Dataset, memory: str) -> DataArray:
    """Accuracy with 4 pairs less that with 16."""
    right = recall.accuracy.sel(memory=memory)
    found: DataArray = right.sel(pairs=PAIRS[0]) - right.sel(pairs=PAIRS[-1])
    return found


@evidence("LT-14.2")
def _(recall: Dataset) -> dict[str, Any]:
    attention = lost(recall, "Transformer")
    return {
        part: against(lost(recall, name), attention)
        for part, name in (("lstm", "LSTM"), ("linear", "linear"), ("matrix", "linear attention"))
    }


@evidence("LT-14.3")
def _(recall: Dataset) -> dict[str, Any]:
    right = recall.accuracy.sel(pairs=PAIRS[-1])
    return against(right.sel(memory="hybrid"), right.sel(memory="linear"))


@evidence("LT-14.4")
def _(parity: Dataset) -> dict[str, Any]:
    late = parity.accuracy.sel(position=slice(17, 32)).mean("position")
    return {
        part: against(late.sel(counter="LSTM"), late.sel(counter=name))
        for part, name in (("transformer", "Transformer"), ("linear", "linear"))
    }


# Numbers that the prose names ------------------------------------------------------------------------------


@number
def perplexity(epochs: Dataset, *, kind: str, epoch: int) -> DataArray:
    """Validation perplexity of a kind of model after an epoch, one for each seed."""
    return DataArray(np.exp(epochs.validation.sel(kind=kind, epoch=epoch)))


@number
def first_epoch(field: Dataset, *, kind: str, rate: str) -> DataArray:
    """Validation perplexity after one epoch, at the `default` or the `tuned` rate."""
    return DataArray(np.exp(one_epoch(field, kind, tuned_rate=rate == "tuned")))


@number
def state(recall: Dataset) -> float:
    """The width of an LSTM that has as many weights as two blocks."""
    del recall
    config, _ = kind("Transformer", 10)
    blocks = make_model(config, causal=True, seed=0).blocks
    return float(state_width(sum(w.numel() for w in blocks.parameters()), WIDTH))


@number
def unigram(epochs: Dataset) -> float:
    """Validation perplexity of guessing by how frequent words are in training."""
    del epochs
    return math.exp(replace(TEXT, part="validation").unigram_loss())


@number
def weights(epochs: Dataset, *, kind: str) -> float:
    """Weights between embedding and final norm."""
    return float(epochs.weights.sel(kind=kind).values.flat[0])


@number
def way(epochs: Dataset, *, kind: str, name: str) -> DataArray:
    """Validation perplexity after twenty epochs with windows cut in a way, whose name has hyphens."""
    return DataArray(np.exp(epochs.ways.sel(kind=kind, way=name.replace("-", " "))))


@number
def size(sizes: Dataset, *, family: str) -> float:
    """Weights of two of PyTorch's layers of width 200."""
    return float(sizes.weights.sel(count="body", family=family).item())


@number
def best(epochs: Dataset, *, kind: str) -> DataArray:
    """The lowest validation perplexity of twenty epochs."""
    return DataArray(np.exp(epochs.validation.sel(kind=kind).min("epoch")))


@number
def best_epoch(epochs: Dataset, *, kind: str) -> DataArray:
    """After how many epochs it is lowest."""
    return epochs.validation.sel(kind=kind).idxmin("epoch")


@number
def at_end(epochs: Dataset, *, kind: str, part: str) -> DataArray:
    """Perplexity on a whole part after twenty epochs."""
    return DataArray(np.exp(epochs.end.sel(kind=kind, part=part)))


@number
def gap(epochs: Dataset, *, data: str) -> DataArray:
    """Best validation loss, Transformer less LSTM, on a `tenth` or `all` of the text."""
    return bias_gap(epochs, data)


@number
def dropped(dropout: Dataset, *, kind: str, rate: str) -> DataArray:
    """Validation perplexity after three epochs with dropout."""
    return DataArray(np.exp(dropout.loss.sel({"drop": f"{kind}, {rate}"})))


@number
def expected(field: Dataset, *, family: str) -> DataArray:
    """Perplexity of the expected best of twenty settings."""
    return DataArray(np.exp(best_of(field, family, TRIALS)))


@number
def late_parity(parity: Dataset, *, kind: str, first: int, last: int) -> DataArray:
    """Right parities at positions from first to last."""
    return parity.accuracy.sel(counter=kind, position=slice(first, last)).mean("position")
