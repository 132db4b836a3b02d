"""What the chapter on refining and rewriting measures: edits, writes that agree, and who makes up for whom.

A *write* is what a sublayer (the attention or the feed-forward network of a block) adds to the residual stream.
Three kinds of trained pre-norm models of twelve blocks are compared: one reads sentences, one reverses, one
follows a ball under cups. Blocks are left out, run twice and exchanged without training anything again, after
Veit et al. (2016); their writes are compared with and without what they write whatever the input; and one
sublayer at a time is silenced, to see how much of what it contributed to the right logit is made up for
and by whom, after McGrath et al. (2023) and Rushing and Nanda (2024).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from measured_transformer.analysis.ablation import Component, Metric, ablated, effects
from measured_transformer.analysis.ablation import loss as mean_loss
from measured_transformer.analysis.grammar_probes import (
    agreement_examples,
    probe_by_depth,
    pronoun_examples,
)
from measured_transformer.analysis.layers import attention_by_layer
from measured_transformer.analysis.lens import Reader, fit_tuned_lens, logit_lens, probe_accuracies
from measured_transformer.analysis.residual import Ledger, ledger, write_ratios
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.parts.norms import LayerNorm, RMSNorm
from measured_transformer.tasks.copying import Copying
from measured_transformer.tasks.grammar import Grammar
from measured_transformer.tasks.joined_recall import JoinedRecall
from measured_transformer.tasks.permutations import PermutationProducts
from measured_transformer.tasks.raffle import Raffle
from measured_transformer.tasks.recall import AssociativeRecall
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.shuffled import ShuffledSentences
from measured_transformer.tasks.task import Batch, Task
from measured_transformer.tasks.two_hop import JoinedTwoHop
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run, evaluate, make_model
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.schedules import Constant, WarmupCosine, WarmupLinear
from measured_transformer.training.seeding import make_generator
from numpy import ndarray
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

# Blocks in another order ----------------------------------------------------------------------------


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
    """The order without one block.

    >>> skipped(4, 1)
    [0, 2, 3]
    """
    return [i for i in range(n_layers) if i != layer]


def repeated(n_layers: int, layer: int) -> list[int]:
    """The order in which one block runs twice, the second time at once.

    >>> repeated(4, 1)
    [0, 1, 1, 2, 3]
    """
    return [i for i in range(n_layers) for _ in range(1 + (i == layer))]


def exchanged(n_layers: int, layer: int, other: int) -> list[int]:
    """The order in which two blocks have changed places.

    >>> exchanged(4, 0, 2)
    [2, 1, 0, 3]
    """
    order = list(range(n_layers))
    order[layer], order[other] = order[other], order[layer]
    return order


@torch.no_grad()
def edit_costs(
    model: Reader, batch: Batch, *, metric: Metric = mean_loss
) -> dict[str, Float[ndarray, "layer"]]:
    """How much a metric changes with each edit of one block: edited less whole.

    Args:
        model: trained.
        batch: what the metric is measured on.
        metric: by default the loss in nats per scored position, so that costs are positive.

    Returns:
        `skip`: without each block; `twice`: with each block run twice; `swap`: with each block and the next
        exchanged, NaN for the last.

    >>> from measured_transformer.analysis.handmade import composed_model
    >>> from measured_transformer.tasks.induction import Induction
    >>> task = Induction(vocab=8, length=12, shortest=3, longest=4)
    >>> batch = task.batch(torch.Generator().manual_seed(0), 20)
    >>> bool(edit_costs(composed_model("k", vocab=8, length=12), batch)["swap"][0] > 0.5)
    True
    """
    n = len(model.blocks)
    whole = metric(model, batch)

    def cost(order: list[int]) -> float:
        with rearranged(model, order):
            return metric(model, batch) - whole

    return {
        "skip": np.array([cost(skipped(n, i)) for i in range(n)]),
        "twice": np.array([cost(repeated(n, i)) for i in range(n)]),
        "swap": np.array([*(cost(exchanged(n, i, i + 1)) for i in range(n - 1)), np.nan]),
    }


# Writes of whole blocks -----------------------------------------------------------------------------


def layer_cosines(account: Ledger, *, centred: bool = True) -> Float[ndarray, "layer other"]:
    """Mean cosine, over all positions, between what two blocks write: attention and network together.

    Below zero, one of them takes back a part of what the other has written.

    Args:
        account: of one forward pass.
        centred: whether each block's mean write, over all sequences and positions, is subtracted first. A
            vector that a block adds whatever it reads says nothing, and yet it counts in a cosine.
    """
    writes = account.blocks.diff(dim=0)
    if centred:
        writes = writes - writes.mean((1, 2), keepdim=True)
    units = F.normalize(writes, dim=-1)
    return torch.einsum("ibpd,jbpd->ijbp", units, units).mean((2, 3)).double().cpu().numpy()


def common_shares(account: Ledger) -> Float[ndarray, "layer"]:
    """Of the mean squared length of each block's writes, the share that is the squared length of their mean."""
    writes = account.blocks.diff(dim=0).flatten(1, 2).double()
    common = writes.mean(1).square().sum(-1) / writes.square().sum(-1).mean(1)
    return common.cpu().numpy()


