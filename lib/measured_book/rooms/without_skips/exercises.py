"""Exercises of the chapter on stacks without skip connections."""

from __future__ import annotations

import copy
import math

import torch
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from torch import nn
from torch.nn import functional as F

from measured_book.exercises.answers import (
    Answer,
    Fault,
    close,
    demand,
    normal,
    number,
    tensor,
)
from measured_book.exercises.registry import exercise

SUBJECT = "skips"
"""The first word of the exercises' names."""

_CHAPTER = "book/residual/without-skips"


@exercise(_CHAPTER)
def collapse(answer: Answer) -> None:
    """Write `collapse(e, layers, skip)`: what becomes of two tokens, e and -e, in so many layers; the new e.

    One head whose queries, keys and values are the tokens themselves, numbers of one entry, without a factor on
    the scores; `skip` says whether its input is added.
    """
    for e, layers, skip in ((0.5, 1, False), (0.5, 3, False), (2.0, 2, False), (0.5, 2, True)):
        found = number(answer(e, layers, skip))
        if not skip and layers == 1:
            text = "that is e cubed, which is only the first term; do the softmax of two scores exactly"
            demand(not close(found, e**3), text)
            text = "both weights are one half only when the scores are equal; here they differ"
            demand(found != 0.0, text)
            text = "the two scores of a token are e e and -e e: they differ by twice that"
            demand(not close(found, e * math.tanh(e * e / 2)), text)
        expected, plain = e, e
        for _ in range(layers):
            plain = plain * math.tanh(plain * plain)
            expected = (expected if skip else 0.0) + expected * math.tanh(expected**2)
        demand(not skip or not close(found, plain), "with the skip connection the input is added")
        text = f"after {layers} layers that is not how far apart they are; follow one token by hand"
        demand(abs(found - expected) <= 1e-6 * expected, text)


@exercise(_CHAPTER)
def norm_backward(answer: Answer) -> None:
    """Write `norm_backward(z, g)`: the gradient for z from that for LayerNorm(z), without autograd."""
    for n, d, spread in ((1, 4, 1.0), (3, 7, 1.0), (2, 16, 5.0)):
        z = (spread * normal(n, d, seed=d) + 3.0).requires_grad_()
        g = normal(n, d, seed=d + 1)
        with torch.no_grad():
            found = tensor(answer(z.detach(), g), (n, d))
        sums = found.sum(1).abs().max()
        text = "moving all entries of a row of z alike changes nothing, so a row of its gradient sums to zero"
        demand(sums < 1e-4, f"{text}; yours sums to {sums:.3g}")
        hat = F.layer_norm(z.detach(), (d,), eps=0.0)
        text = (
            "stretching a row of z changes nothing, so its gradient has no part along z; yours has"
        )
        demand((found * hat).sum(1).abs().max() < 1e-3, text)
        (expected,) = torch.autograd.grad(F.layer_norm(z, (d,), eps=0.0), z, g)
        scale = (found * expected).sum(1) / expected.square().sum(1)
        if close(found, scale[:, None] * expected, 1e-4):
            text = "each row has the right direction, and another length: what does the norm divide by?"
            demand(close(scale, torch.ones(n), 1e-3), text)
        demand(
            close(found, expected, 1e-3),
            "two directions are taken out, but the rest of g is changed as well",
        )


@exercise(_CHAPTER)
def paths(answer: Answer) -> None:
    """Write `paths(n_layers, k)`: how many paths go through exactly k branches of this many pre-norm blocks."""
    for layers, k in ((3, 2), (1, 0), (1, 1), (12, 3)):
        found = number(answer(layers, k))
        right = math.comb(2 * layers, k)
        if found != right:
            text = "a block has two sublayers, each with a branch of its own"
            demand(found != math.comb(layers, k), text)
            demand(found != (2 * layers) ** k, "no path goes through one branch twice")
            text = "the order in which branches are chosen makes no new path"
            demand(found != math.perm(2 * layers, k), text)
            text = f"with {layers} blocks there are not {found:.6g} paths through {k} branches"
            raise Fault(f"{text}; count those of one or two blocks by hand")


@exercise(_CHAPTER)
def straight_share(answer: Answer) -> None:
    """Write `straight_share(n_layers, a)`: the skip path's share of squared length, terms being orthogonal."""
    for layers, a in ((3, 0.5), (1, 0.8), (12, 0.2)):
        found = number(answer(layers, a))
        demand(0 < found <= 1, "a share lies between 0 and 1")
        power = 1 + a * a
        demand(
            not close(found, power**-layers),
            "a block has two sublayers; or that is the share of the length, not of its square",
        )
        text = "lengths of orthogonal terms do not add up; their squares do"
        demand(not close(found, (1 + a) ** (-2 * layers)), text)
        all_terms = sum(math.comb(2 * layers, k) * a ** (2 * k) for k in range(2 * layers + 1))
        text = "the squared lengths of all paths, with this share for the first, do not sum to the whole"
        demand(close(found * all_terms, 1.0), text)


@exercise(_CHAPTER)
def silence(answer: Answer) -> None:
    """Write `silence(model)`: make every branch of a pre-norm model write zero, and return the model."""
    torch.manual_seed(7)
    model = Decoder(Config(vocab=11, d_model=8, n_layers=2, n_heads=2, bias=True))
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(0.5 * torch.randn_like(weight))  # biases too
    tokens = torch.randint(11, (3, 6))
    bare = copy.deepcopy(model)
    bare.blocks = nn.ModuleList()
    kept = copy.deepcopy(dict(model.named_parameters()))
    came = answer(model)
    demand(isinstance(came, Decoder), "expected the changed model back")
    text = "the logits are not those of the model without its blocks: some branch still writes something"
    demand(torch.allclose(came(tokens), bare(tokens), atol=1e-5), text)
    F.cross_entropy(came(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:]).backward()
    matrices = [w for w in came.blocks.parameters() if w.dim() == 2 and w.grad is not None]
    moved = [w for w in matrices if w.grad.abs().max() > 0]
    text = "no matrix of the blocks gets a gradient any more: too much is zero for anything to be learned"
    demand(bool(moved), text)
    for name, weight in came.named_parameters():
        last = ".attention.output." in name or ".feedforward.down." in name
        text = f"{name} is changed as well; it writes nothing to the stream itself"
        demand(last or torch.equal(weight, kept[name]), text)
