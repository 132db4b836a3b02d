r"""What the chapter on layer norm measures: what a norm does to a vector, and what stays on the stream.

Vectors are rows. With $\mu$ the mean of the d entries of z and $\sigma$ their (biased) standard deviation,
LayerNorm is $(z - \mu) / \sigma \cdot \gamma + \beta$, which is $zL + \beta$ with
$L = (I - \mathbf 1^\top \mathbf 1 / d)\, \text{diag}(\gamma) / \sigma$ (Ba et al. 2016; the geometry after
Brody et al. 2023). What is trained: small decoders on text, which are looked at block by block, and decoders
of six blocks with other norms.
"""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.folding import as_rms_model, fold_norms
from measured_transformer.analysis.residual import random_model
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.norms import LayerNorm, RMSNorm
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.opened_text import TEXT, OpenedText
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run, evaluate
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.schedules import Constant, WarmupCosine
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.variants.norms import head_norms, sandwich, tanh_norms
from torch import Tensor, nn
from torch.nn import functional as F

from measured_book.measuring import job, measurement

Array = Float[np.ndarray, "..."]


# Formulas -----------------------------------------------------------------------------------------


def by_formula(
    x: Float[Tensor, "*batch d_model"],
    gamma: Float[Tensor, "d_model"],
    beta: Float[Tensor, "d_model"],
    *,
    unbiased: bool = False,
) -> Float[Tensor, "*batch d_model"]:
    """The norm as a formula has it, without an epsilon: entries that are all the same give 0 / 0.

    Args:
        x: vectors of any number.
        gamma, beta: what is multiplied by and added.
        unbiased: divide the squares by d - 1 instead of d.
    """
    deviation = x.std(dim=-1, correction=int(unbiased), keepdim=True)
    return (x - x.mean(dim=-1, keepdim=True)) / deviation * gamma + beta


def epsilon_outside(
    x: Float[Tensor, "*batch d_model"],
    gamma: Float[Tensor, "d_model"],
    beta: Float[Tensor, "d_model"],
    *,
    eps: float,
) -> Float[Tensor, "*batch d_model"]:
    """The norm as it is often coded: the unbiased deviation, and epsilon added to it, not under the root."""
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred / (x.std(dim=-1, keepdim=True) + eps) * gamma + beta


def drawn_vectors(
    seed: int, *, rows: int = 1
) -> tuple[
    Float[Tensor, "rows d_model"],
    Float[Tensor, "d_model"],
    Float[Tensor, "d_model"],
]:
    """Rows of a drawn width, mean and size, with a gamma and a beta, in float64.

    Widths lie from 3 to 256, deviations from a tenth to ten, both even in logarithms; entries of gamma lie
    from a half to two.
    """
    sizes = random.Random(seed)
    d_model = round(3 * (256 / 3) ** sizes.random())
    spread, mean = 10 ** sizes.uniform(-1, 1), sizes.uniform(-3, 3)
    draws = make_generator(seed, "vectors")
    x = torch.randn(rows, d_model, generator=draws, dtype=torch.float64)
    gamma = 0.5 + 1.5 * torch.rand(d_model, generator=draws, dtype=torch.float64)
    beta = torch.randn(d_model, generator=draws, dtype=torch.float64)
    return spread * (x + mean), gamma, beta


def projector(direction: Float[Tensor, "d_model"]) -> Float[Tensor, "d_model d_model"]:
    r"""The matrix that takes a direction u out of a row: $I - u^\top u / |u|^2$.

    Raises:
        ValueError: for a vector of length zero.

    >>> (torch.tensor([4.0, 1.0, 1.0]) @ projector(torch.ones(3))).round(decimals=3)
    tensor([ 2., -1., -1.])
    """
    length = direction.norm()
    if not length > 0:
        raise ValueError("expected a direction, got a vector of length zero")
    unit = direction / length
    return torch.eye(len(unit), dtype=unit.dtype) - torch.outer(unit, unit)


