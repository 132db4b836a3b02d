"""Mistakes in the exercises on the feed-forward network."""

import torch

WRONG = {
    "feed_forward.by_hand": {
        "neuron 1 not bent": ((-6.0, 2.0), "neuron 1 has a negative sum"),
        "neuron 3 not bent": ((-5.0, -1.0), "neuron 3 has a negative sum"),
        "no bias": ((-8.0, 4.0), "neuron 2 has a bias"),
        "sign lost": ((4.0, 2.0), "sign"),
        "second not bent": ((-4.0, -1.0), "second number"),
        "the stream added": ((-3.0, 5.0), "added to the stream"),
        "the stream added to the second": ((-4.0, 5.0), "added to the stream"),
        "a guess": ((1.0, 1.0), "one neuron at a time"),
    },
    "feed_forward.merged": {
        "the second bias alone": (lambda w1, b1, w2, b2: (w1 @ w2, b2), "passes through"),
        "the first bias alone": (lambda w1, b1, w2, b2: (w1 @ w2, b1 @ w2), "is missing"),
        "a sum of matrices": (
            lambda w1, b1, w2, b2: ((w1 @ w2).relu(), b1 @ w2 + b2),
            "one layer after the other",
        ),
        "one tensor": (lambda w1, b1, w2, b2: w1 @ w2, "two things"),
        "a bias doubled": (lambda w1, b1, w2, b2: (w1 @ w2, b1 @ w2 + 2 * b2), "what becomes of"),
    },
    "feed_forward.exclusive_or": {
        "a line": (([[1, 1], [1, 1]], [1, 1], [1, 0], -1), "no neuron changes its side"),
        "an or": (([[1, 1], [1, 1]], [-0.5, -1], [2, -2], 0), "(1, 1) gives"),
        "a sum": (([[1, 0], [1, 0]], [0, 0], [1, 0], 0), "(1, 1) gives 2"),
        "two outputs": (([[1, 1], [1, 1]], [0, -1], [[1, 1], [-2, 0]], 0), "shape (2,)"),
        "a row": (([[1, 1], [1, 1]], [0, -1], [[1, -2]], 0), "shape (2,)"),
        "two last biases": (
            ([[1, 1], [1, 1]], [0, -1], [1, -2], [0, 0]),
            "b2 should be one number",
        ),
        "a last bias": (([[1, 1], [1, 1]], [0, -1], [[1], [-2]], [1]), "(0, 0) gives 1"),
        "three neurons": (([[1, 1, 0], [1, 1, 0]], [0, -1, 0], [1, -2, 0], 0), "shape (2, 2)"),
    },
    "feed_forward.lookup": {
        "no bias": (lambda s, y: (s.T, 0 * s[:, 0], y), "without a bias"),
        "half": (lambda s, y: (s.T, -(s.shape[1] - 0.5) + 0 * s[:, 0], y), "mend the bias"),
        "the bits as they are": (
            lambda s, y: ((s.T + 1) / 2, 1 - ((s + 1) / 2).sum(1), y),
            "something else is written",
        ),
        "turned": (lambda s, y: (s, -(s.shape[1] - 1) + 0 * s[:, 0], y), "a row for each of the"),
        "two things": (lambda s, y: (s.T, y), "three things"),
        "one neuron short": (
            lambda s, y: (s.T[:, 1:], -(s.shape[1] - 1) + 0 * s[1:, 0], y),
            "a row for each of the",
        ),
        "biases of another number": (
            lambda s, y: (s.T, torch.zeros(len(s) + 1).double(), y),
            "b1 has a number",
        ),
    },
    "feed_forward.both": {
        "any": (lambda looks, mean: looks, "any of the bits"),
        "different": (lambda looks, mean: 2 * (looks - mean), "where the bits differ"),
        "the mean": (lambda looks, mean: mean, "should give nothing"),
        "the wrong way round": (lambda looks, mean: 2 * looks - mean, "wrong for a pair"),
        "rounded": (lambda looks, mean: (mean > 0.75).double(), "only weighted sums"),
        "a product": (lambda looks, mean: looks * (2 * mean - 1), "only weighted sums"),
    },
}
