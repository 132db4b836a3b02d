"""How fast a processor can be at a computation: by its arithmetic, or by the numbers that have to travel.

Source: Williams et al. (2009), "Roofline: An Insightful Visual Performance Model for Multicore Architectures".
"""

from __future__ import annotations

from dataclasses import dataclass


def intensity(operations: int, numbers: int, *, size: int = 2) -> float:
    """Operations for each byte that is moved, with so many bytes a number."""
    return operations / (size * numbers)


@dataclass(frozen=True)
class Machine:
    """What a processor's data sheet says.

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
        """Operations for each byte from which on it computes all the time."""
        return self.operations / self.bandwidth

    def attainable(self, intensity: float) -> float:
        """The most operations in a second at so many for each byte."""
        return min(self.operations, intensity * self.bandwidth)


A100 = Machine("NVIDIA A100, 80 GB, SXM", 312e12, 2.039e12)
"""Dense products of bfloat16 in the tensor cores (NVIDIA's data sheet of 2021)."""