def norm_matrix(
    gamma: Float[Tensor, "d_model"], deviation: float | Float[Tensor, ""]
) -> Float[Tensor, "d_model d_model"]:
    r"""$L = (I - \mathbf 1^\top \mathbf 1 / d)\, \text{diag}(\gamma) / \sigma$ of $zL + \beta$.

    Args:
        gamma: the norm's weight.
        deviation: sigma, held at this value.
    """
    return projector(torch.ones_like(gamma)) * gamma / deviation


@torch.no_grad()
def probed_matrix(
    norm: LayerNorm, deviation: float | Float[Tensor, ""]
) -> Float[Tensor, "d_model d_model"]:
    """The matrix of a norm whose divisor is held: what it makes of the rows of the identity, without beta."""
    unit = torch.eye(len(norm.weight), dtype=norm.weight.dtype)
    with intervene(norm, {"scale": lambda scale: torch.full_like(scale, float(deviation))}):
        rows = norm(unit)
    return rows if norm.bias is None else rows - norm.bias


def singular_values(
    x: Float[Tensor, "d_model"], gamma: Float[Tensor, "d_model"] | None = None
) -> Array:
    """Singular values of the Jacobian of LayerNorm (without epsilon) at x, in falling order.

    Args:
        x: where.
        gamma: the norm's weight; ones when not given.
    """
    weight = torch.ones_like(x) if gamma is None else gamma

    def norm(at: Tensor) -> Tensor:
        return by_formula(at, weight, torch.zeros_like(weight))

    jacobian = torch.func.jacrev(norm)(x)
    found: np.ndarray = torch.linalg.svdvals(jacobian).numpy()
    return found


def layer_by_formula(
    x: Float[Tensor, "batch position d_model"],
    layer: nn.TransformerEncoderLayer,
    *,
    placement: str,
) -> Float[Tensor, "batch position d_model"]:
    """One layer from the weights of a PyTorch layer, with the norm where a formula puts it; no dropout.

    Args:
        x: the stream.
        layer: whose sublayers and norms are used, not its own forward pass.
        placement: 'post', LN(x + sublayer(x)), or 'pre', x + sublayer(LN(x)).

    Raises:
        ValueError: another placement.
    """
    if placement not in ("pre", "post"):
        raise ValueError(f"expected placement 'pre' or 'post', got {placement!r}")

    def attention(at: Tensor) -> Tensor:
        out: Tensor = layer.self_attn(at, at, at, need_weights=False)[0]
        return out

    def network(at: Tensor) -> Tensor:
        out: Tensor = layer.linear2(layer.activation(layer.linear1(at)))
        return out

    for sublayer, norm in ((attention, layer.norm1), (network, layer.norm2)):
        x = norm(x + sublayer(x)) if placement == "post" else x + sublayer(norm(x))
    return x


# Identities, each with a control that must fail ---------------------------------------------------

DRAWS = 100
CHECKS = (
    "formula", "centred", "epsilon outside", "neighbours", "scaled", "projection", "sphere",
    "affine", "matrix", "folded", "rms", "post", "pre", "rms model", "mean unseen",
)  # fmt: skip
"""What is checked on drawn vectors, layers and models."""
SIXTEEN = (3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0, 5.0, 8.0, 9.0, 7.0, 9.0, 3.0)
"""A vector whose norm's Jacobian is looked at."""


def _off(found: Tensor, right: Tensor) -> float:
    return float((found - right).abs().max())


def torchs(
    x: Float[Tensor, "*batch d_model"],
    gamma: Float[Tensor, "d_model"] | None = None,
    beta: Float[Tensor, "d_model"] | None = None,
    *,
    eps: float = 0.0,
) -> Float[Tensor, "*batch d_model"]:
    """PyTorch's layer norm over the last axis."""
    return F.layer_norm(x, x.shape[-1:], gamma, beta, eps)


def _rms(x: Tensor) -> Tensor:
    return RMSNorm(x.shape[-1], eps=0.0).double()(x)


