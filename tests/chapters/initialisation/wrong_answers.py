"""Mistakes in the exercises on initialisation."""

import torch


def deviation(layer, n, *, total=2.0, last=0.5):
    shape = [1 - (1 - last) * k / (n - 1) for k in range(n)]
    return shape[layer - 1] / (total * sum(s * s for s in shape)) ** 0.5


def halving(layer, n):
    shape = [0.5 ** (k / (n - 1)) for k in range(n)]
    return shape[layer - 1] / (2 * sum(s * s for s in shape)) ** 0.5


def sum_of_deviations(layer, n):
    shape = [1 - 0.5 * k / (n - 1) for k in range(n)]
    return shape[layer - 1] / (2 * sum(shape))


def drawn(variance):
    return lambda d_in, d_out: torch.randn(d_in, d_out) * variance(d_in, d_out) ** 0.5


def the_same_each_time(d_in, d_out):
    torch.manual_seed(0)
    return drawn(lambda a, b: 2 / a)(d_in, d_out)


WRONG = {
    "initialisation.he_gains": {
        "one": ((1.0, 1.0), "in front of which"),
        "ReLU forgotten": ((4.0, 4.0), "and the ReLU"),
        "backward at one": ((2.0, 1.0), "backward, 1, is not it"),
        "one number": (2.0, "expected 2 numbers"),
    },
    "initialisation.uniform": {
        "the ends": ((1.0, 1.0), "ends of the interval"),
        "sizes": ((0.577, 0.0014), "gain of mean squares"),
        "added": ((1 / 3, 2.0), "multiply"),
        "three layers": ((1 / 3, 3**-3), "three layers"),
        "interval of length one": ((1 / 12, 1e-6), "length 1"),
    },
    "initialisation.deviation": {
        "from zero": (lambda layer, n: deviation(layer, n) * (layer - 1), "positive"),
        "geometric": (halving, "evenly"),
        "one write": (lambda layer, n: deviation(layer, n, total=1.0), "writes twice"),
        "deviations sum": (sum_of_deviations, "the deviations sum to 1"),
        "to zero": (lambda layer, n: deviation(layer, n, last=0.25), "of the first's"),
        "not scaled": (
            lambda layer, n: 1 - 0.5 * (layer - 1) / (n - 1),
            "variances of all writes sum",
        ),
    },
    "initialisation.stream_size": {
        "one write a layer": (lambda n, u: 1 + n * u, "two sublayers"),
        "multiplied": (lambda n, u: (1 + u) ** (2 * n), "it adds"),
        "a size": (lambda n, u: (1 + 2 * n * u) ** 0.5, "that is a size"),
        "without the embedding": (lambda n, u: 2 * n * u, "is the embedding"),
        "linear in size": (lambda n, u: 1 + 2 * n * u**0.5, "independent parts"),
    },
    "initialisation.he": {
        "outputs": (drawn(lambda a, b: 2 / b), "which of the two"),
        "transposed": (lambda a, b: drawn(lambda c, d: 2 / a)(b, a), "shall have the shape"),
        "without ReLU": (drawn(lambda a, b: 1 / a), "ReLU's doing"),
        "Xavier": (drawn(lambda a, b: 2 / (a + b)), "knows no ReLU"),
        "no root": (lambda a, b: torch.randn(a, b) * 2 / a, "the deviation should"),
        "always the same": (the_same_each_time, "drawn anew"),
        "all positive": (lambda a, b: torch.rand(a, b), "around zero"),
        "too large": (drawn(lambda a, b: 3 / a), "1.51 times"),
    },
}
