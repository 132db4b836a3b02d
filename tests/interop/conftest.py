from __future__ import annotations

import os
from collections.abc import Generator
from typing import TypeVar

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
ON_CI = os.environ.get("CI", "").lower() == "true"
Report = TypeVar("Report", pytest.CollectReport, pytest.TestReport)


# Where a package to compare with is missing, its tests are skipped. The lock has all of them: on CI they fail.


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return not_skipped_on_ci((yield))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return not_skipped_on_ci((yield))


def not_skipped_on_ci(report: Report) -> Report:
    if ON_CI and report.skipped:
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"on CI nothing here is skipped. {reason}"
    return report


@pytest.fixture
def float64_throughout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `transformers` use its model's precision everywhere: it computes RMS norms and rotary angles in
    float32 even in a float64 model."""
    import hf_reference as reference
    from transformers.models.llama import modeling_llama
    from transformers.models.t5 import modeling_t5

    monkeypatch.setattr(modeling_llama.LlamaRMSNorm, "forward", reference.rms_norm)
    monkeypatch.setattr(modeling_llama.LlamaRotaryEmbedding, "forward", reference.rotary)
    monkeypatch.setattr(modeling_t5.T5LayerNorm, "forward", reference.rms_norm)
