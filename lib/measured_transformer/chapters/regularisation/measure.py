r"""What dropout and label smoothing do: exactly over all masks, in a layer, and to a model's probabilities.

Dropout multiplies each entry by 0 with probability $p$ and by $1/(1-p)$ otherwise (Srivastava et al., 2014), so
that the mean over masks is the entry $x$ itself and the variance $\frac{p}{1-p} x^2$. Label smoothing (Szegedy
et al., 2016) asks for probabilities that are not those of the data; a model is *calibrated* when of the
answers it gives with probability 0.8, four in five are right (Guo et al., 2017).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.internals.capture import capture
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.tasks.task import Part, SplitTask, Task, held_out
from measured_transformer.training.loop import Model, predict
from measured_transformer.training.seeding import make_generator, seeded

# Dropout over all masks ---------------------------------------------------------------------------


@dataclass(frozen=True)
class AllMasks:
    """What dropout gives for every mask that it can draw.

    Attributes:
        outputs: one row a mask, as `torch.nn.functional.dropout` returned it.
        kept: which entries the mask kept.
        chances: probability of each mask; they sum to 1.
    """

    outputs: Float[Tensor, "mask entry"]
    kept: Bool[Tensor, "mask entry"]
    chances: Float[Tensor, "mask"]

    def mean(self) -> Float[Tensor, "entry"]:
        """Exact mean of each entry over the masks."""
        return self.chances @ self.outputs

    def variance(self) -> Float[Tensor, "entry"]:
        """Exact variance of each entry over the masks."""
        return self.chances @ (self.outputs - self.mean()).square()


def every_mask(
    x: Float[Tensor, "entry"], rate: float, *, seed: int, draws: int = 2**18
) -> AllMasks:
    """Let PyTorch drop entries of x until every mask has come up, and keep one output of each.

    Args:
        x: none of its entries may be 0, because a dropped entry is known by that.
        rate: probability of dropping an entry.
        seed: of the masks.
        draws: how many are drawn; the rarest must be among them.

    Raises:
        ValueError: when an entry is 0, or a mask did not come up.
    """
    if not bool((x != 0).all()):
        raise ValueError("expected entries other than 0, to tell which were dropped")
    n = len(x)
    with seeded(seed):
        drawn = F.dropout(x.expand(draws, n), rate)
    codes = ((drawn != 0).long() * 2 ** torch.arange(n)).sum(1)
    rows = torch.full((2**n,), -1).scatter(0, codes, torch.arange(draws))
    if bool((rows < 0).any()):
        raise ValueError(
            f"{int((rows < 0).sum())} of {2**n} masks did not come up in {draws} draws; draw more"
        )
    outputs = drawn[rows]
    kept = outputs != 0
    keep = kept.to(x.dtype)
    chances = (keep * (1 - rate) + (1 - keep) * rate).prod(1)
    return AllMasks(outputs, kept, chances)


# Places in a layer --------------------------------------------------------------------------------

PLACES = ("attention output", "feed-forward output", "attention weights", "neurons")
"""Where `torch.nn.TransformerEncoderLayer` drops; the first three are those that are usually named."""


def drop_only_at(layer: nn.TransformerEncoderLayer, place: str | None, rate: float) -> None:
    """Set the rate of one of `PLACES` in PyTorch's layer and 0 elsewhere; everywhere 0 when None.

    Raises:
        ValueError: when the place has another name.
    """
    if place is not None and place not in PLACES:
        raise ValueError(f"place must be one of {', '.join(PLACES)}, got {place!r}")
    layer.self_attn.dropout = rate if place == "attention weights" else 0.0
    modules = {
        "attention output": layer.dropout1,
        "feed-forward output": layer.dropout2,
        "neurons": layer.dropout,
    }
    for name, module in modules.items():
        module.p = rate if place == name else 0.0


@torch.no_grad()
def stream_noise(
    model: Model, task: Task, *, seed: int, masks: int = 64
) -> Float[ndarray, "state"]:
    """How much of the stream is noise of the masks, at the embedding and behind each sublayer.

    One sequence passes an `Encoder` or `Decoder` in training mode with many masks at once. The variance over
    the masks, averaged over positions and entries, is divided by the mean square of the stream's mean.

    Args:
        model: with dropout.
        task: gives the sequence.
        seed: of sequence and masks.
        masks: how many.
    """
    batch = task.batch(make_generator(seed, "evaluation"), 1)
    inputs = batch.inputs.expand(masks, -1)
    training = model.training
    layers = range(model.config.n_layers)
    after = [f"blocks.{i}.residual_{place}" for i in layers for place in ("mid", "post")]
    names = ["blocks.0.residual_pre", *after]
    try:
        model.train()
        with seeded(seed), capture(model, "blocks.*.residual_*") as seen:
            model(inputs)
    finally:
        model.train(training)
    states = [seen[name].double() for name in names]
    return np.array([float(s.var(0).mean() / s.mean(0).square().mean()) for s in states])


# Probabilities ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answers:
    """What a model says at each scored position of sequences held out, and with which probability.

    Attributes:
        confidences: probability of the most likely answer.
        right: whether that is the right one.
        losses: cost of the right answer, in nats, not smoothed.
        sequences: number of sequence that each position belongs to.
    """

    confidences: Float[ndarray, "answer"]
    right: Bool[ndarray, "answer"]
    losses: Float[ndarray, "answer"]
    sequences: Float[ndarray, "answer"]

    @property
    def loss(self) -> float:
        """Negative log-likelihood in nats per answer."""
        return float(self.losses.mean())

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return float(self.right.mean())

    @property
    def exact(self) -> float:
        """Share of sequences all of whose answers are right."""
        wrong = np.bincount(self.sequences.astype(int), weights=~self.right)
        return float((wrong == 0).mean())


@torch.no_grad()
def answers(
    model: Model, task: Task, *, seed: int, size: int = 1024, part: Part = "validation"
) -> Answers:
    """Let a model answer sequences that it was not trained on, or those that it was.

    Args:
        model: what answers, in evaluation mode meanwhile.
        task: what it was trained on.
        seed: of the sequences.
        size: number of sequences.
        part: of a task that divides its items; of no effect for others, whose sequences are always fresh.
    """
    source = held_out(task, part) if isinstance(task, SplitTask) else task
    device = next(model.parameters()).device
    batch = source.batch(make_generator(seed, "evaluation"), size).to(device)
    training = model.training
    try:
        chances = predict(model.eval(), batch).double().log_softmax(-1)
    finally:
        model.train(training)
    best, choice = chances.max(-1)
    losses = -chances.gather(-1, batch.targets[..., None])[..., 0]
    number = torch.arange(size, device=device)[:, None].expand_as(choice)
    found = (best.exp(), choice == batch.targets, losses, number.double())
    return Answers(*(each[batch.scored].cpu().numpy() for each in found))


@dataclass(frozen=True)
class Reliability:
    """Answers gathered by their probability: what was promised against what was kept.

    Attributes:
        confidence: mean probability in each bin; NaN in an empty one.
        accuracy: share of right answers in each bin; NaN in an empty one.
        share: of all answers that fall into each bin.
        error: expected calibration error, the mean gap between the two, weighted by the shares.
    """

    confidence: Float[ndarray, "bin"]
    accuracy: Float[ndarray, "bin"]
    share: Float[ndarray, "bin"]
    error: float


def reliability(
    confidences: Float[ndarray, "answer"] | Sequence[float],
    right: Bool[ndarray, "answer"] | Sequence[bool],
    *,
    bins: int = 10,
) -> Reliability:
    r"""Bins of equal width, and the expected calibration error $\sum_b s_b |a_b - c_b|$.

    A bin with share $s_b$ of the answers promises its mean probability $c_b$ and keeps its accuracy $a_b$. With
    few answers a bin the error is too large, because chance alone opens gaps.

    Raises:
        ValueError: when there is no answer, the two differ in number, or a probability lies outside [0, 1].

    >>> found = reliability([0.9, 0.9, 0.9, 0.9], [True, True, True, False])
    >>> round(found.error, 3)
    0.15
    """
    promised, kept = np.asarray(confidences, dtype=float), np.asarray(right, dtype=float)
    if promised.ndim != 1 or promised.shape != kept.shape or not promised.size:
        raise ValueError(
            "expected one probability and one verdict for each of at least one answer, got shapes "
            f"{promised.shape} and {kept.shape}"
        )
    if promised.min() < 0 or promised.max() > 1 + 1e-9:
        raise ValueError(
            f"probabilities lie between 0 and 1, got {promised.min()} to {promised.max()}"
        )
    if bins < 1:
        raise ValueError(f"bins must be a positive whole number, got {bins}")
    where = np.minimum((promised * bins).astype(int), bins - 1)
    count = np.bincount(where, minlength=bins)
    with np.errstate(invalid="ignore"):
        confidence = np.bincount(where, weights=promised, minlength=bins) / count
        accuracy = np.bincount(where, weights=kept, minlength=bins) / count
    share = count / count.sum()
    error = float(np.nansum(share * np.abs(accuracy - confidence)))
    return Reliability(confidence, accuracy, share, error)


def smoothed_ideal(task: NoisyTranslation, label_smoothing: float) -> tuple[float, float]:
    r"""What smoothing costs a model that has learnt everything: its loss in nats, and its calibration error.

    The smoothed loss is smallest when the model says $q = (1 - \varepsilon)\pi + \varepsilon / V$ where $\pi$
    are the true probabilities. It then promises $q$ where $\pi$ is kept. Both numbers are averages over real
    tokens, the end among them, of the loss without smoothing and of the gap between the two.

    Raises:
        ValueError: when label_smoothing is not between 0 and 1.

    >>> task = NoisyTranslation(noise=0.3)
    >>> loss, gap = smoothed_ideal(task, 0.0)
    >>> math.isclose(loss, task.bayes_loss(), rel_tol=1e-12), gap
    (True, 0.0)
    """
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing is a share between 0 and 1, got {label_smoothing}")

    def said(chance: float) -> float:
        return (1 - label_smoothing) * chance + label_smoothing / task.vocab

    stray = task.noise / task.symbols
    follows = 1 - task.noise + stray
    pairs = ((1, follows), (task.symbols - 1, stray))
    word = -math.fsum(count * p * math.log(said(p)) for count, p in pairs if p > 0)
    tokens = task.mean_tokens(task.length)
    gaps = tokens * abs(follows - said(follows)) + abs(1 - said(1.0))
    return (tokens * word - math.log(said(1.0))) / (tokens + 1), gaps / (tokens + 1)
