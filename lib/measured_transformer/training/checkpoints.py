"""Saves the whole state of a training in one safetensors file, from which it resumes exactly.

Kept are the weights, the optimiser's memory, the generators of batches and of dropout, and the history. The
file is written beside its place and then moved there, so that an interruption never leaves half a file.
"""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from measured_transformer.training.device import find_device

if TYPE_CHECKING:
    from measured_transformer.training.loop import History


def write_checkpoint(
    file: Path | str,
    key: str,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    batches: torch.Generator,
    history: History,
) -> None:
    """Save the state of a training.

    Args:
        file: where to; its folder is made.
        key: fingerprint of the training, so that no other goes on from here.
        model, optimiser, batches, history: what a training consists of; batches is the generator.
    """
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for number, memory in optimiser.state_dict()["state"].items():
        tensors |= {
            f"optimiser.{number}.{name}": torch.as_tensor(v)
            for name, v in memory.items()
            if v is not None
        }
    tensors |= {f"history.{f.name}": _column(getattr(history, f.name)) for f in fields(history)}
    tensors |= {"generator.batches": batches.get_state(), "generator.cpu": torch.get_rng_state()}
    if find_device().type == "cuda":
        tensors["generator.cuda"] = torch.cuda.get_rng_state()
    write_tensors(file, tensors, {"key": key})


def read_checkpoint(
    file: Path | str,
    key: str,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    batches: torch.Generator,
    history: History,
) -> bool:
    """Restore a training from a checkpoint; returns False and does nothing when there is none.

    Raises:
        ValueError: when the file is damaged or belongs to another training.
    """
    if not Path(file).exists():
        return False
    tensors, about = read_tensors(file)
    if about.get("key") != key:
        raise ValueError(
            f"{file} belongs to another training: settings, seed, task or the code that trains differ; "
            "remove it or name another file"
        )
    model.load_state_dict(_under("model.", tensors))
    state = optimiser.state_dict()
    state["state"] = {}
    for name, tensor in _under("optimiser.", tensors).items():
        number, _, field = name.partition(".")
        state["state"].setdefault(int(number), {})[field] = tensor
    optimiser.load_state_dict(state)
    batches.set_state(tensors["generator.batches"])
    torch.set_rng_state(tensors["generator.cpu"])
    if "generator.cuda" in tensors and find_device().type == "cuda":
        torch.cuda.set_rng_state(tensors["generator.cuda"])
    for name, column in _under("history.", tensors).items():
        getattr(history, name)[:] = column.tolist()
    return True


def write_tensors(file: Path | str, tensors: dict[str, Tensor], about: dict[str, str]) -> None:
    """Write a safetensors file atomically: the old file stays until the new one is complete."""
    place = Path(file)
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f".{place.name}.{os.getpid()}")
    whole = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(whole, part, metadata={"about": json.dumps(about)})
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)


def read_tensors(file: Path | str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors and settings of such a file.

    Raises:
        ValueError: when it is no such file, or damaged.
    """
    try:
        with safe_open(file, framework="pt") as opened:
            about = json.loads((opened.metadata() or {}).get("about", "{}"))
            return {name: opened.get_tensor(name) for name in opened.keys()}, about  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(
            f"{file} is no checkpoint, or it is damaged: {error}; remove it"
        ) from error


def _column(values: list[float] | list[int]) -> Tensor:
    whole = bool(values) and all(isinstance(value, int) for value in values)
    return torch.tensor(values, dtype=torch.int64 if whole else torch.float64)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
