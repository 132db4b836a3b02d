"""Mistakes in the exercises on initialisation."""

import torch


def row_by_row(x, gradient, rate):
    moves = [torch.outer(row, g).sign() for row, g in zip(x, gradient, strict=True)]
    return torch.stack([-rate * (row @ move) for row, move in zip(x, moves, strict=True)])


def mup(group, n, m, *, head=0.5, hidden_rate=True, embedding_rate=False):
    if group == "embedding":
        return 1.0, 1 / m if embedding_rate else 1.0
    deviation = n**-0.5 if group == "hidden" else n**-0.5 * m**-head
    return deviation, 1 / m if hidden_rate else 1.0


def variances(group, n, m):
    deviation, rate = mup(group, n, m)
    return deviation**2, rate


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
        "three layers": ((1 / 3, 3**-3), "half of the layers"),
        "interval of length one": ((1 / 12, 1e-6), "over half of the interval"),
    },
    "initialisation.first_move": {
        "uphill": (lambda x, g, rate: rate * (x @ (x.T @ g).sign()), "downhill"),
        "gradient descent": (lambda x, g, rate: -rate * (x @ (x.T @ g)), "whatever the gradient"),
        "no sum": (lambda x, g, rate: -rate * g.sign(), "sum over the inputs"),
        "row by row": (row_by_row, "all rows share"),
        "half": (lambda x, g, rate: -rate / 2 * (x @ (x.T @ g).sign()), "x times the change"),
    },
    "initialisation.mup": {
        "variances": (variances, "variance"),
        "the head as all others": (lambda g, n, m: mup(g, n, m, head=0.0), "aligns the final"),
        "the head too small": (lambda g, n, m: mup(g, n, m, head=1.0), "standard deviation is"),
        "one rate": (lambda g, n, m: mup(g, n, m, hidden_rate=False), "steps grow"),
        "slow embedding": (lambda g, n, m: mup(g, n, m, embedding_rate=True), "only one input"),
        "one number": (lambda g, n, m: 1.0, "two numbers"),
    },
    "initialisation.kept": {
        "the other way": (lambda w, r: (w * r, 1 / r), "the other way round"),
        "another function": (lambda w, r: (w, r), "is not the matrix"),
        "the root": (lambda w, r: (w / r**0.5, r**0.5), "gradient descent"),
        "the matrix alone": (lambda w, r: w, "a number are asked"),
    },
    "initialisation.he": {
        "outputs": (drawn(lambda a, b: 2 / b), "which of the two"),
        "transposed": (lambda a, b: drawn(lambda c, d: 2 / a)(b, a), "shall have the shape"),
        "without ReLU": (drawn(lambda a, b: 1 / a), "ReLU's doing"),
        "Xavier": (drawn(lambda a, b: 2 / (a + b)), "knows no ReLU"),
        "no root": (lambda a, b: torch.randn(a, b) * 2 / a, "the standard deviation should"),
        "always the same": (the_same_each_time, "drawn anew"),
        "all positive": (lambda a, b: torch.rand(a, b), "around zero"),
        "too large": (drawn(lambda a, b: 3 / a), "1.51 times"),
    },
}
