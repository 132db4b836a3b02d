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


def _centred(writes):
    return writes - writes.mean(1, keepdim=True)


def _cosines(writes):
    return torch.cosine_similarity(writes[:, None], writes[None], dim=-1)


def _pairs(cosines):
    rows, columns = torch.triu_indices(len(cosines), len(cosines), 1)
    return cosines[rows, columns]


def _raw(writes):
    return float((_pairs(_cosines(writes).mean(-1)) < 0).double().mean())


def _one_mean(writes):
    return _raw(writes - writes.mean((0, 1)))


def _whole_matrix(writes):
    return float((_cosines(_centred(writes)).mean(-1) < 0).double().mean())


def _sign_first(writes):
    return float((_pairs(_cosines(_centred(writes))) < 0).double().mean())


def _flattened(writes):
    flat = F.normalize(_centred(writes).flatten(1), dim=-1)
    return float((_pairs(flat @ flat.T) < 0).double().mean())


def _counted(writes):
    pairs = itertools.combinations(range(len(writes)), 2)
    cosines = _cosines(_centred(writes))
    return float(sum(bool(cosines[i, j].mean() < 0) for i, j in pairs))


def _repair(direct, later, norm, total):
    """An answer made of four functions of (before, after, scale_before, scale_after, place)."""
    return lambda *given: (direct(*given), later(*given), norm(*given), total(*given))


def _direct(before, after, scale, _, place):
    return (after - before)[place] / scale


def _later(before, after, scale, _, place):
    return (after - before)[place + 1 :].sum() / scale


def _total(before, after, scale, changed, _):
    return after.sum() / changed - before.sum() / scale


def _norm(*given):
    return _total(*given) - _direct(*given) - _later(*given)


def _own_divisor(before, after, scale, changed, place):
    return after[place] / changed - before[place] / scale


def _never_divided(before, after, scale, changed, place):
    return (after - before)[place]


def _with_the_part(before, after, scale, changed, place):
    return (after - before)[place:].sum() / scale


def _old_divisor(before, after, scale, changed, place):
    return (after - before).sum() / scale


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
    "layers_as_steps.opposed": {
        "not centred": (_raw, "mean write over the positions first"),
        "one mean for all": (_one_mean, "a mean of its own"),
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
    "layers_as_steps.repair": {
        "each its own divisor": (_repair(_own_divisor, _later, _norm, _total), "is held at"),
        "not divided": (_repair(_never_divided, _later, _norm, _total), "no logits"),
        "the part itself": (_repair(_direct, _with_the_part, _norm, _total), "not the part itself"),
        "the old divisor": (_repair(_direct, _later, _norm, _old_divisor), "silenced model has"),
        "no remainder": (_repair(_direct, _later, _total, _total), "left of the total"),
    },
}