def _on_vectors(draw: int) -> dict[str, tuple[float, float]]:
    """Errors and controls on one drawn vector."""
    x, gamma, beta = drawn_vectors(draw)
    right, plain = torchs(x, gamma, beta), torchs(x)
    ones, deviation = torch.ones_like(gamma), x.std(correction=0)
    centred, root = x - x.mean(-1, keepdim=True), math.sqrt(len(gamma))
    other = drawn_vectors(draw + 1000)[0].std(correction=0)
    norm = LayerNorm(len(gamma), eps=0.0).double()
    norm.weight.copy_(gamma)
    affine, probed = norm_matrix(gamma, deviation), probed_matrix(norm, deviation)
    formula = _off(by_formula(x, gamma, beta), right)
    small = torchs(x, gamma, beta, eps=1e-5)
    return {
        "formula": (formula, _off(by_formula(x, gamma, beta, unbiased=True), right)),
        "centred": (formula, _off(x / deviation * gamma + beta, right)),
        "epsilon outside": (
            _off(epsilon_outside(x, gamma, beta, eps=1e-5), small),
            _off(_rms(x) * gamma + beta, small),
        ),
        "scaled": (_off(_rms(centred), plain), _off(_rms(x), plain)),
        "projection": (_off(x @ projector(ones), centred), _off(x @ projector(beta), centred)),
        "sphere": (
            abs(float(plain.norm()) - root),
            abs(float((plain * gamma).norm()) - root),
        ),
        "affine": (
            _off(x @ affine + beta, right),
            _off(x @ norm_matrix(gamma, other) + beta, right),
        ),
        "matrix": (
            float((affine - probed).norm()),
            float((torch.diag(gamma) / deviation - probed).norm()),
        ),
        "rms": (_off(_rms(centred), torchs(centred)), _off(_rms(x), plain)),
    }


def _neighbours(draw: int) -> tuple[float, float]:
    """How much a token's output moves when all others are replaced: layer norm, and batch norm."""
    one, other = torch.randn(2, 4, 5, 8, generator=make_generator(draw, "batches")).double()
    other[0, 0] = one[0, 0]

    def batch_norm(x: Tensor) -> Tensor:
        return F.batch_norm(x.flatten(0, 1), None, None, training=True).view_as(x)

    moved = [_off(norm(one)[0, 0], norm(other)[0, 0]) for norm in (torchs, batch_norm)]
    return moved[0], moved[1]


def _placed(draw: int, placement: str) -> tuple[float, float]:
    """A layer by its formula against PyTorch's, with the norm in the right place and in the other one."""
    found = []
    for norm_first in (placement == "pre", placement == "post"):
        with seeded(draw):
            layer = nn.TransformerEncoderLayer(16, 4, 32, norm_first=norm_first, batch_first=True)
            layer = layer.double().eval()
            for norm in (layer.norm1, layer.norm2):
                norm.weight.normal_(1.0, 0.3)
                norm.bias.normal_(0.0, 0.3)
            x = torch.randn(2, 5, 16, dtype=torch.float64)
        found.append(_off(layer_by_formula(x, layer, placement=placement), layer(x)))
    return found[0], found[1]


def _decoder(draw: int, **changes: Any) -> tuple[Decoder, Tensor]:
    model, tokens = random_model(draw, causal=True, placement="pre", positions="rotary", **changes)
    if not isinstance(model, Decoder):
        raise TypeError(f"expected a decoder, got {type(model).__name__}")
    return model, tokens


def _without(model: Decoder, ending: str) -> Decoder:
    """A copy with the parameters of such names set to zero."""
    forgetful = copy.deepcopy(model)
    for name, parameter in forgetful.named_parameters():
        if name.endswith(ending):
            parameter.zero_()
    return forgetful


