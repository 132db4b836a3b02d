"""Whether the position survives in a trained model: in its patterns, and as what its loss depends on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from measured_transformer.analysis.positions import Model, position_vectors
from measured_transformer.internals.intervene import intervene
from measured_transformer.parts.attention import causal_mask
from measured_transformer.tasks.task import Task
from measured_transformer.training.seeding import make_generator, seeded


def explained_by_position(
    pattern: Float[Tensor, "batch head query key"], *, causal: bool = False
) -> Float[Tensor, "head"]:
    """Share of the variance of each head's weights that the places of query and key account for.

    The mean pattern over the batch is what depends on places alone; the rest depends on the tokens. Entries
    are compared with the flat pattern (each query's weight spread evenly over the keys that it sees), so a
    head that attends evenly to all has nothing to explain and gets 0.
    """
    n_query, n_key = pattern.shape[-2:]
    seen = causal_mask(n_query, n_key) if causal else torch.ones(n_query, n_key, dtype=torch.bool)
    seen = seen.to(pattern.device)
    centred = (pattern - seen / seen.sum(-1, keepdim=True)).double()
    total = centred.pow(2).mean(0).sum((-2, -1))
    by_place = centred.mean(0).pow(2).sum((-2, -1))
    return torch.where(total > 0, by_place / total.clamp(min=1e-300), torch.zeros_like(total))


@contextmanager
def changed_positions(model: Model, vectors: Float[Tensor, "position d_model"]) -> Iterator[None]:
    """While the block runs, the model adds these vectors instead of its own (zeros: no positions)."""
    own = position_vectors(model, len(vectors))
    with intervene(model, {"embedding": lambda x: x - own + vectors}):
        yield


@torch.no_grad()
def task_loss(model: Model, task: Task, *, seed: int, size: int = 256) -> float:
    """Cross-entropy per scored position on sequences of the evaluation stream."""
    device = next(model.parameters()).device
    batch = task.batch(make_generator(seed, "evaluation"), size).to(device)
    logits = model(batch.inputs)
    return F.cross_entropy(logits[batch.scored], batch.targets[batch.scored]).item()


@torch.no_grad()
def loss_without_places(model: Model, task: Task, *, seed: int, size: int = 256) -> list[float]:
    """Loss after what tells the positions apart is taken out of the stream at one place.

    At each place (the embedding, then the exit of each block) the mean of the stream at each position, over
    the batch, is replaced by the mean over batch and positions: what remains of a position is what its
    tokens brought. One number a place.
    """
    places = ["embedding", *(f"blocks.{i}.residual_post" for i in range(model.config.n_layers))]
    losses = []
    for place in places:
        with intervene(model, {place: lambda x: x - x.mean(0) + x.mean((0, 1))}):
            losses.append(task_loss(model, task, seed=seed, size=size))
    return losses


def untrained(model: Model, *, seed: int) -> Model:
    """A fresh model of the same config, for comparison."""
    with seeded(seed):
        return type(model)(model.config).to(next(model.parameters()).device).eval()
