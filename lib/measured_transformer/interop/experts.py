"""What the tables of architectures with experts share: names of their tensors, and what single layers have.

Checkpoints store each expert by itself, as these tables do. A live model of `transformers` has those of a layer
in one tensor, gate and what it stands on one after the other: `unpacked` takes it apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torch import Tensor

from measured_transformer.interop.family import MisfitError
from measured_transformer.interop.layer_types import by_layer
from measured_transformer.interop.tensors import Entry, entry, layer
from measured_transformer.models.config import Config
from measured_transformer.parts.experts import Experts
from measured_transformer.parts.networks import PLAIN, Network

PROJECTIONS = MappingProxyType({"gate": "gate_proj", "up": "up_proj", "down": "down_proj"})
"""Our names of an expert's projections, and theirs."""


def network_entries(
    config: Config,
    i: int,
    *,
    place: str = "mlp",
    names: Mapping[str, str] = PROJECTIONS,
    shared: str = "shared_expert",
) -> list[Entry]:
    """The tensors of a layer's network, with experts or plain.

    Args:
        config: tells which there are.
        i: number of the layer.
        place: where they stand in a layer.
        names: our names of the projections, and theirs.
        shared: name of the network that every position uses.
    """
    one = config.of_layer(i)
    theirs, ours, network = f"layers.{i}.{place}", f"blocks.{i}.feedforward", one.network
    if not isinstance(network, Experts):
        return [
            row
            for own, other in names.items()
            for row in layer(f"{theirs}.{other}", f"{ours}.{own}", bias=one.ffn_has_bias)
        ]
    width = network.neurons(one)
    rows = [entry(f"{theirs}.gate.weight", f"{ours}.router.weight")]
    for e in range(network.n_experts):
        for own, other in names.items():
            part = (1 if own == "down" else 0, e * width, width)
            stored = f"{theirs}.experts.{e}.{other}.weight"
            rows.append(entry(stored, f"{ours}.{own}.weight", part=part))
    if network.shared_width:
        for own, other in names.items():
            rows.append(entry(f"{theirs}.{shared}.{other}.weight", f"{ours}.shared.{own}.weight"))
    if network.shared_gate:
        rows.append(entry(f"{theirs}.{shared}_gate.weight", f"{ours}.shared_gate.weight"))
    return rows


def unpacked(
    held: Mapping[str, Tensor], *, place: str = "mlp", names: Mapping[str, str] = PROJECTIONS
) -> dict[str, Tensor]:
    """The tensors with every expert by itself, from those of a live model or of a file."""
    found: dict[str, Tensor] = {}
    for full, tensor in held.items():
        name = full.replace(".mlp.", f".{place}.") if full.startswith("layers.") else full
        stem, _, last = name.rpartition(".")
        if not stem.endswith(f".{place}.experts") or tensor.ndim != 3:
            found[name] = tensor
            continue
        for e, one in enumerate(tensor):
            pieces = {"down": one}
            if last == "gate_up_proj":
                pieces = dict(zip(("gate", "up"), one.chunk(2), strict=True))
            for own, piece in pieces.items():
                found[f"{stem}.{e}.{names[own]}.weight"] = piece
    return found


def networks(kinds: Sequence[Network], **others: Sequence[Any]) -> dict[str, Any]:
    """Fields of a `Config` from the network of each layer, and what else its layers have."""
    return by_layer(network=kinds, **others)


def sparse_layers(theirs: Mapping[str, Any], n: int, experts: Network) -> list[Network]:
    """The network of each layer, from Qwen's `decoder_sparse_step` and `mlp_only_layers`.

    Raises:
        ValueError: when they are no numbers.
    """
    step, only = theirs["decoder_sparse_step"], theirs["mlp_only_layers"] or []
    if isinstance(step, bool) or not isinstance(step, int) or step < 1:
        raise ValueError(f"decoder_sparse_step must be a positive whole number, got {step!r}")
    if not isinstance(only, list | tuple) or not all(isinstance(i, int) for i in only):
        raise ValueError(f"mlp_only_layers must be a list of whole numbers, got {only!r}")
    return [PLAIN if i in only or (i + 1) % step else experts for i in range(n)]


def experts_of(config: Config) -> tuple[Experts, int, list[int]]:
    """The experts of a config's first layer that has some, their width, and the layers that have none.

    Raises:
        MisfitError: when no layer has experts.
    """
    blocks = [config.of_layer(i) for i in range(config.n_layers)]
    kinds = [one.network for one in blocks]
    plain = [i for i, kind in enumerate(kinds) if not isinstance(kind, Experts)]
    for one, kind in zip(blocks, kinds, strict=True):
        if isinstance(kind, Experts):
            return kind, kind.neurons(one), plain
    raise MisfitError("its network must be one of experts (parts.experts.Experts), is none")


def plain_width(config: Config, plain: Sequence[int]) -> int:
    """The neurons of the layers without experts; the config's where all have experts."""
    return config.of_layer(plain[0]).neurons if plain else config.neurons
