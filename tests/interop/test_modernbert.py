"""ModernBERT: equal to `transformers`, padded on either side; there and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hf_reference import randomise
from llama_relatives import double_precision
from measured_transformer.interop import from_huggingface, to_huggingface
from torch import Tensor, nn

transformers = pytest.importorskip("transformers", reason="the reference is not installed")

FULL, SLIDING = "full_attention", "sliding_attention"
SIZES = {
    "vocab_size": 31,
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
    "local_attention": 4,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
    "cls_token_id": None,
    "sep_token_id": None,
}
CASES: list[dict[str, Any]] = [
    {},
    {"layer_types": [SLIDING, SLIDING, FULL, FULL], "norm_bias": True, "classifier_bias": True},
    {"layer_types": [FULL] * 4, "attention_bias": True, "mlp_bias": True},
    {"layer_types": [SLIDING] * 4, "local_attention": 7, "decoder_bias": False},
    {"num_hidden_layers": 1, "tie_word_embeddings": False, "norm_eps": 1e-2},
    {"hidden_activation": "silu", "classifier_activation": "gelu_new"},
    {
        "rope_parameters": {
            FULL: {"rope_type": "linear", "factor": 2.0, "rope_theta": 700.0},
            SLIDING: {"rope_type": "default", "rope_theta": 50.0},
        },
        "local_attention": 2,
    },
]
every_case = pytest.mark.parametrize("settings", CASES, ids=[str(one) for one in CASES])
heads = pytest.mark.parametrize("head", ["ForMaskedLM", "Model"])


def make(head: str, settings: dict[str, Any]) -> nn.Module:
    config = transformers.ModernBertConfig(**(SIZES | settings))
    kind = getattr(transformers, f"ModernBert{head}")
    model = kind._from_config(config, attn_implementation="eager").eval()
    randomise(model)
    return model


def batch(side: str) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(31, (3, 11), generator=torch.Generator().manual_seed(1))
    lengths, where = torch.tensor([[11], [6], [3]]), torch.arange(11)
    return tokens, where < lengths if side == "right" else where >= 11 - lengths


def theirs_of(model: nn.Module, tokens: Tensor, real: Tensor) -> Tensor:
    places = (real.long().cumsum(1) - 1).clamp(min=0)
    return model(tokens, attention_mask=real.long(), position_ids=places)[0]


def close(ours: Tensor, theirs: Tensor, tolerance: float) -> None:
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@every_case
@heads
@torch.no_grad()
def test_equal_in_float32_and_back(head, settings, tmp_path: Path):
    theirs = make(head, settings)
    ours = from_huggingface(theirs)
    tokens, real = batch("right")
    expected = theirs_of(theirs, tokens, real)[real]
    close(ours(tokens, padding_mask=real)[real], expected, 1e-5)
    left, where = batch("left")
    close(ours(left, padding_mask=where)[where], theirs_of(theirs, left, where)[where], 1e-5)

    theirs.save_pretrained(tmp_path / "theirs")
    assert from_huggingface(tmp_path / "theirs").config == ours.config
    to_huggingface(ours, tmp_path / "ours", model_type="modernbert")
    assert from_huggingface(tmp_path / "ours").config == ours.config
    again, report = type(theirs).from_pretrained(
        tmp_path / "ours", attn_implementation="eager", output_loading_info=True
    )
    assert not any(report.values())
    close(theirs_of(again.eval(), tokens, real)[real], expected, 1e-5)


@every_case
@torch.no_grad()
def test_equal_in_float64(settings, monkeypatch: pytest.MonkeyPatch):
    tokens, real = batch("right")
    with double_precision(monkeypatch):
        theirs = make("ForMaskedLM", settings)
        expected = theirs_of(theirs, tokens, real)
    ours = from_huggingface(theirs)
    close(ours(tokens, padding_mask=real)[real], expected[real], 1e-11)


@torch.no_grad()
def test_settings_of_the_published_files(tmp_path: Path):
    theirs = make(
        "ForMaskedLM",
        {
            "rope_parameters": {
                FULL: {"rope_type": "default", "rope_theta": 900.0},
                SLIDING: {"rope_type": "default", "rope_theta": 90.0},
            }
        },
    )
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["rope_parameters"], config["layer_types"]
    older = {
        "global_rope_theta": 900.0,
        "local_rope_theta": 90.0,
        "global_attn_every_n_layers": 3,
        "position_embedding_type": "absolute",
    }
    (tmp_path / "config.json").write_text(json.dumps(config | older))
    assert from_huggingface(tmp_path).config == from_huggingface(theirs).config


@pytest.mark.parametrize(
    ("head", "settings", "message"),
    [
        ("ForTokenClassification", {}, "got one of ModernBertForTokenClassification"),
        ("ForMaskedLM", {"classifier_bias": True}, "classifier_bias=True"),
        ("Model", {"hidden_activation": "quick_gelu"}, "hidden_activation with a gate"),
    ],
)
def test_what_is_not_computed_is_refused(head, settings, message):
    with pytest.raises(ValueError, match=message):
        from_huggingface(make(head, settings))
