r"""What the chapter on heads measures: what is lost without one, without several, and what they look at.

**Taking heads away.** A head is *removed* when what it has gathered is multiplied by a gate of 0 before it is
written to the stream (Michel et al., 2019). Many sets of gates are tried in one forward pass: the sequences
are repeated, and each copy gets gates of its own (`losses_with`). Heads are ranked one at a time, by the slope
of the loss (`gradient_importance`) or by what their removal costs (`ablation_rises`), or jointly, each time by
what the removal costs of what is left (`greedy_order`). `prune_heads` makes the smaller model that computes
the same. `twins` is a model by hand that shows what ranking one at a time overlooks.

**Looking at patterns.** A head's pattern is a matrix of weights for every sequence. `observe` turns many of
them into a handful of numbers a head: how much attention falls on the next token, on the own one, on a place
that the task asks for; how even it is; how much of it the place alone explains, whatever the tokens.
`memberships` turns the numbers into the classes of a taxonomy, by thresholds that stand in one place. `look`
runs a model on a batch and measures the heads of each of its attentions; `rows` asks of one model which rows of
the case study's table it has, by thresholds that can all be moved at once.

Shapes: heads are (layer, head), and an order is a list of flat numbers `layer * n_heads + head`, in which those
that go first stand first; patterns are (example, head, query, key), each row of weights summing to one over
the keys that the query may see.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from measured_transformer.analysis import ablation
from measured_transformer.analysis.ablation import How
from measured_transformer.analysis.handmade import SHARP, Layout, attentions, empty_model, set_head
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import Change, intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.attention import MultiHeadAttention, causal_mask
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.recall import AssociativeRecall
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.rewriting import ReversalED, ReversalLM
from measured_transformer.tasks.task import Batch, Task
from measured_transformer.tasks.two_hop import JoinedTwoHop
from measured_transformer.tasks.variable_reversal import VariableReversal
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, evaluate, make_model, predict, train
from measured_transformer.training.schedules import WarmupLinear
from measured_transformer.training.seeding import make_generator
from numpy import ndarray
from scipy.stats import spearmanr
from torch import Tensor
from torch.nn import functional as F

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

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


# What heads look at ---------------------------------------------------------------------------------

Patterns = Float[Tensor, "example head query key"]
POSITIONAL, CONTENT, SELF, GLOBAL = "positional", "content", "self", "global"
CLASSES = (POSITIONAL, CONTENT, SELF, GLOBAL)
"""The four classes of the case study's taxonomy, see `memberships`."""


@dataclass(frozen=True)
class HeadTable:
    """One number a head for each statistic.

    Attributes:
        masses: by name, the mean weight on the position of that name: `offset -1` (the one before), `offset 1`
            and so on, `self`, `first`, and those that were asked for.
        entropy: mean entropy of a row over the largest it could have, from 0 (one key) to 1 (even).
        effective: number of keys attended to, the exponential of the mean entropy.
        distance: mean number of positions between a query and what it attends to.
        place_share: share of the pattern's variation about even attention that its mean over the sequences
            has: 1 for a head that ignores the tokens, 0 for one whose mean is even.
    """

    masses: Mapping[str, Float[ndarray, "head"]]
    entropy: Float[ndarray, "head"]
    effective: Float[ndarray, "head"]
    distance: Float[ndarray, "head"]
    place_share: Float[ndarray, "head"]

    @property
    def offset_mass(self) -> Float[ndarray, "head"]:
        """The mass on that fixed offset, other than the own position, that has most of it."""
        return np.max([mass for n, mass in self.masses.items() if n.startswith("offset ")], axis=0)


@dataclass(frozen=True)
class Observed:
    """Statistics of every sequence, from which `table` takes means.

    Attributes:
        masses: by name (example head), see `HeadTable`.
        entropy, nats, distance: (example head); entropy relative to its largest value, and as it is.
        deviations: patterns less even attention, zero where a query may not look.
        groups: for each sequence the number of its group; place means place and group.
    """

    masses: Mapping[str, Float[Tensor, "example head"]]
    entropy: Float[Tensor, "example head"]
    nats: Float[Tensor, "example head"]
    distance: Float[Tensor, "example head"]
    deviations: Patterns
    groups: Int[Tensor, "example"]

    def table(self, examples: Int[Tensor, "example"] | None = None) -> HeadTable:
        """The means over all sequences, or over those of these numbers (with repetition: a bootstrap)."""
        which = torch.arange(len(self.entropy)) if examples is None else examples

        def mean(values: Tensor) -> Float[ndarray, "head"]:
            return values[which].mean(0).double().numpy()

        return HeadTable(
            masses={name: mean(mass) for name, mass in self.masses.items()},
            entropy=mean(self.entropy),
            effective=np.exp(mean(self.nats)),
            distance=mean(self.distance),
            place_share=_place_share(self.deviations[which], self.groups[which]),
        )


def observe(
    patterns: Patterns,
    *,
    allowed: Bool[Tensor, "..."] | None = None,
    queries: Bool[Tensor, "..."] | None = None,
    targets: Mapping[str, Int[Tensor, "..."]] | None = None,
    groups: Int[Tensor, "example"] | None = None,
    offsets: Sequence[int] = (-3, -2, -1, 1, 2, 3),
) -> Observed:
    """Measure heads on many sequences.

    Args:
        patterns: their weights.
        allowed: (query, key) or (example, query, key), True where a query may look; everywhere when None.
        queries: (query) or (example, query), True for the queries that count; all when None.
        targets: further positions by name, (query) or (example, query): the key that is meant, -1 for none.
        groups: for each sequence a number, such as its length, that a head may go by besides the place.
        offsets: distances of which the mass is measured; queries for which there is no such key are left
            out, as are those of other targets.

    Raises:
        ValueError: when patterns have not four axes, or a mask, target or group does not fit them.

    >>> from measured_transformer.analysis.handmade import heads_model
    >>> from measured_transformer.internals.capture import capture
    >>> model = heads_model(["next", "uniform"], vocab=5, length=4)
    >>> with capture(model, "blocks.0.attention.pattern") as seen:
    ...     _ = model(torch.tensor([[3, 1, 4, 2], [0, 0, 1, 2]]))
    >>> table = observe(seen["blocks.0.attention.pattern"]).table()
    >>> table.masses["offset 1"].round(2).tolist(), table.entropy.round(2).tolist()
    ([1.0, 0.25], [0.25, 1.0])
    """
    if patterns.ndim != 4:
        raise ValueError(
            f"patterns must have the shape (example, head, query, key), got {tuple(patterns.shape)}"
        )
    patterns = patterns.detach().cpu()
    n_example, _, n_query, n_key = patterns.shape
    shape = (n_example, n_query, n_key)
    seen = _fitted("allowed", allowed, shape, torch.bool)
    counts = _fitted("queries", queries, shape[:2], torch.bool) & seen.any(-1)
    grouped = torch.zeros(n_example, dtype=torch.int64) if groups is None else groups.cpu()
    if grouped.shape != (n_example,):
        raise ValueError(f"groups must be one number a sequence, got shape {tuple(grouped.shape)}")

    place = torch.arange(n_query)
    named: dict[str, Tensor] = {f"offset {k}": place + k for k in offsets}
    named |= {"self": place, "first": torch.zeros(n_query, dtype=torch.int64)}
    masses = {
        name: _mass(patterns, _fitted(name, where, shape[:2], torch.int64), seen, counts)
        for name, where in {**named, **(targets or {})}.items()
    }
    visible = seen.sum(-1)
    nats = torch.special.entr(patterns.double()).sum(-1)
    several = (counts & (visible > 1))[:, None]
    largest = visible.clamp_min(2).double().log()[:, None]
    between = (torch.arange(n_key) - place[:, None]).abs()
    even = seen / visible.clamp_min(1)[..., None]
    deviations = (patterns - even[:, None]).masked_fill(~counts[:, None, :, None], 0.0)
    return Observed(
        masses=masses,
        entropy=_mean(nats / largest, several),
        nats=_mean(nats, several),
        distance=_mean((patterns * between).sum(-1).double(), counts[:, None]),
        deviations=deviations,
        groups=grouped,
    )


