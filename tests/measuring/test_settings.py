"""A repeat under each kind of kernels: the code as it is passes it, and each small fault fails it.

Kernels are chosen by variables that PyTorch, oneDNN and OpenBLAS read when they start, so each repeat runs in
processes of its own. The faults are put into a copy of the library. These tests take long; they are nightly.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
SETTINGS: dict[str, dict[str, str]] = {
    "as it is": {},
    "ATen default": {"ATEN_CPU_CAPABILITY": "default"},
    "ATen AVX2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "ATen AVX-512": {"ATEN_CPU_CAPABILITY": "avx512"},
    "oneDNN AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "OpenBLAS Nehalem": {"OPENBLAS_CORETYPE": "Nehalem"},
    "MKL compatible": {"MKL_CBWR": "COMPATIBLE"},
    "one thread": {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    "two threads": {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"},
}
FAULTS = {
    "epsilon": ("models/config.py", "norm_eps: float = 1e-5", "norm_eps: float = 1.1e-5"),
    "sign": (
        "parts/block.py",
        "total = x + branch if self.residual",
        "total = x - branch if self.residual",
    ),
    "seed": ("training/seeding.py", "(start + seed) % 2**32", "(start + seed + 1) % 2**32"),
    "learning rate": (
        "training/arguments.py",
        "return learning_rate * float(factor)",
        "return 1.01 * learning_rate * float(factor)",
    ),
    "bias": (
        "parts/kernels/linear.py",
        "_fits(x, weight, bias):\n        return F.linear(x, weight, bias)\n",
        "_fits(x, weight, bias):\n        return F.linear(x, weight)\n",
    ),
}
PLACE = os.environ.get("MEASURED_FAULTY_ROOM", "norm_placement")
"""A room of trainings that all faults reach, small enough to be repeated 45 times."""
FOUND = re.compile(r"(\d+) fingerprints taken, (\d+) of them others")


def repeated(
    settings: dict[str, str], library: Path, *words: str
) -> subprocess.CompletedProcess[str]:
    """Repeat in a process of its own, with variables of the environment and a library of its own."""
    command = [sys.executable, "-m", "measured_book.measuring", "--repeat", *words]
    environ = {**os.environ, "PYTHONPATH": str(library), **settings}
    return subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )


def skip_without(settings: dict[str, str]) -> None:
    """Skip where this processor does not have the kernels."""
    wanted = settings.get("ATEN_CPU_CAPABILITY", "default").upper()
    have = torch.backends.cpu.get_cpu_capability()
    if wanted == "AVX512" and have != "AVX512":
        pytest.skip("this processor has no AVX-512")


@pytest.mark.parametrize("name", SETTINGS)
def test_a_whole_repeat_passes(name: str) -> None:
    skip_without(SETTINGS[name])
    done = repeated(SETTINGS[name], ROOT / "lib")
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert FOUND.search(done.stdout)[2] == "0"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", SETTINGS)
def test_a_small_fault_fails_it(name: str, fault: str, tmp_path: Path) -> None:
    skip_without(SETTINGS[name])
    file, old, new = FAULTS[fault]
    library = tmp_path / "lib"
    ignored = shutil.ignore_patterns("__pycache__", "bookpress")
    shutil.copytree(ROOT / "lib", library, ignore=ignored)
    path = library / "measured_transformer" / file
    text = path.read_text("utf-8")
    assert text.count(old) == 1, f"{file} has no such line any more: {old.strip()}"
    path.write_text(text.replace(old, new))
    done = repeated(SETTINGS[name], library, PLACE, "--share", "0")
    assert done.returncode == 1, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    found = FOUND.search(done.stdout)
    assert found is not None, done.stderr[-3000:]
    assert int(found[2]) > 0  # by what it computes, not only by what it reads like
