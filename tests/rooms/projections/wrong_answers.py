"""Mistakes in the exercises on shared projections."""

import torch


def both_sides(scores):
    prefers = scores > scores.diagonal()[:, None]
    return int((prefers & prefers.T).sum())


def over_the_column(scores):
    prefers = scores > scores.diagonal()[None, :]
    return int((prefers & prefers.T).triu(1).sum())


def with_equals(scores):
    prefers = scores >= scores.diagonal()[:, None]
    return int((prefers & prefers.T).triu(1).sum())


def one_side(scores):
    prefers = scores > scores.diagonal()[:, None]
    return int((prefers | prefers.T).triu(1).sum())


def absorbed(queries, latents, up_key, up_value, *, scale=None, keys=False, values=False):
    scale = queries.shape[-1] ** -0.5 if scale is None else scale(latents)
    scores = queries @ (latents @ up_key).T if keys else queries @ up_key.T @ latents.T
    pattern = (scale * scores).softmax(-1)
    return pattern @ (latents @ up_value) if values else pattern @ latents @ up_value


def keys_in_disguise(queries, latents, up_key, up_value, *, flat=False):
    keys = latents[None] @ up_key[None]
    if flat:
        keys = torch.einsum("cr,rd->cd", latents, up_key).flatten().view(1, *keys.shape[1:])
    pattern = (queries.shape[-1] ** -0.5 * queries @ keys[0].T).softmax(-1)
    return pattern @ latents @ up_value


WRONG = {
    "projections.mutual": {
        "both sides counted": (both_sides, "counted once"),
        "the other's own score": (over_the_column, "whose own score"),
        "equal is enough": (with_equals, "no preference"),
        "one side is enough": (one_side, "counted once"),
    },
    "projections.turn": {
        "keys forgotten": (lambda q, k, a: (q @ a, k), "stay as they are"),
        "keys turned too": (lambda q, k, a: (q @ a, k @ a), "second time"),
        "no transpose": (lambda q, k, a: (q @ a, k @ torch.linalg.inv(a)), "transposes"),
        "one matrix": (lambda q, k, a: q @ a, "two matrices"),
    },
    "projections.knobs": {
        "all weights": ((1024, 484), "number of weights"),
        "the hidden ones": ((64, 484), "change nothing"),
        "any matrix for both": ((960, 448), "not every invertible"),
        "half": ((960, 480), "half of the weights"),
    },
    "projections.cache": {
        "keys alone": ((256, 128, 16, 36), "factor of two"),
        "one layer": ((16, 128, 16, 36), "one layer"),
        "no turned key": ((512, 128, 16, 32), "turned key is kept"),
        "latent twice": ((512, 128, 16, 72), "kept once"),
    },
    "projections.absorbed": {
        "not divided": (lambda *a: absorbed(*a, scale=lambda c: 1.0), "not divided"),
        "by the rank": (lambda *a: absorbed(*a, scale=lambda c: c.shape[-1] ** -0.5), "whatever"),
        "keys are made": (lambda *a: absorbed(*a, keys=True), "brackets"),
        "values are made": (lambda *a: absorbed(*a, values=True), "brackets"),
        "keys are made, with an axis of one": (keys_in_disguise, "brackets"),
        "keys are made and laid flat": (lambda *a: keys_in_disguise(*a, flat=True), "brackets"),
        "other matrix": (lambda q, c, k, v: absorbed(q, c, v, k), "would give"),
    },
}
