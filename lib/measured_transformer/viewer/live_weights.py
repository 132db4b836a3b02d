"""Packs a model for a page that runs it: weights in half precision or 8 bits, and what experiments need.

One buffer holds everything, and a description says what lies where. Beside the weights there are *kept
sentences*: over them the page asks whether an effect was luck, and from them comes what stands in for a part
that is switched off.
"""

from __future__ import annotations

import copy
import io
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.analysis.lens import TunedLens
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.positions import alibi_slopes

__all__ = ["Bits", "halved", "in_eight_bits", "pack", "require_known", "rounded"]

Bits = Literal[8, 16]
Kind = Literal["half", "single", "token", "byte", "code"]
_TYPES: Mapping[Kind, str] = {
    "half": "<f2",
    "single": "<f4",
    "token": "<u2",
    "byte": "|u1",
    "code": "|i1",
}

# What the engine of the page computes. Other settings of these fields change what a model computes.
_KNOWN: Mapping[str, tuple[Any, ...]] = {
    "positions": ("none", "sinusoidal", "sinusoidal_halves", "learned", "rotary", "alibi"),
    "norm": ("layer", "rms", "layer_plain", "none"),
    "placement": ("pre", "post"),
    "head": ("linear",),
}
_DEFAULT = (
    *("parallel", "attention_norm", "residual", "residual_scale", "qk_norm", "window", "sinks", "shared_kv"),
    *("score_cap", "logit_cap", "rotary_scaling", "embedding_norm", "token_types", "layers"),
    *("attention", "network"),
)  # fmt: skip


def require_known(model: nn.Module) -> Decoder:
    """The model itself, where the engine of the page computes all that it does.

    Raises:
        ValueError: it is no `Decoder`, or has a setting or weights that the engine does not know.
    """
    if not isinstance(model, Decoder):
        raise ValueError(f"a page runs a Decoder, got {type(model).__name__}")
    config, plain = model.config, Config(vocab=model.config.vocab)
    for name, known in _KNOWN.items():
        if (value := getattr(config, name)) not in known:
            raise ValueError(
                f"a page runs models with {name} one of {', '.join(known)}; got {value!r}"
            )
    for name in _DEFAULT:
        if (value := getattr(config, name)) != (usual := getattr(plain, name)):
            raise ValueError(f"a page runs models with {name}={usual!r}, got {value!r}")
    usual_names = set(Decoder(config).state_dict())
    if strange := sorted(set(model.state_dict()) ^ usual_names):
        raise ValueError(
            f"a page runs a Decoder with the usual parts; this one has other weights: {', '.join(strange[:3])}"
        )
    return model


def halved(model: Decoder) -> Decoder:
    """A copy whose weights are rounded to half precision and computed with in single precision.

    Raises:
        ValueError: a weight is not finite, or beyond what half precision reaches (65,504).

    >>> model = Decoder(Config(vocab=4, d_model=8, n_heads=2))
    >>> rounded = halved(model)
    >>> bool((rounded.token_embedding.weight - model.token_embedding.weight).abs().max() < 1e-3)
    True
    """
    found = copy.deepcopy(model).float().eval()
    with torch.no_grad():
        for name, weight in found.state_dict().items():
            rounded = weight.half()
            if not bool(rounded.isfinite().all()):
                raise ValueError(
                    "expected weights that half precision can hold (up to 65,504), got "
                    f"{float(weight.abs().max())} in {name}"
                )
            weight.copy_(rounded)
    return found


def in_eight_bits(weight: Tensor) -> tuple[Int[Tensor, "row column"], Float[Tensor, "row"]]:
    """Whole numbers from -127 to 127, and what each row is multiplied by to give the weights again.

    A row is the last axis; its largest weight becomes 127. What a row is multiplied by is in half precision, so
    that products are exact in single precision. Weights that are such products come back as they are.

    Args:
        weight: of any shape; all its axes but the last one are taken together.

    >>> codes, scales = in_eight_bits(torch.tensor([[127.0, -2.0, 0.4]]))
    >>> codes.tolist(), scales.tolist()
    ([[127, -2, 0]], [1.0])
    """
    rows = weight.detach().double().reshape(-1, weight.shape[-1])
    scales = (rows.abs().amax(1) / 127).half().double().clamp_min(2.0**-24)
    return (rows / scales[:, None]).round().clamp(-127, 127).long(), scales


def rounded(model: Decoder, bits: Bits) -> Decoder:
    """A copy whose weights are rounded to half precision (16 bits), or to 8 bits and a factor for each row.

    The copy computes in single precision, which holds both exactly: what a page computes with the packed
    weights is what the copy computes.

    Raises:
        ValueError: `bits` is neither, a weight is not finite, or beyond what half precision reaches (65,504).
    """
    if bits not in (8, 16):
        raise ValueError(f"expected 8 or 16 bits, got {bits!r}")
    found = halved(model)
    if bits == 16:
        return found
    with torch.no_grad():
        for own, given in zip(found.parameters(), model.parameters(), strict=True):
            codes, scales = in_eight_bits(given)
            own.copy_((codes * scales[:, None]).view_as(own))
    return found


