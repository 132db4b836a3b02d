"""Mistakes in the exercises on layer norm."""

import math

import torch
from torch.nn import functional as F


def steps(x, gamma, beta, *, correction=0, inside=1e-5, outside=0.0, centre=True):
    """LayerNorm with one thing or another done differently."""
    y = x - x.mean(-1, keepdim=True) if centre else x
    variance = y.square().sum(-1, keepdim=True) / (x.shape[-1] - correction)
    return y / ((variance + inside).sqrt() + outside) * gamma + beta


def rms(x, gamma, eps, gradient, *, output=None, back=None):
    """RMSNorm and its gradient, with one of the two done by somebody else."""
    root = (x.square().mean(-1, keepdim=True) + eps).sqrt()
    unit, at_unit = x / root, gradient * gamma
    along = (at_unit * unit).mean(-1, keepdim=True)
    found = unit * gamma if output is None else output(x, gamma, eps)
    given = (x, unit, root, gamma, gradient, at_unit, along)
    return found, (at_unit - unit * along) / root if back is None else back(*given)


def with_output(output):
    return lambda *given: rms(*given, output=output)


def with_back(back):
    return lambda *given: rms(*given, back=back)


def mean_square(x):
    return x.square().mean(-1, keepdim=True)


WRONG = {
    "layer_norm.by_hand": {
        "unbiased": ((4 / math.sqrt(8), math.sqrt(3), 1.0), "number of entries"),
        "variance": ((4 / 6, 2.0, 0.9), "root of the variance"),
        "not centred": ((7 / math.sqrt(6), 2.0, 0.9), "mean comes off first"),
        "root mean square": ((4 / math.sqrt(15), 2.0, 0.9), "centred entries"),
        "not divided": ((4.0, 2.0, 0.9), "still to come"),
        "length squared": ((4 / math.sqrt(6), 4.0, 0.9), "square of the length"),
        "length one": ((4 / math.sqrt(6), 1.0, 0.9), "mean square"),
        "upside down": ((4 / math.sqrt(6), 2.0, 2 / math.sqrt(3)), "shorter"),
        "variances": ((4 / math.sqrt(6), 2.0, 0.75), "ratio of the variances"),
    },
    "layer_norm.normalise": {
        "no epsilon": (lambda x, g, b, eps: steps(x, g, b, inside=0.0), "no finite number"),
        "the source": (
            lambda x, g, b, eps: steps(x, g, b, correction=1, inside=0.0, outside=eps),
            "which deviation",
        ),
        "unbiased": (lambda x, g, b, eps: steps(x, g, b, correction=1), "which deviation"),
        "epsilon outside": (
            lambda x, g, b, eps: steps(x, g, b, inside=0.0, outside=eps),
            "what is epsilon added to",
        ),
        "not centred": (lambda x, g, b, eps: steps(x, g, b, centre=False), "mean is still in it"),
        "no beta": (lambda x, g, b, eps: steps(x, g, 0.0), "beta is missing"),
        "no gamma": (lambda x, g, b, eps: steps(x, 1.0, b), "gamma is missing"),
        "over everything": (
            lambda x, g, b, eps: F.layer_norm(x, x.shape, eps=eps) * g + b,
            "of its own",
        ),
        "over the batch": (
            lambda x, g, b, eps: (x - x.mean(0)) / (x.var(0, correction=0) + eps).sqrt() * g + b,
            "not PyTorch's",
        ),
    },
    "layer_norm.rms_norm": {
        "one of two": (lambda x, g, eps, gradient: x, "pair"),
        "centred": (
            with_output(lambda x, g, eps: F.layer_norm(x, x.shape[-1:], g, eps=eps)),
            "leaves the mean",
        ),
        "no gamma": (with_output(lambda x, g, eps: x / (mean_square(x) + eps).sqrt()), "gamma"),
        "no epsilon": (with_output(lambda x, g, eps: x / mean_square(x).sqrt() * g), "not used"),
        "outside": (
            with_output(lambda x, g, eps: x / (mean_square(x).sqrt() + eps) * g),
            "under the root",
        ),
        "sum": (
            with_output(lambda x, g, eps: x / (x.square().sum(-1, keepdim=True) + eps).sqrt() * g),
            "not of the sum",
        ),
        "not divided at all": (with_output(lambda x, g, eps: x * g), "root of its mean square"),
        "root held": (with_back(lambda x, u, r, g, d, at, along: at / r), "depends on x"),
        "not divided": (with_back(lambda x, u, r, g, d, at, along: at - u * along), "a division"),
        "gamma forgotten": (
            with_back(
                lambda x, u, r, g, d, at, along: (d - u * (d * u).mean(-1, keepdim=True)) / r
            ),
            "on its way back",
        ),
        "summed": (
            with_back(lambda x, u, r, g, d, at, along: (at - u * along * x.shape[-1]) / r),
            "divides by d",
        ),
        "reversed": (with_back(lambda x, u, r, g, d, at, along: -at / r), "finite differences"),
    },
    "layer_norm.twin": {
        "itself": (lambda x: 1.0 * x, "cosine"),
        "stretched": (lambda x: 3 * x, "cosine"),
        "the negative": (lambda x: -x, "positive number"),
        "zero": (lambda x: torch.zeros_like(x), "length zero"),
        "all the same": (lambda x: torch.ones_like(x), "no deviation"),
        "rotated": (lambda x: x.roll(1), "tells the two apart"),
        "centred": (lambda x: x - x.mean(), "cosine"),
    },
    "layer_norm.fold": {
        "the other axis": (
            lambda w, b, g, beta: (w.T * g if len(w) != len(g) else w * g[:, None], b),
            "goes in",
        ),
        "beta forgotten": (lambda w, b, g, beta: (w * g, b), "make of beta"),
        "bias lost": (lambda w, b, g, beta: (w * g, w @ beta), "own bias is lost"),
        "beta times gamma": (lambda w, b, g, beta: (w * g, b + (w * g) @ beta), "without gamma"),
        "beta as it is": (lambda w, b, g, beta: (w * g, b - w @ beta), "zero through both"),
        "divided": (lambda w, b, g, beta: (w / g, b + w @ beta), "rows of the identity"),
        "one of two": (lambda w, b, g, beta: w * g, "pair"),
    },
    "layer_norm.centred_writer": {
        "rows": (lambda w, b: (w - w.mean(1, keepdim=True), b - b.mean()), "what is read"),
        "one mean": (lambda w, b: (w - w.mean(), b - b.mean()), "each column"),
        "the bias left": (lambda w, b: (w - w.mean(0), b), "the bias does"),
        "the weight left": (lambda w, b: (w, b - b.mean()), "still has a mean"),
        "scaled, too": (lambda w, b: ((w - w.mean(0)) / 2, b - b.mean()), "something else"),
        "nothing": (lambda w, b: (w * 0, b * 0), "something else"),
        "one of two": (lambda w, b: w - w.mean(0), "pair"),
    },
}
