"""Mistakes in the exercises on sinks."""

import torch


def _seen(*, causal=True, sinks=True, off=0, room=False):
    def seen(length, window, kept):
        query, key = torch.arange(length)[:, None], torch.arange(length)[None]
        first = query - window - off + (kept if room else 0)
        mask = key > first
        if sinks:
            mask = mask | (key < kept)
        return mask & (key <= query) if causal else mask

    return seen


def _constant(*, itself=False, cosine=True, centred=False):
    def constant_read(states):
        if centred:
            states = states - states.mean(-1, keepdim=True)
        if cosine:
            states = states / states.norm(dim=-1, keepdim=True)
        likeness = states @ states.T
        return likeness.mean() if itself else likeness[~torch.eye(len(states), dtype=bool)].mean()

    return constant_read


WRONG = {
    "sink.nothing_left": {
        "one other": ((0.9933, 0.25), "9 other keys"),
        "no exponential": ((5 / 14, 0.25), "exponential"),
        "not divided": ((0.9428, 0.01886), "divide by all"),
    },
    "sink.seen": {
        "not causal": (_seen(causal=False), "no query sees a later key"),
        "no sinks": (_seen(sinks=False), "the first keys stay"),
        "one too many": (_seen(off=1), "three keys"),
        "no room": (_seen(room=True), "on top of the window"),
    },
    "sink.constant_read": {
        "itself": (_constant(itself=True), "like itself"),
        "product": (_constant(cosine=False), "divide by both lengths"),
        "centred": (_constant(centred=True), "no mean away"),
    },
}
