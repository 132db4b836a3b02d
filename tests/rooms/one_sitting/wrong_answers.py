"""Mistakes in the exercises of *A Transformer in one sitting*."""

import torch


def cut(tokens, starts, length):
    return tokens[starts[:, None] + torch.arange(length + 1)]


def masked(scores, diagonal, axis=-1, fill=-torch.inf):
    ahead = torch.ones(scores.shape[-1], scores.shape[-1], dtype=torch.bool).triu(diagonal)
    return scores.masked_fill(ahead, fill).softmax(axis)


def count(vocab, d, layers, *, tables=2, norms=2, biases=True, last=True):
    layer = 12 * d * d + 9 * d * biases + 2 * d * norms
    return tables * vocab * d + layers * layer + 2 * d * last


WRONG = {
    "one_sitting.windows": {
        "targets are inputs": (lambda t, s, n: (cut(t, s, n)[:, :-1],) * 2, "targets equal"),
        "one tensor": (lambda t, s, n: cut(t, s, n)[:, :-1], "expected inputs and targets"),
        "the whole window": (lambda t, s, n: (cut(t, s, n), cut(t, s, n)), "shape"),
        "the other way round": (
            lambda t, s, n: (cut(t, s, n)[:, 1:], cut(t, s, n)[:, :-1]),
            "from each start on",
        ),
        "two ahead": (
            lambda t, s, n: (cut(t, s, n)[:, :-1], cut(t, s, n)[:, 1:].roll(-1, 1)),
            "right after its input",
        ),
    },
    "one_sitting.pattern": {
        "no mask": (lambda scores: scores.softmax(-1), "comes after it"),
        "after the softmax": (lambda scores: scores.softmax(-1).tril(), "its weight must be one"),
        "strictly earlier": (lambda scores: masked(scores, 0), "NaN"),
        "one ahead": (lambda scores: masked(scores, 2), "comes after it"),
        "over queries": (lambda scores: masked(scores, 1, axis=-2), "one"),
        "zero scores": (lambda scores: masked(scores, 1, fill=0.0), "comes after it"),
        "hard": (lambda scores: masked(100 * scores, 1), "not the softmax"),
    },
    "one_sitting.temperature": {
        "ignored": (lambda logits, t: logits.softmax(-1), "wrong at temperature 0.5"),
        "multiplied": (lambda logits, t: (logits * t).softmax(-1), "low temperature"),
        "after the softmax": (lambda logits, t: logits.softmax(-1) / t, "do not sum to one"),
        "over the batch": (lambda logits, t: (logits / t).softmax(0), "do not sum to one"),
    },
    "one_sitting.layer": {
        "post-norm": (
            lambda x, a, f, n1, n2: n2(n1(x + a(x)) + f(n1(x + a(x)))),
            "after the additions",
        ),
        "no stream": (lambda x, a, f, n1, n2: f(n2(a(n1(x)))), "nothing is added"),
        "parallel": (lambda x, a, f, n1, n2: x + a(n1(x)) + f(n2(x)), "what entered"),
        "no norms": (lambda x, a, f, n1, n2: x + a(x) + f(x + a(x)), "where are the norms"),
        "network first": (
            lambda x, a, f, n1, n2: x + f(n2(x)) + a(n1(x + f(n2(x)))),
            "attention and then",
        ),
    },
    "one_sitting.parameters": {
        "tied": (lambda *sizes: count(*sizes, tables=1), "two tables"),
        "no biases": (lambda *sizes: count(*sizes, biases=False), "have biases"),
        "no last norm": (lambda *sizes: count(*sizes, last=False), "behind the last layer"),
        "nothing but matrices": (lambda v, d, n: 12 * d * d * n, "too few"),
        "a norm a layer": (lambda *sizes: count(*sizes, norms=1), "two norms"),
    },
}