def share_of_pairs(cosines: Float[ndarray, "layer layer"], *, below: float = 0.0) -> float:
    """Share of the pairs of different blocks whose cosine lies below a bound.

    >>> share_of_pairs(np.array([[1.0, 0.5, -0.5], [0.5, 1.0, 0.25], [-0.5, 0.25, 1.0]]))
    0.3333333333333333
    """
    pairs = cosines[np.triu_indices(len(cosines), 1)]
    return float((pairs < below).mean())


# What a write says to the logits --------------------------------------------------------------------


@dataclass(frozen=True)
class LogitAccount:
    """The right answer's logit less the mean logit as a sum of parts: embedding, each write, the norm's bias.

    Attributes:
        parts: each part before it is divided, at each scored position.
        divisor: what the final norm divides by at each scored position.
    """

    parts: Float[Tensor, "part example"]
    divisor: Float[Tensor, "example"]

    def margin(self, divisor: Float[Tensor, "example"] | None = None) -> Float[ndarray, "part"]:
        """Mean of each part, with this pass's divisor or, as if the norm were frozen, with another's."""
        found = self.parts[:-1] / (self.divisor if divisor is None else divisor)
        return torch.cat([found, self.parts[-1:]]).mean(1).double().cpu().numpy()


@torch.no_grad()
def logit_account(model: Reader, batch: Batch) -> LogitAccount:
    """Take the right answers' logits apart.

    Raises:
        ValueError: when the model has norms on the stream, or reads its logits in another way than by one norm
            and one matrix.
    """
    if model.config.placement == "post" and model.config.norm != "none":
        raise ValueError("with norms on the stream (placement='post') no write keeps its own part")
    if model.unembedding is None or model.head_layer is not None:
        raise ValueError("direct logits need a model with head='linear'")
    account, norm = ledger(model, batch.inputs), model.final_norm
    parts = torch.cat([account.states[:1], account.writes])[:, batch.scored]
    constant, divisor = torch.zeros_like(parts[:1]), torch.ones_like(parts[0, :, 0])
    if isinstance(norm, LayerNorm | RMSNorm):
        with capture(model, "final_norm.scale") as seen:
            model(batch.inputs)
        divisor = seen["final_norm.scale"][batch.scored][:, 0]
        if isinstance(norm, LayerNorm):
            parts = parts - parts.mean(-1, keepdim=True)
            if norm.bias is not None:
                constant = norm.bias.expand_as(constant)
        parts = parts * norm.weight
    rows = model.unembedding.weight * model.config.logit_scale
    toward = rows[batch.targets[batch.scored]] - rows.mean(0)  # position, d_model
    return LogitAccount((torch.cat([parts, constant]) * toward).sum(-1), divisor)


def direct_attribution(model: Reader, batch: Batch) -> Float[ndarray, "sublayer"]:
    """How far each write raises the logit of the right answer above the mean logit, directly.

    The divisor of the final norm is held at its value, so that these and the embedding's part add up. What a
    write does through later sublayers does not count.

    Raises:
        ValueError: as `logit_account`.
    """
    return logit_account(model, batch).margin()[1:-1]


