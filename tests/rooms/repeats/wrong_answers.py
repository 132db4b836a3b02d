"""Mistakes in the exercises on repeats."""

import torch


def _matching(*, behind=True, all_queries=False):
    def matching(pattern, tokens):
        same = (tokens[:, None] == tokens[None]).tril(-1)
        asked = len(tokens) if all_queries else same.any(-1).sum()
        return (pattern * (same.roll(1, dims=-1) if behind else same)).sum() / asked

    return matching


def _alone(tokens):
    return (tokens[1:, None] == tokens[None, 1:]).tril(-1).any(-1)


WRONG = {
    "repeats.looks_behind": {
        "the copy": ((1, 9), "earlier copy itself"),
        "the token before": ((4, 9), "before the query"),
        "the token itself": ((2, 5), "not the one behind"),
    },
    "repeats.matching": {
        "the copy": (_matching(behind=False), "one position behind"),
        "all queries": (_matching(all_queries=True), "come before"),
    },
    "repeats.repeated_pairs": {
        "one token": (_alone, "the token before"),
        "none": (lambda tokens: torch.zeros(len(tokens) - 1, dtype=torch.bool), "repeat a pair"),
    },
}
