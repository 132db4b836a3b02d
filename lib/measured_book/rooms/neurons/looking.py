"""Looking at neurons and touching them: their activations, what they respond to, and what they write.

Activations are tables, a row for each *input* (one position of one sequence) and a column for each neuron, the
blocks one after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from measured_transformer.analysis.ffn_memory import as_memory
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import Change, intervene
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.parts.norms import LayerNorm
from measured_transformer.tasks.task import Batch
from measured_transformer.training.loop import predict
from numpy import ndarray
from scipy.stats import rankdata
from torch import Tensor
from torch.nn import functional as F

Reader = Decoder | Encoder


# Looking at neurons, and touching them -------------------------------------------------------------


@torch.no_grad()
def activations(
    model: Reader, tokens: Int[Tensor, "batch position"]
) -> Float[Tensor, "block batch position d_ff"]:
    """What each neuron of each block says at each position."""
    with capture(model, "blocks.*.feedforward.neurons") as seen:
        model(tokens)
    return torch.stack(
        [seen[f"blocks.{i}.feedforward.neurons"] for i in range(model.config.n_layers)]
    )


def table(
    values: Float[Tensor, "block batch position d_ff"], first: int = 0
) -> Float[ndarray, "input neuron"]:
    """Activations as a table: a row for each position of each sequence, a column for each neuron of each block.

    Args:
        values: from `activations`.
        first: positions before this one are left out.
    """
    kept = values[:, :, first:]
    columns = kept.permute(1, 2, 0, 3).reshape(-1, kept.shape[0] * kept.shape[3])
    return columns.double().cpu().numpy()


def kinds(batch: Batch) -> dict[str, Int[ndarray, "input"]]:
    """The token, the right answer and the position of each input, in the order of `table`."""
    positions = torch.arange(batch.inputs.shape[1]).expand_as(batch.inputs)
    found = {"token": batch.inputs, "answer": batch.targets, "position": positions}
    return {name: values.reshape(-1).cpu().numpy() for name, values in found.items()}


@contextmanager
def zero_ablated(model: Reader, neurons: Bool[ndarray, "neuron"]) -> Iterator[None]:
    """Hold some neurons at zero while the `with` block runs.

    Args:
        model: whose neurons.
        neurons: which ones, of all blocks one after another, as in `table`.

    Raises:
        ValueError: when their number is another than the model's.
    """
    blocks, d_ff = model.config.n_layers, model.config.neurons
    if neurons.shape != (blocks * d_ff,):
        raise ValueError(
            f"the model has {blocks} blocks of {d_ff} neurons, so expected {blocks * d_ff} entries, got "
            f"shape {neurons.shape}"
        )
    kept = torch.from_numpy(~neurons.reshape(blocks, d_ff))
    changes: dict[str, Change] = {
        f"blocks.{i}.feedforward.neurons": _kept(kept[i]) for i in range(blocks)
    }
    with intervene(model, changes):
        yield


def _kept(which: Bool[Tensor, "d_ff"]) -> Change:
    return lambda value: value * which.to(value)


@contextmanager
def forced(model: Reader, block: int, neuron: int, value: float) -> Iterator[None]:
    """Hold one neuron at a value, at every position, while the `with` block runs.

    Raises:
        ValueError: when there is no such neuron.
        KeyError: when there is no such block.
    """
    if not 0 <= neuron < model.config.neurons:
        raise ValueError(f"neuron must lie in 0..{model.config.neurons - 1}, got {neuron}")

    def hold(there: Tensor) -> Tensor:
        there[..., neuron] = value
        return there

    with intervene(model, {f"blocks.{block}.feedforward.neurons": hold}):
        yield


@torch.no_grad()
def rise(
    model: Reader,
    batch: Batch,
    neurons: Bool[ndarray, "neuron"],
    where: Bool[Tensor, "batch position"],
) -> tuple[float, float]:
    """By how many nats the loss rises when neurons are silenced: where the mask holds, and elsewhere.

    Raises:
        ValueError: when the mask holds everywhere or nowhere.
    """
    if bool(where.all()) or not bool(where.any()):
        raise ValueError("expected a mask that holds at some positions and not at others")
    before = position_losses(model, batch)
    with zero_ablated(model, neurons):
        more = position_losses(model, batch) - before
    return float(more[where].mean()), float(more[~where].mean())


def position_losses(model: Reader, batch: Batch) -> Float[Tensor, "batch position"]:
    """The loss at each position, in nats."""
    logits = predict(model, batch).double()
    return F.cross_entropy(logits.transpose(1, 2), batch.targets, reduction="none")


# What a neuron responds to -------------------------------------------------------------------------


def set_auc(
    values: Float[ndarray, "input neuron"],
    token: Int[ndarray, "input"],
    sets: Bool[ndarray, "set token"],
) -> Float[ndarray, "set neuron"]:
    """How well each neuron tells tokens of a set from all others: area under the ROC curve.

    The probability that the neuron says more at a random input of the set than at a random other one, equal
    activations counting half (Mann-Whitney). 1: always more; 0.5: tells nothing; 0: always less.

    Args:
        values: activations.
        token: a number for each input.
        sets: which numbers belong to each set.

    Raises:
        ValueError: when a set holds all inputs or none.
    """
    kinds = np.eye(sets.shape[1])[token]
    inside = sets.astype(float) @ kinds.sum(0)
    outside = len(token) - inside
    if (inside == 0).any() or (outside == 0).any():
        raise ValueError("expected sets with inputs inside and outside of them")
    ranks = kinds.T @ rankdata(values, axis=0)
    summed = sets.astype(float) @ ranks
    return (summed - (inside * (inside + 1) / 2)[:, None]) / (inside * outside)[:, None]


def variance_explained(
    values: Float[ndarray, "input neuron"], kind: Int[ndarray, "input"]
) -> Float[ndarray, "neuron"]:
    """Share of each neuron's variance over inputs that is between kinds of inputs; 0 for one that never varies.

    1: the kind says all; near 0: it says nothing.

    >>> values = np.array([[0.0, 0.0], [0.0, 1.0], [2.0, 0.0], [2.0, 1.0]])
    >>> variance_explained(values, np.array([0, 0, 1, 1])).tolist()
    [1.0, 0.0]
    """
    members = np.eye(int(kind.max()) + 1)[kind]
    counts = members.sum(0)
    present = counts > 0
    means = (members.T @ values)[present] / counts[present, None]
    between = counts[present] @ np.square(means - values.mean(0))
    total = np.square(values - values.mean(0)).sum(0)
    return np.divide(between, total, out=np.zeros_like(total), where=total > 1e-12)


def firing_rates(
    values: Float[ndarray, "input neuron"], *, above: float = 0.0
) -> Float[ndarray, "neuron"]:
    """Share of the inputs on which each neuron is active.

    Args:
        values: activations.
        above: active means above this share of the neuron's largest activation; 0 for ReLU, which is
            exactly zero elsewhere. A neuron that is never positive is never active.

    Raises:
        ValueError: when the share does not lie in [0, 1).

    >>> firing_rates(np.array([[0.0, 0.05], [1.0, 1.0], [2.0, -1.0], [3.0, 0.2]]), above=0.1).tolist()
    [0.75, 0.5]
    """
    if not 0 <= above < 1:
        raise ValueError(f"above must lie in [0, 1), got {above}")
    return (values > above * values.max(0)).mean(0)


# Values --------------------------------------------------------------------------------------------


@torch.no_grad()
def direct_logit_effects(model: Reader, block: int) -> Float[Tensor, "neuron vocab"]:
    """What one unit of each neuron adds to the logits by its value and the unembedding alone.

    The value is read as the final norm reads the stream, up to the norm's divisor: centred where it is a
    LayerNorm and multiplied by its weight. What all tokens share, which changes no prediction, is taken off.

    Raises:
        ValueError: when the model has no linear unembedding.
        AttributeError: when there is no such block.
    """
    if model.unembedding is None or model.head_layer is not None:
        raise ValueError(
            f"expected a model with a linear unembedding, got head={model.config.head!r}"
        )
    network = model.get_submodule(f"blocks.{block}.feedforward")
    assert isinstance(network, FeedForward)
    values = as_memory(network).values
    if isinstance(model.final_norm, LayerNorm):
        values = values - values.mean(-1, keepdim=True)
    weight = getattr(model.final_norm, "weight", None)
    if weight is not None:
        values = values * weight
    pushed = values @ model.unembedding.weight.T
    return pushed - pushed.mean(-1, keepdim=True)


@torch.no_grad()
def forced_changes(
    model: Reader,
    tokens: Int[Tensor, "batch position"],
    block: int,
    levels: Float[ndarray, "neuron"],
) -> Float[Tensor, "neuron vocab"]:
    """How the logits change, on average over positions, when each neuron alone is forced to its level.

    What all tokens share is taken off.
    """
    before = model(tokens)
    changes = []
    for neuron, level in enumerate(levels.tolist()):
        with forced(model, block, neuron, level):
            changes.append((model(tokens) - before).mean((0, 1)))
    found = torch.stack(changes)
    return found - found.mean(-1, keepdim=True)