def repairs(model: Reader, batch: Batch, reference: Batch) -> dict[str, Float[ndarray, "sublayer"]]:
    """Silence one sublayer at a time: what its part of the right logit loses, and what others make of it.

    Silenced is a write that is replaced by its mean over other sequences, position by position. The right
    answer's logit, less the mean logit, changes by *total* = *direct* + *later* + *norm*.

    Args:
        model: trained, pre-norm.
        batch: what the logits are measured on.
        reference: other sequences of the same length, for the means.

    Returns:
        *direct*: change of the write's own part, at the whole model's divisor; *later*: change of the parts of
        all later sublayers, at that divisor; *norm*: what the changed divisor adds; *total*: what the output
        shows.

    Raises:
        ValueError: as `logit_account`.
    """
    whole = logit_account(model, batch)
    before = whole.margin()
    found: dict[str, list[float]] = {"direct": [], "later": [], "norm": [], "total": []}
    for place, name in enumerate(ledger(model, batch.inputs[:1]).names, start=1):
        with ablated(model, [Component(f"{name}.out")], "mean", reference=reference):
            silenced = logit_account(model, batch)
        change = silenced.margin(whole.divisor) - before
        total = float(silenced.margin().sum() - before.sum())
        direct, later = float(change[place]), float(change[place + 1 :].sum())
        for key, value in zip(
            found, (direct, later, total - float(change.sum()), total), strict=True
        ):
            found[key].append(value)
    return {key: np.array(values) for key, values in found.items()}


@torch.no_grad()
def suppression(
    model: Reader, batch: Batch, *, start: int = 3
) -> dict[str, Float[ndarray, "head"]]:
    """What each head does about a token that the stream expects although it has been.

    At every position and before every block, take the token of the context that the logit lens gives the
    largest logit. For each head of the block: `effect`, what it adds to that token's logit above the mean
    logit, at a frozen divisor; `aim`, its weight on that token's positions over the weight of even attention
    on them. A head that suppresses copies has an effect below zero and an aim above one.

    Args:
        model: causal, with a final norm that divides.
        batch: sequences.
        start: positions before this one, which have little context, are left out.

    Raises:
        ValueError: when the model may look ahead, or has no such norm.
    """
    norm, unembedding = model.final_norm, model.unembedding
    if not model.causal or not isinstance(norm, LayerNorm | RMSNorm) or unembedding is None:
        raise ValueError("expected a causal model that ends with a norm and one matrix")
    account, n = ledger(model, batch.inputs), batch.inputs.shape[1]
    rows = unembedding.weight - unembedding.weight.mean(0)
    been = F.one_hot(batch.inputs, len(rows)).cumsum(1) > 0
    past = torch.ones(n, n, dtype=torch.bool, device=batch.inputs.device).tril()
    taps = ("final_norm.scale", "blocks.*.attention.pattern", "blocks.*.attention.mixed")
    with capture(model, *taps) as seen:
        model(batch.inputs)
    effect, aim = [], []
    for i, block in enumerate(model.blocks):
        expected = model.unembed(account.blocks[i]).masked_fill(~been, -torch.inf).argmax(-1)
        here = (batch.inputs[:, None] == expected[..., None]) & past  # batch, query, key
        attention: Any = block.attention
        outputs = attention.output.weight.T.unflatten(0, (attention.n_heads, -1))
        writes = torch.einsum("bhqd,hde->bhqe", seen[f"blocks.{i}.attention.mixed"], outputs)
        if isinstance(norm, LayerNorm):
            writes = writes - writes.mean(-1, keepdim=True)
        said = (
            writes / seen["final_norm.scale"][:, None] * norm.weight * rows[expected][:, None]
        ).sum(-1)
        weight = (seen[f"blocks.{i}.attention.pattern"] * here[:, None]).sum(-1)
        even = here.sum(-1) / past.sum(-1)
        effect.append(said[..., start:].mean((0, 2)))
        aim.append((weight / even[:, None])[..., start:].mean((0, 2)))
    return {
        "effect": torch.cat(effect).double().cpu().numpy(),
        "aim": torch.cat(aim).double().cpu().numpy(),
    }


# Length and contribution ----------------------------------------------------------------------------


def length_shares(account: Ledger) -> Float[ndarray, "sublayer"]:
    """Mean length of each sublayer's write, as a share of those of all."""
    lengths = account.writes.norm(dim=-1).mean(dim=(1, 2)).double().cpu().numpy()
    return lengths / lengths.sum()


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