def _mass(patterns: Patterns, where: Tensor, seen: Tensor, counts: Tensor) -> Tensor:
    """Mean weight on one key a query, over the queries that count and may see that key."""
    n_key = patterns.shape[-1]
    there = (where >= 0) & (where < n_key)
    index = where.clamp(0, n_key - 1)[..., None]
    there = there & counts & seen.gather(-1, index)[..., 0]
    spread = index[:, None].expand(-1, patterns.shape[1], -1, -1)
    return _mean(patterns.gather(-1, spread)[..., 0].double(), there[:, None])


def _mean(values: Tensor, where: Tensor) -> Float[Tensor, "example head"]:
    """Mean over the queries that count; 0 where there are none."""
    where = where.expand_as(values)
    return values.masked_fill(~where, 0.0).sum(-1) / where.sum(-1).clamp_min(1)


def _place_share(deviations: Patterns, groups: Tensor) -> Float[ndarray, "head"]:
    total = deviations.square().sum((0, 2, 3)).double()
    explained = torch.zeros_like(total)
    for group in groups.unique():
        own = deviations[groups == group]
        explained += len(own) * own.mean(0).square().sum((1, 2)).double()
    # A head that is even everywhere has nothing to explain: no token moves it either.
    return torch.where(total > 1e-12, explained / total.clamp_min(1e-300), 1.0).numpy()


def _fitted(name: str, given: Tensor | None, shape: tuple[int, ...], kind: torch.dtype) -> Tensor:
    if given is None:
        return torch.ones(shape, dtype=kind)
    if given.dtype != kind or given.shape not in (shape, shape[1:]):
        wanted = "Boolean" if kind == torch.bool else "whole numbers"
        raise ValueError(
            f"{name} must be {wanted} of shape {shape} or {shape[1:]}, got {given.dtype} of shape "
            f"{tuple(given.shape)}"
        )
    return given.cpu().expand(shape)


# Classes ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Thresholds:
    """Where the classes of a taxonomy begin.

    Attributes:
        mass: least weight on one fixed offset, or on the own position.
        content: least share of the variation that the place does not explain.
        unevenness: largest shortfall of the entropy from its largest value for a head that looks everywhere.
    """

    mass: float = 0.5
    content: float = 0.5
    unevenness: float = 0.1

    def times(self, factor: float) -> Thresholds:
        """Every threshold multiplied.

        >>> Thresholds().times(0.75).mass
        0.375
        """
        own = dataclasses.asdict(self)
        return Thresholds(**{name: factor * value for name, value in own.items()})


DECLARED = Thresholds()
"""A head belongs to a class when more than half of it does."""
STRICT = Thresholds(mass=0.7, content=0.2, unevenness=0.2)
"""Another reasonable choice: clear masses, but whoever is moved by the tokens a little counts as content."""


def memberships(table: HeadTable, thresholds: Thresholds = DECLARED) -> Bool[ndarray, "head class"]:
    """Which of `CLASSES` each head belongs to: none, one or several.

    - positional: attends to one fixed offset, other than 0;
    - content: its pattern varies with the tokens;
    - self: attends to its own position;
    - global: attends to all positions nearly evenly.
    """
    return np.stack(
        [
            table.offset_mass > thresholds.mass,
            1 - table.place_share > thresholds.content,
            table.masses["self"] > thresholds.mass,
            1 - table.entropy < thresholds.unevenness,
        ],
        axis=-1,
    )


def labels(member: Bool[ndarray, "head class"]) -> list[str]:
    """A name for each head: its class, "none", or its classes joined by a plus.

    >>> labels(np.array([[True, False, False, False], [False, True, False, True]]))
    ['positional', 'content+global']
    """
    return ["+".join(np.array(CLASSES)[row].tolist()) or "none" for row in member]


def stability(
    observed: Observed,
    generator: torch.Generator,
    *,
    draws: int = 20,
    thresholds: Thresholds = DECLARED,
) -> float:
    """Share of heads that keep their label when the sequences are drawn again, with repetition."""
    n = len(observed.entropy)
    first = labels(memberships(observed.table(), thresholds))
    kept = []
    for _ in range(draws):
        again = observed.table(torch.randint(n, (n,), generator=generator))
        kept.append(np.mean(np.array(labels(memberships(again, thresholds))) == first))
    return float(np.mean(kept))


def kappa(first: Sequence[str], second: Sequence[str]) -> float:
    """Cohen's kappa: agreement of two labellings beyond that of chance; 1 when they agree throughout.

    Source: Cohen (1960).

    Raises:
        ValueError: when the labellings are empty or differ in length.

    >>> kappa(["a", "a", "b", "b"], ["a", "a", "b", "a"])
    0.5
    """
    if len(first) != len(second) or not first:
        raise ValueError(
            f"expected two labels for each of one or more heads, got {len(first)} and {len(second)}"
        )
    n = len(first)
    agree = sum(a == b for a, b in zip(first, second, strict=True)) / n
    chance = sum(list(first).count(name) * list(second).count(name) for name in set(first)) / n**2
    return 1.0 if chance == 1 else (agree - chance) / (1 - chance)


