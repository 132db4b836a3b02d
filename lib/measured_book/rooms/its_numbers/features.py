"""A network of *Its numbers* as a sum of few features: a transcoder, its rivals and its controls."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.autoencoders import explained
from measured_transformer.analysis.transcoders import Transcoder, fit_transcoder
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.decoder import Decoder
from measured_transformer.training.seeding import make_generator
from torch import Tensor, nn

from measured_book.measuring import measurement
from measured_book.rooms.its_numbers.passages import SINCE, passages
from measured_book.smollm2.maps import linear_map
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.spectrum import turned
from measured_book.smollm2.sweeps import begin, stream_after
from measured_book.smollm2.texts import DATA

BLOCK = 8
"""The block, from 1, whose network is rewritten."""
LATENTS, SPEAK = 1152, 32
"""Features, two for each entry of the stream; and how many of them speak at a token."""
FITTED, JUDGED = 64, 4
"""Texts of each kind that fit, and that judge."""
STEPS, SIZE, RATE = 300, 128, 1.6e-2
"""The rate is the best of six, 2e-3 to 6.4e-2, for each of the three fits on a draw that judges nothing."""
FITS, CONTROLS = ("transcoder", "neurons", "linear"), ("redrawn", "noise")
INSTEAD = ("mean", "neurons", "linear", "transcoder")
"""What is written in the place of the network at every token but the first."""


@torch.no_grad()
def network_inputs(
    texts: Int[Tensor, "text position"], *, block: int = BLOCK, model: Decoder | None = None
) -> Float[Tensor, "place d_model"]:
    """What the network of a block reads at every token but the first."""
    model = smollm2().model if model is None else model
    name, of = f"blocks.{block - 1}.residual_mid", model.blocks[block - 1]
    found = []
    for some in texts.split(16):
        with capture(model, name) as seen:
            stream_after(block, some, model=model)
        norm: Any = of.feedforward_norm
        found.append(norm(seen[name][:, 1:]).flatten(0, 1))
    return torch.cat(found)


@torch.no_grad()
def noise_like(
    x: Float[Tensor, "place d_model"], places: int, seed: int
) -> Float[Tensor, "other d_model"]:
    """Gaussian vectors with the mean and the covariance of some others."""
    exact = x.double()
    centred = exact - exact.mean(0)
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(x))
    drawn = torch.randn(
        places, x.shape[1], generator=make_generator(seed, "noise alike"), dtype=torch.float32
    )
    root = vectors * values.clamp(min=0).sqrt()
    return (drawn.double() @ root.T + exact.mean(0)).to(x)


@torch.no_grad()
def redrawn(network: nn.Module, seed: int) -> nn.Module:
    """A network whose matrices keep their singular values and get directions drawn at random."""
    other, draws = deepcopy(network), make_generator(seed, "directions of one network")
    for weight in other.parameters():
        if weight.ndim == 2:
            weight.copy_(turned(weight, draws))
    return other


def written(network: Any, x: Float[Tensor, "place d_model"]) -> Float[Tensor, "place d_model"]:
    """What a network writes, a place at a time."""
    with torch.no_grad():
        out: Tensor = network(x[None])[0]
    return out


@torch.no_grad()
def of_strongest(
    network: Any, usual: Float[Tensor, "neuron"], x: Float[Tensor, "place d_model"], count: int
) -> Float[Tensor, "place d_model"]:
    """What is written with the neurons that write most at each place, and all others at their mean."""
    own = activations(network, x)
    most = (own.abs() * network.down.weight.norm(dim=0)).topk(count, dim=-1).indices
    kept = usual.expand_as(own).scatter(-1, most, own.gather(-1, most))
    out: Tensor = network.down(kept)
    return out


@torch.no_grad()
def activations(network: Any, x: Float[Tensor, "place d_model"]) -> Float[Tensor, "place neuron"]:
    """The neurons of a network, which the last matrix reads."""
    with capture(network, "neurons") as seen:
        network(x[None])
    found: Tensor = seen["neurons"][0]
    return found


def transcoder_of(
    x: Float[Tensor, "place d_model"], y: Float[Tensor, "place d_model"], seed: int, what: str
) -> Transcoder:
    """A transcoder from what is read to what is written."""
    return fit_transcoder(
        x, y, LATENTS, make_generator(seed, f"transcoder, {what}"),
        k=SPEAK, steps=STEPS, size=SIZE, learning_rate=RATE,
    )  # fmt: skip


def read(
    seed: int,
) -> tuple[
    Float[Tensor, "place d_model"], Float[Tensor, "other d_model"], Int[Tensor, "text position"]
]:
    """What the network reads in the texts that fit and in those that judge, and the latter themselves."""
    texts = passages(seed, FITTED + JUDGED)
    judges = torch.cat([some[:JUDGED] for some in texts.chunk(2)])
    fits = torch.cat([some[JUDGED:] for some in texts.chunk(2)])
    return network_inputs(fits), network_inputs(judges), judges


@measurement(
    seeds=10,
    coords={"fit": FITS, "instead": INSTEAD},
    tolerance={"explained": 0.03, "loss": 0.02, "whole": 0.01, "used": 0.1},
    pretrained=NEEDS,
    data=DATA,
)
def features(seed: int) -> dict[str, Any]:
    """A network as 32 features of a transcoder, as its 32 strongest neurons and as a linear map.

    ``used``: the share of features that speak at any token of the texts that judge.
    """
    model = smollm2().model
    x, new, judges = read(seed)
    network: Any = model.blocks[BLOCK - 1].feedforward
    y, right = written(network, x), written(network, new)
    # What comes from the fitting half is mixed, so that the part that chooses a penalty has both kinds.
    order = torch.randperm(len(x), generator=make_generator(seed, "places in turn"))
    transcoder = transcoder_of(x, y, seed, "trained")
    straight = linear_map(x[order], y[order], len(x) * 3 // 4)
    usual = activations(network, x).mean(0)
    ways = {
        "mean": lambda some: y.mean(0).expand_as(some),
        "neurons": lambda some: of_strongest(network, usual, some, SPEAK),
        "linear": straight,
        "transcoder": transcoder,
    }
    sweep = begin(judges)
    name, losses = f"blocks.{BLOCK - 1}.feedforward.out", []
    for way in INSTEAD:
        rewritten = ways[way](new).unflatten(0, (len(judges), -1))
        with intervene(model, {name: partial(behind_the_first, rewritten)}):
            losses.append(judged(sweep.losses(sweep.onward(BLOCK - 1))))
    return {
        "explained": ("fit", [explained(right, ways[name](new)) for name in FITS]),
        "loss": ("instead", losses),
        "whole": judged(sweep.losses()),
        "used": float((transcoder.encode(new) > 0).any(0).double().mean()),
    }


@measurement(
    seeds=10,
    coords={"control": CONTROLS},
    tolerance={"explained": 0.03},
    pretrained=NEEDS,
    data=DATA,
)
def controls(seed: int) -> dict[str, Any]:
    """What a transcoder of its own explains of a network with random directions, and of noise that it reads."""
    x, new, _ = read(seed)
    network: Any = smollm2().model.blocks[BLOCK - 1].feedforward
    other = redrawn(network, seed)
    of_redrawn = transcoder_of(x, written(other, x), seed, "redrawn")(new)
    drawn = noise_like(x, len(x) + len(new), seed)
    of_noise, new_noise = drawn[: len(x)], drawn[len(x) :]
    of_network = transcoder_of(of_noise, written(network, of_noise), seed, "noise")(new_noise)
    share = {
        "redrawn": explained(written(other, new), of_redrawn),
        "noise": explained(written(network, new_noise), of_network),
    }
    return {"explained": ("control", [share[name] for name in CONTROLS])}


def behind_the_first(
    rewritten: Float[Tensor, "text later d_model"], value: Float[Tensor, "text position d_model"]
) -> Tensor:
    """What a network writes, with something else behind the first token."""
    return torch.cat((value[:, :1], rewritten), 1)


def judged(losses: Float[Tensor, "text target"]) -> float:
    """Nats a token from the ninth on."""
    return float(losses[:, SINCE - 1 :].double().mean())
