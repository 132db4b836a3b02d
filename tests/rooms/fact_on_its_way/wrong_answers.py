"""Mistakes in the exercises on a fact on its way."""

import torch


def _rewritten(*, divisor=2, replace=False):
    def rewritten(matrix, key, vector):
        vector = vector - matrix @ key if replace else vector
        return matrix + torch.outer(vector, key) / key.norm() ** divisor

    return rewritten


WRONG = {
    "fact_on_its_way.returned": {
        "from zero": (0.25, "starts at -2"),
        "by the clean one": (0.75, "whole difference"),
    },
    "fact_on_its_way.rewritten": {
        "not divided": (_rewritten(divisor=0), "squared length"),
        "by the length": (_rewritten(divisor=1), "not by its length"),
        "in place": (_rewritten(replace=True), "on top"),
    },
}
