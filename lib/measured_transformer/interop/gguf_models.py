"""From a GGUF file to a model of this library.

The file's settings and names are translated to those of the Hugging Face format, whose families
(`interop.huggingface.FAMILIES`) say what is built from them. What belongs to one architecture stands in
`interop.gguf_architectures`.

llama.cpp turns neighbouring entries of queries and keys together, and its files of Llama have the rows of
the two projections in that order. They are put back here, so that a model from a GGUF file has the rows of
the published checkpoint. With the rows as they lie in the file it would compute something else, and nothing
would complain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from measured_transformer.interop.checkpoint import Checkpoint
from measured_transformer.interop.family import Model
from measured_transformer.interop.gguf_architectures import (
    ARCHITECTURES,
    UNREAD,
    WITH_EXPERTS,
    Architecture,
)
from measured_transformer.interop.gguf_file import GGUFFile
from measured_transformer.interop.huggingface import FAMILIES
from measured_transformer.interop.pairing import convert_pairing
from measured_transformer.interop.tensors import Entry, load_tensors

_EMBEDDING, _UNEMBEDDING = "token_embd.weight", "output.weight"
EXPERTS = {
    "gate.weight": "ffn_gate_exps.weight",
    "up.weight": "ffn_up_exps.weight",
    "down.weight": "ffn_down_exps.weight",
    "gate.bias": "ffn_gate_exps.bias",
    "up.bias": "ffn_up_exps.bias",
    "down_bias": "ffn_down_exps.bias",
}
"""Our parameters of the experts of a block, and the file's tensors, which stack the experts."""
_SINGLE = "blk.{}.ffn_{}.{}.weight"
"""The tensor of one expert, of a block and a projection, in files from before April 2024 (Mixtral)."""
_FREQUENCIES = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


# Keys that change nothing when they have this value, and some that change nothing at all (None).
_NEUTRAL: dict[str, tuple[Any, ...] | None] = {
    "vocab_size": None,  # the embedding has as many rows
    "tensor_data_layout": None,  # written by old converters
    "rope.scaling.type": ("none",),
    "rope.scaling.factor": (1.0,),
    "rope.scale_linear": (1.0,),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "attention.sliding_window": (0,),
    "attention.causal": (True,),
    "logit_scale": (1.0,),
    "residual_scale": (1.0,),
    "embedding_scale": (1.0,),
}


def from_gguf(path: str | Path | GGUFFile, *, dtype: torch.dtype | None = None) -> Model:
    """The model of this library that computes what a GGUF file of llama.cpp describes.

    Its weights are the real numbers that the file's blocks stand for: those of the quantised model, not of the
    one that was quantised. `GGUFFile(path).precision` says how many bits they have.

    Args:
        path: the file, or what was read of it.
        dtype: of the model's numbers; float32 when not given.

    Returns:
        A `Decoder` in evaluation mode.

    Raises:
        FileNotFoundError: when there is no such file.
        ImportError: when the package `gguf` is missing.
        ValueError: when the file is damaged or one of several, its architecture is unknown here, a key asks for
            something that this library does not compute, or tensors are missing, surplus or misshapen.
    """
    file = path if isinstance(path, GGUFFile) else GGUFFile(path)
    how = _architecture(file)
    family = FAMILIES[how.family]
    checkpoint = Checkpoint({"model_type": how.family, **_settings(file, how)}, {}, None)
    with _WithoutDrawing():  # every weight is replaced below
        model = family.kind(family.read(checkpoint, {})).to(dtype or torch.float32)
    single = _SINGLE.format(0, "gate", 0) in file.tensors
    rows = list(_named(how, family.entries(model.config), model.config.n_layers, single=single))
    _check_names(file, rows)
    width = model.config.head_width
    for _, some in groupby(rows, key=lambda row: row.theirs.split(".")[:2]):
        block = list(some)
        tensors = {}
        for row in block:
            tensor = _laid_out(row.theirs, file.tensor(row.theirs))
            if row.theirs.split(".")[-2] in how.turned:
                tensor = convert_pairing(tensor, width, to="halves")
            if how.norms_plus_one and row.theirs.endswith("norm.weight"):
                tensor = tensor - 1
            tensors[row.theirs] = tensor
        load_tensors(model, block, tensors, {})
    return model.eval()


def _laid_out(name: str, tensor: Tensor) -> Tensor:
    """A tensor of the file as our parameters lie: experts side by side, a map to one number as one row."""
    kind = name.split(".")[-2]
    if kind == "ffn_gate_inp_shexp":
        return tensor.reshape(1, -1)
    if not kind.endswith("_exps") or name.endswith("ffn_down_exps.bias") or tensor.ndim < 2:
        return tensor
    if kind == "ffn_down_exps":
        return tensor.transpose(0, 1).flatten(1)
    return tensor.flatten(0, 1)


# `torch.nn.init` hands its own functions to the mode, and calls the tensor's methods without it.
_DRAWING = (
    *(Tensor.normal_, Tensor.uniform_),
    *(nn.init.normal_, nn.init.uniform_, nn.init.xavier_uniform_, nn.init.kaiming_uniform_),
)