def depends_on_tokens(
    patterns: Patterns,
    keys: Int[Tensor, "example key"],
    queries: Int[Tensor, "example query"],
    generator: torch.Generator,
    *,
    shuffles: int = 59,
) -> Float[ndarray, "head"]:
    """p-value, for each head, of its pattern having nothing to do with the tokens.

    At each place the mean weight is taken off, and what is left is averaged over all places that have the same
    two tokens, at query and key. How far these averages lie from zero is compared with what comes out
    when the sequences' tokens have been dealt out anew among the patterns: the value is the share of
    `shuffles` (and the true one) that reach the true one.

    Args:
        patterns: the weights.
        keys, queries: the tokens there.
        generator: deals them out.
        shuffles: how often.
    """
    patterns = patterns.detach().cpu().float()
    vocab = int(max(keys.max(), queries.max())) + 1
    at_key = torch.nn.functional.one_hot(keys.cpu(), vocab).float()
    at_query = torch.nn.functional.one_hot(queries.cpu(), vocab).float()
    centred = patterns - patterns.mean(0)

    def apart(order: Tensor) -> Tensor:
        asking, asked = at_query[order], at_key[order]
        by_key = centred @ asked[:, None]  # (example, head, query, vocab)
        sums = torch.einsum("eqa,ehqb->hab", asking, by_key)
        count = torch.outer(asking.sum((0, 1)), asked.sum((0, 1))).clamp_min(1)
        return (sums.square() / count).sum((1, 2))

    n = len(patterns)
    true = apart(torch.arange(n))
    reached = torch.zeros(patterns.shape[1])
    for _ in range(shuffles):
        reached += apart(torch.randperm(n, generator=generator)) >= true
    return ((1 + reached.double()) / (1 + shuffles)).numpy()


# Comparing heads ----------------------------------------------------------------------------------


def divergence(
    first: Float[Tensor, "*head query key"], second: Float[Tensor, "*head query key"]
) -> Float[Tensor, "*head"]:
    """Jensen-Shannon divergence of two patterns, mean over the queries, in units of its largest value.

    0 for equal rows, 1 for rows that share no key. Source: Lin (1991).

    >>> one = torch.eye(2)
    >>> divergence(one, one).item(), divergence(one, one.flip(0)).item()
    (0.0, 1.0)
    """
    first, second = first.double(), second.double()
    middle = torch.special.entr((first + second) / 2)
    apart = middle - (torch.special.entr(first) + torch.special.entr(second)) / 2
    return (apart.sum(-1).mean(-1) / math.log(2)).clamp(0, 1)


@dataclass(frozen=True)
class Apart:
    """How differently heads attend, as `divergence`, mean over the sequences.

    Two heads are compared on the same sequence, and a head with itself on the next sequence: two heads whose
    patterns vary, each in its own way, differ even where their mean patterns do not.

    Attributes:
        pairs: of every two heads of a model, each pair once.
        shared: the layer that the two share, from 0; -1 where they share none.
        itself: of each head from itself on another sequence, layer after layer.
    """

    pairs: Float[ndarray, "pair"]
    shared: Int[ndarray, "pair"]
    itself: Float[ndarray, "head"]

    def of_layer(self, layer: int) -> float:
        """Mean of the pairs of one layer."""
        return float(self.pairs[self.shared == layer].mean())


def apart(layers: Sequence[Patterns]) -> Apart:
    """Compare all heads of a model.

    Args:
        layers: the patterns of each layer, on the same sequences.

    >>> one = torch.eye(2).expand(3, 1, 2, 2)
    >>> found = apart([torch.cat([one, one], 1), torch.cat([one.flip(-1), one], 1)])
    >>> found.pairs.tolist(), found.shared.tolist(), found.itself.tolist()
    ([0.0, 1.0, 0.0, 1.0, 0.0, 1.0], [0, -1, -1, -1, -1, 1], [0.0, 0.0, 0.0, 0.0])
    """
    every = torch.cat(list(layers), 1)
    of_head = np.repeat(np.arange(len(layers)), [each.shape[1] for each in layers])
    one, other = torch.triu_indices(every.shape[1], every.shape[1], offset=1)
    return Apart(
        divergence(every[:, one], every[:, other]).mean(0).numpy(),
        np.where(of_head[one] == of_head[other], of_head[one], -1),
        divergence(every, every.roll(1, 0)).mean(0).numpy(),
    )


# The rows of the table ---------------------------------------------------------------------------

ROWS = ("next and first", "self", "content", "two mirrors", "several", "global")
"""The rows of the case study's table: the first three of layer 0, the others of layer 1."""


@dataclass(frozen=True)
class Attention:
    """The heads of one attention of a model, on a batch.

    Attributes:
        kind: `self`, or in an encoder-decoder `encoder`, `decoder` or `cross`.
        layer: number of its block.
        patterns: (example head query key).
        observed: their statistics; `mirror` among the masses is that on the token to be written.
        keys, queries: the tokens there, for an encoder-decoder's cross-attention of source and target.
    """

    kind: str
    layer: int
    patterns: Float[Tensor, "example head query key"]
    observed: Observed
    keys: Int[Tensor, "example key"]
    queries: Int[Tensor, "example query"]

    @property
    def table(self) -> HeadTable:
        """The means over the batch."""
        return self.observed.table()

    @property
    def maps(self) -> Float[Tensor, "head query key"]:
        """The mean pattern of each head, of the queries that count."""
        counts = self.observed.deviations.abs().sum((0, 1, 3)) > 0
        return self.patterns.mean(0)[:, counts]


@torch.no_grad()
def look(model: Model, batch: Batch) -> list[Attention]:
    """Measure every attention of a model that reverses, on sequences of its task.

    An encoder's position p is to attend to its mirror image in the sequence; so is the position of an
    encoder-decoder that writes the token p, in the source. In a decoder only, the queries that count are
    those that write; before them nothing is asked.
    """
    found = []
    with capture(model, "*attention.pattern") as seen:
        predict(model, batch)
    for name, patterns in seen.items():
        stack, block = name.split("blocks.")
        kind = stack.rstrip(".") or "self"
        if "cross_attention" in name:
            kind = "cross"
        found.append(_looked_at(kind, int(block.split(".")[0]), patterns.cpu(), model, batch))
    return sorted(found, key=lambda each: each.layer)


