"""Linear maps for a few vectors at a time, by weights that oneDNN has laid out for that many.

Writing text multiplies the same weights by a handful of vectors, again and again. A copy of a weight in the
layout of oneDNN can be read faster than one in PyTorch's: the repository's `python -m benchmarks packed`
measures by how much. The copy takes as much memory as the weight, the last digits of a result depend on the
kernel, and there are no gradients. So nobody gets it unasked: `generate` uses it within
`linear_kernel("fastest")`, where a trial on the machine at hand says so, and lets it go with the text.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from measured_transformer.parts.kernels.linear import has_onednn, is_plain, linear

_MARGIN = 1.1  # a copy of the weight must save this much time to be worth its memory
_TURNS, _CALLS = 5, 8  # of a trial: turns, and calls in each
_trials: dict[tuple[int, ...], bool] = {}


class PackedMap:
    r"""The map $x W^\top + b$ with a copy of the weight, laid out for one number of vectors.

    Vectors of another number, precision or device are multiplied with the weight itself, by `linear`. When the
    weight was changed in place since the copy was made, a new copy is made.

    Attributes:
        weight, bias: of the map, the model's own.
        rows: how many vectors the copy is laid out for.
        bytes: of the copy.
    """

    wide = False

    def __init__(
        self,
        weight: Float[Tensor, "d_out d_in"],
        bias: Float[Tensor, "d_out"] | None,
        rows: int,
    ) -> None:
        """Lay out a copy of the weight.

        Raises:
            ValueError: where oneDNN cannot (another precision or device than float32 on a CPU, no oneDNN in
                this build of PyTorch), or there is no vector.
        """
        if not can_pack(weight, bias) or rows < 1:
            raise ValueError(
                "a weight can be packed for oneDNN as a float32 matrix on a CPU, in a build of PyTorch with "
                f"oneDNN, for at least one vector; got {weight.dtype} of shape {tuple(weight.shape)} on "
                f"{weight.device} and {rows} vectors"
            )
        self.weight, self.bias, self.rows = weight, bias, rows
        self.out_features, self.in_features = weight.shape
        self._pack()

    @property
    def bytes(self) -> int:
        """Bytes of the copy; what oneDNN adds to fill up its blocks is not counted."""
        return self.weight.numel() * self.weight.element_size()

    def __call__(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """The map of each vector.

        Raises:
            ValueError: where a gradient would be recorded, which a packed weight does not pass on.
        """
        if x.numel() != self.rows * self.in_features or not is_plain(x):
            return linear(x, self.weight, self.bias)
        if torch.is_grad_enabled() and (x.requires_grad or self.weight.requires_grad):
            raise ValueError(
                "a packed weight passes on no gradients: call it in torch.no_grad(), or the map itself"
            )
        if self._version != _version(self.weight):
            self._pack()
        found = torch.ops.mkldnn._linear_pointwise(
            x.reshape(self.rows, self.in_features), self._packed, self.bias, "none", [], ""
        )
        # A tensor of its own and no view, so that it may be changed in place like any other result.
        result: Tensor = torch.ops.aten._unsafe_view(found, [*x.shape[:-1], self.out_features])
        return result

    def _pack(self) -> None:
        self._version = _version(self.weight)
        self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), self.rows)


def can_pack(weight: Tensor, bias: Tensor | None) -> bool:
    """Return whether oneDNN can lay out this weight."""
    return (
        has_onednn()
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and weight.ndim == 2
        and weight.numel() > 0
        and is_plain(weight)
        and (bias is None or is_plain(bias))
        and not torch.is_autocast_enabled("cpu")
    )


class FastestMap:
    """A linear map that is packed when it is first called with so many vectors, where a trial finds it faster.

    One trial for each size, a millisecond or so, whose outcome is kept for the rest of the process.

    Attributes:
        weight, bias, rows: as in `PackedMap`.
        packed: the packed map; None as long as there is none.
    """

    wide = False

    def __init__(
        self,
        weight: Float[Tensor, "d_out d_in"],
        bias: Float[Tensor, "d_out"] | None,
        rows: int,
    ) -> None:
        """Remember the map; nothing is copied yet."""
        self.weight, self.bias, self.rows = weight, bias, rows
        self.out_features, self.in_features = weight.shape
        self.packed: PackedMap | None = None
        self._undecided = can_pack(weight, bias)

    @property
    def bytes(self) -> int:
        """Bytes of the packed copy; 0 where there is none."""
        return 0 if self.packed is None else self.packed.bytes

    def __call__(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """The map of each vector. Raises ValueError as `PackedMap`."""
        if self._undecided and x.numel() == self.rows * self.in_features and is_plain(x):
            self._undecided, self.packed = False, self._where_faster()
        return linear(x, self.weight, self.bias) if self.packed is None else self.packed(x)

    def _where_faster(self) -> PackedMap | None:
        key = (
            self.rows,
            *self.weight.shape,
            self.bias is not None,
            torch.get_num_threads(),
        )
        if _trials.get(key) is False:
            return None
        packed = PackedMap(self.weight, self.bias, self.rows)
        if key not in _trials:
            with torch.no_grad():
                _trials[key] = _is_faster(packed)
        return packed if _trials[key] else None


def _is_faster(packed: PackedMap) -> bool:
    x = torch.ones(packed.rows, packed.in_features)
    turns = [
        (_seconds(lambda: linear(x, packed.weight, packed.bias)), _seconds(lambda: packed(x)))
        for _ in range(1 + _TURNS)
    ]
    plain, own = zip(*turns[1:], strict=True)  # the first turn warms up
    return min(plain) > _MARGIN * min(own)


def _seconds(call: Callable[[], Tensor]) -> float:
    start = time.perf_counter()
    for _ in range(_CALLS):
        call()
    return time.perf_counter() - start


def _version(weight: Tensor) -> int | None:
    """How often the weight was written to; None where PyTorch does not count (tensors of inference mode)."""
    return None if weight.is_inference() else weight._version
