from __future__ import annotations

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")


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
