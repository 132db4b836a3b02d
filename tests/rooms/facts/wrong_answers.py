"""Mistakes in the exercises on facts."""

import math

import torch


def _slots(bias, *, relation=True, empty=False, shifted=0, elsewhere=0.0):
    def build(facts, sizes):
        subjects, relations, objects = sizes
        w1 = torch.zeros(subjects + relations, len(facts))
        w2 = torch.zeros(len(facts), objects)
        for i, (s, r, o) in enumerate(facts):
            w1[s, i] = 1
            if relation:
                w1[subjects + r, i] = 1
            w2[i] = elsewhere
            if not empty:
                w2[i, (o + shifted) % objects] = 1
        return w1, torch.full((len(facts),), float(bias)), w2

    return build


WRONG = {
    "facts.slots": {
        "no bias": (_slots(0), "one of the two should not be enough"),
        "half a bias": (_slots(-0.5), "one of the two should not be enough"),
        "too much bias": (_slots(-2), "does not fire"),
        "the subject alone": (_slots(0, relation=False), "one of the two should not be enough"),
        "nothing written": (_slots(-1, empty=True), "does not fire"),
        "the others less": (_slots(-1, elsewhere=-1.0), "the others nothing"),
        "another object": (_slots(-1, shifted=1), "not the fact's object"),
        "two matrices": (lambda facts, sizes: _slots(-1)(facts, sizes)[:2], "three things"),
        "turned": (lambda facts, sizes: tuple(w.t() for w in _slots(-1)(facts, sizes)), "shape"),
    },
    "facts.reader": {
        "the shortest": (lambda key, others: key / (key @ key), "does not look at the other facts"),
        "not scaled": (
            lambda key, others: torch.linalg.solve(others.T @ others, key),
            "would not move by the change",
        ),
        "one neuron": (
            lambda key, others: torch.nn.functional.one_hot(key.abs().argmax(), len(key)) / key,
            "need not move so much",
        ),
        "not inverted": (
            lambda key, others: (others.T @ others @ key) / (key @ others.T @ others @ key),
            "need not move so much",
        ),
    },
    "facts.at_once": {
        "without the weight": (
            lambda keys, added, others, weight: (
                torch.linalg.solve(others.T @ others + keys.T @ keys, keys.T @ added).T
            ),
            "where does the weight go",
        ),
        "shortest ones added": (
            lambda keys, added, others, weight: sum(
                torch.outer(r, k) / (k @ k) for k, r in zip(keys, added, strict=True)
            ),
            "disturb one another",
        ),
        "the weight on one side": (
            lambda keys, added, others, weight: (
                torch.linalg.solve(others.T @ others + weight * keys.T @ keys, keys.T @ added).T
            ),
            "least squares are elsewhere",
        ),
        "turned": (
            lambda keys, added, others, weight: torch.linalg.solve(
                others.T @ others + weight * keys.T @ keys, weight * keys.T @ added
            ),
            "shape",
        ),
    },
    "facts.bits": {
        "a bit a fact": (
            lambda facts, objects, parameters: facts / parameters,
            "more than one bit",
        ),
        "nats": (
            lambda facts, objects, parameters: facts * math.log(objects) / parameters,
            "those are nats",
        ),
        "a bit an object": (
            lambda facts, objects, parameters: facts * objects / parameters,
            "not every object costs a bit",
        ),
        "the whole table": (
            lambda facts, objects, parameters: facts * math.log2(objects),
            "shared among its parameters",
        ),
        "upside down": (
            lambda facts, objects, parameters: parameters / (facts * math.log2(objects)),
            "begin with one fact",
        ),
    },
}