def contributions(
    model: Reader, batch: Batch, reference: Batch
) -> dict[str, Float[ndarray, "sublayer"]]:
    """Four answers to how much each sublayer contributes, attention first in each block.

    Args:
        model: trained, with norms before the sublayers or none.
        batch: what everything is measured on.
        reference: other sequences of the same length, for the means.

    Returns:
        `length`: share of the written length; `attribution`: see `direct_attribution`; `zero` and `mean`: rise
        of the loss, in nats, when the write is set to zero, or to its mean over the reference, position by
        position.

    Raises:
        ValueError: as `logit_account`.
    """
    account = ledger(model, batch.inputs)
    writes = [Component(f"{name}.out") for name in account.names]
    return {
        "length": length_shares(account),
        "attribution": direct_attribution(model, batch),
        "zero": effects(model, writes, batch, how="zero", metric=mean_loss),
        "mean": effects(model, writes, batch, reference=reference, metric=mean_loss),
    }


# Twelve blocks, three tasks -------------------------------------------------------------------------

GRAMMAR = Grammar(length=24, attractor=0.5, reference=0.9)
REVERSAL = Reversal(vocab=12, length=12)
SHELL = PermutationProducts(objects=3, length=6)
TASKS: Mapping[str, Task] = {"sentences": GRAMMAR, "reversal": REVERSAL, "shell": SHELL}
"""Predict the next word; name the tokens in reverse order; say under which cup the ball is now."""
DEPTH = 12
BLOCKS = tuple(range(1, DEPTH + 1))
STATES = (0, *BLOCKS)
SUBLAYERS = tuple(range(2 * DEPTH))
SAMPLES = ("chosen on", "measured on")
LATER = 500
"""What is added to the seeds of reversal, whose trainings are those of the chapter on the residual stream."""
SHELL_STEPS = 500


def sentences_job(seed: int) -> Job:
    """Twelve blocks of width 64 on the grammar: the trainings of the chapter on layers in order."""
    config = Config(vocab=GRAMMAR.vocab, n_layers=DEPTH, d_model=64, d_ff=64, n_heads=4, bias=False)
    rates = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
    options: dict[str, Any] = {"batch_size": 16, "schedule": WarmupLinear(25, 250)}
    search = Search("layers-sentences", config, GRAMMAR, rates, tuning_seeds(2), 250, options)
    return job(config, GRAMMAR, seed, steps=250, learning_rate=tuned(search), **options)


def reversal_job(seed: int) -> Job:
    """Twelve blocks of width 32 on reversal: the trainings of the chapter on the residual stream."""
    config = Config(vocab=12, d_model=32, max_length=12, n_layers=DEPTH)
    rates = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
    options: dict[str, Any] = {"batch_size": 16, "schedule": Constant(warmup=20)}
    search = Search("surviving-pre-norm", config, REVERSAL, rates, tuning_seeds(2), 400, options)
    return job(config, REVERSAL, seed + LATER, steps=400, learning_rate=tuned(search), **options)


def shell_job(seed: int) -> Job:
    """Twelve blocks on the shell game: longer than in the chapter on depth, at its learning rate."""
    config = Config(
        vocab=SHELL.vocab,
        n_layers=DEPTH,
        d_model=32,
        n_heads=2,
        activation="relu",
        positions="learned",
        max_length=SHELL.length,
    )
    rates = (3e-4, 7e-4, 1.5e-3, 3e-3, 7e-3, 1.5e-2)
    short: dict[str, Any] = {"batch_size": 32, "schedule": WarmupLinear(warmup=40, steps=220)}
    search = Search("step-size-pre-12", config, SHELL, rates, tuning_seeds(2), 220, short)
    long = {"batch_size": 32, "schedule": WarmupLinear(warmup=40, steps=SHELL_STEPS)}
    return job(config, SHELL, seed, steps=SHELL_STEPS, learning_rate=tuned(search), **long)


def twelve_trainings(seed: int) -> dict[str, Job]:
    """One model of each task."""
    return {
        "sentences": sentences_job(seed),
        "reversal": reversal_job(seed),
        "shell": shell_job(seed),
    }


