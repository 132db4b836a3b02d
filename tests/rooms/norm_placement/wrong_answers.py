"""Mistakes in the exercises on where the norm stands."""

import math


def _stopped_are_done(steps, done, at):
    return float((steps > at).float().mean())


def _stopped_never_finish(steps, done, at):
    return float(1 - (done & (steps <= at)).float().mean())


def _stopped_are_left_out(steps, done, at):
    return float((steps[done] > at).float().mean()) if done.any() else 1.0


def _one_late(steps, done, at):
    share = 1.0
    for step in steps.unique():
        if step < at:
            share *= 1 - float((done & (steps == step)).sum() / (steps >= step).sum())
    return share


def _of_all(steps, done, at):
    share = 1.0
    for step in steps.unique():
        if step <= at:
            share *= 1 - float((done & (steps == step)).sum() / len(steps))
    return share


WRONG = {
    "norm_placement.left": {
        "both halve": (lambda k: (2.0**-k, 2.0**-k), "nothing is divided"),
        "both add": (lambda k: (1 / (1 + k), 1 / (1 + k)), "after *each* addition"),
        "length": (lambda k: (1 / math.sqrt(1 + k), 2.0**-k), "not of its square"),
        "length of post": (lambda k: (1 / (1 + k), 2.0 ** (-k / 2)), "not of its square"),
        "one number": (lambda k: 1 / (1 + k), "two numbers"),
        "a block writes once": (lambda k: (1 / (1 + k / 2), 2.0**-k), "by hand"),
    },
    "norm_placement.still_at_it": {
        "stopped are done": (_stopped_are_done, "stopped are not done"),
        "stopped never finish": (_stopped_never_finish, "no longer among"),
        "stopped are left out": (_stopped_are_left_out, "up to its last step"),
        "one late": (_one_late, "exactly that many"),
        "of all": (_of_all, "multiply by the share"),
    },
    "norm_placement.deep_norm_branch": {
        "unchanged": (lambda write, alpha: write, "does nothing"),
        "times": (lambda write, alpha: alpha * write, "grew with alpha"),
        "root": (lambda write, alpha: write / math.sqrt(alpha), "does a norm not see"),
    },
    "norm_placement.growth": {
        "squared": (lambda n_layers: 1 + 2 * n_layers, "*squared* length"),
        "once a block": (lambda n_layers: math.sqrt(1 + n_layers), "how often"),
        "without embedding": (lambda n_layers: math.sqrt(2 * n_layers), "in the sum, too"),
        "doubling": (lambda n_layers: 2.0**n_layers, "nothing is multiplied"),
        "logarithm": (lambda n_layers: 1 + math.log(1 + 2 * n_layers), "Pythagoras"),
    },
}