def _looked_at(kind: str, layer: int, patterns: Tensor, model: Model, batch: Batch) -> Attention:
    inputs, scored = batch.inputs.cpu(), batch.scored.cpu()
    keys = queries = inputs
    allowed: Tensor | None = None
    counts: Tensor | None = scored
    place = torch.arange(patterns.shape[2])
    mirror: Tensor | None = None
    if kind in ("encoder", "cross") and isinstance(model, EncoderDecoder):
        assert batch.source is not None
        keys = batch.source.cpu()
        queries = keys if kind == "encoder" else inputs
        mirror = keys.shape[1] - 1 - place
        counts = None
    elif kind == "self" and isinstance(model, Encoder):
        lengths = scored.sum(1, keepdim=True)
        mirror = torch.where(scored, lengths - 1 - place, -1)
        allowed = scored[:, None, :] & scored[:, :, None]
    else:
        allowed = causal_mask(len(place))
        if kind == "self":  # the answer's first token is written over the separator, in the middle
            mirror = len(place) - 1 - place
    groups = None
    if batch.padding_mask is not None:
        groups = batch.padding_mask.cpu().sum(1)
    targets = {} if mirror is None else {"mirror": mirror}
    observed = observe(patterns, allowed=allowed, queries=counts, targets=targets, groups=groups)
    return Attention(kind, layer, patterns, observed, keys, queries)


def rows(
    attentions: Sequence[Attention], generator: torch.Generator, *, factor: float = 1.0
) -> Mapping[str, bool]:
    """Which of `ROWS` a model of two layers has.

    A row counts as found when any attention of its layer has it, so that an encoder-decoder, with three
    attentions a layer, has three chances.

    Args:
        attentions: from `look`.
        generator: for the permutation test of `content`.
        factor: by which every threshold is multiplied.
    """
    first = [each for each in attentions if each.layer == 0]
    last = [(each.table, each) for each in attentions if each.layer == 1]
    mass = 0.5 * factor
    return {
        "next and first": any(_next_and_first(each.table, mass) for each in first),
        "self": any((each.table.masses["self"] > mass).any() for each in first),
        "content": any(_content(each, 0.2 * factor, generator) for each in first),
        "two mirrors": any(
            int((table.masses["mirror"] > mass).sum()) == 2
            for table, _ in last
            if "mirror" in table.masses
        ),
        "several": any(
            ((table.effective > 2 * factor) & (table.effective < 6 * factor)).any()
            for table, _ in last
        ),
        "global": any((1 - table.entropy < 0.1 * factor).any() for table, _ in last),
    }


def _next_and_first(table: HeadTable, mass: float) -> bool:
    """Two heads, one for each."""
    ahead, first = table.masses["offset 1"] > mass, table.masses["first"] > mass
    return bool(ahead.any() and first.any() and (ahead | first).sum() > 1)


def _content(attention: Attention, share: float, generator: torch.Generator) -> bool:
    moved = attention.table.place_share < share
    if not moved.any():
        return False
    p = depends_on_tokens(
        attention.patterns[:, moved], attention.keys, attention.queries, generator
    )
    return bool((p <= 0.05).any())


@dataclass(frozen=True)
class Heads:
    """What is kept of one attention: see `Attention`.

    Attributes:
        kind, layer, table: as there.
        maps: the mean pattern of each head.
    """

    kind: str
    layer: int
    table: HeadTable
    maps: Float[Tensor, "head query key"]


@dataclass(frozen=True)
class Study:
    """The heads of one model.

    Attributes:
        heads: one entry for each attention, layer by layer.
        found: for each factor of the thresholds which of `ROWS` the model has.
        stable: share of heads that keep their label when the sequences are drawn again.
    """

    heads: Sequence[Heads]
    found: Mapping[float, Mapping[str, bool]]
    stable: float

    def labels(self, thresholds: Thresholds = DECLARED) -> list[str]:
        """The label of every head, see `heads.labels`."""
        member = [memberships(each.table, thresholds) for each in self.heads]
        return [label for own in member for label in labels(own)]

    def roles(self) -> list[str]:
        """The class of every head for a reader: one of the four, `several`, `mirror` (in none), or `none`."""
        named = []
        for each in self.heads:
            nowhere = np.zeros(len(each.maps))
            mirrored = each.table.masses.get("mirror", nowhere) > DECLARED.mass
            for label, mirror in zip(labels(memberships(each.table)), mirrored, strict=True):
                if label == "none" and mirror:
                    named.append("mirror")
                else:
                    named.append("several" if "+" in label else label)
        return named

    def one_class(self, factors: Sequence[float]) -> float:
        """Share of heads that are in exactly one class, at every factor of the thresholds."""
        alone = [
            np.concatenate(
                [
                    memberships(each.table, DECLARED.times(factor)).sum(-1) == 1
                    for each in self.heads
                ]
            )
            for factor in factors
        ]
        return float(np.mean(np.all(alone, axis=0)))

    def statistic(self, name: str) -> Float[ndarray, "layer head"]:
        """One number a head of a model with one attention a layer: a statistic, or a mass by its name.

        Raises:
            KeyError: when there is no such mass.
        """
        return np.stack(
            [
                getattr(each.table, name) if hasattr(each.table, name) else each.table.masses[name]
                for each in self.heads
            ]
        )


def study(
    model: Model,
    batch: Batch,
    generator: torch.Generator,
    *,
    factors: Sequence[float] = (0.75, 1.0, 1.25),
) -> Study:
    """Look at a model of two layers, and keep what does not grow with the batch.

    Args:
        model: that reverses, trained or not.
        batch: of its task.
        generator: for samples and permutations.
        factors: by which the thresholds of `rows` are multiplied.
    """
    attentions = look(model, batch)
    return Study(
        [Heads(each.kind, each.layer, each.table, each.maps) for each in attentions],
        {factor: rows(attentions, generator, factor=factor) for factor in factors},
        float(np.mean([stability(each.observed, generator) for each in attentions])),
    )


def exchange_error(seed: int, *, exchange_outputs: bool = True) -> float:
    """Largest change of a random model's output when the heads of a layer trade places.

    Args:
        seed: of the weights, the tokens and the permutation.
        exchange_outputs: whether the columns of the output projection move along; as a control, not.
    """
    generator = torch.Generator().manual_seed(seed)
    n_heads, d_head = [(2, 8), (4, 4), (4, 8), (8, 4)][seed % 4]
    config = Config(vocab=11, d_model=n_heads * d_head, n_heads=n_heads, n_layers=2)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Encoder(config).double().eval()
    tokens = torch.randint(11, (3, 7), generator=generator)
    order = torch.randperm(n_heads, generator=generator)
    if order.tolist() == sorted(order.tolist()):
        order = order.roll(1)
    with torch.no_grad():
        before = model(tokens)
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                permute_heads(module, order, exchange_outputs=exchange_outputs)
        return float((model(tokens) - before).abs().max())


