"""The device is found, not configured."""

from __future__ import annotations

import torch


def find_device() -> torch.device:
    """The accelerator when there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