def pack(
    model: Decoder,
    kept: Int[Tensor, "sentence position"],
    room: int,
    *,
    bits: Bits = 16,
    lens: TunedLens | None = None,
) -> tuple[dict[str, Any], bytes]:
    """What the page unpacks: a description, and the bytes that it points into.

    Args:
        model: with weights as `rounded` gives them.
        kept: the kept sentences.
        room: how many tokens a text may have, with what the model writes to it.
        bits: of a weight.
        lens: a tuned lens, whose maps half precision holds.

    Returns:
        the description, with the checksum of the bytes, and the bytes.
    """
    blob = io.BytesIO()

    def write(values: NDArray[Any], kind: Kind) -> dict[str, Any]:
        blob.write(b"\0" * (-blob.tell() % 4))
        at = blob.tell()
        blob.write(np.ascontiguousarray(values, _TYPES[kind]).tobytes())
        return {"at": at, "kind": kind, "shape": list(values.shape)}

    def write_weight(weight: Tensor) -> dict[str, Any]:
        if bits == 16:
            return write(weight.numpy(), "half")
        codes, scales = in_eight_bits(weight)
        return write(codes.view(weight.shape).numpy(), "code") | {
            "scales": write(scales.numpy(), "half")
        }

    weights = {
        name: write_weight(weight)
        for name, weight in model.state_dict().items()
        if not name.startswith("positions.")
        and not (model.config.tie_embeddings and name == "unembedding.weight")
    }
    if model.positions is not None:
        weights["positions"] = write(_positions(model, room), "single")
    means, losses = _over(model, kept)
    told = {
        "weights": weights,
        "means": {name: write(value.numpy(), "single") for name, value in means.items()},
        "losses": write(losses.numpy(), "single"),
        "kept": write(kept.numpy(), "byte" if model.config.vocab <= 256 else "token"),
        "lens": None if lens is None else _lens(lens, write),
        "sizes": _sizes(model.config, room),
        "config": _settings(model.config),
    }
    packed = blob.getvalue()
    return told | {"bytes": len(packed), "checksum": zlib.crc32(packed)}, packed


def _lens(lens: TunedLens, write: Callable[[NDArray[Any], Kind], dict[str, Any]]) -> dict[str, Any]:
    """The maps of all depths but the last, (depth, output, input) and (depth, output)."""
    return {
        "weight": write(lens.weight[:-1].transpose(1, 2).numpy(), "half"),
        "bias": write(lens.bias[:-1].numpy(), "half"),
    }


@torch.no_grad()
def _positions(model: Decoder, room: int) -> NDArray[np.float32]:
    assert model.positions is not None
    rows: Tensor = model.positions(room)
    return rows.float().numpy()


@torch.no_grad()
def _over(
    model: Decoder, kept: Int[Tensor, "sentence position"]
) -> tuple[dict[str, Tensor], Float[Tensor, "sentence"]]:
    """Means of what heads mix and networks write, by position, and the mean loss of each sentence in nats."""
    with capture(model, "blocks.*.attention.mixed", "blocks.*.feedforward.out") as seen:
        logits = model(kept)
    losses = F.cross_entropy(logits[:, :-1].transpose(1, 2).double(), kept[:, 1:], reduction="none")
    means = {}
    for name, value in seen.items():
        mean = value.mean(0)
        means[name] = mean.transpose(0, 1).flatten(1) if mean.ndim == 3 else mean
    return means, losses.mean(1).float()


def _sizes(config: Config, room: int) -> dict[str, int]:
    return {
        "L": config.n_layers,
        "D": config.d_model,
        "H": config.n_heads,
        "G": config.kv_heads,
        "E": config.head_width,
        "F": config.neurons,
        "V": config.vocab,
        "room": room,
    }


def _settings(config: Config) -> dict[str, Any]:
    rotary = {
        "base": config.rotary_base,
        "turned": config.rotary_width,
        "halves": config.rotary_pairing == "halves",
    }
    scale = config.attention_scale
    return {
        "norm": config.norm,
        "eps": config.norm_eps,
        "offset": config.norm_offset,
        "placement": config.placement,
        "activation": config.activation,
        "embedding": config.embedding_factor,
        "positions": config.positions,
        "rotary": rotary if config.positions == "rotary" else None,
        "slopes": alibi_slopes(config.n_heads).tolist() if config.positions == "alibi" else None,
        "scale": config.head_width**-0.5 if scale is None else scale,
        "finalNorm": config.has_final_norm,
        "logitScale": config.logit_scale,
    }
