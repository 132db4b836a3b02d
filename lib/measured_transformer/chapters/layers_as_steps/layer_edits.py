"""A trained model whose layers run in another order: one left out, one run twice, two exchanged.

If each layer only refines what it finds, such an edit should cost little: what the neighbour would have
improved is improved a moment later. If a layer reads what another has written, the order is part of the
program. After Veit et al. (2016), "Residual Networks Behave Like Ensembles of Relatively Shallow Networks", who
deleted and shuffled blocks of residual networks for images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import nn

from measured_transformer.analysis.ablation import Metric
from measured_transformer.analysis.ablation import loss as mean_loss
from measured_transformer.analysis.lens import Reader
from measured_transformer.tasks.task import Batch


@contextmanager
def rearranged(model: Reader, order: Sequence[int]) -> Iterator[None]:
    """Run the model's blocks in another order while the `with` block runs; nothing is retrained.

    Args:
        model: is as it was afterwards.
        order: numbers of the blocks, from 0, in the order in which they run. A number may be missing, or come
            more than once; with none at all the embedding is read.

    Raises:
        ValueError: when there is no block of such a number.

    >>> from measured_transformer.analysis.handmade import reversal_model
    >>> model, tokens = reversal_model(vocab=5, length=4), torch.tensor([[3, 1, 4, 2]])
    >>> with rearranged(model, []):
    ...     bool((model(tokens) == 0).all())
    True
    """
    blocks = model.blocks
    wrong = [i for i in order if not 0 <= i < len(blocks)]
    if wrong:
        raise ValueError(f"expected numbers of blocks from 0 to {len(blocks) - 1}, got {wrong}")
    model.blocks = nn.ModuleList(blocks[i] for i in order)
    try:
        yield
    finally:
        model.blocks = blocks


def skipped(n_layers: int, layer: int) -> list[int]:
    """The order without one layer.

    >>> skipped(4, 1)
    [0, 2, 3]
    """
    return [i for i in range(n_layers) if i != layer]


def repeated(n_layers: int, layer: int) -> list[int]:
    """The order in which one layer runs twice, the second time at once.

    >>> repeated(4, 1)
    [0, 1, 1, 2, 3]
    """
    return [i for i in range(n_layers) for _ in range(1 + (i == layer))]


def exchanged(n_layers: int, layer: int, other: int) -> list[int]:
    """The order in which two layers have changed places.

    >>> exchanged(4, 0, 2)
    [2, 1, 0, 3]
    """
    order = list(range(n_layers))
    order[layer], order[other] = order[other], order[layer]
    return order


@dataclass(frozen=True)
class EditCosts:
    """How much a metric changes with each edit: edited less whole.

    Attributes:
        skip: without each layer.
        repeat: with each layer run twice.
        swap: with two layers exchanged; symmetric, and zero on the diagonal.
        whole: the metric of the model as it is.
    """

    skip: Float[ndarray, "layer"]
    repeat: Float[ndarray, "layer"]
    swap: Float[ndarray, "layer other"]
    whole: float

    @property
    def neighbours(self) -> Float[ndarray, "pair"]:
        """What it costs to exchange each layer with the next."""
        return np.diagonal(self.swap, 1)


@torch.no_grad()
def skip_costs(
    model: Reader, batch: Batch, *, metric: Metric = mean_loss
) -> Float[ndarray, "layer"]:
    """Try the model without each layer: `EditCosts.skip` alone, for less work.

    Args:
        model, batch, metric: as for `edit_costs`.
    """
    n = len(model.blocks)
    whole = metric(model, batch)
    found = []
    for layer in range(n):
        with rearranged(model, skipped(n, layer)):
            found.append(metric(model, batch) - whole)
    return np.array(found)


@torch.no_grad()
def edit_costs(model: Reader, batch: Batch, *, metric: Metric = mean_loss) -> EditCosts:
    """Try all edits of one or two layers.

    Args:
        model: trained.
        batch: what the metric is measured on.
        metric: by default the loss in nats per scored position, so that costs are positive.

    >>> from measured_transformer.analysis.handmade import composed_model
    >>> from measured_transformer.tasks.induction import Induction
    >>> task = Induction(vocab=8, length=12, shortest=3, longest=4)
    >>> batch = task.batch(torch.Generator().manual_seed(0), 20)
    >>> costs = edit_costs(composed_model("k", vocab=8, length=12), batch)
    >>> bool(costs.swap[0, 1] > 0.5), round(costs.whole, 3)
    (True, 1.274)
    """
    n = len(model.blocks)
    whole = metric(model, batch)

    def cost(order: list[int]) -> float:
        with rearranged(model, order):
            return metric(model, batch) - whole

    swap = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1, n):
            swap[i, j] = swap[j, i] = cost(exchanged(n, i, j))
    return EditCosts(
        skip_costs(model, batch, metric=metric),
        np.array([cost(repeated(n, i)) for i in range(n)]),
        swap,
        whole,
    )
