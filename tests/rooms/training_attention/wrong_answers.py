"""Mistakes in the exercises on how attention learns where to look."""

import math

import numpy as np

HALF = (math.log(2) + math.log(7) / 2) / math.log(8)
N = math.exp(12.5)


def without_average(weights, values, upstream):
    return -weights * (values @ upstream)


def gradient(weights, values, upstream):
    agreement = values @ upstream
    return weights * (agreement - weights @ agreement)


def without_weights(weights, values, upstream):
    agreement = values @ upstream
    return -(agreement - weights @ agreement)


def centred(weights, values, upstream):
    agreement = values @ upstream
    return -(agreement - agreement.mean())


def not_centred(weights, values, upstream):
    agreement = values @ upstream
    return -weights * (agreement - agreement.mean())


def only_own(weights, token, rise):
    found = weights.clone()
    found[token] = found[token] * math.exp(rise)
    return found


def taken_evenly(weights, token, rise):
    found = only_own(weights, token, rise)
    surplus = (found.sum() - 1) / (len(weights) - 1)
    found[[j for j in range(len(weights)) if j != token]] -= surplus
    return found


def half_risen(weights, token, rise):
    found = only_own(weights, token, rise / 2)
    return found / found.sum()


def _strict(failed, others):
    return (failed[:, None] > others[None, :]).mean()


def _means(failed, others):
    return (np.sign(failed.mean() - others.mean()) + 1) / 2


def _looks(pattern, tokens, shift, which, every=False):
    weights = []
    for query in range(len(tokens)):
        before = (tokens[:query] == tokens[query]).nonzero()[:, 0]
        if len(before):
            weights.append(float(pattern[query, int(before[which]) + shift]))
    return sum(weights) / (len(tokens) if every else len(weights))


def _areas(score, failed, group):
    for one in np.unique(group):
        bad, good = score[(group == one) & failed], score[(group == one) & ~failed]
        yield (
            len(bad) * len(good),
            (bad[:, None] > good[None, :]).mean() if len(bad) and len(good) else math.nan,
        )


def _groups(score, failed, group):
    return float(np.nanmean([found for _, found in _areas(score, failed, group)]))


def _all_groups(score, failed, group):
    return float(np.mean([found for _, found in _areas(score, failed, group)]))


def _pooled(score, failed, group):
    return (score[failed][:, None] > score[~failed][None, :]).mean()


def _other_way(score, failed, group):
    return 1 - sum(n * found for n, found in _areas(score, failed, group) if n) / sum(
        n for n, _ in _areas(score, failed, group)
    )


WRONG = {
    "training_attention.even": {
        "a query's entry": ((0.5, N, 1250), "multiplies queries"),
        "square": ((1.0, N, 1250), "several times the rows"),
        "divided twice": ((1 / 16, N, 1250), "once"),
        "logarithm": ((0.25, 12.5, 1250), "logarithm"),
        "variance one": ((0.25, math.exp(50), 1250), "variance of one"),
        "not halved": ((0.25, math.exp(25), 1250), "halves"),
        "common logarithm": ((0.25, 10**12.5, 1250), "natural"),
        "twice as wide": ((0.25, N, 2500), "variance of one"),
        "half as wide": ((0.25, N, 625), "square of that variance"),
    },
    "training_attention.nudge": {
        "no average": (without_average, "could rise together"),
        "the gradient": (gradient, "against it"),
        "no weights": (without_weights, "same weight"),
        "an even average": (not_centred, "do not sum to zero"),
        "even": (centred, "not those of the softmax"),
    },
    "training_attention.couple": {
        "only its own": (only_own, "sum to one"),
        "taken evenly": (taken_evenly, "old proportions"),
        "half": (half_risen, "own weight"),
    },
    "training_attention.rows": {
        "nats": ((math.log(2), 0.0, HALF), "largest value"),
        "share of keys": ((0.25, 0.0, HALF), "counts doublings"),
        "even": ((1.0, 0.0, HALF), "all 8"),
        "one is even": ((1 / 3, 1.0, HALF), "least even"),
        "a share": ((1 / 3, 1 / 8, HALF), "is zero"),
        "nats again": ((1 / 3, 0.0, HALF * math.log(8)), "largest value"),
        "half": ((1 / 3, 0.0, 0.5), "not half the entropy"),
        "a seventh": (
            (1 / 3, 0.0, (math.log(2) / 2 + math.log(7) / 2) / math.log(8)),
            "share a half",
        ),
    },
    "training_attention.curve": {
        "mirrored": (lambda failed, others: 1 - _strict(failed, others), "*other* one"),
        "ties lost": (_strict, "ties"),
        "means": (_means, "every"),
    },
    "training_attention.induction_score": {
        "itself": (lambda p, t: _looks(p, t, 0, -1), "what followed it"),
        "the first": (lambda p, t: _looks(p, t, 1, 0), "last time"),
        "over all": (lambda p, t: _looks(p, t, 1, -1, every=True), "not over all"),
        "two on": (lambda p, t: float(p.diagonal(-1).mean()), "expected"),
    },
    "training_attention.matched": {
        "pooled": (_pooled, "different groups"),
        "a mean of groups": (_groups, "small group"),
        "empty groups": (_all_groups, "no finite number"),
        "the other way": (_other_way, "pairs, got"),
    },
}
