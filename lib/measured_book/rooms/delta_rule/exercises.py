"""An exercise on the delta rule, in *What attention costs*."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from measured_book.exercises.answers import Answer, close, demand, normal, tensor
from measured_book.exercises.registry import exercise

_CHAPTER = "book/attention/cost"


@exercise(_CHAPTER)
def written(answer: Answer) -> None:
    """Write `written(state, key, value, strength)`: the state after a key is told with a value."""
    for d_key, d_value, strength, seed in ((2, 3, 1.0, 0), (4, 2, 0.5, 1), (3, 3, 0.25, 2)):
        state, value = normal(d_key, d_value, seed=seed), normal(d_value, seed=seed + 10)
        key = F.normalize(normal(d_key, seed=seed + 20), dim=0)
        given = (state.clone(), key.clone(), value.clone(), strength)
        found = tensor(answer(*given), (d_key, d_value))
        error = value - key @ state
        right = state + strength * torch.outer(key, error)
        demand(
            not close(found, state + strength * torch.outer(key, value)),
            "that adds the value; first read what the state has for the key",
        )
        demand(
            strength == 1 or not close(found, state + torch.outer(key, error)),
            "that writes the whole difference, whatever the strength",
        )
        demand(
            not close(found, state - strength * torch.outer(key, error)),
            "the difference is the value minus what is read",
        )
        demand(close(found, right), "another state than that of the rule")
