"""Mistakes in the exercises on the residual stream as a sum."""

import torch
from measured_transformer.analysis.residual import ledger


def trace(x, writes, *, first=False, late=False, of="after"):
    products, lengths = [], []
    state = x
    for write in writes:
        before, state = state, state + write
        products.append(write @ (x if first else state if late else before))
        lengths.append({"after": state, "before": before, "write": write}[of].norm())
    return products, lengths


def traced(**slip):
    return lambda x, writes: trace(x, writes, **slip)


@torch.no_grad()
def rows(model, tokens, *, own=False, centre=True, bias=True, swapped=False, gain=True):
    account, norm = ledger(model, tokens), model.final_norm
    parts = torch.cat([account.states[:1], account.writes])
    centred = parts - parts.mean(-1, keepdim=True)
    whole = centred if own else centred.sum(0, keepdim=True)
    divisor = (whole.square().mean(-1, keepdim=True) + norm.eps).sqrt()
    found = (centred if centre else parts) / divisor * (norm.weight if gain else 1.0)
    last = norm.bias.expand_as(found[:1]) * (1.0 if bias else 0.0)
    if swapped:
        found = found.flip(0)
    return torch.cat([found, last]) @ model.unembedding.weight.T


def rowed(**slip):
    return lambda model, tokens: rows(model, tokens, **slip)


WRONG = {
    "residual.trace": {
        "the first state": (traced(first=True), "the first state"),
        "the state after": (traced(late=True), "the state after it"),
        "lengths before": (traced(of="before"), "last state is missing"),
        "lengths of the writes": (traced(of="write"), "those of the writes"),
        "squares": (
            lambda x, w: (trace(x, w)[0], [n**2 for n in trace(x, w)[1]]),
            "root of a sum",
        ),
        "written to x": (lambda x, w: [x.add_(w[0]), x], "writes into its argument `x`"),
        "the lengths alone": (lambda x, w: torch.stack(trace(x, w)[1]), "expected two results"),
        "started from zero": (lambda x, w: trace(0 * x, w), "the length after write 1"),
    },
    "residual.logit_ledger": {
        "own divisors": (rowed(own=True), "a scale of its own"),
        "not centred": (rowed(centre=False), "centres the sum"),
        "no bias": (rowed(bias=False), "the bias of the last norm"),
        "another order": (rowed(swapped=True), "the sum is right, and yet row 0"),
        "no gain": (rowed(gain=False), "row 0 is not what that part adds"),
        "the logits alone": (lambda model, tokens: model(tokens), "shape"),
    },
    "residual.write_size": {
        "without ReLU": (lambda r: 4 * r / (1 + r) ** 2, "ReLU leave"),
        "the root": (lambda r: (2 * r / (1 + r) ** 2) ** 0.5, "the root"),
        "one matrix": (lambda r: 2 / (1 + r), "the second is missing"),
        "without the first": (lambda r: 2 * r / (1 + r), "without the first matrix"),
        "He's rule": (lambda r: 2.0, "by the rule"),
    },
}
