"""Mistakes in the exercises on what each layer does to the stream."""

import itertools

import torch
from torch.nn import functional as F


def _replacing(x, branches, order):
    for i in order:
        x = branches[i](x)
    return x


def _at_the_start(x, branches, order):
    return x + sum((branches[i](x) for i in order), torch.zeros_like(x))


def _as_listed(x, branches, order):
    for branch in branches:
        x = x + branch(x)
    return x


def _in_place(x, branches, order):
    for i in order:
        x += branches[i](x)
    return x


def _rms(x, weight, bias, unembedding):
    return (x / x.square().mean(-1, keepdim=True).sqrt() * weight + bias) @ unembedding.T


def _sample(x, weight, bias, unembedding):
    centred = x - x.mean(-1, keepdim=True)
    return (centred / x.std(-1, keepdim=True) * weight + bias) @ unembedding.T


def _cosines(writes):
    return torch.cosine_similarity(writes[:, None], writes[None], dim=-1)


def _whole_matrix(writes):
    return float((_cosines(writes).mean(-1) < 0).double().mean())


def _sign_first(writes):
    rows, columns = torch.triu_indices(len(writes), len(writes), 1)
    return float((_cosines(writes)[rows, columns] < 0).double().mean())


def _flattened(writes):
    flat = F.normalize(writes.flatten(1), dim=-1)
    rows, columns = torch.triu_indices(len(writes), len(writes), 1)
    return float(((flat @ flat.T)[rows, columns] < 0).double().mean())


def _counted(writes):
    pairs = itertools.combinations(range(len(writes)), 2)
    return float(sum(bool(_cosines(writes)[i, j].mean() < 0) for i, j in pairs))


def _uncentred(writes, scale, weight, unembedding, answer):
    logits = writes / scale * weight @ unembedding.T
    return logits[:, answer] - logits.mean(-1)


def _raw_logit(writes, scale, weight, unembedding, answer):
    centred = writes - writes.mean(-1, keepdim=True)
    return (centred / scale * weight @ unembedding.T)[:, answer]


def _undivided(writes, scale, weight, unembedding, answer):
    logits = (writes - writes.mean(-1, keepdim=True)) * weight @ unembedding.T
    return logits[:, answer] - logits.mean(-1)


def _each_normed(writes, scale, weight, unembedding, answer):
    logits = F.layer_norm(writes, writes.shape[-1:]) * weight @ unembedding.T
    return logits[:, answer] - logits.mean(-1)


WRONG = {
    "layers_as_steps.teams": {
        "shares of the start": ((-2.0, 9.0, 3.0, 7.0), "what is *left*"),
        "what was taken": ((18.0, 9.0, 3.0, 7.0), "have taken away"),
        "the shares taken": ((1.0, 9.0, 3.0, 7.0), "what each leaves"),
        "another one left out": ((6.0, 12.0, 3.0, 7.0), "without the first"),
        "another one twice": ((6.0, 9.0, 4.0, 7.0), "second one twice"),
        "the first three only": ((6.0, 9.0, 3.0, 0.0), "fourth step"),
        "filled twice": ((6.0, 9.0, 3.0, 14.0), "slot three was empty"),
    },
    "layers_as_steps.reordered": {
        "replaced": (_replacing, "does not replace"),
        "all at the start": (_at_the_start, "as it is by then"),
        "the list's order": (_as_listed, "order of the list"),
        "written in place": (_in_place, "writes into its argument"),
    },
    "layers_as_steps.early": {
        "no norm": (lambda x, weight, bias, u: x @ u.T, "final norm comes before"),
        "no weights": (
            lambda x, weight, bias, u: F.layer_norm(x, x.shape[-1:]) @ u.T,
            "weight and bias",
        ),
        "no mean": (_rms, "subtracts the mean"),
        "one less": (_sample, "not by one less"),
        "a softmax": (
            lambda x, weight, bias, u: (F.layer_norm(x, x.shape[-1:], weight, bias) @ u.T).softmax(
                -1
            ),
            "without a softmax",
        ),
    },
    "layers_as_steps.opposed": {
        "the whole matrix": (_whole_matrix, "no pair"),
        "signs first": (_sign_first, "then its sign"),
        "all positions as one": (_flattened, "mean cosine below zero"),
        "a number": (_counted, "a share of the pairs"),
    },
    "layers_as_steps.direct": {
        "not centred": (_uncentred, "subtracts each write's mean"),
        "the logit itself": (_raw_logit, "above the mean logit"),
        "not divided": (_undivided, "divisor of the final norm"),
        "each with a norm of its own": (_each_normed, "held at its value"),
    },
}
