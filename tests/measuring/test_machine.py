"""What is said where no GPU is found."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from measured_book.measuring.__main__ import main
from measured_book.measuring.machine import driver_cuda, kernels_to_ask_for, missing

SAYS = "| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15    CUDA Version: 12.4     |"


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Have `nvidia-smi` say something, or not be there."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def says(text: str, status: int = 0) -> None:
        file = tmp_path / "nvidia-smi"
        file.write_text(f"#!/bin/sh\necho '{text}'\nexit {status}\n")
        file.chmod(0o755)

    return says


def test_a_build_without_cuda_is_named(monkeypatch: pytest.MonkeyPatch, driver):
    monkeypatch.setattr(torch.version, "cuda", None)
    driver(SAYS)
    assert "a build without CUDA. Set TORCH_INDEX" in missing()


def test_a_driver_that_is_too_old_is_named_with_both_numbers(monkeypatch, driver):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    driver(SAYS)
    assert driver_cuda() == "12.4"
    assert "built for CUDA 13.0, and the driver knows CUDA up to 12.4" in missing()
    assert "Install a newer driver, or set TORCH_INDEX" in missing()


def test_a_missing_driver_and_a_hidden_card_are_told_apart(monkeypatch, driver):
    monkeypatch.setattr(torch.version, "cuda", "12.4")
    driver("no devices were found", status=9)
    assert "no driver for NVIDIA cards seems to be installed" in missing()
    driver(SAYS)
    assert "is the card hidden (CUDA_VISIBLE_DEVICES)" in missing()


def test_the_command_fails_where_there_is_no_gpu(driver, capsys):
    driver("no devices were found", status=9)
    assert main(["--device"]) == 2
    assert "finds no CUDA device" in capsys.readouterr().err


def test_measuring_computes_with_the_same_kernels_on_every_processor_of_a_kind(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    assert kernels_to_ask_for({}) == {"OPENBLAS_CORETYPE": "Haswell"}
    assert kernels_to_ask_for({"OPENBLAS_CORETYPE": "Zen"}) == {}, "the user's word counts"
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert kernels_to_ask_for({}) == {}, "no AVX2"
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert kernels_to_ask_for({}) == {}


@pytest.mark.skipif(not kernels_to_ask_for({}), reason="other kernels on this machine")
def test_the_command_starts_itself_anew_with_them():
    environ = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    command = [sys.executable, "-m", "measured_book.measuring", "--status", "one_layer"]
    done = subprocess.run(
        command,
        env={**environ, "OPENBLAS_VERBOSE": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r"Core: (\w+)", done.stdout + done.stderr)[-1] == "Haswell"
    assert "one_layer" in done.stdout
