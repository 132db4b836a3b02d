"""Mistakes in the exercises of *The workbench*."""

from torch.nn import functional as F


def norm(x, gain=None):
    return F.layer_norm(x, x.shape[-1:], gain)


def centred(logits):
    return logits - logits.mean()


WRONG = {
    "workbench.lens": {
        "logits": (lambda s, g, u: norm(s, g) @ u, "sum to one"),
        "no norm": (lambda s, g, u: (s @ u).softmax(-1), "also in front of an early state"),
        "no gain": (lambda s, g, u: (norm(s) @ u).softmax(-1), "learned weights"),
        "last depth": (lambda s, g, u: (norm(s[-1:], g) @ u).softmax(-1), "shape"),
        "gain first": (lambda s, g, u: (norm(s * g) @ u).softmax(-1), "not the softmax"),
    },
    "workbench.push": {
        "not centred": (lambda w, s, g, u: (w - w.mean()) / s * g @ u, "all tokens away"),
        "own scale": (lambda w, s, g, u: centred(norm(w, g) @ u), "whole stream"),
        "uncentred vector": (lambda w, s, g, u: centred(w / s * g @ u), "centres every vector"),
        "no scale": (lambda w, s, g, u: centred((w - w.mean()) * g @ u), "part of the logits"),
    },
}
