"""The one model of the part *A real language model*: SmolLM2-135M-Instruct, 4 bits, loaded once a process."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import torch
from measured_transformer.language.model import LanguageModel
from measured_transformer.language.published import PUBLISHED, pretrained

NAME = "smollm2-135m-instruct"
"""What `measured_transformer.language.published` calls it; every verdict is scoped to it, instruct, 4 bits."""
NEEDS = (NAME,)
"""For ``@measurement(pretrained=NEEDS)``: a repeat leaves the measurement out where the package is missing."""
MEMORY = 2.0
"""Gigabytes that loading and short texts take at most, with some to spare."""


@cache
def smollm2() -> LanguageModel:
    """The model with its tokenizer, in evaluation mode, float32, without gradients; every caller gets the same.

    Loading takes some ten seconds and half a gigabyte that stays. Nobody may change its weights: for another
    model take `controls.same_spectrum`, or copy it.

    Raises:
        ImportError: when the package that holds the weights, or one that reads them, is missing; the message
            has the command that installs it.
        MemoryError: when this machine has too little memory left, before anything is loaded.
        ValueError: when the file of the weights is damaged or another one.
    """
    check_memory(MEMORY)
    found = pretrained(NAME, dtype=torch.float32)
    assert isinstance(found, LanguageModel)
    found.model.eval()
    return found.eval().requires_grad_(False)


def is_installed() -> bool:
    """Whether the package is there; its file is checked when the model is loaded."""
    return find_spec(PUBLISHED[NAME].module) is not None


def check_memory(gigabytes: float) -> None:
    """Say before loading that there is too little memory.

    Args:
        gigabytes: what will be needed.

    Raises:
        MemoryError: when less is left.
    """
    left = memory_left()
    if left is not None and left < gigabytes:
        raise MemoryError(
            f"expected {gigabytes:.1f} GB of free memory to load {PUBLISHED[NAME].about}, got {left:.1f} GB: "
            "close other programs, or use a machine with more memory"
        )


def memory_left(root: Path = Path("/")) -> float | None:
    """Gigabytes that this process may still take: of the machine, or of its container where that is less.

    Args:
        root: below which Linux's `proc` and `sys` lie.

    Returns:
        None where the system does not say.
    """
    found = []
    try:
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(float(line.split()[1]) * 1024)
    except OSError:
        return None
    group = root / "sys/fs/cgroup"
    try:
        limit = float((group / "memory.max").read_text())
        used = float((group / "memory.current").read_text())
        reclaimable = 0.0
        for line in (group / "memory.stat").read_text().splitlines():
            if line.startswith("inactive_file "):
                reclaimable = float(line.split()[1])
        found.append(limit - used + reclaimable)
    except (OSError, ValueError):  # no container, or one without a limit, which says `max`
        pass
    return min(found) / 1e9 if found else None