def _on_models(draw: int) -> dict[str, tuple[float, float]]:
    """Errors and controls on one drawn pre-norm decoder."""
    model, tokens = _decoder(draw)
    right = model(tokens)
    careless = fold_norms(_without(model, "norm.bias"))(tokens)
    twin = as_rms_model(model)
    uncentred = as_rms_model(model)
    uncentred.load_state_dict(
        uncentred.state_dict() | {"token_embedding.weight": model.token_embedding.weight}
    )
    moved = []
    for norm in ("layer", "rms"):
        one, own = _decoder(draw, norm=norm)
        with intervene(one, {"*.residual_*": lambda x: x + 1.0}):
            shifted = one(own)
        moved.append(_off(shifted, one(own)))
    return {
        "folded": (_off(fold_norms(model)(tokens), right), _off(careless, right)),
        "rms model": (_off(twin(tokens), right), _off(uncentred(tokens), right)),
        "mean unseen": (moved[0], moved[1]),
    }


@measurement(
    seeds=1,
    coords={"check": CHECKS, "draw": tuple(range(DRAWS)), "value": tuple(range(16))},
    tolerance={"error": 1e-9, "control": 1e-6, "noise": 3.0, "not_finite": 256, "gain": 1e-9},
)
@torch.no_grad()
def identities(seed: int) -> dict[str, Any]:
    """What a norm is, on 100 drawn vectors, layers and decoders each, with controls that must fail."""
    del seed
    error, control, centring, ratio, noise, lost = [], [], [], [], [], []
    for draw in range(DRAWS):
        found = _on_vectors(draw) | _on_models(draw)
        found["neighbours"] = _neighbours(draw)
        found |= {placement: _placed(draw, placement) for placement in ("post", "pre")}
        error.append([found[check][0] for check in CHECKS])
        control.append([found[check][1] for check in CHECKS])
        x, gamma, beta = drawn_vectors(draw)
        centring.append(_off(x - x.mean(-1, keepdim=True), torchs(x)))
        same = by_formula(torch.full_like(x, float(beta[0])), torch.ones_like(gamma), 0 * beta)
        lost.append(int((~same.isfinite()).sum()))
        noise.append(float(same.nan_to_num(0.0).abs().max()))
        ratio.append([_longer(size, draw) - 1 for size in (1.0, 1e-5)])
    at = torch.tensor(SIXTEEN, dtype=torch.float64)
    stretched = torch.linspace(0.5, 2.0, 16, dtype=torch.float64)
    with torch.enable_grad():
        gain = [singular_values(at), singular_values(at, stretched)]
    return {
        "error": (("check", "draw"), np.array(error).T.tolist()),
        "control": (("check", "draw"), np.array(control).T.tolist()),
        "centring": ("draw", centring),
        "usual": ("draw", [each[0] for each in ratio]),
        "tiny": ("draw", [each[1] for each in ratio]),
        "noise": ("draw", noise),
        "not_finite": ("draw", lost),
        "gain": (("weights", "value"), np.round(gain, 12)),
    }


def _longer(deviation: float, draw: int, *, width: int = 768, eps: float = 1e-5) -> float:
    """Length with epsilon outside over the length by definition, at a deviation of the input."""
    x = torch.randn(width, generator=make_generator(draw, "trap"), dtype=torch.float64)
    x = deviation * torchs(x)
    one = torch.ones_like(x)
    return float(epsilon_outside(x, one, 0 * one, eps=eps).norm() / torchs(x, eps=eps).norm())


# What stays on the stream -------------------------------------------------------------------------

NORMS = ("LayerNorm", "RMSNorm")
BLOCKS = 4
WIDTH = 64
READ = 64
PROSE = OpenedText(READ)
TEXT_STEPS = 600
SUBLAYERS = tuple(f"{part} {i + 1}" for i in range(BLOCKS) for part in ("attention", "network"))
STATES = ("embedding", *SUBLAYERS)
"""The stream at its start and behind each sublayer."""
READERS = (*SUBLAYERS, "logits")
"""What reads the norms, in the order of the pass."""
SHIFTS = (0.0, 0.5, 1.0, 2.0, 4.0)
STRETCHES = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0)
SPIKES = (1.0, 10.0, 100.0, 1000.0, 10000.0)
MIDDLE = "blocks.1.residual_post"
"""Behind the second of four blocks: where the stream is changed."""
CHANGES = ("nothing", "divisors frozen")


