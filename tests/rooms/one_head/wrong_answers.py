"""Mistakes in the exercises on heads, one at a time and together."""

import math

import torch

SINGLE, DOUBLE, NONE = math.log1p(4 * math.exp(-5)), math.log1p(4 * math.exp(-10)), math.log(5)
ONE, BOTH, OWN = 0.75 * (SINGLE - DOUBLE), 0.75 * (NONE - DOUBLE), 0.25 * (NONE - SINGLE)


def one_by_one(loss, n):
    return sorted(range(n), key=lambda head: loss(frozenset({head})))


def greedy(loss, n, choose):
    gone = []
    while len(gone) < n:
        left = [head for head in range(n) if head not in gone]
        gone.append(choose(left, key=lambda head: loss(frozenset({*gone, head}))))
    return gone


def built_up(loss, n):
    kept = []
    while len(kept) < n:
        left = [head for head in range(n) if head not in kept]
        kept.append(min(left, key=lambda head: loss(frozenset(range(n)) - {*kept, head})))
    return kept[::-1]


def place_of(layout):
    return torch.eye(layout.width, dtype=torch.float64)[:, layout.place]


def with_value(replacement):
    def without_heads(mixed, gone):
        changed = mixed.clone()
        if gone:
            changed[:, gone] = replacement(mixed[:, gone]).expand_as(mixed[:, gone])
        return changed

    return without_heads


def in_place(mixed, gone):
    mixed[:, gone] = mixed[:, gone].mean(0, keepdim=True)
    return mixed


def from_zero(patterns):
    return patterns.mean(0).square().sum() / patterns.square().sum((1, 2)).mean()


def upside_down(patterns):
    deviations = patterns - 1 / patterns.shape[-1]
    return deviations.square().sum((1, 2)).mean() / deviations.mean(0).square().sum()


def what_is_left(patterns):
    deviations = patterns - 1 / patterns.shape[-1]
    mean = deviations.mean(0)
    return ((deviations - mean).square().sum() / deviations.square().sum()).clamp(0, 1)


def of_absolute_values(patterns):
    deviations = patterns - 1 / patterns.shape[-1]
    return deviations.mean(0).abs().sum() / deviations.abs().sum((1, 2)).mean()


def of_sums(patterns):
    deviations = patterns - 1 / patterns.shape[-1]
    return deviations.mean(0).square().sum() / deviations.square().sum()


WRONG = {
    "one_head.spare": {
        "at the twins' places": ((SINGLE - DOUBLE, BOTH, OWN), "what of the mean"),
        "twice one": ((ONE, 2 * ONE, OWN), "what is left when both are gone"),
        "all places": ((ONE, NONE - DOUBLE, OWN), "what of the mean"),
        "a twin for the third": ((ONE, BOTH, 0.25 * (NONE - DOUBLE)), "has no twin"),
        "nothing lost": ((ONE, BOTH, 0.0), "only head that serves it"),
    },
    "one_head.reranked": {
        "one by one": (one_by_one, "removed from what is left"),
        "the dearest first": (lambda loss, n: greedy(loss, n, min)[::-1], "cheapest go first"),
        "dearest each time": (lambda loss, n: greedy(loss, n, max), "cheapest head that is left"),
        "built up from nothing": (built_up, "cheapest head that is left"),
        "one is missing": (lambda loss, n: greedy(loss, n, min)[:-1], "each of 4 heads once"),
    },
    "one_head.mirror_head": {
        "its own position": (lambda lay: (60 * place_of(lay), place_of(lay)), "own position"),
        "the next position": (
            lambda lay: (60 * place_of(lay).roll(1, 1), place_of(lay)),
            "at a neighbour",
        ),
        "not sharp": (lambda lay: (place_of(lay).flip(1), place_of(lay)), "scores larger"),
        "even": (lambda lay: (0 * place_of(lay), place_of(lay)), "of its weight"),
        "one matrix": (place_of, "two matrices"),
        "upright": (lambda lay: (place_of(lay).T, place_of(lay).T), "layout.width"),
    },
    "one_head.survives": {
        "one copy": (lambda n, removed, copies: 1 - removed / n, "as if there were one"),
        "with putting back": (
            lambda n, removed, copies: 1 - (removed / n) ** copies,
            "without putting back",
        ),
        "all are gone": (
            lambda n, removed, copies: (
                math.comb(n - copies, removed - copies) / math.comb(n, removed)
                if copies <= removed
                else 0.0
            ),
            "all copies are gone",
        ),
    },
    "one_head.without_heads": {
        "zero": (with_value(lambda own: torch.zeros_like(own)), "zero ablation"),
        "over positions": (with_value(lambda own: own.mean((0, 2), keepdim=True)), "positions too"),
        "over heads": (with_value(lambda own: own.mean((0, 1), keepdim=True)), "heads too"),
        "another sequence": (with_value(lambda own: own.roll(1, 0)), "over the sequences"),
        "in place": (in_place, "writes into its argument"),
        "all heads": (
            lambda mixed, gone: mixed.mean(0, keepdim=True).expand_as(mixed),
            "has changed",
        ),
        "one sequence": (lambda mixed, gone: mixed[0], "shape"),
    },
    "one_head.place_share": {
        "weights instead of deviations": (from_zero, "explains nothing"),
        "the fraction upside down": (upside_down, "infinite"),
        "what the place does not explain": (what_is_left, "explained in full"),
        "no squares": (of_absolute_values, "squares"),
        "a sum below instead of a mean": (of_sums, "explained in full"),
        "a number for each head": (lambda p: torch.ones(len(p)), "shape"),
    },
}
