"""The roofline model: a computation's speed is limited by arithmetic or by memory traffic.

Source: Williams et al. (2009), "Roofline: An Insightful Visual Performance Model for Multicore Architectures".
"""

from __future__ import annotations

from dataclasses import dataclass


def intensity(operations: int, numbers: int, *, size: int = 2) -> float:
    """Operations per byte moved, with so many bytes per number."""
    return operations / (size * numbers)


@dataclass(frozen=True)
class Machine:
    """A processor's figures from its data sheet.

    Attributes:
        name: of the processor.
        operations: the most that it computes in a second.
        bandwidth: bytes that it fetches from its memory in a second.
    """

    name: str
    operations: float
    bandwidth: float

    @property
    def ridge(self) -> float:
        """Operations per byte above which arithmetic is the limit."""
        return self.operations / self.bandwidth

    def attainable(self, intensity: float) -> float:
        """The highest attainable operations per second at so many operations per byte."""
        return min(self.operations, intensity * self.bandwidth)


A100 = Machine("NVIDIA A100, 80 GB, SXM", 312e12, 2.039e12)
"""Dense products of bfloat16 in the tensor cores (NVIDIA's data sheet of 2021)."""
