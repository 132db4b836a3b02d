"""Chooses device, precision and determinism of training: the only place that does.

Models are trained on the accelerator, where there is one, and looked at on the CPU: a finished model is
always there. `MEASURED_DEVICE` chooses: `auto` (the accelerator when there is one, which is also meant when
nothing is said), `cpu` or `cuda`. Float32 stays float32 everywhere: no TF32, no reduced sums.
"""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from measured_transformer.training.arithmetic import arithmetic

VARIABLE = "MEASURED_DEVICE"
PRECISION = (
    "highest"  # PyTorch's word for float32 products that are not shortened to TF32 or bfloat16
)
ARITHMETIC = "arithmetic"
"""The word before a processor's arithmetic in the name of its kind."""
_CHOICES = ("auto", "cpu", "cuda")


def find_device() -> torch.device:
    """The training device: `MEASURED_DEVICE` if set, otherwise the accelerator or the CPU.

    Raises:
        ValueError: when the variable has another word, or asks for CUDA where PyTorch finds none.
    """
    asked = os.environ.get(VARIABLE, "").strip().lower() or "auto"
    if asked not in _CHOICES:
        raise ValueError(
            f"expected {VARIABLE} to be one of {', '.join(_CHOICES)}, got {asked!r}; unset it to take the "
            "accelerator when there is one"
        )
    if asked == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda")
    if asked == "cuda":
        built = torch.version.cuda
        why = (
            f"it was built for CUDA {built}, which needs a card and a driver as new as that"
            if built
            else "it was built without CUDA: install a build that has it (pytorch.org/get-started)"
        )
        raise ValueError(
            f"{VARIABLE}=cuda expected a CUDA device, and PyTorch {torch.__version__} found none; {why}. To "
            f"train on the CPU, set {VARIABLE}=cpu, or unset it"
        )
    return torch.device("cpu")


@contextmanager
def cpu_threads(number: int | None) -> Iterator[None]:
    """Run the block with this many PyTorch threads; None leaves the number unchanged.

    Sums that are split among threads round differently, so that the last bits of a result depend on it.

    Raises:
        ValueError: when the number is not a positive whole number or None.
    """
    if number is not None and (
        isinstance(number, bool) or not isinstance(number, int) or number < 1
    ):
        raise ValueError(f"threads must be a positive whole number or None, got {number!r}")
    before = torch.get_num_threads()
    try:
        if number is not None:
            torch.set_num_threads(number)
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def settled(device: torch.device, threads: int | None = 1) -> Iterator[None]:
    """Run the block with this book's precision and determinism, then restore the previous settings.

    On a CPU that is a fixed number of threads. On CUDA kernels are chosen that give the same twice, where
    there are such; where there are none PyTorch takes what it has.

    Args:
        device: that the block computes on.
        threads: of the CPU, when it is the device; see `cpu_threads`.
    """
    precision = torch.get_float32_matmul_precision()
    try:
        _set_precision(PRECISION)
        if device.type == "cuda":
            with _deterministic():
                yield
        else:
            with cpu_threads(threads):
                yield
    finally:
        _set_precision(precision)


def circumstances() -> dict[str, str]:
    """Describe what training runs on and with, for the provenance of runs and results.

    Returns:
        `device` (its name), `kind` (what values are equal on to the last bit: for a CPU its instructions, its
        name and a digest of its arithmetic),
        `precision`, `deterministic`, `dtype`, `torch` and `numpy`, and on CUDA the versions of `cuda` and of
        the `driver`.

    Raises:
        ValueError: as `find_device`.
    """
    on_cuda = find_device().type == "cuda"
    told = {
        "precision": f"float32 products: {PRECISION} (no TF32)",
        "deterministic": "kernels that are, where there are such" if on_cuda else "yes, by thread",
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }
    if on_cuda:
        name = torch.cuda.get_device_name()
        versions = {"cuda": str(torch.version.cuda), "driver": _driver()}
        return {"device": name, "kind": f"cuda {name}", **told, **versions}
    name = cpu_name()
    kind = f"cpu {torch.backends.cpu.get_cpu_capability()} {name}, {ARITHMETIC} {arithmetic()}"
    return {"device": name, "kind": kind, **told}


@lru_cache(maxsize=1)
def cpu_name() -> str:
    """The processor's name as reported by the operating system."""
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    except OSError:
        pass
    return platform.processor() or platform.machine()


@contextmanager
def _deterministic() -> Iterator[None]:
    # cuBLAS reads it when it is first used: a workspace of fixed size, so that its sums have one order.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    try:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = (  # type: ignore[attr-defined]
            False  # costs time, and reads no such memory
        )
        with (
            torch.backends.cudnn.flags(
                enabled=True, benchmark=False, deterministic=True, allow_tf32=False
            ),
            warnings.catch_warnings(),
        ):
            for told in (".*deterministic implementation", ".*non-deterministic algorithm"):
                warnings.filterwarnings("ignore", message=told)
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warned)
        torch.utils.deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]


def _set_precision(word: str) -> None:
    if torch.get_float32_matmul_precision() != word:
        torch.set_float32_matmul_precision(word)


def _driver() -> str:
    """The newest CUDA version that the driver supports, such as 12.8."""
    asked = getattr(torch._C, "_cuda_getDriverVersion", None)
    if asked is None:
        return "unknown"
    number = int(asked())
    return f"CUDA {number // 1000}.{number % 1000 // 10}"
