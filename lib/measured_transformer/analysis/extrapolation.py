"""Sequences longer than in training: the loss of a model there, and attention limited to the last keys."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor
from torch.nn import functional as F

from measured_transformer.internals.intervene import intervene
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.tasks.induction import Induction
from measured_transformer.tasks.lag import Lag
from measured_transformer.training.seeding import make_generator

Model = Decoder | Encoder


@torch.no_grad()
def excess_loss(
    model: Model,
    task: Lag | Induction,
    *,
    seed: int,
    length: int,
    shift: int = 0,
    window: int | None = None,
    size: int = 64,
) -> Float[ndarray, "position"]:
    """The model's loss at each position minus that of the predictor that knows the rule, on the same tokens.

    Where the rule makes the next token certain, as in induction, that predictor loses nothing.

    Args:
        model: trained on the task, perhaps at another length.
        task: the source of the tokens.
        seed: of the tokens; they come from the evaluation stream.
        length: of the sequences.
        shift: let every token stand so many positions later; nothing else changes.
        window: let every query see only so many keys, itself included.
        size: number of sequences.

    Returns:
        nats per scored token, NaN where the task scores nothing.
    """
    device = next(model.parameters()).device
    batch = task.batch(make_generator(seed, "evaluation"), size, length=length)
    tokens = batch.inputs.to(device)
    places = (shift + torch.arange(length, device=device)).expand_as(tokens) if shift else None
    with attention_window(model, window):
        logits = model(tokens, positions=places)
    loss = F.cross_entropy(logits.transpose(1, 2), batch.targets.to(device), reduction="none")
    mean = (loss.double().cpu() * batch.scored).sum(0) / batch.scored.sum(0)
    ideal = task.ideal_loss(batch) if isinstance(task, Lag) else torch.zeros_like(mean)
    return (mean - ideal).numpy()


@contextmanager
def attention_window(model: Model, window: int | None) -> Iterator[None]:
    """Inside the block, each query sees only the last `window` keys, its own included; all when None."""
    if window is None:
        yield
        return

    def forget(scores: Tensor) -> Tensor:
        n_query, n_key = scores.shape[-2:]
        queries = torch.arange(n_key - n_query, n_key, device=scores.device)
        distance = queries[:, None] - torch.arange(n_key, device=scores.device)
        return scores.masked_fill(distance >= window, -math.inf)

    with intervene(model, {"blocks.*.attention.scores": forget}):
        yield
