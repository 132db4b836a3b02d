r"""Network or attention: what sums can and cannot do, an exclusive-or by attention, and parts taken away.

Of two tokens, attention with a fixed pattern can only add up what each of them says. Logits of the form
$f_c(a) + g_c(b)$ are no better than guessing at a sum modulo a number (see `best_additive`). Attention whose
pattern depends on the tokens is another matter: two heads compute an exclusive-or (see `two_heads`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.analysis.ablation import Component, ablated, accuracy, effects, loss
from measured_transformer.models.config import Config
from measured_transformer.parts.attention import attend, attention_pattern, attention_scores
from measured_transformer.parts.block import Block
from measured_transformer.parts.feedforward import FeedForward
from measured_transformer.tasks.task import Batch, Task, held_out
from measured_transformer.training.loop import Model, make_model
from measured_transformer.training.seeding import make_generator
from measured_transformer.training.tuning import Arm
from measured_transformer.variants.feedforward import without_network
from measured_transformer.variants.substitutes import Instead, network_made_up

Array = Float[ndarray, "..."]

# Arms ----------------------------------------------------------------------------------------------


def compared(config: Config) -> dict[str, Arm]:
    """A whole model, and models with something else in the place of one kind of sublayer.

    `whole`; `linear`: networks without their bend; `removed`: no networks and nothing in exchange; `heads`: no
    networks, three times the heads; `neurons`: no attention, one and a half times the neurons; `fixed`:
    attention with one learned pattern a head, the same for all sequences. `heads` and `neurons` have as many
    parameters as the whole model, but for biases and norms.

    Args:
        config: of the whole model, with networks four times as wide as the stream; its `max_length` is that of
            the fixed patterns.

    Raises:
        ValueError: when the networks have another width, or a gate.
    """
    more_heads, more_neurons = without_network(config)["heads"], network_made_up(config)
    return {
        "whole": Arm(config, {"prepare": Instead()}),
        "linear": Arm(config, {"prepare": Instead(network="linear")}),
        "removed": Arm(config, {"prepare": Instead(network="none")}),
        "heads": Arm(more_heads, {"prepare": Instead(network="none")}),
        "neurons": Arm(more_neurons, {"prepare": Instead(attention="none")}),
        "fixed": Arm(config, {"prepare": Instead(attention="fixed")}),
    }


@dataclass(frozen=True)
class Budget:
    """Parameters of the first block's sublayers, norms left out.

    Attributes:
        attention: of attention, or of what stands in its place.
        network: of the network.
        bends: whether the network has its bend.
        model: of the whole model: embedding, norms and unembedding as well.
    """

    attention: int
    network: int
    bends: bool
    model: int


def budget(arm: Arm) -> Budget:
    """Count the parameters of an arm of `compared`."""
    fresh = make_model(arm.config, causal=True, seed=0)
    arm.options["prepare"](fresh)
    first = fresh.blocks[0]
    assert isinstance(first, Block)
    network, below = first.feedforward, torch.tensor(-1.0)
    bends = isinstance(network, FeedForward) and float(network.activate(below)) != -1
    return Budget(_number(first.attention), _number(network), bends, _number(fresh))


def _number(part: nn.Module) -> int:
    return sum(q.numel() for q in part.parameters())


# By hand -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TwoHeads:
    """What two heads make of all pairs of bits, read at a third position.

    Attributes:
        bits: the four pairs.
        weights: what the first head gives to either bit; the second gives one half to each.
        looks: what the first head hands over: nearly 1 when any of the bits is set.
        mean: what the second hands over: the mean of both bits.
        out: twice their difference.
    """

    bits: Int[Tensor, "pair bit"]
    weights: Float[Tensor, "pair bit"]
    looks: Float[Tensor, "pair"]
    mean: Float[Tensor, "pair"]
    out: Float[Tensor, "pair"]


def two_heads(sharpness: float = 6.0) -> TwoHeads:
    """The exclusive-or of two bits by two heads, without any network.

    Both heads hand over the bits as they are. The first looks for ones, with scores of `sharpness` for a one
    and 0 for a zero, and so hands over their maximum, nearly; the second looks at both alike. Maximum less
    mean is one half where the bits differ, and zero where they do not.

    Args:
        sharpness: the score of a one.

    >>> two_heads(20.0).out.round(decimals=6).tolist()
    [0.0, 1.0, 1.0, 0.0]
    """
    bits = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    values = bits.double()[..., None]
    asks = torch.full((len(bits), 1, 1), sharpness, dtype=torch.float64)
    found = []
    for query in (asks, torch.zeros_like(asks)):
        pattern = attention_pattern(attention_scores(query, values, scale=1.0))
        found.append((pattern[:, 0], attend(pattern, values)[:, 0, 0]))
    (weights, looks), (_, mean) = found
    return TwoHeads(bits, weights, looks, mean, 2 * (looks - mean))


# Sums ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Additive:
    r"""The best logits $f_c(a) + g_c(b)$ for the sum of a and b modulo a number, over all pairs.

    Attributes:
        loss: their cross-entropy in nats.
        largest: of the differences between their logits for one pair.
    """

    loss: float
    largest: float


def best_additive(modulus: int, *, seed: int, product: bool = False) -> Additive:
    r"""Fit logits that add up what each number says, from random ones, in float64.

    The loss is convex in the logits and does not change when a, b and the answers are shifted together. So
    the mean of the fit over all shifts is at least as good, and that mean gives every answer the same logit:
    the best loss is $\ln$ of the modulus, that of guessing.

    Args:
        modulus: of the sums.
        seed: of the numbers that the fit begins with.
        product: let the logits have products of $\cos$ and $\sin$ of the two numbers' angles as well. Four
            of them are enough to know all answers.

    Raises:
        ValueError: when the modulus is below 2.
    """
    if modulus < 2:
        raise ValueError(f"expected a modulus of at least 2, got {modulus}")
    pairs = torch.cartesian_prod(torch.arange(modulus), torch.arange(modulus))
    first, second = (F.one_hot(pairs[:, i], modulus).double() for i in (0, 1))
    columns = [first, second]
    if product:
        turns = 2 * np.pi * pairs.double() / modulus
        (ca, cb), (sa, sb) = turns.cos().T, turns.sin().T
        columns += [torch.stack([ca * cb, sa * sb, sa * cb, ca * sb], dim=1)]
    inputs, answers = torch.cat(columns, dim=1), pairs.sum(1) % modulus
    draws = make_generator(seed, "additive logits")
    weights = torch.randn(inputs.shape[1], modulus, generator=draws, dtype=torch.float64)
    weights.requires_grad_()
    updates = torch.optim.LBFGS(
        [weights], max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-16,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> Tensor:
        updates.zero_grad()
        cost = F.cross_entropy(inputs @ weights, answers)
        cost.backward()
        return cost

    updates.step(closure)
    with torch.no_grad():
        logits = inputs @ weights
        spread = logits.amax(1) - logits.amin(1)
        return Additive(float(F.cross_entropy(logits, answers)), float(spread.max()))


# Taken away ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replaced:
    """How far the loss rises when one kind of sublayer of a trained model is replaced by its mean.

    Attributes:
        network: the network of each block, one at a time.
        attention: the attention of each block, one at a time.
        networks: all networks at once.
        attentions: all attention at once.
    """

    network: Float[ndarray, "block"]
    attention: Float[ndarray, "block"]
    networks: float
    attentions: float


def replaced(model: Model, task: Task, *, seed: int, size: int = 256) -> Replaced:
    """Replace what each sublayer writes by its mean over other sequences, position by position.

    The loss is that on sequences held out; the means are taken over sequences of the training's kind.

    Args:
        model: with one or more blocks of attention and a network.
        task: what it was trained on.
        seed: of the sequences.
        size: number of sequences, and of those that the means are taken over.

    Raises:
        KeyError: when a block has no network, or no attention.
    """
    batch, reference = _sequences(task, seed, size)
    blocks = range(model.config.n_layers)
    networks = [Component(f"blocks.{i}.feedforward.out") for i in blocks]
    attentions = [Component(f"blocks.{i}.attention.out") for i in blocks]
    found = effects(
        model,
        [*networks, *attentions, networks, attentions],
        batch,
        how="mean",
        reference=reference,
        metric=loss,
    )
    n = len(blocks)
    return Replaced(found[:n], found[n : 2 * n], float(found[-2]), float(found[-1]))


def accuracy_frozen(model: Model, task: Task, *, seed: int, size: int = 256) -> float:
    """Share of right answers on sequences held out, when no head may react to what it reads.

    Every head keeps one pattern for all sequences, its mean over sequences of the training's kind.

    Raises:
        KeyError: when a block has no attention.
    """
    batch, reference = _sequences(task, seed, size)
    patterns = [Component(f"blocks.{i}.attention.pattern") for i in range(model.config.n_layers)]
    with ablated(model, patterns, "mean", reference=reference):
        return accuracy(model, batch)


def _sequences(task: Task, seed: int, size: int) -> tuple[Batch, Batch]:
    batch = held_out(task).batch(make_generator(seed, "evaluation"), size)
    return batch, task.batch(make_generator(seed, "reference"), size)


def rises(
    losses: Sequence[float] | Array, whole: Sequence[float] | Array
) -> Float[ndarray, "seed"]:
    """By how much each seed's loss is above that of the whole model of the same seed.

    Raises:
        ValueError: when there is not one of either for each seed.

    >>> rises([2.0, 3.0], [0.5, 1.0]).tolist()
    [1.5, 2.0]
    """
    a, b = np.asarray(losses, dtype=float), np.asarray(whole, dtype=float)
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"expected one loss a seed for both, got shapes {a.shape} and {b.shape}")
    return a - b
