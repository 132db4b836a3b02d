"""Mistakes in the exercises on mixtures of experts."""

import torch


def layer(weigh, *, whole=False):
    """A routed layer with some way to weigh; `whole` computes every expert for every token."""

    def routed(x, p, experts, k):
        top = p.topk(k, dim=-1)
        weights = torch.zeros_like(p).scatter(1, top.indices, weigh(top.values))
        out = torch.zeros_like(x)
        for e, expert in enumerate(experts):
            rows = torch.arange(len(x)) if whole else (top.indices == e).any(1).nonzero()[:, 0]
            out[rows] += weights[rows, e : e + 1] * expert(x[rows])
        return out

    return routed


def everything(x, p, experts, k):
    return sum(p[:, e : e + 1] * expert(x) for e, expert in enumerate(experts))


def lost(choices, experts, places):
    counts = torch.bincount(choices, minlength=experts)
    return int((counts - places).clamp_min(0).sum())


def load(chosen):
    return chosen.double().mean(0)


def away(chosen):
    return load(chosen).mean() - load(chosen)


def parts(d, m, experts, active):
    return experts * 3 * d * m + d * experts, active * 3 * d * m + d * experts


WRONG = {
    "mixture_of_experts.by_hand": {
        "the other expert": ((0.4, 17 / 15), "gives more to"),
        "divided": ((1.0, 17 / 15), "are not divided"),
        "no weight": ((0.5, 17 / 15), "is asked"),
        "no number of experts": ((0.6, 17 / 30), "multiplied by the number"),
        "probabilities twice": ((0.6, 1.16), "counted"),
        "even": ((0.6, 1.0), "two of three tokens"),
    },
    "mixture_of_experts.routed": {
        "all": (everything, "only k experts"),
        "no weights": (layer(torch.ones_like), "multiplied by its probability"),
        "divided": (layer(lambda p: p / p.sum(-1, keepdim=True)), "its probability"),
        "too much work": (layer(lambda p: p, whole=True), "where"),
        "nothing": (lambda x, p, experts, k: x, "one token by hand"),
        "one number": (
            lambda x, p, experts, k: experts[0](x[0]),
            "an expert takes rows",
        ),
    },
    "mixture_of_experts.dropped": {
        "served": (
            lambda c, e, f: len(c) - lost(c, e, -(-f * len(c) // e)),
            "those are the tokens that are served",
        ),
        "rounded down": (lambda c, e, f: lost(c, e, f * len(c) // e), "rounded up"),
        "none": (lambda c, e, f: 0, "places of its own"),
    },
    "mixture_of_experts.pushed": {
        "a sign": (lambda b, c, s: b - s * away(c).sign(), "a sign"),
        "no sign": (lambda b, c, s: b + s * away(c), "only the sign"),
        "anew": (lambda b, c, s: s * away(c).sign(), "that there are"),
        "nothing": (lambda b, c, s: b, "compare each expert"),
    },
    "mixture_of_experts.sizes": {
        "one number": (lambda d, m, n, e, a, r: r, "two numbers"),
        "two matrices": (
            lambda d, m, n, e, a, r: (
                r + n * (e * 2 * d * m + d * e),
                r + n * (a * 2 * d * m + d * e),
            ),
            "three matrices",
        ),
        "no router": (
            lambda d, m, n, e, a, r: (r + n * e * 3 * d * m, r + n * a * 3 * d * m),
            "the router has a matrix",
        ),
        "turned": (
            lambda d, m, n, e, a, r: tuple(r + n * one for one in parts(d, m, e, a)[::-1]),
            "all of them come first",
        ),
        "router unused": (
            lambda d, m, n, e, a, r: (r + n * parts(d, m, e, a)[0], r + n * a * 3 * d * m),
            "used by every token",
        ),
        "one layer": (
            lambda d, m, n, e, a, r: tuple(r + one for one in parts(d, m, e, a)),
            "parameters",
        ),
    },
}
