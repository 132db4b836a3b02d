"""How far the logits of a model spread, which the placement of its norms decides."""

from __future__ import annotations

import torch

from measured_transformer.tasks.task import Task
from measured_transformer.training.loop import Model, predict
from measured_transformer.training.seeding import make_generator


@torch.no_grad()
def logit_deviation(model: Model, task: Task, *, seed: int, size: int = 64) -> float:
    """The standard deviation of the logits, over answers, around the mean of each position; over a batch."""
    device = next(model.parameters()).device
    logits = predict(model, task.batch(make_generator(seed, "evaluation"), size).to(device))
    return float((logits - logits.mean(-1, keepdim=True)).square().mean().sqrt())