@torch.no_grad()
def permute_heads(
    attention: MultiHeadAttention, order: Int[Tensor, "head"], *, exchange_outputs: bool = True
) -> None:
    """Let head i take over the weights of head `order[i]`, in place.

    Raises:
        ValueError: when heads share keys and values.
    """
    if attention.n_kv_heads != attention.n_heads:
        raise ValueError(
            "heads trade places on their own when each has its keys and values, got "
            f"n_heads={attention.n_heads} and n_kv_heads={attention.n_kv_heads}"
        )
    taken = (order[:, None] * attention.d_head + torch.arange(attention.d_head)).flatten()
    for name in ("query", "key", "value"):
        projection = attention.get_submodule(name)
        for parameter in projection.parameters():
            parameter.copy_(parameter[taken].clone())
    if exchange_outputs:
        weight = attention.output.weight
        weight.copy_(weight[:, taken].clone())


# Trained models, and the learning rate as an arm --------------------------------------------------------

STEPS = 500
SOURCE_RATE = 5e-4
"""The learning rate that the case study states for another of its experiments, on normalisation."""
RATES = (5e-4, 2e-3, 4e-3, 5.7e-3, 8e-3, 1.6e-2)
SEARCHED = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
FEWER_STEPS = 400
"""Of encoders on sequences of varying length, which learn within these."""
DECODING_STEPS = 500
"""Of encoder-decoders and decoders, at the source's rate."""
FRESH = 1000
"""Added to the seeds of measurements that were designed anew after a look at other seeds."""
MIRRORED = Reversal(vocab=12, length=12)
ENCODER = Config(vocab=12)
OPTIONS: Mapping[str, Any] = {"batch_size": 32, "schedule": WarmupLinear(20, STEPS)}
LAYERS, HEADS = (0, 1), (0, 1, 2, 3)
HOWS = ("zero", "mean", "resample")
SHOWN = (2e-3, 1.6e-2)
"""Two rates of which the mean patterns are kept."""


def tuned_rate() -> float:
    """The learning rate that suits the two-layer encoder on reversal."""
    return tuned(
        Search(
            "one-head-encoder", ENCODER, MIRRORED, SEARCHED, tuning_seeds(2), STEPS, dict(OPTIONS)
        )
    )


def encoder_job(seed: int, rate: float) -> Job:
    """A two-layer encoder that learns to reverse."""
    return job(ENCODER, MIRRORED, seed, steps=STEPS, learning_rate=rate, **OPTIONS)


def batch_of(task: Task, seed: int, purpose: str = "evaluation", size: int = 100) -> Batch:
    """Sequences that no training has seen, of one stream for each purpose."""
    return task.batch(make_generator(seed, purpose), size)


def layer_heads(layer: int, what: str = "mixed") -> list[ablation.Component]:
    """The heads of one layer of a model of one stack."""
    return [
        ablation.Component(f"blocks.{layer}.attention.{what}", head)
        for head in range(ENCODER.n_heads)
    ]


def pattern_falls(model: Model, seed: int, how: How) -> list[float]:
    """How far the accuracy falls when all heads of a layer attend by their mean pattern, or evenly."""
    batch, other = batch_of(MIRRORED, seed), batch_of(MIRRORED, seed, "reference")
    groups = [layer_heads(layer, "pattern") for layer in LAYERS]
    changes = ablation.effects(model, groups, batch, how=how, reference=other)
    return [-float(change) for change in changes]


def mean_maps(model: Model, seed: int) -> Float[Tensor, "layer head query key"]:
    """The mean pattern of every head."""
    return torch.stack([each.patterns.mean(0) for each in look(model, batch_of(MIRRORED, seed))])


def rate_trainings(seed: int) -> dict[float, Job]:
    """The same encoder, from the same weights and on the same sequences, at six learning rates."""
    return {rate: encoder_job(seed, rate) for rate in RATES}


@measurement(
    seeds=8,
    coords={
        "rate": RATES,
        "shown": SHOWN,
        "layer": LAYERS,
        "head": HEADS,
        "query": tuple(range(12)),
        "key": tuple(range(12)),
    },
    trainings=rate_trainings,
    repeat="opening",
    tolerance={"mirror": 1.0, "accuracy": 0.5, "even": 1.0, "maps": 1.0},
)
def by_rate(seed: int, runs: Mapping[float, Run]) -> dict[str, Any]:
    """Encoders trained to reverse at six learning rates: the weight of each head on the mirrored position."""
    models = [runs[rate].model for rate in RATES]
    tables = [
        [each.table.masses["mirror"] for each in look(model, batch_of(MIRRORED, seed))]
        for model in models
    ]
    maps = [mean_maps(runs[rate].model, seed).numpy().round(3) for rate in SHOWN]
    return {
        "mirror": (("rate", "layer", "head"), tables),
        "accuracy": ("rate", [evaluate(m, MIRRORED, seed=seed).accuracy for m in models]),
        "even": (("rate", "layer"), [pattern_falls(m, seed, "even") for m in models]),
        "maps": (("shown", "layer", "head", "query", "key"), np.array(maps)),
    }


KINDS = ("tuned", "source", "encoder-decoder", "decoder-only")
"""Models whose heads are held against the table: encoders at the tuned rate and at the source's, and two other
readings of what the source calls a Transformer, at the source's rate."""
STATES = ("fresh", "tuned", "source")
"""Encoders before training, and after it at two rates."""
FACTORS = (0.75, 1.0, 1.25)
"""By which the thresholds of the table's rows are multiplied."""


def kind_task(kind: str) -> Task:
    """What the model of one of `KINDS` learns."""
    tasks: dict[str, Task] = {
        "encoder-decoder": ReversalED(12, 12),
        "decoder-only": ReversalLM(12, 12),
    }
    return tasks.get(kind, MIRRORED)


def role_trainings(seed: int) -> dict[str, Job]:
    """A model of each kind."""
    seed += FRESH
    jobs = {"tuned": encoder_job(seed, tuned_rate()), "source": encoder_job(seed, SOURCE_RATE)}
    for kind in KINDS[2:]:
        task = kind_task(kind)
        config = Config(vocab=task.vocab)
        jobs[kind] = job(
            config,
            task,
            seed,
            steps=DECODING_STEPS,
            learning_rate=SOURCE_RATE,
            batch_size=32,
            schedule=WarmupLinear(20, DECODING_STEPS),
        )
    return jobs