def prose_config(norm: str) -> Config:
    """A pre-norm decoder of characters, four blocks of width 64."""
    return Config(
        vocab=PROSE.vocab,
        d_model=WIDTH,
        n_layers=BLOCKS,
        n_heads=4,
        positions="rotary",
        norm="layer" if norm == "LayerNorm" else "rms",
    )


def text_trainings(seed: int) -> dict[str, Job]:
    """A small language model with each norm, at one learning rate."""
    options = {
        "steps": TEXT_STEPS,
        "learning_rate": 3e-3,
        "batch_size": 16,
        "schedule": WarmupCosine(60, TEXT_STEPS),
    }
    return {norm: job(prose_config(norm), PROSE, seed, **options) for norm in NORMS}


def states_of(
    model: Decoder, tokens: Int[Tensor, "batch position"]
) -> Float[Tensor, "state batch position d_model"]:
    """The stream behind the embedding and behind each sublayer."""
    taps = [
        f"blocks.{i}.residual_{at}" for i in range(model.config.n_layers) for at in ("mid", "post")
    ]
    with capture(model, "embedding", *taps) as seen, torch.no_grad():
        model(tokens)
    return torch.stack([seen[name] for name in ("embedding", *taps)])


def norm_divisors(
    model: Decoder, tokens: Int[Tensor, "batch position"]
) -> dict[str, Float[Tensor, "batch position"]]:
    """What each norm divides its vectors by, by the norm's name, in the order of the pass."""
    with capture(model, "*.scale") as seen, torch.no_grad():
        model(tokens)
    return {name.removesuffix(".scale"): scale[..., 0] for name, scale in seen.items()}


def variation(values: Float[Tensor, "..."]) -> float:
    """Coefficient of variation: standard deviation over mean.

    >>> round(variation(torch.tensor([1.0, 3.0])), 3)
    0.5
    """
    return float(values.std(correction=0) / values.mean())


