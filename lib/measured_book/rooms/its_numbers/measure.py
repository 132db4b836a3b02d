"""What the chapter *Its numbers* measures on SmolLM2-135M-Instruct: sizes, drafts, bits a byte and confidence.

A seed is a draw of texts, half from the reference of the Python language, half from paragraphs of this book;
the model is always the same. Modules by question: `neurons` (how many are needed, dead ones, their values),
`features` and `controls` (one network as a sum of few), `rounding` (matrices and the cache in fewer bits).
"""

from __future__ import annotations

import functools
import lzma
import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.calibration import reliability
from measured_transformer.models.decoder import Decoder
from measured_transformer.training.seeding import make_generator
from torch import Tensor
from torch.nn import functional as F

from measured_book.measuring import measurement
from measured_book.rooms.its_numbers.features import controls, features
from measured_book.rooms.its_numbers.neurons import neurons, sparse, sparse_again
from measured_book.rooms.its_numbers.passages import SINCE
from measured_book.rooms.its_numbers.rounding import cache, weights
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.texts import DATA, KINDS, draw, source

__all__ = [
    "cache",
    "controls",
    "drafts",
    "drafts_again",
    "features",
    "neurons",
    "reading",
    "sizes",
    "sparse",
    "sparse_again",
    "weights",
]

# Parameters and operations ------------------------------------------------------------------------

PARTS = ("embedding", "attention", "network", "norms")
OF = ("model", "blocks", "products")
BEHIND = 64
"""Tokens before the one whose multiplications are counted."""


def parameters(model: Decoder) -> dict[str, int]:
    """The parameters of a decoder by part of the model; an embedding that also reads is counted once."""
    found = dict.fromkeys(PARTS, 0)
    for name, weight in model.named_parameters():  # a tied weight comes once
        if "norm" in name:
            part = "norms"
        elif ".attention." in name:
            part = "attention"
        elif ".feedforward." in name:
            part = "network"
        else:
            part = "embedding"
        found[part] += weight.numel()
    return found


def multiplications(model: Decoder, behind: int) -> dict[str, int]:
    """The multiplications for one token by part, those of norms and of the activation left out.

    Args:
        model: without biases in its maps.
        behind: tokens before it, whose keys and values are there already.
    """
    found = parameters(model)
    scores = (
        2 * (behind + 1) * model.config.n_layers * model.config.n_heads * model.config.head_width
    )
    unembedding = model.config.vocab * model.config.d_model
    return {
        "embedding": unembedding,
        "attention": found["attention"] + scores,
        "network": found["network"],
        "norms": 0,
    }


@measurement(seeds=1, coords={"part": PARTS, "of": OF}, pretrained=NEEDS)
def sizes(seed: int) -> dict[str, Any]:
    """Parameters and multiplications by part of the model, and the networks' share of them."""
    del seed
    model = smollm2().model
    count, products = parameters(model), multiplications(model, BEHIND)
    blocks = sum(count[part] for part in PARTS if part != "embedding") - model.config.d_model
    share = [
        count["network"] / sum(count.values()),
        count["network"] / blocks,
        products["network"] / sum(products.values()),
    ]
    return {
        "count": ("part", [count[part] for part in PARTS]),
        "products": ("part", [products[part] for part in PARTS]),
        "share": ("of", share),
    }


# Drafts copied from the text itself -----------------------------------------------------------------

LONG = 256
MATCH = {"one": 1, "two": 2, "three": 3}
DRAFTS = (*MATCH, "random")


def long_texts(seed: int, kind: Any, count: int) -> Int[Tensor, "text position"]:
    """So many texts of 256 tokens of one kind, behind the token that parts texts."""
    return draw(seed, kind, count, LONG, first="end")


def chances(
    model: Decoder, text: Int[Tensor, "position"], *, chunk: int = 64
) -> Float[Tensor, "position vocab"]:
    """Log-probabilities of what follows each position of one text."""
    state = model.stream(text[None])
    return torch.cat(
        [model.unembed(some).float().log_softmax(-1)[0] for some in state.split(chunk, dim=1)]
    )


def copied(text: list[int], length: int, since: int) -> list[tuple[int, int]]:
    """Drafts copied from the text so far: places, and the token proposed for the next one.

    Args:
        text: its tokens.
        length: how many tokens up to the place must have stood together before.
        since: the first place.

    >>> copied([7, 8, 9, 7, 8, 5, 8], 2, 0)                 # behind 7, 8 the last time: 9
    [(4, 9)]
    >>> copied([7, 8, 9, 7, 8, 5, 8], 1, 4)                 # behind 8 the last time: 9, then 5
    [(4, 9), (6, 5)]
    """
    found = []
    for place in range(max(since, length), len(text)):
        last = text[place - length + 1 : place + 1]
        for earlier in range(place - 1, length - 2, -1):
            if text[earlier - length + 1 : earlier + 1] == last:
                found.append((place, text[earlier + 1]))
                break
    return found


