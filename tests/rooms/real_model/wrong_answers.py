"""Mistakes in the exercises on a real model."""

import torch


def _rank(*, itself=False, how="reciprocal"):
    def rank(vectors):
        n = len(vectors)
        likeness = vectors @ vectors.T
        own = likeness[torch.arange(n), torch.arange(n) ^ 1]
        if not itself:
            likeness = likeness.fill_diagonal_(-torch.inf)
        places = 1 + (likeness > own[:, None]).sum(1).double()
        made = {"reciprocal": (1 / places).mean(), "mean": places.mean(), "of": 1 / places.mean()}
        return float(made[how])

    return rank


def _token_alone(*, peeking=False, unknown="mean", centred=True, other=False):
    def token_alone(states, tokens, held):
        seen = torch.ones_like(held) if peeking else ~held
        asked = ~held if other else held
        base = states[seen].mean(0) if unknown == "mean" else torch.zeros(states.shape[1])
        said = torch.stack(
            [
                states[seen & (tokens == one)].mean(0) if (seen & (tokens == one)).any() else base
                for one in tokens[asked]
            ]
        )
        middle = states[asked].mean(0) if centred else 0
        left = (states[asked] - said).square().sum()
        return float(1 - left / (states[asked] - middle).square().sum())

    return token_alone


WRONG = {
    "real_model.budget": {
        "half": ((0.216, 0.5), "four times as wide"),
        "over the blocks": ((0.276, 2 / 3), "both together"),
    },
    "real_model.sticks_out": {
        "signs": (lambda x: x.amax(-1) / x.abs().median(-1).values, "largest *magnitude*"),
        "median": (lambda x: x.abs().amax(-1) / x.median(-1).values, "median *magnitude*"),
        "mean": (lambda x: x.abs().amax(-1) / x.abs().mean(-1), "by the mean"),
        "of all": (lambda x: x.abs().amax(-1) / x.abs().median(), "same state"),
    },
    "real_model.arriving": {
        "weights": (lambda a, f: a[:, 0], "weight alone"),
        "length": (lambda a, f: a[:, 0] * f[0].norm(), "divide by the sum"),
        "of the sum": (
            lambda a, f: a[:, 0] * f[0].norm() / (a @ f).norm(dim=-1),
            "not the length of the sum",
        ),
    },
    "real_model.token_alone": {
        "peeking": (_token_alone(peeking=True), "must not see"),
        "zero": (_token_alone(unknown="zero"), "mean of all other"),
        "around zero": (_token_alone(centred=False), "around the mean"),
        "on the fitted": (_token_alone(other=True), "held out"),
    },
    "real_model.rank": {
        "itself": (_rank(itself=True), "diagonal"),
        "ranks": (_rank(how="mean"), "one over the rank"),
        "one over the mean": (_rank(how="of"), "not one over the mean"),
    },
}
