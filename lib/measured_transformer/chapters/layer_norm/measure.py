r"""What a norm does to a vector: its geometry, its departures in code, what of it can be folded away, its time.

Vectors are rows. With $\mu$ the mean of the d entries of z and $\sigma$ their (biased) deviation, LayerNorm is
$(z - \mu) / \sigma \cdot \gamma + \beta$, which is $zL + \beta$ with
$L = (I - \mathbf 1^\top \mathbf 1 / d)\, \text{diag}(\gamma) / \sigma$ (Ba et al. 2016; the geometry
after Brody et al. 2023, "On the Expressivity Role of LayerNorm in Transformers' Attention").
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.block import Block
from measured_transformer.parts.norms import LayerNorm, RMSNorm
from measured_transformer.parts.positions import LearnedPositions, SinusoidalPositions
from measured_transformer.parts.tap import Tap
from measured_transformer.training.seeding import make_generator

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


def size_by_definition(deviation: Array, *, eps: float) -> Array:
    r"""Root mean square of what leaves a norm without weights: $s / \sqrt{s^2 + \epsilon}$.

    Args:
        deviation: s, the biased deviation of what enters.
        eps: added to the variance.

    >>> size_by_definition(np.array([1e-3, 1.0]), eps=1e-6).round(4).tolist()
    [0.7071, 1.0]
    """
    return deviation / np.sqrt(deviation**2 + eps)


def size_outside(deviation: Array, *, d_model: int, eps: float) -> Array:
    r"""The same for `epsilon_outside`: $s / (s \sqrt{d / (d - 1)} + \epsilon)$."""
    return deviation / (deviation * np.sqrt(d_model / (d_model - 1)) + eps)


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


# Geometry -----------------------------------------------------------------------------------------


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


# Layers written out -------------------------------------------------------------------------------


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


# Folding ------------------------------------------------------------------------------------------


class Divide(nn.Module):
    """What is left of a LayerNorm once all that can be folded is folded: the division by the deviation.

    The mean is looked at for the deviation and stays in the vector.

    Tap: `scale`, the divisor sqrt(variance + eps), (batch, position, 1).
    """

    def __init__(self, eps: float) -> None:
        """Keep epsilon; there are no weights."""
        super().__init__()
        self.eps = eps
        self.scale = Tap()

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """The vectors, divided by their deviations."""
        variance = x.var(dim=-1, correction=0, keepdim=True)
        divided: Tensor = x / self.scale((variance + self.eps).sqrt())
        return divided


def fold_norms(model: Decoder) -> Decoder:
    """A model with the same logits whose norms have no weights: those of the linear maps that follow do it.

    The rows of a map W that reads a norm become those of (I - 1 1 / d) diag(gamma) W, its bias becomes
    beta W + b, and the norm becomes a `Divide`. RMSNorm has neither beta nor centring; its weight becomes one.
    The unembedding is no longer tied. The config is kept; a map may have a bias that it does not mention.

    Args:
        model: a pre-norm decoder; it is left as it was.

    Raises:
        ValueError: when a norm is not followed by linear maps alone: post-norm, a head other than 'linear',
            a norm behind the embedding.
    """
    folded = copy.deepcopy(model)
    for parent, name, norm, readers, factor in _norms_and_readers(folded):
        _fold(norm, readers, factor)
        if isinstance(norm, LayerNorm):
            with torch.no_grad():
                for reader in readers:  # centring a row before a map is centring the map's columns
                    reader.weight.sub_(reader.weight.mean(dim=1, keepdim=True))
            setattr(parent, name, Divide(norm.eps))
    return folded


def as_rms_model(model: Decoder) -> Decoder:
    """A decoder with RMSNorm that has the same logits as this one with LayerNorm.

    The mean of a state is on the stream only because something wrote it there. Take it out of all that is
    written (embedding, learned positions, both sublayers) and every state is centred; on centred vectors
    LayerNorm without weights is RMSNorm. Its weights are folded into the maps that follow. After Ashkboos et
    al. (2024), "SliceGPT".

    Args:
        model: a pre-norm decoder with LayerNorm; it is left as it was.

    Raises:
        ValueError: when the norm is another one, when positions are sinusoidal (their table is fixed, and not
            centred), or as `fold_norms`.
    """
    if model.config.norm != "layer":
        raise ValueError(f"expected a model with the norm 'layer', got {model.config.norm!r}")
    if isinstance(model.positions, SinusoidalPositions):
        raise ValueError(
            "expected positions that can be centred, got 'sinusoidal', a table that is fixed"
        )
    twin = copy.deepcopy(model)
    for parent, name, norm, readers, factor in _norms_and_readers(twin):
        _fold(norm, readers, factor)
        kept = RMSNorm(model.config.d_model, eps=norm.eps)
        setattr(parent, name, kept.to(norm.weight))
    with torch.no_grad():
        tables = [twin.token_embedding, twin.token_type_embedding, twin.positions]
        for table in tables:
            if isinstance(table, (nn.Embedding, LearnedPositions)):
                for rows in table.parameters():
                    rows.sub_(rows.mean(dim=-1, keepdim=True))
        for block in cast("list[Block]", list(twin.blocks)):
            for writer in (block.attention.output, block.feedforward.down):
                for weight in writer.parameters():  # (d_model, in) and (d_model,)
                    weight.sub_(weight.mean(dim=0, keepdim=True))
    twin.config = model.config.replace(norm="rms", tie_embeddings=False)
    return twin


def _norms_and_readers(
    model: Decoder,
) -> Iterator[tuple[nn.Module, str, LayerNorm | RMSNorm, list[nn.Linear], float]]:
    """Each norm with its parent and name, the maps that read it, and a factor between the two.

    Unties the unembedding. Raises ValueError where something else reads a norm.
    """
    config = model.config
    if config.placement != "pre":
        raise ValueError("expected a pre-norm model; behind a post-norm the stream itself goes on")
    if config.head != "linear" or model.unembedding is None:
        raise ValueError(
            f"expected the head 'linear' behind the final norm, got {config.head!r}; "
            "something else than one linear map would read the norm"
        )
    if config.embedding_norm and config.norm != "none":
        raise ValueError("expected no norm behind the embedding: the stream itself reads it")
    model.unembedding.weight = nn.Parameter(model.unembedding.weight.detach().clone())
    found: list[tuple[nn.Module, str, list[nn.Linear], float]] = []
    for block in cast("list[Block]", list(model.blocks)):
        attention, network = block.attention, block.feedforward
        asking: list[nn.Linear] = [attention.query, attention.key, attention.value]
        found.append((block, "attention_norm", asking, 1.0))
        gate = [] if network.gate is None else [network.gate]
        found.append((block, "feedforward_norm", [network.up, *gate], 1.0))
    found.append((model, "final_norm", [model.unembedding], config.logit_scale))
    for parent, name, readers, factor in found:
        norm = getattr(parent, name)
        if isinstance(norm, (LayerNorm, RMSNorm)):
            yield parent, name, norm, readers, factor


@torch.no_grad()
def _fold(norm: LayerNorm | RMSNorm, readers: list[nn.Linear], factor: float) -> None:
    """Move gamma and beta into the maps, in place; the norm's own become one and zero."""
    beta = norm.bias if isinstance(norm, LayerNorm) else None
    for reader in readers:
        if beta is not None:
            added = factor * reader.weight @ beta
            before = torch.zeros_like(added) if reader.bias is None else reader.bias
            reader.bias = nn.Parameter(before + added)
        reader.weight.mul_(norm.weight)
    norm.weight.fill_(1.0)
    if beta is not None:
        beta.zero_()