@measurement(
    seeds=10,
    coords={"match": DRAFTS, "kind": KINDS},
    tolerance={"accepted": 0.02, "by_kind": 0.03},
    pretrained=NEEDS,
    data=DATA,
)
@torch.no_grad()
def drafts(seed: int) -> dict[str, Any]:
    """With which probability a token copied from an earlier place is accepted, by length of match."""
    model, chance = smollm2().model, make_generator(seed, "places to copy from")
    given: dict[str, dict[str, list[float]]] = {
        match: {kind: [] for kind in KINDS} for match in DRAFTS
    }
    places = 0
    for kind in KINDS:
        for text in long_texts(seed, kind, 2):
            said, tokens = chances(model, text), text.tolist()
            places += len(tokens) - SINCE
            for match, length in MATCH.items():
                proposed = copied(tokens, length, SINCE)
                given[match][kind] += [float(said[place, token].exp()) for place, token in proposed]
                if match != "two":
                    continue
                for place, _ in proposed:
                    other = tokens[1 + int(torch.randint(place, (), generator=chance))]
                    given["random"][kind].append(float(said[place, other].exp()))
    whole = {match: [one for kind in KINDS for one in by[kind]] for match, by in given.items()}
    return {
        "accepted": ("match", [float(np.mean(whole[match])) for match in DRAFTS]),
        "by_kind": (
            ("match", "kind"),
            [[_mean(given[match][kind]) for kind in KINDS] for match in DRAFTS],
        ),
        "offered": ("match", [len(whole[match]) / places for match in DRAFTS]),
    }


FRESH = 9000
"""What is added to a seed of `drafts_again`, so that no other measurement has looked at its draw."""


@measurement(
    seeds=40,
    coords={"match": DRAFTS, "kind": KINDS},
    tolerance={"accepted": 0.02, "by_kind": 0.03},
    pretrained=NEEDS,
    data=DATA,
)
def drafts_again(seed: int) -> Mapping[str, Any]:
    """With which probability a token copied from an earlier place is accepted, on fresh draws."""
    return drafts(FRESH + seed)


def _mean(values: list[float]) -> float:
    """The mean, NaN of nothing."""
    return float(np.mean(values)) if values else math.nan


# Bits a byte and confidence -------------------------------------------------------------------------

BINS = 10


def deflated(text: bytes) -> int:
    """Bytes of a text after Deflate, without header and checksum."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return len(packer.compress(text) + packer.flush())


def packed(text: bytes) -> int:
    """Bytes of a text after LZMA at its strongest, without header."""
    how = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
    return len(lzma.compress(text, format=lzma.FORMAT_RAW, filters=how))


@functools.cache
def packed_source(kind: Any) -> float:
    """Bits a byte of a whole source after LZMA."""
    whole = "\n\n".join(source(kind)).encode("utf-8")
    return 8 * packed(whole) / len(whole)


@measurement(
    seeds=10,
    coords={"kind": KINDS, "bin": tuple(range(BINS))},
    tolerance={
        "bits": 0.01,
        "confidence": 0.005,
        "accuracy": 0.01,
        "error": 0.02,
        "promised": 0.05,
        "kept": 0.2,
        "held": 0.02,
        "nats": 0.02,
        "lzma": 0.02,
        "deflate": 0.05,
    },
    pretrained=NEEDS,
    data=DATA,
)
@torch.no_grad()
def reading(seed: int) -> dict[str, Any]:
    """Bits a byte of the model and of compressors, and how sure the model is against how often it is right."""
    lm = smollm2()
    found: dict[str, list[float]] = {
        name: [] for name in ("bits", "nats", "deflate", "lzma", "confidence", "accuracy", "error")
    }
    bins: dict[str, list[Any]] = {"promised": [], "kept": [], "held": []}
    for kind in KINDS:
        nats, sure, right, size, small = [], [], [], 0, 0
        for text in long_texts(seed, kind, 1):
            said = chances(lm.model, text)[:-1]
            nats.append(F.nll_loss(said, text[1:], reduction="none"))
            best, choice = said.max(-1)
            sure.append(best.double().exp())
            right.append(choice == text[1:])
            passage = lm.tokenizer.decode(text[1:]).encode("utf-8")
            size, small = size + len(passage), small + deflated(passage)
        loss, confidences, hits = (torch.cat(one) for one in (nats, sure, right))
        binned = reliability(confidences.numpy(), hits.numpy(), bins=BINS)
        found["bits"].append(float(loss.double().sum()) / math.log(2) / size)
        found["nats"].append(float(loss.double().mean()))
        found["deflate"].append(8 * small / size)
        found["lzma"].append(packed_source(kind))
        found["confidence"].append(float(confidences.mean()))
        found["accuracy"].append(float(hits.double().mean()))
        found["error"].append(binned.error)
        for name, values in zip(
            bins, (binned.confidence, binned.accuracy, binned.share), strict=True
        ):
            bins[name].append(values)
    return {name: ("kind", values) for name, values in found.items()} | {
        name: (("kind", "bin"), values) for name, values in bins.items()
    }
