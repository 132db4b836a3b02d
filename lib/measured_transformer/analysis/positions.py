r"""Measures how order enters a model and how training uses it: probes of positions and position vectors.

The geometry of position vectors is in `sinusoids`, longer sequences in `extrapolation`, and what is changed
before training in `variants.positions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor, nn

from measured_transformer.internals.capture import capture
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.tasks.task import Task
from measured_transformer.training.seeding import make_generator

Model = Decoder | Encoder


@torch.no_grad()
def equivariance_error(
    attention: nn.Module,
    x: Float[Tensor, "batch position d_model"],
    order: Int[Tensor, "position"],
    *,
    causal: bool = False,
) -> float:
    """Largest difference between attending to shuffled inputs and shuffling what was attended to."""
    shuffled_first = attention(x[:, order], causal=causal)
    shuffled_after = attention(x, causal=causal)[:, order]
    return (shuffled_first - shuffled_after).abs().max().item()


def _ridge(
    features: Float[ndarray, "sample d"], targets: Float[ndarray, "sample k"], strength: float
) -> Callable[[ndarray], ndarray]:
    mean, target_mean = features.mean(0), targets.mean(0)
    centred = features - mean
    gram = centred.T @ centred + strength * len(features) * np.eye(features.shape[1])
    weights = np.linalg.solve(gram, centred.T @ (targets - target_mean))
    return lambda unseen: (unseen - mean) @ weights + target_mean


def probe_r2(
    features: Float[Tensor, "batch position d"],
    *,
    strength: float = 1e-4,
    shuffle_seed: int | None = None,
) -> float:
    """Cross-validated R2 of a linear probe that reads the position off the features.

    The first half of the batch trains a ridge regression, the second half is predicted. 1: the position
    can be read off exactly; 0 or below: no better than always answering the middle.

    Args:
        features: vectors of each sequence and position.
        strength: of the ridge penalty, per sample.
        shuffle_seed: shuffle the training positions from this seed first; a sound probe then finds nothing.

    Raises:
        ValueError: when there are fewer than two sequences.
    """
    batch, n, _ = features.shape
    if batch < 2:
        raise ValueError(
            f"a probe needs sequences to learn from and others to be tested on, got {batch}"
        )
    half = batch // 2
    values = features.detach().double().cpu().numpy()
    places = np.tile(np.arange(n, dtype=float), batch).reshape(batch, n)
    known = places[:half].reshape(-1, 1)
    if shuffle_seed is not None:
        known = np.random.default_rng(shuffle_seed).permutation(known)
    predict = _ridge(values[:half].reshape(half * n, -1), known, strength)
    asked = places[half:].reshape(-1, 1)
    error = asked - predict(values[half:].reshape((batch - half) * n, -1))
    return float(1 - (error**2).mean() / asked.var())


def class_probe_accuracy(
    features: Float[ndarray, "position d"],
    classes: Int[ndarray, "position"],
    *,
    seed: int,
    folds: int = 5,
    strength: float = 1e-6,
) -> float:
    """Accuracy of a linear probe on positions held out from its training.

    Ridge regression on one column per class; the answer is the largest. The positions are dealt into
    folds from `seed`, and each fold is answered by a probe trained on the others.
    """
    order = np.random.default_rng(seed).permutation(len(features))
    columns = np.eye(int(classes.max()) + 1)[classes]
    right = 0
    for fold in range(folds):
        asked = order[fold::folds]
        known = np.setdiff1d(order, asked)
        predict = _ridge(features[known], columns[known], strength)
        right += int((predict(features[asked]).argmax(1) == classes[asked]).sum())
    return right / len(features)


def position_vectors(model: Model, n: int) -> Float[Tensor, "position d_model"]:
    """The vectors that the model adds to its embeddings at positions 0 to n - 1; zeros if it adds none."""
    if model.positions is None:
        weight = model.token_embedding.weight
        return torch.zeros(n, weight.shape[1], device=weight.device, dtype=weight.dtype)
    with torch.no_grad():
        return model.positions(n).detach()


@torch.no_grad()
def position_scores(model: Model, n: int) -> Float[Tensor, "head query key"]:
    """Scores that the first block's heads give to the position vectors alone, with the norm's gain, no tokens.

    The norm's division by the standard deviation, which depends on the tokens too, is left out.
    """
    block: Any = model.blocks[0]
    vectors = position_vectors(model, n)
    gained = (vectors - vectors.mean(-1, keepdim=True)) * block.attention_norm.weight
    attention = block.attention
    queries, keys = (
        (gained @ projection.weight.T).unflatten(-1, (-1, attention.d_head)).transpose(0, 1)
        for projection in (attention.query, attention.key)
    )
    return queries @ keys.transpose(-2, -1) / math.sqrt(attention.d_head)


@torch.no_grad()
def captured(
    model: Model, task: Task, *patterns: str, seed: int, size: int = 128
) -> dict[str, Tensor]:
    """The values of taps, by name, on fresh sequences of the task."""
    device = next(model.parameters()).device
    batch = task.batch(make_generator(seed, "evaluation"), size).to(device)
    with capture(model, *patterns) as seen:
        model(batch.inputs)
    return seen


def position_r2_by_layer(
    model: Model, task: Task, *, seed: int, size: int = 128, shuffle_seed: int | None = None
) -> Float[ndarray, "layer"]:
    """`probe_r2` of the stream as it enters the first block and as it leaves each block."""
    seen = captured(model, task, "embedding", "blocks.*.residual_post", seed=seed, size=size)
    names = ["embedding", *(f"blocks.{i}.residual_post" for i in range(model.config.n_layers))]
    return np.array([probe_r2(seen[name], shuffle_seed=shuffle_seed) for name in names])
