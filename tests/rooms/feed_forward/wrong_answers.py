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
    "feed_forward.operations": {
        "one for two": (
            lambda n, d, h, kv, e, m, gated: (
                2 * n * d * e * (h + kv) + 2 * n * n * h * e,
                n * d * m * (2 + gated),
            ),
            "two for a multiply-add",
        ),
        "no pairs": (
            lambda n, d, h, kv, e, m, gated: (
                4 * n * d * e * (h + kv),
                2 * n * d * m * (2 + gated),
            ),
            "where are the scores",
        ),
        "all heads": (
            lambda n, d, h, kv, e, m, gated: (
                8 * n * d * e * h + 4 * n * n * h * e,
                2 * n * d * m * (2 + gated),
            ),
            "fewer heads",
        ),
        "scores alone": (
            lambda n, d, h, kv, e, m, gated: (
                4 * n * d * e * (h + kv) + 2 * n * n * h * e,
                2 * n * d * m * (2 + gated),
            ),
            "mixing is another",
        ),
        "no gate": (
            lambda n, d, h, kv, e, m, gated: (
                4 * n * d * e * (h + kv) + 4 * n * n * h * e,
                4 * n * d * m,
            ),
            "the gate is a third map",
        ),
        "a number": (lambda n, d, h, kv, e, m, gated: 4 * n * d * m, "two numbers"),
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