@measurement(
    seeds=10,
    coords={
        "task": tuple(TASKS),
        "sample": SAMPLES,
        "block": BLOCKS,
        "other": BLOCKS,
        "state": STATES,
        "sublayer": SUBLAYERS,
    },
    trainings=twelve_trainings,
    repeat="opening",
)
def twelve(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Twelve trained blocks, three tasks: edits, what is read early, writes that agree, and self-repair."""
    found: dict[str, list[Any]] = {}
    for name, task in TASKS.items():
        model: Any = runs[name].model
        first, second, few, reference = (
            task.batch(make_generator(seed, stream), size)
            for stream, size in (
                ("samples", 600),
                ("evaluation", 600),
                ("edits", 128),
                ("reference", 128),
            )
        )
        fresh: Any = make_model(model.config, causal=task.causal, seed=seed).eval()
        account = ledger(model, few.inputs)
        looks = {
            "accuracy": evaluate(model, task, seed=seed).accuracy,
            "read": [logit_lens(model, sample).loss for sample in (first, second)],
            **edit_costs(model, few),
            "raw": layer_cosines(account, centred=False),
            "centred": layer_cosines(account),
            "common": common_shares(account),
            "untrained": layer_cosines(ledger(fresh, few.inputs)),
            **repairs(model, few, reference),
        }
        for variable, value in looks.items():
            found.setdefault(variable, []).append(value)
    axes = {
        "accuracy": (),
        "read": ("sample", "state"),
        **dict.fromkeys(("skip", "twice", "swap", "common"), ("block",)),
        **dict.fromkeys(("raw", "centred", "untrained"), ("block", "other")),
        **dict.fromkeys(("direct", "later", "norm", "total"), ("sublayer",)),
    }
    return {name: (("task", *axes[name]), values) for name, values in found.items()}


LENSES = ("logit", "tuned")


@measurement(
    seeds=40,
    coords={"task": tuple(TASKS), "lens": LENSES, "sample": SAMPLES, "state": STATES},
    trainings=twelve_trainings,
    repeat="opening",
)
def readings(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The loss that is read off twelve trained blocks at each depth, by the logit lens and by a tuned lens."""
    found = []
    for name, task in TASKS.items():
        model: Any = runs[name].model
        first, second, fitted = (
            task.batch(make_generator(seed, stream), 600)
            for stream in ("samples", "evaluation", "lens")
        )
        lens = fit_tuned_lens(model, fitted, seed=seed, steps=150, size=384)
        logit = [logit_lens(model, sample).loss for sample in (first, second)]
        found.append([logit, [lens.read(model, sample).loss for sample in (first, second)]])
    return {"read": (("task", "lens", "sample", "state"), found)}


TRAINED_ON = ("sentences", "shuffled")
SHUFFLED = ShuffledSentences(GRAMMAR)


def shuffled_job(seed: int) -> Job:
    """The control for whatever is to come from syntax: twelve blocks on sentences whose words are shuffled."""
    config = Config(vocab=GRAMMAR.vocab, n_layers=DEPTH, d_model=64, d_ff=64, n_heads=4, bias=False)
    rates = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
    options: dict[str, Any] = {"batch_size": 16, "schedule": WarmupLinear(25, 250)}
    search = Search("layers-shuffled", config, SHUFFLED, rates, tuning_seeds(2), 250, options)
    return job(config, SHUFFLED, seed, steps=250, learning_rate=tuned(search), **options)


def sentences_trainings(seed: int) -> dict[str, Job]:
    """The model of sentences, and one of the same sentences with their words shuffled."""
    return {"sentences": sentences_job(seed), "shuffled": shuffled_job(seed)}


@measurement(
    seeds=10,
    coords={
        "kind": TRAINED_ON,
        "state": STATES,
        "block": BLOCKS,
        "what": ("agreement", "pronouns"),
    },
    trainings=sentences_trainings,
    repeat="opening",
)
def sentences(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Models of sentences and of shuffled words: how far blocks look at sentences, what is known where."""
    models: list[Any] = [runs[kind].model for kind in TRAINED_ON]
    many, few = (
        GRAMMAR.batch(make_generator(seed, stream), size)
        for stream, size in (("evaluation", 600), ("attention", 150))
    )
    kinds = {"agreement": agreement_examples(many), "pronouns": pronoun_examples(many)}
    probed = [
        probe_by_depth(model, many, kinds, make_generator(seed, "control")) for model in models
    ]
    far = [attention_by_layer(model, few)["distance"] for model in models]
    return {
        "distance": (("kind", "block"), far),
        "gained": (
            ("kind", "what", "state"),
            [[each[what].selectivity for what in kinds] for each in probed],
        ),
    }


# A task that rewards copy suppression ---------------------------------------------------------------

RAFFLE = Raffle(vocab=16, length=10)
RAFFLE_STEPS = 300
RAFFLE_HEADS, SENTENCE_HEADS = tuple(range(2 * 4)), tuple(range(DEPTH * 4))


def raffle_job(seed: int) -> Job:
    """Two blocks of four heads on a drawing without replacement."""
    config = Config(
        vocab=RAFFLE.vocab, d_model=32, n_layers=2, n_heads=4, max_length=16, bias=False
    )
    rates = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
    options: dict[str, Any] = {"batch_size": 32, "schedule": WarmupLinear(20, RAFFLE_STEPS)}
    search = Search("steps-raffle", config, RAFFLE, rates, tuning_seeds(2), RAFFLE_STEPS, options)
    return job(config, RAFFLE, seed, steps=RAFFLE_STEPS, learning_rate=tuned(search), **options)


def suppressing_trainings(seed: int) -> dict[str, Job]:
    """A model that must suppress copies, and one that need not."""
    return {"raffle": raffle_job(seed), "sentences": sentences_job(seed)}


@measurement(
    seeds=10,
    coords={
        "task": ("raffle", "sentences"),
        "raffle_head": RAFFLE_HEADS,
        "sentence_head": SENTENCE_HEADS,
    },
    trainings=suppressing_trainings,
    repeat="opening",
)
def suppressing(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Every head of a model that must suppress copies, and of one that need not: where it looks, what it adds.

    Chosen: the head whose effect is lowest on other sequences.
    """
    tasks: Mapping[str, Task] = {"raffle": RAFFLE, "sentences": GRAMMAR}
    looks = {}
    for name, task in tasks.items():
        model: Any = runs[name].model
        first, second = (task.batch(make_generator(seed, of), 256) for of in ("samples", "edits"))
        chosen = int(suppression(model, first)["effect"].argmin())
        looks[name] = (suppression(model, second), chosen)
    batch = RAFFLE.batch(make_generator(seed, "evaluation"), 512)
    counts = RAFFLE.weights().log().expand(*batch.inputs.shape, -1)
    losses = [
        float(cross_entropy(logits, batch.targets, batch.scored))
        for logits in (RAFFLE.best_logits(batch), counts)
    ]
    found: dict[str, Any] = {
        f"chosen_{what}": ("task", [float(look[what][chosen]) for look, chosen in looks.values()])
        for what in ("effect", "aim")
    }
    for name, axis in (("raffle", "raffle_head"), ("sentences", "sentence_head")):
        for what in ("effect", "aim"):
            found[f"{name}_{what}"] = (axis, looks[name][0][what])
    return {
        **found,
        "loss": evaluate(runs["raffle"].model, RAFFLE, seed=seed, size=512).loss,
        "best": losses[0],
        "without_looking": losses[1],
    }


# What survives, and idle blocks ---------------------------------------------------------------------

SIX = Config(vocab=8, d_model=32, n_layers=6, n_heads=2, activation="relu")
SMALL: Mapping[str, tuple[Task, int, int]] = {
    "copying": (Copying(vocab=8, length=8), 100, 0),
    "reversal": (Reversal(vocab=8, length=8), 200, 2),
}
"""Task, steps, and how many blocks it needs."""
DECAYS: Mapping[str, dict[str, Any]] = {"plain": {}, "decay": {"weight_decay": 1.0}}
SMALL_RATES = (2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2, 1.28e-1, 2.56e-1)


def six_trainings(seed: int) -> dict[tuple[str, str], Job]:
    """Six blocks on two small tasks, with and without weight decay, each at the learning rate that suits it."""
    jobs = {}
    for name, (task, steps, _) in SMALL.items():
        for arm, decay in DECAYS.items():
            schedule = WarmupLinear(20, steps)
            options: dict[str, Any] = {"batch_size": 16, "schedule": schedule, **decay}
            search = Search(
                f"steps-{name}-{arm}", SIX, task, SMALL_RATES, tuning_seeds(2), steps, options
            )
            jobs[name, arm] = job(
                SIX, task, seed, steps=steps, learning_rate=tuned(search), **options
            )
    return jobs


@measurement(
    seeds=10,
    coords={
        "task": tuple(SMALL),
        "arm": tuple(DECAYS),
        "block": tuple(range(1, 7)),
        "state": tuple(range(7)),
        "what": ("token", "position"),
    },
    trainings=six_trainings,
    repeat="opening",
)
def six(seed: int, runs: Mapping[tuple[str, str], Run]) -> dict[str, Any]:
    """Six blocks: how long their writes are beside the stream, which are idle, what survives of the input."""
    ratio, skip, right, survived = [], [], [], []
    for name, (task, _, _) in SMALL.items():
        batch, few = (task.batch(make_generator(seed, of), 200) for of in ("evaluation", "edits"))
        models: list[Any] = [runs[name, arm].model for arm in DECAYS]
        accounts = [ledger(model, batch.inputs) for model in models]
        ratio.append([write_ratios(each).reshape(-1, 2).mean(1) for each in accounts])
        skip.append([edit_costs(model, few)["skip"] for model in models])
        right.append([evaluate(model, task, seed=seed).accuracy for model in models])
    size, task = 500, SMALL["reversal"][0]
    batch, half = task.batch(make_generator(seed, "probes"), size), torch.arange(size) < size // 2
    asked = (batch.inputs, torch.arange(task.length).expand(size, -1))
    for arm in DECAYS:
        model: Any = runs["reversal", arm].model
        states = ledger(model, batch.inputs).blocks
        survived.append(
            [probe_accuracies(states, labels, half, n_labels=8, steps=50) for labels in asked]
        )
    return {
        "ratio": (("task", "arm", "block"), ratio),
        "skip": (("task", "arm", "block"), skip),
        "accuracy": (("task", "arm"), right),
        "survives": (("arm", "what", "state"), survived),
    }


# Length and importance ------------------------------------------------------------------------------

ASKED, CHAINS = (
    JoinedRecall(pairs=4, queries=3, keys=6, values=6),
    JoinedTwoHop(chains=3, names=4, values=4),
)
PAIRS = AssociativeRecall(pairs=2, queries=2, keys=4, values=4)
MODELS: Mapping[str, tuple[Task, int]] = {
    "recall 1": (ASKED, 1),
    "two hops 2": (CHAINS, 2),
    "pairs 4": (PAIRS, 4),
    "two hops 6": (CHAINS, 6),
}
"""What is looked up, and by how many blocks."""
MEASURES = ("attribution", "zero", "mean")


def lookup_trainings(seed: int) -> dict[str, Job]:
    """Models that look something up: those of the chapters on heads and on pieces."""
    jobs = {}
    for name, (task, depth) in MODELS.items():
        if task is PAIRS:
            jobs[name] = _pairs_job(seed)
            continue
        config = Config(
            vocab=task.vocab,
            d_model=32,
            n_layers=depth,
            n_heads=4,
            d_ff=32,
            positions="none",
            norm="rms",
            bias=False,
        )
        rates = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
        options: dict[str, Any] = {"batch_size": 32}
        search = Search(
            f"heads-together-{depth}", config, task, rates, tuning_seeds(2), 300, options
        )
        jobs[name] = job(config, task, seed, steps=300, learning_rate=tuned(search), **options)
    return jobs


def _pairs_job(seed: int) -> Job:
    config = Config(vocab=PAIRS.vocab, d_model=32, n_layers=4, n_heads=4, activation="relu")
    rates = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)
    options: dict[str, Any] = {"batch_size": 16, "schedule": WarmupCosine(warmup=30, steps=300)}
    search = Search("pieces-recall-whole", config, PAIRS, rates, tuning_seeds(5), 300, options)
    rate = tuned(search)
    return job(config, PAIRS, seed + LATER, steps=300, learning_rate=rate, **options)


@measurement(
    seeds=10,
    coords={
        "model": tuple(MODELS),
        "measure": MEASURES,
        "of_four": tuple(range(8)),
        "of_six": tuple(range(12)),
    },
    trainings=lookup_trainings,
    repeat="opening",
)
def lookups(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Models that look something up: the length of each write, and what its sublayer contributes."""
    looks, right = [], []
    for name, (task, _) in MODELS.items():
        model: Any = runs[name].model
        batch, other = (task.batch(make_generator(seed, of), 128) for of in ("edits", "reference"))
        looks.append(contributions(model, batch, other))
        right.append(evaluate(model, task, seed=seed).accuracy)
    agree = [[rank_correlation(look["length"], look[way]) for way in MEASURES] for look in looks]
    longest = [float(look["length"].argmax() == look["zero"].argmax()) for look in looks]
    return {
        "accuracy": ("model", right),
        "agreement": (("model", "measure"), agree),
        "longest": ("model", longest),
        "length_four": ("of_four", looks[2]["length"]),
        "zero_four": ("of_four", looks[2]["zero"]),
        "length_six": ("of_six", looks[3]["length"]),
        "zero_six": ("of_six", looks[3]["zero"]),
    }
