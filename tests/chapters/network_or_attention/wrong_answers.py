"""Mistakes in the exercises on networks and attention."""

import torch


def _entropy(shares):
    return float(-torch.special.xlogy(shares, shares).sum())


def _rows(counts):
    rows = counts / counts.sum(1, keepdim=True)
    return -torch.special.xlogy(rows, rows).sum(1)


def _conditional(counts):
    return float(counts.sum(1) / counts.sum() @ _rows(counts))


def _unpaired(network, attention, margin, t):
    error = (network.var() / len(network) + attention.var() / len(attention)).sqrt()
    mean = network.mean() - attention.mean()
    return bool((mean - t * error > -margin) & (mean + t * error < margin))


def _within(d, margin, t, power, correction=1):
    reach = t * d.std(correction=correction) / len(d) ** power
    return bool((d.mean() - reach > -margin) & (d.mean() + reach < margin))


def _significant(network, attention, margin, t):
    d = network - attention
    return bool(d.mean().abs() < t * d.std() / len(d) ** 0.5)


WRONG = {
    "network_or_attention.neurons": {
        "the new ones alone": (lambda d, h, d_head, m: 2 * h * d_head, "the old ones stay"),
        "a neuron for each entry": (lambda d, h, d_head, m: m + h * d_head, "four matrices"),
        "weights for neurons": (
            lambda d, h, d_head, m: m + 4 * d * h * d_head,
            "how many does a neuron have",
        ),
        "heads as wide as the stream": (lambda d, h, d_head, m: m + 2 * d, "not as wide"),
        "three matrices": (lambda d, h, d_head, m: m + 1.5 * h * d_head, "count the weights"),
    },
    "network_or_attention.both": {
        "any": (lambda looks, mean: looks, "any of the bits"),
        "different": (lambda looks, mean: 2 * (looks - mean), "where the bits differ"),
        "the mean": (lambda looks, mean: mean, "shall give nothing"),
        "the wrong way round": (lambda looks, mean: 2 * looks - mean, "for the pairs"),
        "rounded": (lambda looks, mean: (mean > 0.75).double(), "only weighted sums"),
        "a product": (lambda looks, mean: looks * (2 * mean - 1), "only weighted sums"),
    },
    "network_or_attention.blind": {
        "rows alike": (lambda counts: float(_rows(counts).mean()), "counts more than one"),
        "blinder still": (
            lambda counts: _entropy(counts.sum(0) / counts.sum()),
            "does not see the token either",
        ),
        "of the pairs": (
            lambda counts: _entropy(counts / counts.sum()),
            "the token itself is given",
        ),
        "bits": (lambda counts: _conditional(counts) / 0.6931471805599453, "those are bits"),
        "the best answer": (
            lambda counts: float(1 - counts.amax(1).sum() / counts.sum()),
            "the best guess is by the shares",
        ),
    },
    "network_or_attention.equal": {
        "the mean alone": (
            lambda network, attention, margin, t: bool((network - attention).mean().abs() < margin),
            "all over the place",
        ),
        "without the sign": (
            lambda network, attention, margin, t: bool((network - attention).mean() < margin),
            "minus one",
        ),
        "not paired": (_unpaired, "far apart between seeds"),
        "not significant": (_significant, "came out as"),
        "no root": (
            lambda network, attention, margin, t: _within(network - attention, margin, t, 0.0),
            "just fits",
        ),
        "no t": (
            lambda network, attention, margin, t: _within(network - attention, margin, 1.0, 0.5),
            "just reaches out",
        ),
        "n in the denominator": (
            lambda network, attention, margin, t: _within(network - attention, margin, t, 0.5, 0),
            "just reaches out",
        ),
        "a number": (
            lambda network, attention, margin, t: float((network - attention).mean()),
            "True or False",
        ),
    },
    "network_or_attention.averaged": {
        "not averaged": (lambda f, g: f[:, None] + g[None], "average over the shifts"),
        "the answer stays": (
            lambda f, g: (f.mean(0) + g.mean(0)).expand(len(f), len(f), len(f)),
            "the answer is shifted",
        ),
        "the sum": (
            lambda f, g: torch.full((len(f),) * 3, float(f.sum() + g.sum())).double(),
            "divide by their number",
        ),
        "one of the two": (
            lambda f, g: f.mean().expand(len(f), len(f), len(f)),
            "two loops",
        ),
    },
}
