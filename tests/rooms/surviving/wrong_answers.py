"""Mistakes in the exercises on the position on its way through the layers."""

import torch


def _fit(known, asked, *, constant=True, spread=True):
    places = torch.arange(known.shape[1]).double()

    def rows(x):
        flat = x.flatten(0, 1)
        return torch.cat((flat, torch.ones(len(flat), 1).double()), 1) if constant else flat

    weights = torch.linalg.pinv(rows(known)) @ places.repeat(len(known))
    truth = places.repeat(len(asked))
    error = (truth - rows(asked) @ weights).pow(2).mean()
    return float(1 - error / (truth.var(correction=0) if spread else truth.pow(2).mean()))


def _centred(x):
    return x - x.mean(0)


WRONG = {
    "positions.diluted": {
        "variance one": ((1 / 24, 2**-12), "not variance one"),
        "a quarter": ((1 / 96, 2**-12), "as large as it"),
        "by the variance": ((1 / 48, 2**-24), "standard deviation"),
        "no norm": ((1 / 48, 1 / 5), "each norm shrinks"),
        "one norm": ((1 / 48, 2**-0.5), "how often"),
    },
    "positions.probe": {
        "by heart": (lambda known, asked: _fit(known, known), "trained on"),
        "the error": (lambda known, asked: 2 - _fit(known, asked), "at most one"),
        "no constant": (lambda known, asked: _fit(known, asked, constant=False), "constant"),
        "the square": (lambda known, asked: _fit(known, asked, spread=False), "variance"),
    },
    "positions.without_places": {
        "nothing": (lambda x: x, "still differs"),
        "each token's mean": (lambda x: x - x.mean(1, keepdim=True), "still differs"),
        "centred": (_centred, "mean over all positions"),
        "all alike": (lambda x: x.mean((0, 1)).expand_as(x), "what the tokens brought"),
        "one row": (lambda x: x.mean(0), "shape"),
    },
}