# How constant the deviation is --------------------------------------------------------------------


@torch.no_grad()
def norm_divisors(
    model: Decoder, tokens: Int[Tensor, "batch position"]
) -> dict[str, Float[Tensor, "batch position"]]:
    """What each norm divides its vectors by, by the norm's name, in the order of the pass."""
    with capture(model, "*.scale") as seen:
        model(tokens)
    return {name.removesuffix(".scale"): scale[..., 0] for name, scale in seen.items()}


def variation(values: Float[Tensor, "..."]) -> float:
    """Coefficient of variation: standard deviation over mean.

    >>> round(variation(torch.tensor([1.0, 3.0])), 3)
    0.5
    """
    return float(values.std(correction=0) / values.mean())


@torch.no_grad()
def freezing_errors(model: Decoder, tokens: Int[Tensor, "batch position"]) -> dict[str, float]:
    """Relative error of each norm's output when its divisor is held at its mean over all tokens.

    The root of the mean square of the difference over that of the output, one norm at a time, on the states of
    the unchanged model.

    Raises:
        ValueError: a model without norms, or with norms on the stream.
    """
    config = model.config
    if config.norm == "none" or config.placement != "pre":
        raise ValueError(
            "expected a pre-norm model with norms, got placement "
            f"{config.placement!r} and norm {config.norm!r}"
        )
    before = {"attention_norm": "residual_pre", "feedforward_norm": "residual_mid"}
    places = {
        f"blocks.{i}.{norm}": f"blocks.{i}.{tap}"
        for i in range(config.n_layers)
        for norm, tap in before.items()
    }
    if config.has_final_norm:
        places["final_norm"] = f"blocks.{config.n_layers - 1}.residual_post"
    with capture(model, *places.values()) as seen:
        model(tokens)
    means = {name: found.mean() for name, found in norm_divisors(model, tokens).items()}
    errors = {}
    for name, tap in places.items():
        norm = model.get_submodule(name)
        true = norm(seen[tap])
        with intervene(norm, {"scale": means[name]}):
            held = norm(seen[tap])
        errors[name] = float((held - true).norm() / true.norm())
    return errors


