"""Taking heads away: gates on heads, orders to remove them in, and the model that is left.

A head is *removed* when what it has gathered is multiplied by a gate of 0 before it is written to the stream
(Michel et al., 2019). Many sets of gates are tried in one forward pass: the sequences are repeated, and each
copy gets gates of its own (`losses_with`). Heads are ranked one at a time, by the slope of the loss
(`gradient_importance`) or by what their removal costs (`ablation_rises`), or jointly, each time by what the
removal costs of what is left (`greedy_order`). `prune_heads` makes the smaller model that computes the same.
`twins` is a model by hand that shows what ranking one at a time overlooks.

Shapes: heads are (layer, head), and an order is a list of flat numbers `layer * n_heads + head`, in which
those that go first stand first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.handmade import SHARP, Layout, attentions, empty_model, set_head
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import Change, intervene
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.tasks.task import Batch
from measured_transformer.training.loop import Model, make_model
from numpy import ndarray
from torch import Tensor
from torch.nn import functional as F

OneStack = Decoder | Encoder
"""A model with a single stack of blocks, whose self-attention has the heads that are removed."""
PerHead = Float[ndarray, "layer head"]
ROWS_AT_ONCE = 1024
"""How many sequences a forward pass takes at most, copies counted."""


# Gates -------------------------------------------------------------------------------------------------


@contextmanager
def gated(
    model: Model,
    gates: Float[Tensor, "row layer head"],
    fill: Sequence[Float[Tensor, "one head position d_head"]] | None = None,
) -> Iterator[None]:
    """Run the block with a gate for each head of each sequence: 1 leaves it as it is, 0 removes it.

    Args:
        model: is changed only while the block runs.
        gates: for each sequence of the batch, or one row for all of them.
        fill: for each layer what a closed gate lets through in place of the head; nothing when None.

    Raises:
        ValueError: when the gates are not (row, layer, head) for this model.
    """
    layers, heads = model.config.n_layers, model.config.n_heads
    if gates.ndim != 3 or gates.shape[1:] != (layers, heads):
        raise ValueError(
            f"expected gates of shape (row, layer, head) = (row, {layers}, {heads}), got {tuple(gates.shape)}"
        )

    def change(layer: int) -> Change:
        own = gates[:, layer, :, None, None]
        if fill is None:
            return lambda mixed: mixed * own
        return lambda mixed: mixed * own + fill[layer] * (1 - own)

    with intervene(model, {f"blocks.{i}.attention.mixed": change(i) for i in range(layers)}):
        yield


def row_losses(model: Model, batch: Batch) -> Float[Tensor, "row"]:
    """Mean cross-entropy of each sequence over its scored positions, in nats."""
    logits = model(batch.inputs)
    costs = F.cross_entropy(logits.transpose(1, 2), batch.targets, reduction="none")
    return (costs * batch.scored).sum(1) / batch.scored.sum(1)


@torch.no_grad()
def losses_with(
    model: Model,
    batch: Batch,
    gates: Float[Tensor, "set layer head"],
    *,
    reference: Batch | None = None,
) -> Float[ndarray, "set"]:
    """The loss of the model under each set of gates, in nats per scored position.

    Args:
        model: trained, of one stack.
        batch: what the loss is measured on; every sequence has as many scored positions as the others.
        gates: the sets that are tried.
        reference: sequences over which the mean is taken that a closed gate lets through; zeros when None.

    >>> from measured_transformer.analysis.handmade import reversal_model
    >>> from measured_transformer.tasks.reversal import Reversal
    >>> batch = Reversal(4, 4).batch(torch.Generator().manual_seed(0), 8)
    >>> gates = torch.tensor([1.0, 0.0]).double()[:, None, None]
    >>> losses_with(reversal_model(vocab=4, length=4), batch, gates).round(3).tolist()
    [0.744, 1.386]
    """
    fill = None if reference is None else mean_mixed(model, reference)
    rows = len(batch.inputs)
    several = max(1, ROWS_AT_ONCE // rows)
    found = []
    for sets in gates.split(several):
        inputs, targets, scored = (
            tensor.repeat(len(sets), 1) for tensor in (batch.inputs, batch.targets, batch.scored)
        )
        repeated = Batch(inputs, targets, scored)
        with gated(model, sets.repeat_interleave(rows, 0), fill):
            found.append(row_losses(model, repeated).view(len(sets), rows).double().mean(1))
    return torch.cat(found).numpy()


@torch.no_grad()
def mean_mixed(model: Model, reference: Batch) -> list[Float[Tensor, "one head position d_head"]]:
    """What each head gathers on average over sequences, position by position, layer by layer."""
    names = [f"blocks.{i}.attention.mixed" for i in range(model.config.n_layers)]
    with capture(model, *names) as seen:
        model(reference.inputs)
    return [seen[name].mean(0, keepdim=True) for name in names]


def all_but(model: Model, sets: Sequence[Sequence[int]]) -> Float[Tensor, "set layer head"]:
    """Gates that remove the heads of each set and leave the rest.

    Raises:
        ValueError: when a head has a number that the model does not have.
    """
    layers, heads = model.config.n_layers, model.config.n_heads
    dtype = next(model.parameters()).dtype
    gates = torch.ones(len(sets), layers * heads, dtype=dtype)
    for row, removed in zip(gates, sets, strict=True):
        if removed and not 0 <= min(removed) <= max(removed) < layers * heads:
            raise ValueError(
                f"heads are numbered from 0 to {layers * heads - 1}, got {list(removed)}"
            )
        row[list(removed)] = 0.0
    return gates.view(-1, layers, heads)


# Ranking one at a time ----------------------------------------------------------------------------------


def gradient_importance(
    model: Model,
    batch: Batch,
    *,
    gates: Float[Tensor, "layer head"] | None = None,
    normalise: bool = True,
) -> PerHead:
    r"""How strongly the loss depends on each head's gate: $\mathbb{E}_x |\partial L(x) / \partial g_h|$.

    The size is taken sequence by sequence, so that opposite signs do not cancel; then each layer is divided by
    the length of its row (Michel et al., 2019, who took the idea from Molchanov et al., 2017).

    Args:
        model: trained, of one stack; its own gradients are left alone.
        batch: the sequences x.
        gates: where heads have been removed already; those get the importance 0.
        normalise: whether each layer is divided by its length.
    """
    layers, heads = model.config.n_layers, model.config.n_heads
    dtype = next(model.parameters()).dtype
    start = torch.ones(layers, heads, dtype=dtype) if gates is None else gates
    own = start.expand(len(batch.inputs), layers, heads).clone().requires_grad_()
    with gated(model, own):
        total = row_losses(model, batch).sum()
    (slope,) = torch.autograd.grad(total, own)
    sizes = (slope.abs().double().mean(0) * (start != 0)).numpy()
    if not normalise:
        return sizes
    lengths = np.linalg.norm(sizes, axis=1, keepdims=True)
    return sizes / np.where(lengths > 0, lengths, 1.0)


def ablation_rises(model: Model, batch: Batch, *, reference: Batch | None) -> PerHead:
    """What the loss rises by, in nats, when each head alone is replaced by its mean (or removed).

    Args:
        model: trained, of one stack.
        batch: what the loss is measured on.
        reference: sequences over which the mean is taken; None replaces by zeros.
    """
    layers, heads = model.config.n_layers, model.config.n_heads
    sets: list[list[int]] = [[], *([h] for h in range(layers * heads))]
    losses = losses_with(model, batch, all_but(model, sets), reference=reference)
    return (losses[1:] - losses[0]).reshape(layers, heads)


# Orders and curves -------------------------------------------------------------------------------------


def order(importance: PerHead) -> list[int]:
    """Flat numbers of the heads, the least important first.

    >>> order(np.array([[3.0, 1.0], [0.5, 2.0]]))
    [2, 1, 3, 0]
    """
    return [int(h) for h in np.argsort(importance.ravel(), kind="stable")]


def iterative_order(
    model: Model, rank: Callable[[Float[Tensor, "layer head"]], PerHead], *, several: int = 1
) -> list[int]:
    """Remove the least important heads, rank those that remain anew, and so on until none is left.

    Args:
        model: of one stack.
        rank: importance of the heads under given gates, such as `gradient_importance` with `gates`.
        several: how many heads go between two rankings.

    Raises:
        ValueError: when `several` is not positive.
    """
    if several < 1:
        raise ValueError(f"at least one head must go between two rankings, got several={several}")
    total, gone = model.config.n_layers * model.config.n_heads, list[int]()
    while len(gone) < total:
        importance = rank(all_but(model, [gone])[0]).ravel().copy()
        importance[gone] = np.inf
        gone += [int(h) for h in np.argsort(importance, kind="stable")[:several]][
            : total - len(gone)
        ]
    return gone


def greedy_order(model: Model, batch: Batch) -> list[int]:
    """Each time, remove the head whose removal costs least of what is left, until none is left."""
    total, gone = model.config.n_layers * model.config.n_heads, list[int]()
    while len(gone) < total:
        left = [h for h in range(total) if h not in gone]
        losses = losses_with(model, batch, all_but(model, [[*gone, h] for h in left]))
        gone.append(left[int(np.argmin(losses))])
    return gone


def pruning_curve(
    model: Model, batch: Batch, removed: Sequence[int], counts: Sequence[int]
) -> Float[ndarray, "count"]:
    """The loss after the first so many heads of an order have been removed, nothing trained in between."""
    return losses_with(model, batch, all_but(model, [removed[:m] for m in counts]))


def largest_share(losses: Float[ndarray, "count"], *, rise: float) -> float:
    """The largest share of the heads that can go while the loss rises by at most so much.

    Args:
        losses: with 0, 1, 2, ... heads removed, up to all of them.
        rise: in nats.

    Raises:
        ValueError: when there are not at least two losses.

    >>> largest_share(np.array([0.5, 0.5, 0.504, 0.6, 0.9]), rise=0.005)
    0.5
    """
    if len(losses) < 2:
        raise ValueError(f"expected the losses without 0 to all heads, got {len(losses)}")
    fits = np.flatnonzero(losses <= losses[0] + rise)
    return float(fits.max() / (len(losses) - 1))


def gini(values: Float[ndarray, "..."]) -> float:
    """How unevenly a total is shared: 0 when all have the same, near 1 when one has all.

    Negative values count as 0.

    Raises:
        ValueError: when nothing is above 0.

    >>> gini(np.array([1.0, 1.0, 1.0, 1.0])), gini(np.array([0.0, 0.0, 0.0, 1.0]))
    (0.0, 0.75)
    """
    sizes = np.sort(np.clip(np.ravel(values), 0, None))
    if not sizes.sum() > 0:
        raise ValueError("expected at least one value above 0")
    n = len(sizes)
    return float((2 * np.arange(1, n + 1) - n - 1) @ sizes / (n * sizes.sum()))


def random_sets(heads: int, count: int, draws: int, generator: torch.Generator) -> list[list[int]]:
    """So many random choices of `count` of the heads."""
    return [torch.randperm(heads, generator=generator)[:count].tolist() for _ in range(draws)]


# A smaller model -----------------------------------------------------------------------------------------


def keep_by_layer(importance: PerHead, keep: int) -> Int[ndarray, "layer keep"]:
    """The numbers of the `keep` most important heads of each layer, rising.

    >>> keep_by_layer(np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]]), 2).tolist()
    [[0, 2], [1, 2]]
    """
    return np.sort(np.argsort(-importance, axis=1, kind="stable")[:, :keep], axis=1)


@torch.no_grad()
def prune_heads(model: OneStack, kept: Int[ndarray, "layer keep"]) -> OneStack:
    """The model with these heads of each layer and no others; it computes what the gates compute.

    Raises:
        ValueError: when heads share keys and values, or there is not a row of heads for each layer.
    """
    config = model.config
    if config.kv_heads != config.n_heads:
        raise ValueError("heads that share keys and values cannot be cut out one by one")
    if kept.ndim != 2 or len(kept) != config.n_layers:
        raise ValueError(
            f"expected heads of each of {config.n_layers} layers, got an array of shape {kept.shape}"
        )
    smaller = make_model(
        config.replace(n_heads=kept.shape[1], d_head=config.head_width),
        causal=isinstance(model, Decoder),
        seed=0,
    )
    assert isinstance(smaller, Decoder | Encoder)
    smaller.to(next(model.parameters()))
    width, state = config.head_width, model.state_dict()
    for layer, heads in enumerate(kept):
        rows = torch.cat([torch.arange(h * width, (h + 1) * width) for h in heads])
        for name in [n for n in state if n.startswith(f"blocks.{layer}.attention.")]:
            part = name.split(".")[3]
            if part in ("query", "key", "value"):
                state[name] = state[name][rows]
            elif name.endswith("output.weight"):
                state[name] = state[name][:, rows]
    smaller.load_state_dict(state)
    return smaller.train(model.training)


# Twins -----------------------------------------------------------------------------------------------------


def twins(*, vocab: int = 5, length: int = 11, strength: float = 6.0) -> tuple[Encoder, Batch]:
    """One layer of four heads by hand: two do the same large job, one has a small job of its own, one is idle.

    The sequence begins with a start token and is to be reversed. PerHead 0 and 1, the twins, both fetch the
    mirrored token for every place but the first after the start; head 2 fetches it for that one; head 3 does
    nothing. A head without a job at a place looks at the start token, which says nothing. Each head that
    fetches adds `strength` to the right answer's logit.

    Args:
        vocab: number of tokens besides the start.
        length: number of tokens besides the start.
        strength: see there.

    Returns:
        The model, and a batch with all answers scored but that of the start.

    >>> model, batch = twins()
    >>> losses_with(model, batch, all_but(model, [[], [0], [2], [0, 1]])).round(3).tolist()
    [0.001, 0.012, 0.163, 1.63]
    """
    layout = Layout(vocab + 1, length + 1)
    model = empty_model(layout, n_layers=1, n_heads=4, causal=False)
    assert isinstance(model, Encoder)
    eye = torch.eye(layout.width, dtype=torch.float64)
    place, token, note = eye[:, layout.place], eye[:, layout.token].clone(), eye[:, layout.note(0)]
    token[layout.token.start] = 0  # the start token has no value
    jobs = (range(2, length + 1), range(2, length + 1), (1,), ())
    for head, places in enumerate(jobs):
        wanted = torch.zeros(length + 1, length + 1, dtype=torch.float64)
        wanted[:, 0] = 1
        for here in places:
            wanted[here, 0], wanted[here, length + 1 - here] = 0, 1
        set_head(
            attentions(model)[0],
            head,
            query=SHARP * place @ wanted,
            key=place,
            value=token,
            output=note.T,
        )
    with torch.no_grad():
        model.get_parameter("unembedding.weight")[:, layout.note(0)] = (
            strength * torch.eye(vocab + 1).double()
        )
    drawn = torch.randint(1, vocab + 1, (64, length), generator=torch.Generator().manual_seed(0))
    inputs = torch.cat([torch.zeros(64, 1, dtype=torch.int64), drawn], dim=1)
    scored = torch.ones_like(inputs, dtype=torch.bool)
    scored[:, 0] = False
    return model, Batch(inputs, torch.cat([inputs[:, :1], drawn.flip(1)], dim=1), scored)


def twin_loss(vocab: int, logit: float) -> float:
    """Loss of an answer whose logit is that much above those of all others: ln(1 + vocab exp(-logit)).

    >>> round(twin_loss(5, 6.0), 4)
    0.0123
    """
    return math.log1p(vocab * math.exp(-logit))


def spread_over_tasks(
    shares: Mapping[str, Float[ndarray, "seed"]],
) -> tuple[Float[ndarray, "seed"], Float[ndarray, "seed"]]:
    """Standard deviations of a number over the tasks, and over trainings on one task.

    Args:
        shares: name of the task -> one number a training, paired over the tasks.

    Returns:
        For each training the standard deviation over the tasks; and for each the standard deviation over as
        many trainings of one task, this one and those after it (the first follow the last), mean of the tasks.

    Raises:
        ValueError: when there are fewer trainings than tasks.
    """
    table = np.array(list(shares.values()))
    tasks, trainings = table.shape
    if trainings < tasks:
        raise ValueError(f"expected at least {tasks} trainings, as many as tasks, got {trainings}")
    windows = (np.arange(trainings)[:, None] + np.arange(tasks)) % trainings
    within = table[:, windows].std(2, ddof=1).mean(0)
    return table.std(0, ddof=1), within
