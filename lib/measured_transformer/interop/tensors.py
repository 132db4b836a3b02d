"""Moves tensors between checkpoint and model by tables of names, and reports every mismatch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Entry:
    """One tensor of a checkpoint and the parameters that it holds.

    Attributes:
        theirs: its name in the checkpoint.
        ours: the model's parameters; several are stacked in this order along the output axis.
        transposed: whether the checkpoint stores (input, output), as GPT-2 does.
        row: the row of the one parameter that the tensor is, where a checkpoint holds each row by itself.
    """

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False
    row: int | None = None

    def held(self, parameters: Mapping[str, Tensor]) -> list[Tensor]:
        """What the tensor holds of the model's parameters."""
        found = [parameters[name] for name in self.ours]
        return found if self.row is None else [one[self.row] for one in found]


def entry(theirs: str, *ours: str, transposed: bool = False, row: int | None = None) -> Entry:
    """Shorthand for an `Entry`."""
    return Entry(theirs, ours, transposed, row)


def layer(theirs: str, ours: str, *, bias: bool = True) -> list[Entry]:
    """The entries of a linear map or norm: its weight, and its bias where it has one."""
    kinds = ("weight", "bias") if bias else ("weight",)
    return [entry(f"{theirs}.{kind}", f"{ours}.{kind}") for kind in kinds]


@torch.no_grad()
def load_tensors(
    model: nn.Module,
    entries: Iterable[Entry],
    tensors: Mapping[str, Tensor],
    tied_names: Mapping[str, str],
) -> None:
    """Copy the tensors into the model.

    Args:
        model: its parameters are overwritten.
        entries: which tensor belongs to which parameters.
        tensors: by their names in the checkpoint.
        tied_names: names under which a checkpoint may hold a tensor again, and that tensor's name.

    Raises:
        ValueError: lists the tensors that are missing, surplus, misshapen or at odds with their second copy.
    """
    held, at_odds = dict(tensors), []
    for second, first in tied_names.items():
        if second in held:
            again = held.pop(second)
            if not torch.equal(held.setdefault(first, again), again):
                at_odds.append(f"{second} should be {first} again, but differs")

    parameters = dict(model.named_parameters(remove_duplicate=False))
    missing, misshapen = [], []
    for row in entries:
        stored = held.pop(row.theirs, None)
        if stored is None:
            missing.append(row.theirs)
            continue
        ours = row.held(parameters)
        expected = (sum(len(parameter) for parameter in ours), *ours[0].shape[1:])
        expected = tuple(reversed(expected)) if row.transposed else expected
        if tuple(stored.shape) != expected:
            misshapen.append(f"{row.theirs}: expected {expected}, got {tuple(stored.shape)}")
            continue
        if not stored.is_floating_point():
            misshapen.append(f"{row.theirs}: expected real numbers, got {stored.dtype}")
            continue
        pieces = (stored.T if row.transposed else stored).split([len(p) for p in ours])
        for parameter, piece in zip(ours, pieces, strict=True):
            parameter.copy_(piece)

    faults = {
        "missing": missing,
        "surplus": sorted(held),
        "misshapen": misshapen,
        "at odds": at_odds,
    }
    if any(faults.values()):
        lines = [f"  {kind}: {'; '.join(names)}" for kind, names in faults.items() if names]
        hint = "\nsurplus tensors can be left out on purpose with ignore=[...]" if held else ""
        raise ValueError("the checkpoint does not fit its config:\n" + "\n".join(lines) + hint)


def named_tensors(model: nn.Module, entries: Iterable[Entry]) -> dict[str, Tensor]:
    """Copies of the model's parameters under the names of the checkpoint."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    tensors = {}
    for row in entries:
        stacked = torch.cat([parameter.detach() for parameter in row.held(parameters)])
        tensors[row.theirs] = (stacked.T if row.transposed else stacked).contiguous().clone()
    return tensors
