"""Mistakes in the exercises on depth and heads."""

import itertools


def _range(scores, axis):
    return scores.amax(axis) - scores.amin(axis)


def _upside_down(scores):
    return float(_range(scores, 0).mean() / _range(scores, 1).mean())


def _averaged_first(scores):
    mean = scores.mean(0)
    return float((mean.max() - mean.min()) / _range(scores, 0).mean())


def _of_all(scores):
    return float((scores.max() - scores.min()) / _range(scores, 0).mean())


def _whole(scores):
    return (scores - scores.mean()).square()


def _heads(scores):
    effect = scores.mean((0, 1)) - scores.mean()
    return float(effect.square().mean() / _whole(scores).mean())


def _depth(scores):
    effect = scores.mean((0, 2)) - scores.mean()
    return float(effect.square().mean() / _whole(scores).mean())


def _sums(scores):
    effect = scores.mean((0, 2)) - scores.mean()
    return float(effect.square().sum() / _whole(scores).sum())


def _greedy(step, width, length):
    text = []
    for _ in range(length):
        row = step(tuple(text))
        text.append(max(range(len(row)), key=row.__getitem__))
    return text


def _all_texts(step, width, length):
    def total(text):
        return sum(step(tuple(text[:i]))[token] for i, token in enumerate(text))

    vocab = len(step(()))
    return list(max(itertools.product(range(vocab), repeat=length), key=total))


def _last_only(step, width, length):
    beams = [(0.0, ())]
    for _ in range(length):
        longer = [
            (each, (*text, token)) for _, text in beams for token, each in enumerate(step(text))
        ]
        beams = sorted(longer, reverse=True)[:width]
    return list(beams[0][1])


WRONG = {
    "depth.luck": {
        "three": ((1 / 3, 1 / 6), "3 depths"),
        "last": ((1 / 9, 1 / 3), "deepest is the best"),
        "halves": ((1 / 9, 1 / 4), "not independent"),
    },
    "depth.within_and_between": {
        "upside down": (_upside_down, "upside down"),
        "means": (_averaged_first, "luck out"),
        "all": (_of_all, "at each seed"),
        "constant": (lambda scores: 7.0, "which axis"),
    },
    "depth.depth_share": {
        "heads": (_heads, "share of the heads"),
        "sums": (_sums, "means with means"),
        "root": (lambda scores: _depth(scores) ** 0.5, "without a root"),
        "constant": (lambda scores: 7.0, "replace each score"),
    },
    "depth.beam": {
        "greedy": (_greedy, "more than one text"),
        "all": (_all_texts, "go on"),
        "last only": (_last_only, "add up"),
        "short": (lambda step, width, length: [0], "tokens from 0"),
    },
}
