"""Reports whether this machine can train on a GPU, and why not; and chooses the kernels that numpy uses."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping

import torch
from measured_transformer.training.device import circumstances, cpu_name


def device_in_words() -> str:
    """Card, driver and versions as one line.

    Raises:
        ValueError: PyTorch finds no CUDA device; the message says whether a driver, a newer driver or another
            build of PyTorch is missing, and what to do.
    """
    if not torch.cuda.is_available():
        raise ValueError(missing())
    told = circumstances()
    return (
        f"{told['device']}, driver for {told.get('driver', 'an unknown CUDA')}; torch {told['torch']} built "
        f"for CUDA {told.get('cuda', 'of no version')}; host {cpu_name()}"
    )


def missing() -> str:
    """Why PyTorch finds no CUDA device here, in one sentence, with a remedy."""
    build, driver = torch.version.cuda, driver_cuda()
    found = f"PyTorch {torch.__version__} finds no CUDA device"
    again = "then make distclean and set up anew"
    if build is None:
        return (
            f"{found}: it is a build without CUDA. Set TORCH_INDEX (in the workflow: the repository's "
            f"variable TORCH_INDEX) to the index of a build with CUDA, {again}"
        )
    if driver is None:
        return (
            f"{found}: nvidia-smi does not answer, so that no driver for NVIDIA cards seems to be installed, "
            "or no card to be there"
        )
    if _number(driver) < _number(build):
        return (
            f"{found}: it was built for CUDA {build}, and the driver knows CUDA up to {driver}. Install a "
            f"newer driver, or set TORCH_INDEX to the index of a build for CUDA {driver} or older, {again}"
        )
    return (
        f"{found}, though the driver knows CUDA up to {driver} and it was built for CUDA {build}: is the card "
        "hidden (CUDA_VISIBLE_DEVICES), or in use by another process alone?"
    )


def driver_cuda() -> str | None:
    """The newest CUDA version that the driver supports, from `nvidia-smi`; None when that does not answer."""
    try:
        done = subprocess.run(
            ["nvidia-smi"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"CUDA Version: *(\d+\.\d+)", done.stdout)
    return None if done.returncode or match is None else match[1]


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


KERNELS = "Haswell"
"""Kernels of OpenBLAS, on which numpy and scipy compute, that every x86-64 processor with AVX2 can run.

Left to itself OpenBLAS takes some by the model of the processor, and among processors of one name results
differ in their last bits.
"""


def kernels_to_ask_for(environ: Mapping[str, str]) -> dict[str, str]:
    """The variable that makes OpenBLAS use `KERNELS`; empty when it is set already or they cannot run here."""
    can = platform.machine() in ("x86_64", "AMD64") and torch.backends.cpu.get_cpu_capability() in (
        "AVX2",
        "AVX512",
    )
    return {} if "OPENBLAS_CORETYPE" in environ or not can else {"OPENBLAS_CORETYPE": KERNELS}


def restart_with_kernels() -> None:
    """Restart this program in this process if OpenBLAS would use other kernels: it reads the variable once."""
    if wanted := kernels_to_ask_for(os.environ):
        os.environ.update(wanted)
        os.execv(sys.executable, sys.orig_argv)
