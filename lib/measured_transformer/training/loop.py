"""Training one model from one seed, and scoring it. No framework: read it from top to bottom."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.tasks.task import Task
from measured_transformer.training.device import find_device
from measured_transformer.training.seeding import derived_seed, seeded, stream


@dataclass(frozen=True)
class Run:
    """One training from one seed.

    Attributes:
        model: as it stood after the last step, in evaluation mode.
        losses: training loss of every step, in nats per scored position.
        seed: what weights and batches were drawn from.
        diverged: whether the loss or a weight stopped being a finite number; training ended there.
    """

    model: Decoder | Encoder
    losses: Float[ndarray, "step"]
    seed: int
    diverged: bool


@dataclass(frozen=True)
class Score:
    """What a model reaches on fresh sequences.

    Attributes:
        loss: cross-entropy in nats per scored position.
        accuracy: share of scored positions whose most likely answer is right.
        loss_by_position: cross-entropy at each position (NaN where nothing is scored).
    """

    loss: float
    accuracy: float
    loss_by_position: Float[ndarray, "position"]


def make_model(config: Config, *, causal: bool, seed: int) -> Decoder | Encoder:
    """A model with fresh weights from this seed: a `Decoder` when causal, else an `Encoder`."""
    with seeded(seed):
        return Decoder(config) if causal else Encoder(config)


def answer_loss(
    logits: Float[Tensor, "batch position vocab"],
    targets: Int[Tensor, "batch position"],
    scored: Bool[Tensor, "batch position"],
) -> Float[Tensor, ""]:
    """Mean cross-entropy over the scored positions."""
    return F.cross_entropy(logits[scored], targets[scored])


def train(
    config: Config,
    task: Task,
    *,
    steps: int,
    learning_rate: float,
    seed: int,
    batch_size: int = 64,
    warmup: int = 0,
    betas: tuple[float, float] = (0.9, 0.98),
    weight_decay: float = 0.0,
    clip: float | None = 1.0,
    prepare: Callable[[Decoder | Encoder], None] | None = None,
) -> Run:
    """Train a fresh model on fresh batches with Adam.

    Args:
        config: the model; its vocabulary must hold the task's.
        task: what to learn; a causal task gets a `Decoder`, any other an `Encoder`.
        steps: number of batches.
        learning_rate: reached after `warmup` steps of linear growth, constant from there on.
        seed: of the weights, of dropout and of the batches, each with a generator of its own.
        batch_size: sequences per step.
        warmup: number of steps over which the rate grows.
        betas, weight_decay: of AdamW.
        clip: largest norm of the whole gradient; none when None.
        prepare: called with the fresh model before the first step, to fix or replace some of its weights;
            parameters that no longer require a gradient stay as they are.

    Raises:
        ValueError: when the vocabulary is too small or a number is out of range.
    """
    if config.vocab < task.vocab:
        raise ValueError(f"the task has {task.vocab} tokens, the model only {config.vocab}")
    if steps < 0 or learning_rate <= 0:
        raise ValueError(
            f"steps must not be negative and learning_rate positive, got {steps} and {learning_rate}"
        )
    device = find_device()
    model = make_model(config, causal=task.causal, seed=seed).to(device).train()
    if prepare is not None:
        prepare(model)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=learning_rate, betas=betas, weight_decay=weight_decay
    )
    batches = stream(seed, "training")
    losses: list[float] = []
    with seeded(derived_seed(seed, "dropout")):
        for step in range(steps):
            for group in optimiser.param_groups:
                group["lr"] = learning_rate * min(1.0, (step + 1) / max(1, warmup))
            batch = task.batch(batches, batch_size).to(device)
            loss = answer_loss(model(batch.inputs), batch.targets, batch.scored)
            losses.append(loss.item())
            if not math.isfinite(losses[-1]):
                break
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimiser.step()
    finite = all(bool(p.isfinite().all()) for p in model.parameters())
    diverged = not (finite and all(map(math.isfinite, losses)))
    return Run(model.eval(), np.array(losses), seed, diverged)


@torch.no_grad()
def evaluate(
    model: Decoder | Encoder, task: Task, *, seed: int, size: int = 256, length: int | None = None
) -> Score:
    """Score a model on sequences that training never drew: they come from a stream of their own."""
    device = next(model.parameters()).device
    training = model.training
    batch = task.batch(stream(seed, "evaluation"), size, length=length).to(device)
    try:
        logits = model.eval()(batch.inputs)
    finally:
        model.train(training)
    loss = F.cross_entropy(logits.transpose(1, 2), batch.targets, reduction="none")
    right = logits.argmax(-1) == batch.targets
    counted = batch.scored.sum(0)
    by_position = (loss * batch.scored).sum(0) / counted
    return Score(
        loss=loss[batch.scored].mean().item(),
        accuracy=right[batch.scored].float().mean().item(),
        loss_by_position=by_position.double().cpu().numpy(),
    )