def untrained(model: Model, seed: int) -> Model:
    """A fresh model of the same kind."""
    source = isinstance(model, EncoderDecoder)
    causal = not isinstance(model, Encoder)
    return make_model(model.config, causal=causal, source=source, seed=seed).eval()


@measurement(
    seeds=16,
    coords={
        "kind": KINDS,
        "state": STATES,
        "row": ROWS,
        "factor": FACTORS,
        "layer": LAYERS,
        "head": HEADS,
    },
    trainings=role_trainings,
    repeat="opening",
    tolerance={
        **dict.fromkeys(("found", "found_fresh"), 1.0),
        **dict.fromkeys(("accuracy", "stable", "one_class", "kappa"), 0.5),
        **dict.fromkeys(("share", "mirror", "entropy"), 1.0),
        **dict.fromkeys(("apart", "apart_most", "itself", "itself_most"), 0.5),
        **{"distance": 6.0, "code": 15.0},
    },
)
def roles(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Which rows of the table models that reverse have, and what their heads look at, trained and untrained."""
    seed += FRESH
    models = {kind: runs[kind].model for kind in KINDS}
    batches = {kind: batch_of(kind_task(kind), seed) for kind in KINDS}
    generator = make_generator(seed, "samples")
    after = {k: study(models[k], batches[k], generator, factors=FACTORS) for k in KINDS}
    before = {
        k: study(untrained(models[k], seed), batches[k], generator, factors=(1.0,)) for k in KINDS
    }
    encoders = {"fresh": before["tuned"], "tuned": after["tuned"], "source": after["source"]}
    both = [[x for k in KINDS for x in after[k].labels(t)] for t in (DECLARED, STRICT)]
    looked = {"fresh": untrained(models["tuned"], seed), **{s: models[s] for s in STATES[1:]}}
    compared = [
        apart([each.patterns for each in look(looked[state], batches["tuned"])]) for state in STATES
    ]
    powers = 2 ** np.arange(len(CLASSES))
    codes = [
        [memberships(each.table) @ powers for each in encoders[state].heads] for state in STATES
    ]

    def over_heads(name: str) -> tuple[tuple[str, ...], Any]:
        return ("state", "layer", "head"), [e.statistic(name) for e in encoders.values()]

    return {
        "found": (
            ("kind", "row", "factor"),
            [[[int(after[k].found[f][r]) for f in FACTORS] for r in ROWS] for k in KINDS],
        ),
        "found_fresh": (
            ("kind", "row"),
            [[int(before[k].found[1.0][r]) for r in ROWS] for k in KINDS],
        ),
        "accuracy": (
            "kind",
            [evaluate(models[k], kind_task(k), seed=seed).accuracy for k in KINDS],
        ),
        "stable": ("kind", [after[k].stable for k in KINDS]),
        "one_class": ("kind", [after[k].one_class(FACTORS) for k in KINDS]),
        "kappa": kappa(*both),
        "code": (("state", "layer", "head"), np.array(codes)),
        "share": over_heads("place_share"),
        "mirror": over_heads("mirror"),
        "entropy": over_heads("entropy"),
        "distance": over_heads("distance"),
        "apart": (("state", "layer"), [[each.of_layer(i) for i in LAYERS] for each in compared]),
        "itself": (("state", "layer"), [each.itself.reshape(2, -1).mean(1) for each in compared]),
        "apart_most": ("state", [each.pairs.max() for each in compared]),
        "itself_most": ("state", [each.itself.max() for each in compared]),
    }


TRAINED = ("tuned", "source")


def spare_trainings(seed: int) -> dict[str, Job]:
    """Encoders at the tuned rate and at the source's."""
    return {"tuned": encoder_job(seed, tuned_rate()), "source": encoder_job(seed, SOURCE_RATE)}


@measurement(
    seeds=12,
    coords={"rate": TRAINED, "how": HOWS, "layer": LAYERS, "head": HEADS},
    trainings=spare_trainings,
    repeat="opening",
    tolerance={
        **dict.fromkeys(("alone", "together"), 4.0),
        **dict.fromkeys(("fall_alone", "fall_together", "fall_mean", "fall_even"), 1.0),
    },
)
def spares(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """What encoders lose without one head and without all four of a layer: loss in nats, and accuracy."""
    batch, other = batch_of(MIRRORED, seed), batch_of(MIRRORED, seed, "reference")
    found: dict[str, list[Any]] = {}
    for rate in TRAINED:
        model = runs[rate].model
        for name, metric, sign in (("", ablation.loss, 1.0), ("fall_", ablation.accuracy, -1.0)):
            single, group = [], []
            for how in HOWS:
                given: dict[str, Any] = {"how": how, "reference": other, "metric": metric}
                ones = ablation.effects(model, ablation.heads(model), batch, **given)
                single.append(sign * ones.reshape(len(LAYERS), len(HEADS)))
                layers = [layer_heads(layer) for layer in LAYERS]
                group.append(sign * ablation.effects(model, layers, batch, **given))
            found.setdefault(f"{name}alone", []).append(single)
            found.setdefault(f"{name}together", []).append(group)
        found.setdefault("fall_mean", []).append(pattern_falls(model, seed, "mean"))
        found.setdefault("fall_even", []).append(pattern_falls(model, seed, "even"))
    axes = {"alone": ("rate", "how", "layer", "head"), "together": ("rate", "how", "layer")}
    return {
        name: (axes.get(name.removeprefix("fall_"), ("rate", "layer")), np.array(values))
        for name, values in found.items()
    }


VARYING = VariableReversal(12, 4, 12)
VARYING_RATE = 4e-3
"""At which encoders learn it; at the rate that suits a fixed length they do not."""


def length_trainings(seed: int) -> dict[str, Job]:
    """An encoder on sequences of four to twelve tokens."""
    config = Config(vocab=VARYING.vocab)
    return {
        "encoder": job(
            config,
            VARYING,
            seed,
            steps=FEWER_STEPS,
            learning_rate=VARYING_RATE,
            batch_size=32,
            schedule=WarmupLinear(20, FEWER_STEPS),
        )
    }


@measurement(
    seeds=6,
    trainings=length_trainings,
    repeat="opening",
    tolerance={"share": 0.2, "accuracy": 0.3},
)
def lengths(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Encoders that reverse sequences of varying length: what place and length explain of heads that mirror."""
    model = runs["encoder"].model
    tables = [each.table for each in look(model, batch_of(VARYING, seed, size=400))]
    mirror = np.concatenate([table.masses["mirror"] for table in tables])
    share = np.concatenate([table.place_share for table in tables])
    chosen = mirror > 0.5 if (mirror > 0.5).any() else mirror == mirror.max()
    return {
        "share": float(share[chosen].mean()),
        "accuracy": evaluate(model, VARYING, seed=seed).accuracy,
    }


DRAWN = 7
"""Random models a seed whose heads trade places."""


@measurement(seeds=16, repeat=2, tolerance={"error": 1e-9, "control": 2.0})
def exchanged(seed: int) -> dict[str, Any]:
    """Largest change of a random model's output when heads trade places, with their outputs and without."""
    draws = range(DRAWN * seed, DRAWN * (seed + 1))
    return {
        "error": ("draw", [exchange_error(draw) for draw in draws]),
        "control": ("draw", [exchange_error(draw, exchange_outputs=False) for draw in draws]),
    }


# Pairs of heads that do not add up ------------------------------------------------------------------------

HOP = JoinedTwoHop(chains=2, names=3, values=3)
DEPTHS, DEEP = (1, 2, 6), (2, 6)
HOP_STEPS = 300
HOP_RATE = 4e-3
"""At which models of all depths learn the task."""
HOP_OPTIONS: Mapping[str, Any] = {"batch_size": 32, "schedule": WarmupLinear(20, HOP_STEPS)}


def hop_trainings(seed: int) -> dict[int, Job]:
    """Decoders of one to six layers on two-hop recall."""
    jobs = {}
    for depth in DEPTHS:
        config = Config(vocab=HOP.vocab, d_model=32, n_layers=depth)
        jobs[depth] = job(config, HOP, seed, steps=HOP_STEPS, learning_rate=HOP_RATE, **HOP_OPTIONS)
    return jobs


def pair_effects(
    model: Model, batch: Batch
) -> tuple[Float[ndarray, "pair"], Float[ndarray, "pair"], Float[ndarray, "pair"]]:
    """Of every pair of heads: its cost, the sum of its heads' single costs, and whether they share a layer."""
    n, of_layer = model.config.n_layers * model.config.n_heads, model.config.n_heads
    pairs = list(itertools.combinations(range(n), 2))
    sets: list[list[int]] = [[], *([h] for h in range(n)), *(list(pair) for pair in pairs)]
    losses = losses_with(model, batch, all_but(model, sets))
    rises = losses[1:] - losses[0]
    first, second = np.array(pairs).T
    same = (first // of_layer == second // of_layer).astype(float)
    return rises[n:], rises[first] + rises[second], same


@measurement(
    seeds=6,
    coords={"depth": DEPTHS, "deep": DEEP},
    trainings=hop_trainings,
    repeat="opening",
    tolerance={
        **dict.fromkeys(("same", "different"), 1.0),
        **dict.fromkeys(("excess_same", "excess_different"), 1.0),
        "accuracy": 0.3,
    },
)
def additivity(seed: int, runs: Mapping[int, Run]) -> dict[str, Any]:
    """The share of the joint effects of two heads that their single effects do not add up to, by depth.

    And the same with its sign: positive where a pair costs more than the sum.
    """
    found: dict[str, list[float]] = {}
    for depth in DEPTHS:
        model = runs[depth].model
        joint, summed, same = pair_effects(model, batch_of(HOP, seed, size=128))
        for name, chosen in (("same", same > 0), ("different", same == 0)):
            if chosen.any():
                size = np.abs(joint[chosen]).sum()
                rest = joint[chosen] - summed[chosen]
                found.setdefault(name, []).append(float(np.abs(rest).sum() / size))
                found.setdefault(f"excess_{name}", []).append(float(rest.sum() / size))
        found.setdefault("accuracy", []).append(evaluate(model, HOP, seed=seed).accuracy)
    return {
        name: ("deep" if "different" in name else "depth", values) for name, values in found.items()
    }


# Taking heads away, in several orders ----------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """One task, and the models that learn it: two layers of eight heads, each eight wide.

    Attributes:
        task: what is learnt.
        steps: of the model with eight heads a layer.
        further: steps of training on after pruning; models with fewer heads from the start get both.
    """

    task: Task
    steps: int
    further: int = 50

    def config(self, n_heads: int, d_head: int = 8) -> Config:
        """Two layers of so many heads."""
        return Config(vocab=self.task.vocab, n_heads=n_heads, d_head=d_head, bias=False)

    def options(self, steps: int) -> dict[str, Any]:
        """What all trainings have in common."""
        return {"batch_size": 16, "schedule": WarmupLinear(steps // 10, steps)}


SETTINGS: Mapping[str, Setting] = {
    "reversal": Setting(Reversal(vocab=12, length=8), 200),
    "lag": Setting(Lag(vocab=8, length=16, lag=3, fidelity=0.9), 400),
    "recall": Setting(AssociativeRecall(pairs=3, queries=3, keys=6, values=4), 500),
}
"""Each trained until every model has learned its task: models that have not can spare fewer heads."""
INSURANCE: Mapping[str, Setting] = {"recall": replace(SETTINGS["recall"], steps=300)}
"""Recall, ended early, so that two heads a layer leave something to be gained."""
TASKS = tuple(SETTINGS)
PRUNING_RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
ORDERS = ("gradient", "alone", "greedy", "random")
DRAWS = 10
"""Random orders a model."""
COUNTS = tuple(range(17))
QUARTER, HALF = 4, 8
WORTH = 0.01
"""The share of what all heads together are worth that may be lost."""


def arm_job(name: str, arm: str, seed: int, settings: Mapping[str, Setting] = SETTINGS) -> Job:
    """One arm on one task: `whole`, `wide` (four heads, twice as wide), `scratch` (two heads) or `pruned`.

    Raises:
        ValueError: there is no such arm.
    """
    setting = settings[name]
    if arm == "whole":
        config, steps = setting.config(8), setting.steps
    elif arm == "wide":
        config, steps = setting.config(4, 16), setting.steps
    elif arm == "scratch":
        config, steps = setting.config(KEPT), setting.steps + setting.further
    elif arm == "pruned":
        config, steps = setting.config(KEPT), setting.further
    else:
        raise ValueError(f"expected whole, wide, scratch or pruned, got {arm!r}")
    options = setting.options(steps)
    if arm == "pruned":
        options["prepare"] = PrunedTo(name, LARGE_RATES[name])
    search = Search(
        f"one-head-{name}-{arm}",
        config,
        setting.task,
        PRUNING_RATES,
        tuning_seeds(2),
        steps,
        options,
    )
    return job(config, setting.task, seed, steps=steps, learning_rate=tuned(search), **options)


KEPT = 2
"""Heads a layer that the large model is pruned to."""
LARGE_RATES: Mapping[str, float] = {"recall": 4e-3}
"""The learning rates of the models that are pruned: those that were chosen for all sixteen heads."""


@dataclass(frozen=True)
class PrunedTo:
    """A preparation for `train`: a larger model is trained first and cut to the heads of the fresh one.

    The larger model's seed comes from the fresh weights, and nothing else is trained from it.

    Attributes:
        name: the task, one of `INSURANCE`.
        learning_rate: of the larger model's training.
    """

    name: str
    learning_rate: float

    @torch.enable_grad()
    def __call__(self, fresh: Model) -> None:
        """Overwrite the fresh weights with those of the pruned model."""
        bits = next(fresh.parameters()).detach().cpu().numpy().tobytes()
        seed = 10 * (zlib.crc32(bits) % 10**7) + 3
        setting = INSURANCE[self.name]
        run = train(
            setting.config(8),
            setting.task,
            seed=seed,
            steps=setting.steps,
            learning_rate=self.learning_rate,
            **setting.options(setting.steps),
        )
        assert isinstance(run.model, Decoder | Encoder)
        ranked = gradient_importance(run.model, batch_of(setting.task, seed, "ranking", 64))
        smaller = prune_heads(run.model, keep_by_layer(ranked, fresh.config.n_heads))
        fresh.load_state_dict(smaller.state_dict())


def order_trainings(seed: int) -> dict[str, Job]:
    """A model of sixteen heads on each task."""
    return {name: arm_job(name, "whole", seed + FRESH) for name in TASKS}


@measurement(
    seeds=60,
    coords={
        "task": TASKS,
        "order": ORDERS,
        "removed": COUNTS,
        "how": ("zero", "mean"),
        "head": tuple(range(16)),
        "end": ("lowest", "highest"),
    },
    trainings=order_trainings,
    repeat="opening",
    tolerance={
        **dict.fromkeys(("curve", "rise", "critical", "summed", "together", "quarter"), 4.0),
        **dict.fromkeys(("share", "share_relative", "gini", "stability"), 1.0),
        **dict.fromkeys(("agreement", "agreement_raw"), 1.0),
        "slope": 1.0,
    },
)
def orders(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Models of sixteen heads, taken away in four orders: the loss, and how many can go."""
    seed += FRESH
    found: dict[str, list[Any]] = {}

    def keep(**values: Any) -> None:
        for name, value in values.items():
            found.setdefault(name, []).append(value)

    for name in TASKS:
        model, task = runs[name].model, SETTINGS[name].task
        ranked, measured = (batch_of(task, seed, p, 64) for p in ("ranking", "measuring"))
        other = batch_of(task, seed, "reference", 64)
        slope = gradient_importance(model, ranked)
        raw = gradient_importance(model, ranked, normalise=False)
        first = ablation_rises(model, ranked, reference=None)
        zero = ablation_rises(model, measured, reference=None)
        mean = ablation_rises(model, measured, reference=other)
        generator = make_generator(seed, f"orders {name}")
        several = {
            "gradient": [order(slope)],
            "alone": [order(first)],
            "greedy": [greedy_order(model, ranked)],
            "random": random_sets(16, 16, DRAWS, generator),
        }
        curves = {
            way: np.array([pruning_curve(model, measured, each, COUNTS) for each in of])
            for way, of in several.items()
        }
        whole, nothing = curves["gradient"][0, 0], curves["gradient"][0, -1]
        allowed = WORTH * (nothing - whole)
        alone = several["alone"][0]
        top = order(slope)[::-1]
        keep(
            curve=[curves[way].mean(0) for way in ORDERS],
            share=[np.mean([largest_share(c, rise=allowed) for c in curves[w]]) for w in ORDERS],
            share_relative=largest_share(curves["gradient"][0], rise=WORTH * whole),
            rise=[zero.ravel(), mean.ravel()],
            slope=slope.ravel(),
            agreement=rank_correlation(slope.ravel(), zero.ravel()),
            agreement_raw=rank_correlation(raw.ravel(), zero.ravel()),
            stability=rank_correlation(first.ravel(), zero.ravel()),
            gini=gini(zero),
            critical=float(zero.ravel()[int(first.argmax())]),
            summed=float(zero.ravel()[alone[:HALF]].sum()),
            together=float(curves["alone"][0, HALF] - whole),
            quarter=[
                curves["gradient"][0, QUARTER],
                pruning_curve(model, measured, top, [QUARTER])[0],
            ],
        )
    axes: dict[str, tuple[str, ...]] = {
        "curve": ("task", "order", "removed"),
        "share": ("task", "order"),
        "rise": ("task", "how", "head"),
        "slope": ("task", "head"),
        "quarter": ("task", "end"),
    }
    return {name: (axes.get(name, ("task",)), np.array(values)) for name, values in found.items()}


def rank_correlation(first: Float[ndarray, "n"], second: Float[ndarray, "n"]) -> float:
    """Spearman's rank correlation to twelve digits, which do not depend on the processor."""
    return round(float(spearmanr(first, second).statistic), 12)


INSURED = tuple(INSURANCE)
ARMS = ("pruned", "scratch")


def insurance_trainings(seed: int) -> dict[tuple[str, str], Job]:
    """Eight heads, four wider ones, two from the start, and two that are left of eight."""
    return {
        (name, arm): arm_job(name, arm, seed, INSURANCE)
        for name in INSURED
        for arm in ("whole", "wide", *ARMS)
    }


@measurement(
    seeds=32,
    coords={"task": INSURED, "arm": ARMS, "heads": ("eight", "four")},
    trainings=insurance_trainings,
    repeat="opening",
    tolerance={"loss": 2.0, "off": 4.0},
)
def insurance(seed: int, runs: Mapping[tuple[str, str], Run]) -> dict[str, Any]:
    """Two heads a layer, left of eight or two from the start; and the cost of a random quarter switched off."""
    losses, off = [], []
    for name in INSURED:
        batch = batch_of(INSURANCE[name].task, seed, "measuring", 256)
        losses.append([ablation.loss(runs[name, arm].model, batch) for arm in ARMS])
        costs = []
        for arm in ("whole", "wide"):
            model = runs[name, arm].model
            heads = 2 * model.config.n_heads
            generator = make_generator(seed, f"off {name}")
            sets = random_sets(heads, heads // 4, 16, generator)
            found = losses_with(
                model,
                batch_of(INSURANCE[name].task, seed, "measuring", 64),
                all_but(model, [[], *sets]),
            )
            costs.append(float(found[1:].mean() - found[0]))
        off.append(costs)
    return {"loss": (("task", "arm"), losses), "off": (("task", "heads"), off)}
