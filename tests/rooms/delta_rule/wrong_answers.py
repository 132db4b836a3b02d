"""Mistakes in the exercise on the delta rule."""

import torch

WRONG = {
    "delta_rule.written": {
        "added": (
            lambda state, key, value, strength: state + strength * torch.outer(key, value),
            "read what",
        ),
        "whole": (
            lambda state, key, value, strength: state + torch.outer(key, value - key @ state),
            "whatever the strength",
        ),
        "the wrong way": (
            lambda state, key, value, strength: (
                state - strength * torch.outer(key, value - key @ state)
            ),
            "minus",
        ),
        "nothing": (lambda state, key, value, strength: state, "another state"),
    },
}
