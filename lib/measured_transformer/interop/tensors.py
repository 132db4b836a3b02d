"""Moves tensors between checkpoint and model by tables of names, and reports every mismatch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

PRECISIONS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
"""What weights may be stored in."""


@dataclass(frozen=True)
class Entry:
    """One tensor of a checkpoint and the parameters that it holds.

    Attributes:
        theirs: its name in the checkpoint.
        ours: the model's parameters; several are stacked in this order along the output axis.
        transposed: whether the checkpoint stores (input, output), as GPT-2 does.
        row: the row of the one parameter that the tensor is, where a checkpoint holds each row by itself.
        heads: number of heads, where the parameters are stacked head by head: the query, key and value of the
            first, then those of the second (GPT-NeoX). 0: one parameter after the other.
        skipped: number of rows at the start that no position reads (RoBERTa, OPT); they are written as zeros.
        one_row: whether the checkpoint stores a vector as a matrix of one row (BART's bias of the logits).
        part: axis, start and length of the piece of each parameter that the tensor is, such as one expert.
    """

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False
    row: int | None = None
    heads: int = 0
    skipped: int = 0
    one_row: bool = False
    part: tuple[int, int, int] | None = None

    def held(self, parameters: Mapping[str, Tensor]) -> list[Tensor]:
        """What the tensor holds of the model's parameters."""
        found = [parameters[name] for name in self.ours]
        if self.part is not None:
            return [one.narrow(*self.part) for one in found]
        return found if self.row is None else [one[self.row] for one in found]

    def shape(self, ours: Sequence[Tensor]) -> tuple[int, ...]:
        """The shape of the tensor."""
        shape = (sum(len(one) for one in ours) + self.skipped, *ours[0].shape[1:])
        shape = tuple(reversed(shape)) if self.transposed else shape
        return (1, *shape) if self.one_row else shape

    def split(self, stored: Tensor, ours: Sequence[Tensor]) -> Sequence[Tensor]:
        """What each parameter gets of a stored tensor that is not transposed."""
        if self.one_row:
            stored = stored[0]
        if self.heads:
            widths = [len(parameter) // self.heads for parameter in ours]
            by_head = stored.unflatten(0, (self.heads, -1)).split(widths, dim=1)
            return [piece.flatten(0, 1) for piece in by_head]
        return stored[self.skipped :].split([len(parameter) for parameter in ours])

    def joined(self, ours: Sequence[Tensor]) -> Tensor:
        """The tensor that holds the parameters."""
        if self.heads:
            by_head = [one.unflatten(0, (self.heads, -1)) for one in ours]
            return torch.cat(by_head, dim=1).flatten(0, 1)
        whole = torch.cat([ours[0].new_zeros(self.skipped, *ours[0].shape[1:]), *ours])
        return whole[None] if self.one_row else whole


def entry(
    theirs: str,
    *ours: str,
    transposed: bool = False,
    row: int | None = None,
    heads: int = 0,
    skipped: int = 0,
    one_row: bool = False,
    part: tuple[int, int, int] | None = None,
) -> Entry:
    """Shorthand for an `Entry`."""
    return Entry(theirs, ours, transposed, row, heads, skipped, one_row, part)


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
        expected = row.shape(ours)
        if tuple(stored.shape) != expected:
            misshapen.append(f"{row.theirs}: expected {expected}, got {tuple(stored.shape)}")
            continue
        if not stored.is_floating_point():
            misshapen.append(f"{row.theirs}: expected real numbers, got {stored.dtype}")
            continue
        pieces = row.split(stored.T if row.transposed else stored, ours)
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
    """Copies of the model's parameters under the names of the checkpoint.

    Raises:
        ValueError: when the model lacks a parameter that the table names.
    """
    entries = list(entries)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    if lacking := [name for row in entries for name in row.ours if name not in parameters]:
        raise ValueError(
            f"the model does not have what its config says: it lacks {', '.join(lacking)}"
        )
    tensors = {}
    for row in entries:
        stacked = row.joined([parameter.detach() for parameter in row.held(parameters)])
        tensors[row.theirs] = (stacked.T if row.transposed else stacked).contiguous().clone()
    return tensors


def check_numbers(tensors: Mapping[str, Tensor]) -> None:
    """Raise ValueError for weights that are no plain numbers: without data, quantised, or of 8 bits."""
    for name, tensor in tensors.items():
        kind = f"{tensor.dtype} on the device {tensor.device.type!r}"
        if tensor.is_meta:
            raise ValueError(
                f"expected weights with numbers, got {name} of {kind}: load them before they are converted"
            )
        plain = type(tensor) in (Tensor, nn.Parameter) and not tensor.is_quantized
        if not plain or (tensor.is_floating_point() and tensor.dtype not in PRECISIONS):
            raise ValueError(
                f"expected weights of {', '.join(str(each) for each in PRECISIONS)}, got {name} as a "
                f"{type(tensor).__name__} of {kind}: dequantise weights with their scales first"
            )
