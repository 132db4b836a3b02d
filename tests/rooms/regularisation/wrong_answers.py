"""Mistakes in the exercises on dropout and label smoothing."""

import math

import torch


def dropped(x, rate, training, *, scale=True, shape=None, always=False, keep=False):
    if not (training or always):
        return x
    coins = torch.rand(shape(x)) if shape else torch.rand_like(x)
    mask = coins < rate if keep else coins >= rate
    return x * mask / (1 - rate if scale else 1)


def drop(**slip):
    return lambda x, rate, training: dropped(x, rate, training, **slip)


def in_place(x, rate, training):
    if training:
        x[torch.rand_like(x) < rate] = 0
        x /= 1 - rate
    return x


def the_same_each_time(x, rate, training):
    torch.manual_seed(0)
    return dropped(x, rate, training)


def shifted(x, rate, training):
    return (x + rate / (1 - rate)) * (torch.rand_like(x) >= rate) if training else x


def stopped_late(losses, patience):
    return losses.index(min(losses))


def stopped(losses, patience, *, tie=False, last=False, more=0):
    best, waited = 0, 0
    for at, loss in enumerate(losses[1:], start=1):
        if loss < losses[best] or (tie and loss == losses[best]):
            best, waited = at, 0
        else:
            waited += 1
            if waited >= patience + more:
                return at if last else best
    return len(losses) - 1 if last else best


def waits_in_all(losses, patience):
    best, waited = 0, 0
    for at, loss in enumerate(losses[1:], start=1):
        if loss < losses[best]:
            best = at
        else:
            waited += 1
            if waited >= patience:
                break
    return best


def settled(rate, decay, push, *, length=None, turn=None):
    kept = 1 - rate * decay
    right = push / math.sqrt(1 - kept**2)
    given = right if length is None else length(rate * decay, push)
    return given, math.degrees(math.acos(kept)) if turn is None else turn(kept, push, right)


def settles(**slip):
    return lambda rate, decay, push: settled(rate, decay, push, **slip)


WRONG = {
    "regularisation.relative_noise": {
        "the variance": (lambda p, n: p / ((1 - p) * n), "take the root"),
        "not divided": (lambda p, n: (p * (1 - p) / n) ** 0.5, "the mean is lower as well"),
        "one term": (lambda p, n: (p / (1 - p)) ** 0.5, "n of them average"),
        "terms add up": (lambda p, n: (p / (1 - p) * n) ** 0.5, "grows with n"),
        "the share": (lambda p, n: (p / n) ** 0.5, "another value"),
    },
    "regularisation.dropout": {
        "not scaled": (drop(scale=False), "the mean of ones becomes 0.80"),
        "always on": (drop(always=True), "outside of training"),
        "keeps the rate": (drop(keep=True), "a share of 0.80"),
        "a mask for all rows": (drop(shape=lambda x: x.shape[1:]), "share one mask"),
        "a mask for all columns": (drop(shape=lambda x: (len(x), 1)), "all columns share"),
        "in place": (in_place, "writes into its argument `x`"),
        "a fixed seed": (the_same_each_time, "same entries"),
        "never": (lambda x, rate, training: x, "nothing changes"),
        "added": (shifted, "no multiple"),
    },
    "regularisation.gap": {
        "the ratio": (lambda e, v: 1 + (1 - e) * v / e, "ratio of probabilities"),
        "its share forgotten": (lambda e, v: math.log((1 - e) * (v - 1) / e), "even part"),
        "the log of the target": (lambda e, v: -math.log(1 - e + e / v), "not its target"),
        "turned round": (lambda e, v: -math.log(1 + (1 - e) * v / e), "below the others"),
    },
    "regularisation.settled": {
        "lengths add": (settles(length=lambda ed, u: u / ed), "squared length"),
        "the third term": (settles(length=lambda ed, u: u / math.sqrt(2 * ed)), "third term"),
        "nothing settles": (settles(length=lambda ed, u: u), "has not settled"),
        "radians": (settles(turn=lambda kept, u, x: math.acos(kept)), "in degrees"),
        "not shrunk": (
            settles(turn=lambda kept, u, x: math.degrees(math.atan(u / x))),
            "shrunk already",
        ),
        "small steps": (
            settles(turn=lambda kept, u, x: math.degrees(math.sqrt(2 * (1 - kept)))),
            "for small steps",
        ),
        "half": (settles(turn=lambda kept, u, x: math.degrees(math.acos(kept)) / 2), "cosine"),
        "one number": (lambda rate, decay, push: push, "two numbers"),
    },
    "regularisation.stopped": {
        "sees the future": (stopped_late, "nobody saw"),
        "the last model": (lambda losses, p: stopped(losses, p, last=True), "number 3 is kept"),
        "equal is better": (lambda losses, p: stopped(losses, p, tie=True), "no new minimum"),
        "one more": (lambda losses, p: stopped(losses, p, more=1), "nobody saw"),
        "the loss": (lambda losses, p: losses[stopped(losses, p)] + 0.25, "is kept"),
        "waits in all": (waits_in_all, "each rise ended"),
    },
}
