"""Mistakes in the exercises of *How long is long enough?*."""

import math

import numpy as np

WRONG = {
    "ladder.rungs": {
        "a window is no token": ((125000, 4.9152, 472000), "64 tokens"),
        "one window a step": ((31250, 4.9152, 472000), "16 windows"),
        "weights a token": ((1953.1, 0.2034, 472000), "weights a token"),
        "multiplied": ((1953.1, 4.9152, 188_800_000), "multiplied"),
    },
    "ladder.order": {
        "places": (lambda keys: np.argsort(keys), "places of the keys"),
        "from the largest": (lambda keys: len(keys) - 1 - np.argsort(np.argsort(keys)), "rank 0"),
        "from one": (lambda keys: np.argsort(np.argsort(keys)) + 1, "each once"),
        "one too few": (lambda keys: np.argsort(np.argsort(keys))[1:], "ranks, got"),
    },
    "ladder.left": {
        "a sum": (lambda rates, decay: 1 - decay * math.fsum(rates), "a share of what is left"),
        "without the rate": (lambda rates, decay: (1 - decay) ** len(rates), "belongs to it"),
        "what is gone": (
            lambda rates, decay: 1 - math.prod(1 - rate * decay for rate in rates),
            "gone",
        ),
    },
}
