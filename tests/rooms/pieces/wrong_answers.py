"""Mistakes in the exercises on pieces that are left out."""

import math

import torch


def _counts(tokens, vocab):
    return torch.nn.functional.one_hot(tokens, vocab).double()


def _others(tokens, vocab):
    counts = _counts(tokens, vocab)
    return counts.sum(0) - counts


def _once_each(tokens, vocab):
    there = (_others(tokens, vocab) > 0).double()
    return there / there.sum(1, keepdim=True)


def _costs(counts, shares):
    safe = torch.where(counts > 0, shares, torch.ones_like(shares))
    return -(counts * safe.log()).sum() / counts.sum()


def _rows_alike(counts):
    shares = counts / counts.sum(1, keepdim=True)
    logs = torch.where(counts > 0, shares, torch.ones_like(shares)).log()
    return -(shares * logs).sum(1).mean()


def _of_one(counts):
    shares = counts.sum(0) / counts.sum()
    return -(shares * shares.log()).sum()


def _best(counts):
    return 1 - (counts.max(1).values.sum() / counts.sum())


WRONG = {
    "pieces.no_attention_floor": {
        "the middle forgotten": (lambda n, vocab: math.log(vocab), "odd length"),
        "bits": (lambda n, vocab: math.log2(vocab) * (1 - (n % 2) / n), "bits"),
        "a sequence": (lambda n, vocab: math.log(vocab) * (n - n % 2), "per position"),
        "the bag": (
            lambda n, vocab: math.log(n) if n != vocab else math.log(vocab),
            "which tokens",
        ),
        "always a middle": (lambda n, vocab: math.log(vocab) * (1 - 1 / n), "even length"),
        "accuracy": (lambda n, vocab: 1 / vocab, "must say"),
    },
    "pieces.bag_answer": {
        "certain": (lambda tokens, vocab: _counts(tokens, vocab).flip(0), "certainty"),
        "its own too": (
            lambda tokens, vocab: _counts(tokens, vocab).mean(0).expand(len(tokens), -1),
            "its own answer",
        ),
        "counts": (_others, "not probabilities"),
        "over n": (lambda tokens, vocab: _others(tokens, vocab) / len(tokens), "sum to one"),
        "once each": (_once_each, "twice as often"),
        "uniform": (lambda tokens, vocab: torch.ones(len(tokens), vocab) / vocab, "as likely"),
        "another scale": (lambda tokens, vocab: 2 * _others(tokens, vocab) / len(tokens), "sum"),
    },
    "pieces.bigram": {
        "bits": (
            lambda counts: _costs(counts, counts / counts.sum(1, keepdim=True)) / math.log(2),
            "bits",
        ),
        "rows alike": (_rows_alike, "count more"),
        "unigram": (_of_one, "does not even know"),
        "the pair": (lambda counts: _costs(counts, counts / counts.sum()), "its first token"),
        "the other way": (
            lambda counts: _costs(counts, counts / counts.sum(0, keepdim=True)),
            "*before*",
        ),
        "share of errors": (_best, "each pair"),
    },
    "pieces.mean_write": {
        "zero": (lambda writes, reference: torch.zeros_like(writes), "cruder"),
        "nothing": (lambda writes, reference: writes.clone(), "have stayed"),
        "its own mean": (
            lambda writes, reference: writes.mean(0).expand_as(writes),
            "from the reference",
        ),
        "over positions": (
            lambda writes, reference: reference.mean((0, 1)).expand_as(writes),
            "all positions",
        ),
        "taken off": (lambda writes, reference: writes - reference.mean(0), "taken off"),
        "the first": (lambda writes, reference: reference[0].expand_as(writes), "over which axis"),
    },
    "pieces.even": {
        "usual": (lambda d, matrices: 4 * d, "usual width"),
        "weights": (lambda d, matrices: 4 * d * d / matrices, "not neurons"),
        "without output": (lambda d, matrices: 3 * d / matrices, "leaves out"),
        "plain": (lambda d, matrices: 2 * d, "two matrices"),
        "heads": (lambda d, matrices: d, "how many weights"),
    },
}
