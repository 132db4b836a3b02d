r"""Taking heads away for good: which go first, how many can go, and what is left when they are gone.

A head is *removed* when what it has gathered is multiplied by a gate of 0 before it is written to the stream
(Michel et al., 2019). Many sets of gates are tried in one forward pass: the sequences are repeated, and each
copy gets gates of its own. `cut` makes the smaller model that computes the same, so that it can be trained
on.

Three ways to rank heads before any is removed:

- `gradient_importance`: how strongly the loss of each sequence depends on the head's gate (Michel et al.).
- `ablation_rises`: what the loss rises by when this head alone says only its mean over other sequences.
- `confidence`: the largest weight of its pattern, on average (Voita et al., 2019).

All three look at one head at a time with the others in place. `twins` is a model by hand that shows what they
overlook.

A `Study` is one task with the sizes of its models, and what a pruned model is compared with: fewer heads from
the start, or wider ones, and the pruned model trained on. Every arm has its own learning rate, chosen from
one grid (`tuned`), also the pruned ones: there each trial trains a large model, cuts it and trains it on at
that rate.

Shapes: heads are (layer, head); an order is a list of flat numbers `layer * n_heads + head`, in which those
that go first stand first.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor
from torch.nn import functional as F

from measured_transformer.analysis.handmade import SHARP, Layout, attentions, empty_model, set_head
from measured_transformer.evidence.profile import Profile
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import Change, intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.tasks.task import Batch, Task, held_out
from measured_transformer.training.arms import tune_arms
from measured_transformer.training.loop import Model, make_model, train
from measured_transformer.training.schedules import WarmupLinear
from measured_transformer.training.seeding import make_generator
from measured_transformer.training.tuning import Arm

OneStack = Decoder | Encoder
"""A model with a single stack of blocks, whose self-attention has the heads that are removed."""
Heads = Float[ndarray, "layer head"]
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


# Three ways to rank ------------------------------------------------------------------------------------


def gradient_importance(
    model: Model,
    batch: Batch,
    *,
    gates: Float[Tensor, "layer head"] | None = None,
    normalise: bool = True,
) -> Heads:
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


def ablation_rises(model: Model, batch: Batch, *, reference: Batch | None) -> Heads:
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


@torch.no_grad()
def confidence(model: Model, batch: Batch) -> Heads:
    """The largest weight of each head's pattern, averaged over queries that can see more than one key.

    Voita et al. (2019, section 4) leave out the end of the sentence; the tasks here have none.
    """
    names = [f"blocks.{i}.attention.pattern" for i in range(model.config.n_layers)]
    with capture(model, *names) as seen:
        model(batch.inputs)
    first = 1 if isinstance(model, Decoder) else 0  # a first query sees itself alone
    return torch.stack(
        [seen[name].amax(-1)[:, :, first:].double().mean((0, 2)) for name in names]
    ).numpy()


# Orders and curves -------------------------------------------------------------------------------------


def order(importance: Heads) -> list[int]:
    """Flat numbers of the heads, the least important first.

    >>> order(np.array([[3.0, 1.0], [0.5, 2.0]]))
    [2, 1, 3, 0]
    """
    return [int(h) for h in np.argsort(importance.ravel(), kind="stable")]


def iterative_order(
    model: Model, rank: Callable[[Float[Tensor, "layer head"]], Heads], *, several: int = 1
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


def pruning_curve(
    model: Model, batch: Batch, removed: Sequence[int], counts: Sequence[int]
) -> Float[ndarray, "count"]:
    """The loss after the first so many heads of an order have been removed, nothing trained in between."""
    return losses_with(model, batch, all_but(model, [removed[:m] for m in counts]))


def largest_share(
    counts: Sequence[int],
    losses: Float[ndarray, "count"],
    *,
    heads: int,
    within: float = 0.01,
) -> float:
    """The largest share of the heads that can go while the loss is at most `1 + within` times what it was.

    Args:
        counts: numbers of heads removed, the first of them 0.
        losses: the loss at each.
        heads: of the whole model.
        within: the relative loss that is accepted.

    Raises:
        ValueError: when the first count is not 0.

    >>> largest_share([0, 1, 2, 3], np.array([0.5, 0.5, 0.504, 0.6]), heads=4)
    0.5
    """
    if not counts or counts[0] != 0:
        raise ValueError(
            f"the first loss must be that of the whole model, got counts {list(counts)}"
        )
    fits = [m for m, loss in zip(counts, losses, strict=True) if loss <= (1 + within) * losses[0]]
    return max(fits) / heads


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


def interaction_share(values: Float[ndarray, "seed task count"]) -> float:
    r"""How much of what differs is the curves' shape: the part that task and count have only jointly.

    The sum of squares of the interaction, over that of everything but the mean curve. 0 when all tasks have the
    same curve up to a shift.

    >>> x = np.array([[[0.0, 1.0], [0.0, 3.0]]])
    >>> interaction_share(np.concatenate([x, x]))
    0.5
    """
    cells = values.mean(0)
    joint = cells - cells.mean(1, keepdims=True) - cells.mean(0) + cells.mean()
    rest = values - values.mean((0, 1))
    return float(len(values) * (joint**2).sum() / (rest**2).sum())


# A smaller model -----------------------------------------------------------------------------------------


def keep_by_layer(importance: Heads, keep: int) -> Int[ndarray, "layer keep"]:
    """The numbers of the `keep` most important heads of each layer, rising.

    >>> keep_by_layer(np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]]), 2).tolist()
    [[0, 2], [1, 2]]
    """
    return np.sort(np.argsort(-importance, axis=1, kind="stable")[:, :keep], axis=1)


@torch.no_grad()
def cut(model: OneStack, kept: Int[ndarray, "layer keep"]) -> OneStack:
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

    The sequence begins with a start token and is to be reversed. Heads 0 and 1, the twins, both fetch the
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


# What a pruned model is compared with --------------------------------------------------------------

SMALLER = (2, 4)
"""Heads a layer that the large model is pruned to."""
_TRIES = 200


@dataclass(frozen=True)
class LoadWeights:
    """A preparation for `train` that begins with another model's weights.

    Attributes:
        model: of the same form as the one that is prepared.
    """

    model: OneStack

    def __call__(self, fresh: Model) -> None:
        """Overwrite the fresh weights."""
        fresh.load_state_dict(self.model.state_dict())


@dataclass(frozen=True)
class PrunedTo:
    """A preparation for `train`: a larger model is trained first and cut to the heads of the fresh one.

    Made for the choice of learning rates. The larger model's seed comes from the fresh weights, and nothing
    else is trained from it.

    Attributes:
        study: task and sizes.
        learning_rate: of the larger model's training.
    """

    study: Study
    learning_rate: float

    def __call__(self, fresh: Model) -> None:
        """Overwrite the fresh weights with those of the pruned model."""
        bits = next(fresh.parameters()).detach().cpu().numpy().tobytes()
        seed = 10 * (zlib.crc32(bits) % 10**7) + 3
        model = self.study.whole(seed, self.learning_rate)
        kept = keep_by_layer(
            gradient_importance(model, self.study.half(seed, "rank")), fresh.config.n_heads
        )
        fresh.load_state_dict(cut(model, kept).state_dict())


@dataclass(frozen=True)
class Study:
    """One task, the models that learn it, and for how long.

    Attributes:
        task: what is learnt.
        width: of the stream; a head is an eighth of it.
        steps: of the model with eight heads a layer.
        further: steps of training on after pruning; models with fewer heads from the start get both.
        batch_size: sequences per step.
        rows: sequences of each half of the data that heads are ranked and models measured on.
    """

    task: Task
    width: int = 32
    steps: int = 120
    further: int = 40
    batch_size: int = 32
    rows: int = 64

    def config(self, n_heads: int, *, wide: bool = False) -> Config:
        """Four layers of so many heads, an eighth of the stream wide, or twice that."""
        return Config(
            vocab=self.task.vocab,
            d_model=self.width,
            n_layers=4,
            n_heads=n_heads,
            d_head=self.width // 8 * (2 if wide else 1),
            activation="relu",
            bias=False,
        )

    def half(self, seed: int, purpose: str) -> Batch:
        """Fresh sequences for ranking (`rank`), measuring (`measure`) or means (`reference`).

        No sequence that is measured on is among those that heads are ranked on, also where a task has few.

        Raises:
            ValueError: when the task has too few sequences for two halves.
        """
        task, drawn = held_out(self.task), make_generator(seed, f"pruning {purpose}")
        if purpose != "measure":
            return task.batch(drawn, self.rows)
        taken, kept, found = _rows(self.half(seed, "rank")), list[Batch](), 0
        for _ in range(_TRIES):
            batch = task.batch(drawn, self.rows)
            fresh = torch.tensor([row not in taken for row in _rows(batch)])
            kept.append(Batch(batch.inputs[fresh], batch.targets[fresh], batch.scored[fresh]))
            found += int(fresh.sum())
            if found >= self.rows:
                parts = zip(*((b.inputs, b.targets, b.scored) for b in kept), strict=True)
                inputs, targets, scored = (torch.cat(part)[: self.rows] for part in parts)
                return Batch(inputs, targets, scored)
        raise ValueError(
            f"expected sequences for two halves of {self.rows} that share none, but {self.task} has too few"
        )

    def options(self, steps: int) -> dict[str, Any]:
        """What all trainings have in common."""
        schedule = WarmupLinear(steps // 10, steps)
        return {"steps": steps, "schedule": schedule, "batch_size": self.batch_size}

    def whole(self, seed: int, learning_rate: float, *, wide: bool = False) -> OneStack:
        """A trained model of eight heads a layer, or of four that are twice as wide."""
        config = self.config(4 if wide else 8, wide=wide)
        return self._trained(config, seed, learning_rate, self.steps)

    def scratch(self, n_heads: int, seed: int, learning_rate: float) -> OneStack:
        """A model that had few heads from the start, trained for as many steps as a pruned one in all."""
        return self._trained(self.config(n_heads), seed, learning_rate, self.steps + self.further)

    def trained_on(self, model: OneStack, seed: int, learning_rate: float) -> OneStack:
        """A copy of a model after further steps, on batches that the first training has not seen."""
        # The last digit of a seed is its stream: 2 is nobody else's.
        return self._trained(
            model.config, seed + 2, learning_rate, self.further, LoadWeights(model)
        )

    def _trained(
        self,
        config: Config,
        seed: int,
        learning_rate: float,
        steps: int,
        prepare: Callable[[Model], None] | None = None,
    ) -> OneStack:
        options = self.options(steps)
        run = train(
            config, self.task, seed=seed, learning_rate=learning_rate, prepare=prepare, **options
        )
        assert isinstance(run.model, Decoder | Encoder)
        return run.model


def _rows(batch: Batch) -> list[tuple[int, ...]]:
    whole = torch.cat([batch.inputs, batch.targets], dim=1).tolist()
    return [tuple(row) for row in whole]


def pruned(model: OneStack, ranked_on: Batch, keep: int) -> OneStack:
    """The model with the `keep` heads of each layer that have the most importance by gradient."""
    return cut(model, keep_by_layer(gradient_importance(model, ranked_on), keep))


def tuned(name: str, study: Study, *, profile: Profile, rates: Sequence[float]) -> dict[str, float]:
    """The learning rate of each arm, all from the same grid: `8`, `wide`, `2`, `4`, `to 2`, `to 4` and `to 8`.

    The last one trains the whole model on, with all of its heads.

    Args:
        name: of the task; the records are kept under it.
        study: task and sizes.
        profile: of this run; decides the tuning seeds.
        rates: the grid.
    """

    def choose(arms: dict[str, Arm], steps: int) -> dict[str, float]:
        options = study.options(steps)
        found = tune_arms(
            f"pruning-{name}", arms, study.task, profile=profile, rates=rates, **options
        )
        return {arm: found[arm].rates[arm] for arm in arms}

    first = choose(
        {"8": Arm(study.config(8)), "wide": Arm(study.config(4, wide=True))}, study.steps
    )
    scratch = {str(k): Arm(study.config(k)) for k in SMALLER}
    prepare = PrunedTo(study, first["8"])
    later = {f"to {k}": Arm(study.config(k), {"prepare": prepare}) for k in (*SMALLER, 8)}
    return {
        **first,
        **choose(scratch, study.steps + study.further),
        **choose(later, study.further),
    }