def peaks(states: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch"]:
    """Largest magnitude among the entries of a vector over their (lower) median magnitude.

    >>> peaks(torch.tensor([1.0, -2.0, 30.0]))
    tensor(15.)
    """
    found: Tensor = states.abs().amax(-1) / states.abs().median(-1).values
    return found


@torch.no_grad()
def changed_loss(
    model: Decoder,
    batch: Any,
    changes: Mapping[str, Callable[[Tensor], Tensor] | float],
) -> float:
    """Loss on a batch with taps changed, in nats for each character; that of the start token does not count."""
    with intervene(model, changes):
        logits = model(batch.inputs)
    scored = batch.scored.clone()
    scored[:, 0] = False
    return float(cross_entropy(logits, batch.targets, scored))


def _shifted(by: float) -> Callable[[Tensor], Tensor]:
    """Add the same number to all entries of a token, in units of its root mean square."""
    return lambda x: x + by * x.square().mean(-1, keepdim=True).sqrt()


def _spiked(size: float, *, start_only: bool) -> Callable[[Tensor], Tensor]:
    """Set the first entry to so many times the stream's root mean square, of the start token or of all."""

    def spike(x: Tensor) -> Tensor:
        high = size * x.square().mean().sqrt()
        where = x[:, :1] if start_only else x
        where[..., 0] = high
        return x

    return spike


def looked(model: Decoder, seed: int) -> dict[str, Any]:
    """Everything that is looked at in one of the trained models."""
    batch = OpenedText(READ, "validation").batch(make_generator(seed, "evaluation"), 64)
    states = states_of(model, batch.inputs)
    lengths = states.square().mean(-1).sqrt()
    shares = WIDTH * states.mean(-1).square() / states.square().sum(-1)
    divisors = norm_divisors(model, batch.inputs)
    frozen = {f"{name}.scale": float(found.mean()) for name, found in divisors.items()}
    found = peaks(states)
    return {
        "rms": lengths.mean((1, 2)).tolist(),
        "rms_of_start": lengths[:, :, 0].mean(1).tolist(),
        "mean_share": shares.mean((1, 2)).tolist(),
        "peak_of_start": found[:, :, 0].amax(1).tolist(),
        "peak_elsewhere": found[:, :, 1:].amax((1, 2)).tolist(),
        "variation": [variation(each) for each in divisors.values()],
        "loss": [changed_loss(model, batch, change) for change in ({}, frozen)],
        "shifted": [changed_loss(model, batch, {MIDDLE: _shifted(by)}) for by in SHIFTS],
        "stretched": [
            changed_loss(model, batch, {MIDDLE: lambda x, by=by: by * x})  # type: ignore[misc]
            for by in STRETCHES
        ],
        "spiked": [
            [
                changed_loss(model, batch, {MIDDLE: _spiked(size, start_only=start)})
                for size in SPIKES
            ]
            for start in (True, False)
        ],
    }


@measurement(
    seeds=6,
    coords={
        "norm": NORMS,
        "state": STATES,
        "reader": READERS,
        "change": CHANGES,
        "shift": SHIFTS,
        "stretch": STRETCHES,
        "where": ("start", "everywhere"),
        "spike": SPIKES,
    },
    trainings=text_trainings,
    repeat="opening",
    tolerance={"loss": 0.1, "shifted": 1.0, "stretched": 1.0, "spiked": 2.0, "variation": 0.2},
    data=(TEXT,),
)
def text(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The stream of small language models: its length, its mean and its peaks, as it is and when changed."""
    found = {}
    for norm in NORMS:
        model = runs[norm].model
        if not isinstance(model, Decoder):
            raise TypeError(f"expected a decoder, got {type(model).__name__}")
        found[norm] = looked(model.eval(), seed)
    axes = {
        "variation": ("reader",),
        "loss": ("change",),
        "shifted": ("shift",),
        "stretched": ("stretch",),
        "spiked": ("where", "spike"),
    }
    normal = torch.randn(64, READ, WIDTH, generator=make_generator(seed, "normal"))
    return {
        **{
            name: (("norm", *axes.get(name, ("state",))), [found[norm][name] for norm in NORMS])
            for name in found[NORMS[0]]
        },
        "peak_by_chance": float(peaks(normal).amax()),
    }


ALONE = ("start", "one other")
LATER_HALF = READ // 2
"""Positions from here on are scored when one single token before them is changed."""


def lone_trainings(seed: int) -> dict[str, Job]:
    """The small language model with LayerNorm."""
    return {"LayerNorm": text_trainings(seed)["LayerNorm"]}


def _spiked_at(size: float, at: Int[Tensor, " batch"]) -> Callable[[Tensor], Tensor]:
    """Set the first entry of one token in each window to so many times the stream's root mean square."""

    def spike(x: Tensor) -> Tensor:
        x = x.clone()
        x[torch.arange(len(x)), at, 0] = size * x.square().mean().sqrt()
        return x

    return spike


@measurement(
    seeds=6,
    coords={"token": ALONE, "spike": SPIKES},
    trainings=lone_trainings,
    repeat="opening",
    tolerance={"cost": 1.0},
    data=(TEXT,),
)
@torch.no_grad()
def lone(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """A huge entry in one token of the first half of a window: what it costs the later half, in nats."""
    model = runs["LayerNorm"].model
    if not isinstance(model, Decoder):
        raise TypeError(f"expected a decoder, got {type(model).__name__}")
    model.eval()
    batch = OpenedText(READ, "validation").batch(make_generator(seed, "evaluation"), 64)
    scored = batch.scored.clone()
    scored[:, :LATER_HALF] = False
    drawn = torch.randint(1, LATER_HALF, (64,), generator=make_generator(seed, "token"))
    places = {"start": torch.zeros_like(drawn), "one other": drawn}

    def loss(changes: Mapping[str, Callable[[Tensor], Tensor] | float]) -> float:
        with intervene(model, changes):
            logits = model(batch.inputs)
        return float(cross_entropy(logits, batch.targets, scored))

    free = loss({})
    cost = [
        [loss({MIDDLE: _spiked_at(size, places[token])}) - free for size in SPIKES]
        for token in ALONE
    ]
    return {"cost": (("token", "spike"), cost)}


# Norms today --------------------------------------------------------------------------------------

TASK = Lag(vocab=24, length=24, lag=3, fidelity=0.9)
SIX = Config(vocab=24, d_model=32, n_layers=6, n_heads=4, positions="rotary")
ARMS: Mapping[str, tuple[Config, dict[str, Any]]] = {
    "LayerNorm": (SIX, {}),
    "RMSNorm": (SIX.replace(norm="rms"), {}),
    "Peri-LN": (SIX, {"prepare": sandwich}),
    "QK-norm": (SIX, {"prepare": head_norms}),
    "Dynamic Tanh": (SIX, {"prepare": tanh_norms}),
    "no norm": (SIX.replace(norm="none"), {}),
}
"""Pre-norm decoders of six blocks; Peri-LN and QK-norm have norms beyond those of LayerNorm."""
RATES = (5e-4, 1.5e-3, 4.5e-3, 1.35e-2, 4e-2, 0.12)
STEPS = 150


def arms_trainings(seed: int) -> dict[tuple[str, float], Job]:
    """Every arm at every learning rate, which is constant from the first step on."""
    options = {"steps": STEPS, "batch_size": 16, "schedule": Constant(warmup=0)}
    return {
        (arm, rate): job(config, TASK, seed, learning_rate=rate, **options, **prepared)
        for arm, (config, prepared) in ARMS.items()
        for rate in RATES
    }


def excess(run: Run, seed: int) -> float:
    """Loss on held-out sequences beyond the best possible on the same ones, in nats.

    A model that does worse than guessing, or whose weights are no numbers any more, counts as one that guesses.
    """
    best = float(np.nanmean(TASK.ideal_loss(TASK.batch(make_generator(seed, "evaluation"), 256))))
    guessing = math.log(TASK.vocab)
    finite = all(bool(weight.isfinite().all()) for weight in run.model.parameters())
    loss = evaluate(run.model, TASK, seed=seed).loss if finite else guessing
    return (min(loss, guessing) if math.isfinite(loss) else guessing) - best


@measurement(
    seeds=8,
    coords={"arm": tuple(ARMS), "rate": RATES},
    trainings=arms_trainings,
    repeat="opening",
    tolerance={"excess": 3.0},
)
def arms(seed: int, runs: Mapping[tuple[str, float], Run]) -> dict[str, Any]:
    """Six blocks on the lag task with one norm or another, or none, at six constant learning rates."""
    table = [[excess(runs[arm, rate], seed) for rate in RATES] for arm in ARMS]
    return {"excess": (("arm", "rate"), table)}


# By clock -----------------------------------------------------------------------------------------


CLOCKED = 256
"""Width of the vectors whose times are compared."""


def clocked(name: str, width: int = CLOCKED) -> Float[np.ndarray, "round"]:
    """Seconds of a norm, forward and backward, in each round of a committed benchmark.

    It is a run of `python -m benchmarks norms`, on 1024 vectors and one thread.

    Args:
        name: 'LayerNorm' or 'RMSNorm', with ', written out' for its formula in single operations.
        width: of the vectors.

    Raises:
        ValueError: nothing like it was measured.
    """
    file = resources.files(__package__) / "results" / "benchmark-norms.json"
    rows = json.loads(file.read_text("utf-8"))["rows"]
    for row in rows:
        if (row["name"], row["width"], row["passes"]) == (name, width, "forward, backward"):
            return np.array(row["each"], dtype=float)
    known = sorted({(str(row["name"]), int(row["width"])) for row in rows})
    raise ValueError(f"expected one of {known}, got {(name, width)}")
