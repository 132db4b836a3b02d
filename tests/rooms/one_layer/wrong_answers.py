"""Mistakes in the exercises on the inside of one layer."""

import torch
from measured_book.rooms.one_layer.exercises import _by_hand


def layer(**slip):
    return lambda x, w, n_heads, norm_first: _by_hand(x, w, n_heads, norm_first, **slip)


def root_of_the_stream(x, w, n_heads, norm_first):
    return _by_hand(x, w, n_heads, norm_first, scale=x.shape[-1] ** -0.5)


def second_half(*, add=True, centre=False, norm=True, swap=False, bend="gate", stay=False):
    def answer(x, gate, up, down, factors):
        y = x - x.mean(-1, keepdim=True) if centre else x
        y = y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt() * factors if norm else x
        gate, up = (up, gate) if swap else (gate, up)
        silu = torch.nn.functional.silu
        both = (y @ gate.T) * (y @ up.T)
        neurons = silu(y @ gate.T) * (y @ up.T) if bend == "gate" else both
        wrote = (silu(neurons) if bend == "product" else neurons) @ down.T
        return (y if stay else x) + wrote if add else wrote

    return answer


def parts(**slip):
    def found(n, d, m):
        right = {
            "attention": 4 * d * d + 4 * d,
            "network": 2 * d * m + m + d,
            "norms": 4 * d,
            "asked": 8 * n * d * d + 4 * n * n * d,
            "worked": 4 * n * d * m,
        }
        return tuple((right | {k: f(n, d, m) for k, f in slip.items()}).values())

    return found


WRONG = {
    "one_layer.order": {
        "post-norm": (
            ["attention", "drop", "add", "norm", "network", "drop", "add", "norm"],
            "does not begin with `attention`",
        ),
        "dropout behind the addition": (
            ["norm", "attention", "add", "drop", "norm", "network", "add", "drop"],
            "the write or the whole stream",
        ),
        "one norm": (
            ["norm", "attention", "drop", "add", "network", "drop", "add"],
            "`norm` stands there 1 times",
        ),
        "no dropout": (["norm", "attention", "add", "norm", "network", "add"], "`drop`"),
        "the network first": (
            ["norm", "network", "drop", "add", "norm", "attention", "drop", "add"],
            "comes after attention",
        ),
        "a norm on the stream": (
            ["norm", "attention", "drop", "add", "network", "drop", "add", "norm"],
            "right before `network`",
        ),
        "another word": (["norm", "ffn"], "expected the words"),
    },
    "one_layer.parts": {
        "no biases": (parts(attention=lambda n, d, m: 4 * d * d), "has a bias, too"),
        "three projections": (parts(attention=lambda n, d, m: 3 * d * d + 3 * d), "output"),
        "biases alike": (parts(network=lambda n, d, m: 2 * d * m + 2 * m), "second bias"),
        "four times": (parts(network=lambda n, d, m: 8 * d * d + 5 * d), "is m here"),
        "one norm": (parts(norms=lambda n, d, m: 2 * d), "more than one"),
        "no pairs": (parts(asked=lambda n, d, m: 8 * n * d * d), "scores and mixing"),
        "multiplications": (parts(worked=lambda n, d, m: 2 * n * d * m), "are two"),
        "four numbers": (lambda n, d, m: (1, 2, 3, 4), "five numbers"),
    },
    "one_layer.sublayer": {
        "behind the addition": (
            lambda x, branch, kept, rate: (x + branch(x)) * kept / (1 - rate),
            "nothing is left of the stream",
        ),
        "on the branch's input": (
            lambda x, branch, kept, rate: x + branch(x * kept / (1 - rate)),
            "drop what it gives",
        ),
        "no scaling": (lambda x, branch, kept, rate: x + branch(x) * kept, "too small"),
        "the stream scaled as well": (
            lambda x, branch, kept, rate: torch.where(kept, (x + branch(x)) / (1 - rate), x),
            "whole stream",
        ),
        "the other probability": (
            lambda x, branch, kept, rate: x + branch(x) * kept / rate,
            "losing an entry",
        ),
        "no skip connection": (
            lambda x, branch, kept, rate: branch(x) * kept / (1 - rate),
            "nothing is left",
        ),
        "scaled when all are kept": (
            lambda x, branch, kept, rate: x + branch(x) * kept * (1 + rate),
            "mean over all masks",
        ),
    },
    "one_layer.layer": {
        "always post-norm": (
            lambda x, w, n_heads, norm_first: _by_hand(x, w, n_heads, False),
            "other place",
        ),
        "always pre-norm": (
            lambda x, w, n_heads, norm_first: _by_hand(x, w, n_heads, True),
            "other place",
        ),
        "the stream's root": (root_of_the_stream, "head's width"),
        "no scale": (layer(scale=1.0), "not scaled"),
        "heads across tokens": (layer(heads_last=True), "cut across"),
        "no biases": (layer(biases=False), "have biases"),
        "GELU": (layer(activation=torch.nn.functional.gelu), "ReLU"),
        "linear": (layer(activation=lambda y: y), "bends nothing"),
        "unbiased": (layer(correction=1), "d - 1"),
        "no epsilon": (layer(eps=0.0), "epsilon to the variance"),
        "one skip": (layer(skips=(True, False)), "second skip"),
        "no skips": (layer(skips=(False, False)), "connections are missing"),
        "one norm": (layer(norms=(False, True)), "first norm"),
        "something else": (lambda x, w, n_heads, norm_first: x, "off by"),
    },
    "one_layer.shapes": {
        "wide heads": (
            lambda n, d, h, m: [(h, n, d), (h, n, n), (h, n, d), (n, d), (n, m)],
            "divided among the heads",
        ),
        "one table of scores": (
            lambda n, d, h, m: [(h, n, d // h), (n, n), (h, n, d // h), (n, d), (n, m)],
            "number of axes",
        ),
        "tokens first": (
            lambda n, d, h, m: [(n, h, d // h), (h, n, n), (h, n, d // h), (n, d), (n, m)],
            "another order",
        ),
        "one neuron a token": (
            lambda n, d, h, m: [(h, n, d // h), (h, n, n), (h, n, d // h), (n, d), (n, d)],
            "neurons",
        ),
    },
    "one_layer.second_half": {
        "the write alone": (second_half(add=False), "where is the addition"),
        "a LayerNorm": (second_half(centre=True), "does not subtract"),
        "no norm": (second_half(norm=False), "where is the norm"),
        "gate and up exchanged": (second_half(swap=True), "other projection"),
        "no activation": (second_half(bend="none"), "activation is missing"),
        "activation of the product": (second_half(bend="product"), "on the gate alone"),
        "post-norm": (second_half(stay=True), "add to the stream itself"),
    },
}
