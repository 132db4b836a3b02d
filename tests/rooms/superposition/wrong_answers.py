"""Mistakes in the exercises on superposition."""

import math

import torch


def _loss(*, bias=True, bend=True, weigh=True, features="sum", inputs="mean"):
    def toy_loss(w, b, x, importance):
        read = x @ w.T @ w + (b if bias else 0)
        wrong = (x - (read.relu() if bend else read)) ** 2 * (importance if weigh else 1)
        return getattr(getattr(wrong, features)(1), inputs)()

    return toy_loss


def _shares(*, own, others):
    def shares(w):
        length = w.norm(dim=0)
        first, second = (w / length if one else w for one in (own, others))
        return (length**2 if not others else 1) / ((first.T @ second) ** 2).sum(1)

    return shares


def _kept(z, index, values):
    return torch.zeros_like(z).scatter(1, index, values)


def _largest(z, k):
    top = z.topk(k, dim=1)
    return _kept(z, top.indices, top.values)


def _in_magnitude(z, k):
    index = z.abs().topk(k, dim=1).indices
    return _kept(z, index, z.gather(1, index))


def _together(z, k):
    level = z.flatten().topk(len(z) * k).values[-1]
    return torch.where(z >= level, z, 0.0).relu()


def _corners(n):
    angles = 2 * math.pi * torch.arange(n) / n
    return torch.stack([angles.cos(), angles.sin()])


def _unit(x):
    return x / x.norm(dim=1, keepdim=True)


def _drawn(states, latents, k, length=1.0):
    generator = torch.Generator().manual_seed(3)
    return length * _unit(torch.randn(latents, states.shape[1], generator=generator))


WRONG = {
    "superposition.neighbours": {
        "before the ReLU": ((1.309, 1.309, -0.5, -1.618, -0.5), "before the ReLU"),
        "without each other": ((1, 1, 0, 0, 0), "also hears the other"),
        "the others": ((0.191, 0.191, 0.618, 0, 0), "neighbours"),
        "one is off": ((1.309, 1.309, 0.309, 0, 0), "look again at 3"),
    },
    "superposition.toy_loss": {
        "no ReLU": (_loss(bend=False), "ReLU"),
        "no bias": (_loss(bias=False), "bias"),
        "all alike": (_loss(weigh=False), "importance"),
        "mean over features": (_loss(features="mean"), "a sum"),
        "sum over inputs": (_loss(inputs="sum"), "a mean"),
    },
    "superposition.border": {
        "one side": (lambda r: 4 * r / (2 + 5 * r), "above 1"),
        "second moment": (lambda r: 2 * min(r, 1 / r) / (1 + min(r, 1 / r)), "second term"),
        "for equals": (lambda r: 4 / 7, "equal"),
    },
    "superposition.shares": {
        "both at length one": (_shares(own=True, others=True), "their own lengths"),
        "none at length one": (_shares(own=False, others=False), "itself has length one"),
        "no square": (lambda w: torch.ones(w.shape[1]), "one half"),
    },
    "superposition.train_toy": {
        "untrained": (lambda: 0.1 * _corners(5), "0 of the five"),
        "a cross": (lambda: _corners(4)[:, [0, 1, 2, 3, 3]], "cosine of 1.00"),
        "by hand": (lambda: _corners(5), "by hand"),
    },
    "superposition.top": {
        "negative ones": (_largest, "negative"),
        "magnitudes": (_in_magnitude, "magnitude"),
        "ones": (lambda z, k: (_largest(z, k) > 0).double(), "ones"),
        "all rows": (_together, "each row"),
    },
    "superposition.find": {
        "random": (_drawn, "too little"),
        "long": (lambda states, latents, k: _drawn(states, latents, k, 2.0), "length one"),
    },
    "superposition.found_again": {
        "products": (lambda true, found: (true @ found.T).amax(1).mean(), "any length"),
        "the other way": (
            lambda true, found: (_unit(true) @ _unit(found).T).amax(0).mean(),
            "whether it is a true one",
        ),
        "the best": (lambda true, found: (_unit(true) @ _unit(found).T).max(), "luckiest"),
        "magnitudes": (
            lambda true, found: (_unit(true) @ _unit(found).T).abs().amax(1).mean(),
            "opposite",
        ),
    },
}