class _WithoutDrawing(TorchFunctionMode):
    """Leaves fresh weights as they lie in memory: half of the time of loading would go into drawing them."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function in _DRAWING:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **(kwargs or {}))


def _architecture(file: GGUFFile) -> Architecture:
    meta = file.metadata
    for key, value in (("general.type", "model"), ("split.count", 1)):
        if meta.get(key, value) not in (value, 0):
            raise ValueError(
                f"{file.path} has {key}={meta[key]!r}, which is not read; expected one file that holds a whole "
                f"model ({key}={value!r})"
            )
    with_experts = WITH_EXPERTS.format(file.architecture)
    if meta.get(f"{file.architecture}.expert_count") and with_experts in ARCHITECTURES:
        return ARCHITECTURES[with_experts]
    if file.architecture in UNREAD:
        raise ValueError(
            f"{file.path} holds a model of {UNREAD[file.architecture]} (general.architecture="
            f"{file.architecture!r}), which this library computes but does not read from GGUF files: load the "
            "published checkpoint with from_huggingface"
        )
    if file.architecture not in ARCHITECTURES:
        raise ValueError(
            f"{file.path} has general.architecture={file.architecture!r}, which this library does not compute; "
            f"it reads {', '.join(ARCHITECTURES)}"
        )
    return ARCHITECTURES[file.architecture]


def _settings(file: GGUFFile, how: Architecture) -> dict[str, Any]:
    """The settings of `config.json` that the file gives."""
    prefix = f"{file.architecture}."
    given = {k.removeprefix(prefix): v for k, v in file.metadata.items() if k.startswith(prefix)}
    for name in how.required:
        if name not in given:
            raise ValueError(f"{file.path} lacks the key {prefix}{name}")
    settings: dict[str, Any] = {"tie_word_embeddings": _UNEMBEDDING not in file.tensors}
    for name, value in given.items():
        if isinstance(value, list):
            raise ValueError(
                f"{file.path} has a value for each block in {prefix}{name}, which this library does not compute"
            )
        if name in how.settings:
            settings[how.settings[name]] = value
    heads = given["attention.head_count"]
    width = given.get("attention.key_length", given["embedding_length"] // max(heads, 1))
    implied = {"rope.dimension_count": (width,), "attention.value_length": (width,)}
    for name, value in given.items():
        allowed = {**_NEUTRAL, **implied}.get(name, ())
        if (
            name not in (*how.settings, *how.derived)
            and allowed is not None
            and value not in allowed
        ):
            hint = f"; supported is {allowed[0]!r}" if allowed else ""
            raise ValueError(
                f"{file.path} has {prefix}{name}={value!r}, which this library does not compute{hint}"
            )
    for name in _FREQUENCIES:
        if name in file.tensors:
            raise ValueError(
                f"{file.path} has {name}, which scales the rotary frequencies and is not computed here"
            )
    if (embedding := file.tensors.get(_EMBEDDING)) is None or len(embedding.shape) != 2:
        raise ValueError(f"{file.path} lacks the tensor {_EMBEDDING}")
    settings["vocab_size"] = embedding.shape[0]
    if kv_heads := how.settings.get("attention.head_count_kv"):
        settings.setdefault(kv_heads, heads)
    for name, tensor in how.biases.items():
        settings[name] = f"blk.0.{tensor}.bias" in file.tensors
    return {**settings, **how.more(given)}


def _named(
    how: Architecture, entries: Iterable[Entry], n_layers: int, *, single: bool
) -> Iterator[Entry]:
    """The family's table with the file's names. Its linear maps are all stored as (output, input).

    The family has a tensor for each expert, or stacks them in a way of its own; the file stacks them as in
    `EXPERTS`, or has each as a `single` tensor, too.
    """
    names = {
        theirs.format(i): ours.format(i)
        for ours, theirs in how.tensors.items()
        for i in range(n_layers if "{}" in ours else 1)
    }
    told = set()
    for row in entries:
        if ".experts." in row.theirs and single and row.part is not None:
            _, block, _, projection, _ = row.ours[0].split(".")
            _, start, width = row.part
            yield replace(row, theirs=_SINGLE.format(block, projection, start // width))
            continue
        if ".experts." in row.theirs:
            for ours in row.ours:
                if ours not in told:
                    told.add(ours)
                    _, block, _, parameter = ours.split(".", 3)
                    yield Entry(f"blk.{block}.{EXPERTS[parameter]}", (ours,))
            continue
        name, _, kind = row.theirs.rpartition(".")
        if row.theirs in names:  # it has no kind there
            name, kind = row.theirs, "weight"
        yield replace(row, theirs=f"{names[name]}.{kind}", transposed=False)


def _check_names(file: GGUFFile, rows: Iterable[Entry]) -> None:
    wanted = {row.theirs for row in rows}
    faults = [
        f"{kind}: {', '.join(sorted(names))}"
        for kind, names in (
            ("missing", wanted - set(file.tensors)),
            ("surplus", set(file.tensors) - wanted),
        )
        if names
    ]
    if faults:
        raise ValueError(
            f"the tensors of {file.path} do not fit its architecture {file.architecture!r}: {'; '.join(faults)}"
        )
