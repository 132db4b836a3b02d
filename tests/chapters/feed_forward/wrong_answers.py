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
    "feed_forward.parameters": {
        "no gate": (lambda d, m, gated, bias: 2 * d * m + (m + d) * bias, "matrix of its own"),
        "no biases": (lambda d, m, gated, bias: (2 + gated) * d * m, "where are the biases"),
        "all biases m": (
            lambda d, m, gated, bias: (2 + gated) * (d * m + m * bias),
            "stream's width",
        ),
        "the gate's bias": (
            lambda d, m, gated, bias: (2 + gated) * d * m + (m + d) * bias,
            "biases as well",
        ),
        "one matrix": (lambda d, m, gated, bias: d * m, "draw the boxes"),
    },
    "feed_forward.equal_width": {
        "the same": (lambda d, m: m, "larger by half"),
        "a third": (lambda d, m: m / 3, "is lost"),
        "half": (lambda d, m: m // 2, "three matrices against two"),
        "of d": (lambda d, m: d, "set 3 d m' equal"),
        "one too many": (lambda d, m: 2 * m // 3 + 1, "set 3 d m' equal"),
        "one too few": (lambda d, m: 2 * m // 3 - 1, "set 3 d m' equal"),
        "words": (lambda d, m: "2 m / 3", "shall be a number"),
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
        "two last biases": (([[1, 1], [1, 1]], [0, -1], [1, -2], [0, 0]), "b2 shall be one number"),
        "a last bias": (([[1, 1], [1, 1]], [0, -1], [[1], [-2]], [1]), "(0, 0) gives 1"),
        "three neurons": (([[1, 1, 0], [1, 1, 0]], [0, -1, 0], [1, -2, 0], 0), "shape (2, 2)"),
    },
    "feed_forward.shapes": {
        "no turn": (
            lambda x, w_in, w_out: torch.relu(x @ w_in) @ w_out,
            "the function raises RuntimeError",
        ),
        "no ReLU": (lambda x, w_in, w_out: x @ w_in @ w_out.T, "where is the ReLU"),
        "swapped": (lambda x, w_in, w_out: torch.relu(x @ w_out) @ w_in.T, "which is turned"),
        "by shape": (
            lambda x, w_in, w_out: (
                torch.relu(x @ w_in) @ (w_out if w_in.shape[0] == w_in.shape[1] else w_out.T)
            ),
            "either way",
        ),
    },
}
