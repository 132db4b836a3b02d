"""Mistakes in the exercises on induction."""

from math import exp, log

import torch


def _eigenvalues(embedding, value, output, unembedding):
    return torch.linalg.eigvals(embedding @ value @ output @ unembedding)


def _ridge(x, y, asked, penalty):
    eye = torch.eye(x.shape[1], dtype=x.dtype)
    return asked @ torch.linalg.solve(x.T @ x + penalty * eye, x.T @ y)


WRONG = {
    "induction.weight": {
        "ten others": ((exp(3) / (exp(3) + 10), log(891)), "9 are left"),
        "scores as weights": ((0.3, log(891)), "exponential"),
        "one other key": ((exp(3) / (exp(3) + 9), log(99)), "9 other keys"),
        "a half": ((exp(3) / (exp(3) + 9), log(9)), "one half"),
    },
    "induction.copying": {
        "a share": (
            lambda e, v, o, u: (_eigenvalues(e, v, o, u).real > 1e-9).double().mean(),
            "share of positive",
        ),
        "real parts": (
            lambda e, v, o, u: (
                _eigenvalues(e, v, o, u).real.sum() / _eigenvalues(e, v, o, u).real.abs().sum()
            ),
            "complex",
        ),
        "the trace": (lambda e, v, o, u: (e @ v @ o @ u).trace(), "not sum"),
    },
    "induction.match": {
        "turned": (lambda e, q, k, v, o: (e @ v @ o @ k) @ (e @ q).T, "rows should be"),
        "no note": (lambda e, q, k, v, o: e @ q @ (e @ k).T, "note of the first head"),
        "other order": (lambda e, q, k, v, o: (e @ v @ o @ q) @ (e @ k).T, "differs"),
    },
    "induction.descent_head": {
        "no rate": (lambda x, y, asked, rate: (x @ asked) @ y, "rate is missing"),
        "softmax": (lambda x, y, asked, rate: (x @ asked).softmax(0) @ y, "no softmax"),
        "a mean": (lambda x, y, asked, rate: rate * ((x @ asked) @ y) / (len(y) + 1), "not that"),
    },
    "induction.ridge": {
        "least squares": (
            lambda x, y, asked, variance: asked @ torch.linalg.pinv(x) @ y,
            "least squares",
        ),
        "squared": (
            lambda x, y, asked, variance: _ridge(x, y, asked, variance**2),
            "not its square",
        ),
        "twice": (lambda x, y, asked, variance: _ridge(x, y, asked, 2 * variance), "not the mean"),
    },
}
