"""Mistakes in the exercise on batches."""

WRONG = {
    "ladder_further.scaled": {
        "the other way round": (lambda beta, old, new: beta ** (old / new), "way round"),
        "a product": (lambda beta, old, new: beta * new / old, "exponent"),
        "first order": (lambda beta, old, new: 1 - (1 - beta) * new / old, "first order"),
        "kept": (lambda beta, old, new: beta, "must be left"),
    },
}
