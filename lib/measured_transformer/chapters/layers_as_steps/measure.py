r"""How much a sublayer contributes, measured in different ways, and layers that run in another order.

A sublayer is the attention or the feed-forward network of one block. What it *writes* is added to the
residual stream. Its contribution may mean the length of that write, what the write says to the unembedding
directly (direct logit attribution), or how much worse the model is without it. Only pre-norm models, and
models without norms, have writes that can be told apart.

A trained model can run its layers in another order: one left out, one run twice, two exchanged. If each layer
only refines what it finds, such an edit should cost little: what the neighbour would have improved is
improved a moment later. If a layer reads what another has written, the order is part of the program. After
Veit et al. (2016), "Residual Networks Behave Like Ensembles of Relatively Shallow Networks", who deleted and
shuffled blocks of residual networks for images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy import stats
from torch import nn
from torch.nn import functional as F

from measured_transformer.analysis.ablation import Component, Metric, effects
from measured_transformer.analysis.ablation import loss as mean_loss
from measured_transformer.analysis.lens import Reader
from measured_transformer.analysis.residual import Ledger, ledger
from measured_transformer.internals.capture import capture
from measured_transformer.parts.norms import LayerNorm, RMSNorm
from measured_transformer.tasks.task import Batch

# Writes of whole layers -----------------------------------------------------------------------------


def layer_cosines(account: Ledger) -> Float[ndarray, "layer other"]:
    """Mean cosine, over all positions, between what two layers write: attention and network together.

    Below zero, one of them takes back a part of what the other has written.
    """
    writes = F.normalize(account.blocks.diff(dim=0), dim=-1)
    cosines = torch.einsum("ibpd,jbpd->ijbp", writes, writes).mean((2, 3))
    return cosines.double().cpu().numpy()


def share_of_pairs(cosines: Float[ndarray, "layer layer"], *, below: float = 0.0) -> float:
    """Share of the pairs of different layers whose cosine lies below a bound.

    >>> share_of_pairs(np.array([[1.0, 0.5, -0.5], [0.5, 1.0, 0.25], [-0.5, 0.25, 1.0]]))
    0.3333333333333333
    """
    pairs = cosines[np.triu_indices(len(cosines), 1)]
    return float((pairs < below).mean())


# Sublayers ------------------------------------------------------------------------------------------


def length_shares(account: Ledger) -> Float[ndarray, "sublayer"]:
    """Mean length of each sublayer's write, as a share of those of all."""
    lengths = account.writes.norm(dim=-1).mean(dim=(1, 2)).double().cpu().numpy()
    return lengths / lengths.sum()


@torch.no_grad()
def direct_attribution(model: Reader, batch: Batch) -> Float[ndarray, "sublayer"]:
    """How far each write raises the logit of the right answer above the mean logit, directly.

    With the divisor of the final norm held at its value, logits are a sum over the writes (and the embedding),
    and each write has its own part of them. The mean is over the scored positions. What a write does through
    later sublayers does not count.

    Args:
        model: whose logits are read by one matrix, with norms before the sublayers or none.
        batch: with the right answers.

    Raises:
        ValueError: when the model has norms on the stream, or reads its logits in another way.
    """
    return direct_logits(model, batch)[1:-1]


@torch.no_grad()
def direct_logits(model: Reader, batch: Batch) -> Float[ndarray, "part"]:
    """As `direct_attribution`, for the embedding, each write, and last the constant of the final norm.

    Their sum is the mean, over scored positions, of the right answer's logit less the mean logit.

    Raises:
        ValueError: as `direct_attribution`.
    """
    if model.config.placement == "post" and model.config.norm != "none":
        raise ValueError("with norms on the stream (placement='post') no write keeps its own part")
    if model.unembedding is None or model.head_layer is not None:
        raise ValueError("direct logits need a model with head='linear'")
    account, norm = ledger(model, batch.inputs), model.final_norm
    parts = torch.cat([account.states[:1], account.writes])[:, batch.scored]
    constant = torch.zeros_like(parts[:1])
    if isinstance(norm, LayerNorm | RMSNorm):
        with capture(model, "final_norm.scale") as seen:
            model(batch.inputs)
        if isinstance(norm, LayerNorm):
            parts = parts - parts.mean(-1, keepdim=True)
            if norm.bias is not None:
                constant = norm.bias.expand_as(constant)
        parts = parts / seen["final_norm.scale"][batch.scored] * norm.weight
    rows = model.unembedding.weight * model.config.logit_scale
    toward = rows[batch.targets[batch.scored]] - rows.mean(0)  # position, d_model
    found = (torch.cat([parts, constant]) * toward).sum(-1).mean(-1)
    return found.double().cpu().numpy()


@dataclass(frozen=True)
class Contributions:
    """Four answers to how much each sublayer contributes, attention first in each block.

    Attributes:
        names: of the sublayers.
        length: share of the written length.
        attribution: direct logit attribution, see `direct_attribution`.
        zero: rise of the loss, in nats, when what it writes is set to zero.
        mean: the same when it is replaced by its mean over other sequences, position by position.
    """

    names: tuple[str, ...]
    length: Float[ndarray, "sublayer"]
    attribution: Float[ndarray, "sublayer"]
    zero: Float[ndarray, "sublayer"]
    mean: Float[ndarray, "sublayer"]

    def agreement(self, measure: str) -> float:
        """Rank correlation over the sublayers between the share of the length and another measure.

        Args:
            measure: `attribution`, `zero` or `mean`.
        """
        return rank_correlation(self.length, getattr(self, measure))


def contributions(model: Reader, batch: Batch, reference: Batch) -> Contributions:
    """Measure the contribution of every sublayer in each of the ways.

    Args:
        model: trained, with norms before the sublayers or none.
        batch: what everything is measured on.
        reference: other sequences of the same length, for the means.

    Raises:
        ValueError: as `direct_attribution`.
    """
    account = ledger(model, batch.inputs)
    writes = [Component(f"{name}.out") for name in account.names]
    return Contributions(
        account.names,
        length_shares(account),
        direct_attribution(model, batch),
        effects(model, writes, batch, how="zero", metric=mean_loss),
        effects(model, writes, batch, how="mean", reference=reference, metric=mean_loss),
    )


def rank_correlation(one: Float[ndarray, "item"], other: Float[ndarray, "other"]) -> float:
    """Spearman's correlation of the ranks, from -1 to 1.

    Raises:
        ValueError: when there are not as many of both, fewer than two, or all of one are the same.

    >>> round(rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([1.0, 20.0, 10.0])), 6)
    0.5
    """
    if one.shape != other.shape or one.size < 2:
        raise ValueError(
            f"expected as many numbers of both, at least two, got {one.shape} and {other.shape}"
        )
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        raise ValueError("numbers that are all the same have no ranks")
    return float(stats.spearmanr(one, other).statistic)


# Layers in another order ---------------------------------------------------------------------------


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
