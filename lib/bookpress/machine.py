"""The kind of machine that chapters are executed on: where it is the same, values are equal to the last bit."""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bookpress.kernel import has_cuda

_FIELDS = ("model name", "cpu family", "model", "stepping", "flags")


def here() -> dict[str, str]:
    """The processor, the device that trains, and the packages that compute.

    A processor is told by more than its name, which virtual machines share that round differently: family,
    model, stepping and a hash of what it can do.
    """
    told = {"processor": _processor(), "device": "cuda" if has_cuda() else "cpu"}
    for package in ("torch", "numpy"):
        try:
            told[package] = version(package).partition("+")[0]
        except PackageNotFoundError:
            told[package] = "not installed"
    return told


def same_kind(then: dict[str, str], now: dict[str, str]) -> bool:
    """Whether values must be equal to the last bit. On CUDA that is promised nowhere."""
    return then == now and now["device"] == "cpu"


def _processor() -> str:
    fields: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    except OSError:  # not Linux
        return platform.processor() or platform.machine()
    flags = " ".join(sorted(fields.get("flags", "").split()))
    known = [fields.get(name, "") for name in _FIELDS[:-1]]
    return "/".join([*known, hashlib.sha256(flags.encode()).hexdigest()[:8]])
