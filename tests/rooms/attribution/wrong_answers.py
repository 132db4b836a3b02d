"""Mistakes in the exercises on attribution."""

import torch


def _rolled(step):
    def build(patterns):
        eye = torch.eye(patterns.shape[-1], dtype=patterns.dtype)
        found = eye
        for layer in patterns:
            found = step(eye, layer, found)
        return found

    return build


def _integrated(f, x, baseline, steps, *, ends=False, times=None, start=None):
    total = torch.zeros_like(x)
    first = baseline if start is None else start
    for k in range(steps):
        at = x if ends else first + (k + 0.5) / steps * (x - first)
        at = at.detach().clone().requires_grad_()
        total += torch.autograd.grad(f(at), at)[0] / steps
    return ((x - baseline) if times is None else times(x)) * total


WRONG = {
    "attribution.counted": {
        "others ahead": ((0.25, 0.0, 1.0), "how often the others win"),
        "spoilt is lost": ((0.75, 1.0, 1.0), "the other token is still there"),
        "not restored": ((0.75, 0.0, 0.0), "one is enough"),
    },
    "attribution.rollout": {
        "no residual": (_rolled(lambda eye, layer, found: layer @ found), "residual connections"),
        "turned": (
            _rolled(lambda eye, layer, found: found @ (eye + layer) / 2),
            "the last layer stands on the left",
        ),
        "added": (
            _rolled(lambda eye, layer, found: (eye + layer) @ found),
            "rows sum to one",
        ),
        "a power": (
            _rolled(lambda eye, layer, found: (eye + layer) @ (eye + layer) @ found / 4),
            "product of",
        ),
    },
    "attribution.integrated": {
        "the end alone": (
            lambda f, x, baseline, steps: _integrated(f, x, baseline, steps, ends=True),
            "all along the way",
        ),
        "the slope": (
            lambda f, x, baseline, steps: _integrated(f, x, baseline, steps, times=torch.ones_like),
            "how far the entry moves",
        ),
        "times the input": (
            lambda f, x, baseline, steps: _integrated(f, x, baseline, steps, times=lambda x: x),
            "the way starts at the baseline",
        ),
        "from zero": (
            lambda f, x, baseline, steps: _integrated(
                f, x, baseline, steps, start=torch.zeros_like(x)
            ),
            "they should add up to",
        ),
    },
    "attribution.direct": {
        "a norm each": (
            lambda writes, gain, unembedding: (
                writes / writes.square().mean(-1, keepdim=True).sqrt() * gain @ unembedding.T
            ),
            "there is one norm",
        ),
        "no norm": (
            lambda writes, gain, unembedding: writes * gain @ unembedding.T,
            "divides by its scale",
        ),
        "no weights": (
            lambda writes, gain, unembedding: (
                writes / writes.sum(0).square().mean().sqrt() @ unembedding.T
            ),
            "multiplies by its weights",
        ),
        "the length": (
            lambda writes, gain, unembedding: writes / writes.sum(0).norm() * gain @ unembedding.T,
            "add up to the logits",
        ),
    },
}
