"""What no expression says of the results of the chapter on Transformers and recurrent networks."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from measured_transformer.training.loop import make_model
from measured_transformer.variants.recurrent import state_width
from xarray import DataArray, Dataset

from measured_book.measuring import number
from measured_book.rooms.transformer_or_recurrent.measure import (
    SPLITS,
    TEXT,
    WIDTH,
    kind,
)


def smallest_of(losses: Float[np.ndarray, "setting"], trials: int) -> float:
    """The mean of the smallest of so many different settings, drawn evenly.

    >>> smallest_of(np.array([3.0, 1.0, 2.0]), 2)  # pairs: 1, 1 and 2
    1.3333333333333333
    """
    values, n = np.sort(losses), len(losses)
    ways = [math.comb(n - 1 - i, trials - 1) for i in range(n)]
    return float(values @ np.array(ways, dtype=float) / math.comb(n, trials))


@number
def expected_best(field: Dataset, *, family: str) -> DataArray:
    """The expected best validation loss of a family after twenty settings drawn at random, for each seed."""
    losses = field[family]
    flat = losses.stack(setting=[axis for axis in losses.dims if axis != "seed"])
    return DataArray(
        [smallest_of(row.values, trials=20) for row in flat.transpose("seed", "setting")],
        coords={"seed": losses.seed},
        dims="seed",
    )


@number
def chosen_loss(field: Dataset, *, read: str) -> DataArray:
    """Loss of the setting that one half of the validation text chooses, on that half (`own`) or the `other`.

    Less the mean of all settings on the half that is read; the mean of both ways round.
    """
    losses = field.halves.stack(setting=("heads", "layers", "rate"))
    found = []
    for half, other in (SPLITS, SPLITS[::-1]):
        chosen = losses.sel(half=half).argmin("setting")
        values = losses.sel(half=half if read == "own" else other)
        found.append((values.isel(setting=chosen) - values.mean("setting")).drop_vars("setting"))
    return DataArray((found[0] + found[1]).drop_vars("half", errors="ignore") / 2)


@number
def defaults() -> float:
    """The dropout that a Transformer's layer has by default in PyTorch, less that of an LSTM."""
    return torch.nn.TransformerEncoderLayer(8, 2).dropout.p - torch.nn.LSTM(8, 8).dropout


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