# By clock -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NormRun:
    """A committed run of `python -m benchmarks norms`.

    Attributes:
        machine: device, threads, precision, versions and date.
        rounds: how often each contender had its turn.
        rows: what was measured; `each` holds the seconds of every round.
    """

    machine: dict[str, object]
    rounds: int
    rows: list[dict[str, object]]

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths that were measured, in rising order."""
        return tuple(sorted({int(str(row["width"])) for row in self.rows}))

    @property
    def tokens(self) -> int:
        """How many vectors were normalised in a call."""
        return int(str(self.rows[0]["tokens"]))

    def seconds(self, name: str, width: int, passes: str = "forward, backward") -> Array:
        """Seconds of a call, one for each round.

        Args:
            name: 'LayerNorm' or 'RMSNorm', with ', written out' for its formula in single operations.
            width: of the vectors.
            passes: 'forward' or 'forward, backward'.

        Raises:
            ValueError: nothing like it was measured.
        """
        asked = (name, width, passes)
        for row in self.rows:
            if (row["name"], row["width"], row["passes"]) == asked:
                return np.array(row["each"], dtype=float)
        known = sorted({(row["name"], row["width"], row["passes"]) for row in self.rows}, key=str)
        raise ValueError(f"expected one of {known}, got {asked}")

    def set_medians(self, name: str, width: int, sets: int) -> Array:
        """The median seconds of so many sets of consecutive rounds, forward and backward.

        Raises:
            ValueError: more sets than rounds, or none.
        """
        if not 0 < sets <= self.rounds:
            raise ValueError(f"expected from 1 to {self.rounds} sets of rounds, got {sets}")
        parts = np.array_split(self.seconds(name, width), sets)
        return np.array([np.median(part) for part in parts])

    def ratio(
        self, width: int, *, written_out: bool = False, passes: str = "forward, backward"
    ) -> tuple[float, float, float]:
        """Median time of RMSNorm over that of LayerNorm, with its 95 % bootstrap interval over rounds."""
        end = ", written out" if written_out else ""
        rms, layer = (
            self.seconds(f"{name}{end}", width, passes) for name in ("RMSNorm", "LayerNorm")
        )
        rows = np.random.default_rng(0).integers(len(rms), size=(5000, len(rms)))
        drawn = np.median(rms[rows], axis=1) / np.median(layer[rows], axis=1)
        low, high = np.quantile(drawn, (0.025, 0.975))
        return float(np.median(rms) / np.median(layer)), float(low), float(high)


def measured_norms() -> NormRun:
    """The run of `python -m benchmarks norms` that was committed with the library."""
    file = resources.files(__package__) / "results" / "benchmark-norms.json"
    found = json.loads(file.read_text("utf-8"))
    return NormRun(found["machine"], found["rounds"], found["rows"])
