"""Exercises of *The workbench*: two of the numbers that it shows, written by the reader."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from measured_book.exercises.answers import Answer, close, demand, normal, tensor
from measured_book.exercises.registry import exercise

_CHAPTER = "book/inside/workbench"


@exercise(_CHAPTER)
def lens(answer: Answer) -> None:
    """Write `lens(states, gain, unembedding)`: what each depth of the stream would say, as probabilities."""
    for depths, n, width, vocab, seed in ((3, 4, 6, 5, 0), (1, 2, 8, 3, 1), (5, 1, 4, 9, 2)):
        states = 2 * normal(depths, n, width, seed=seed) + 1
        gain, unembedding = 1 + normal(width, seed=seed + 10), normal(width, vocab, seed=seed + 20)
        found = tensor(answer(states, gain, unembedding), (depths, n, vocab))
        sums = torch.ones(depths, n)
        demand(close(found.sum(-1), sums), "at each depth and position probabilities sum to one")
        raw = (states @ unembedding).softmax(-1)
        text = "the final norm stands before the unembedding, also in front of an early state"
        demand(not close(found, raw), text)
        plain = (F.layer_norm(states, (width,)) @ unembedding).softmax(-1)
        demand(not close(found, plain), "the final norm has learned weights: multiply by the gain")
        wanted = (F.layer_norm(states, (width,), gain) @ unembedding).softmax(-1)
        demand(close(found, wanted, 1e-4), "not the softmax of norm(state) times the unembedding")


@exercise(_CHAPTER)
def push(answer: Answer) -> None:
    """Write `push(write, scale, gain, unembedding)`: what a head's vector adds to logits, less their mean."""
    for width, vocab, seed in ((6, 5, 0), (4, 3, 1), (9, 12, 2)):
        write, gain = 1 + normal(width, seed=seed), 1 + normal(width, seed=seed + 10)
        scale, unembedding = 1.5 + seed, normal(width, vocab, seed=seed + 20)
        found = tensor(answer(write, scale, gain, unembedding), (vocab,))
        logits = (write - write.mean()) / scale * gain @ unembedding
        text = "take the mean over all tokens away: what is added to every logit changes nothing"
        demand(not close(found, logits), text)
        own = F.layer_norm(write, (width,), gain) @ unembedding
        text = (
            "the norm divides by the scale of the whole stream, which is given, not of this vector"
        )
        demand(not close(found, own - own.mean()), text)
        raw = write / scale * gain @ unembedding
        demand(not close(found, raw - raw.mean()), "LayerNorm centres every vector first")
        demand(close(found, logits - logits.mean()), "not the vector's part of the logits")
