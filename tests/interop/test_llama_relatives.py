"""Llama and its relatives: equal to `transformers` whole, padded and token by token; there and back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from llama_relatives import LENGTH, RELATIVES, build, double_precision, drawn
from measured_transformer import Config, Decoder
from measured_transformer.interop import from_huggingface, to_huggingface
from torch import Tensor, nn

pytest.importorskip("transformers", reason="the reference is not installed")

SEEDS = 5
PROMPT = 3
every_relative = pytest.mark.parametrize("model_type", RELATIVES)
every_drawn = pytest.mark.parametrize(
    ("model_type", "seed"), [(name, seed) for name in RELATIVES for seed in range(SEEDS)]
)


def batch(vocab: int) -> tuple[Tensor, Tensor]:
    """Three rows, padded on the left, and where their tokens are real."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(vocab, (3, LENGTH), generator=generator)
    lengths = torch.tensor([[LENGTH], [9], [1]])
    return tokens, torch.arange(LENGTH) >= LENGTH - lengths


@torch.no_grad()
def theirs_padded(model: nn.Module, tokens: Tensor, real: Tensor) -> Tensor:
    positions = (real.long().cumsum(1) - 1).clamp(min=0)
    return model(tokens, attention_mask=real.long(), position_ids=positions)[0]


@torch.no_grad()
def theirs_by_token(model: nn.Module, tokens: Tensor) -> Tensor:
    first = model(tokens[:, :PROMPT], use_cache=True)
    found, cache = [first[0]], first.past_key_values
    for i in range(PROMPT, LENGTH):
        step = model(tokens[:, i : i + 1], past_key_values=cache, use_cache=True)
        found.append(step[0])
    return torch.cat(found, dim=1)


@torch.no_grad()
def ours_by_token(model: Decoder, tokens: Tensor) -> Tensor:
    cache = model.make_cache()
    found = [model(tokens[:, :PROMPT], cache=cache)]
    found += [model(tokens[:, i : i + 1], cache=cache) for i in range(PROMPT, LENGTH)]
    return torch.cat(found, dim=1)


def grows(config: Config) -> bool:
    """Whether the rotary angles depend on the length."""
    found = (config.of_layer(i).rotary_scaling for i in range(config.n_layers))
    return any(one is not None and one.grows for one in found)


def assert_close(ours: Tensor, theirs: Tensor, tolerance: float) -> None:
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@every_drawn
def test_equal_in_float32_and_back(model_type: str, seed: int):
    theirs = build(model_type, drawn(model_type, seed), head=seed != 1)
    ours = from_huggingface(theirs)
    tokens, real = batch(ours.config.vocab)
    with torch.no_grad():
        expected = theirs(tokens)[0]
        assert_close(ours(tokens), expected, 1e-5)
        padded = ours(tokens, padding_mask=real)
    assert_close(padded[real], theirs_padded(theirs, tokens, real)[real], 1e-5)
    assert_close(ours_by_token(ours, tokens), theirs_by_token(theirs, tokens), 1e-5)

    settings, tensors = to_huggingface(ours, model_type=model_type)
    assert settings["model_type"] == model_type
    config = type(theirs.config).from_dict(dict(settings))
    again = type(theirs)._from_config(config, attn_implementation="eager").eval()
    loaded = again.load_state_dict(tensors, strict=False)
    tied = ["lm_head.weight"] if ours.config.tie_embeddings else []
    assert (loaded.missing_keys, loaded.unexpected_keys) == (tied, [])
    again.tie_weights()
    with torch.no_grad():
        assert_close(again(tokens)[0], expected, 1e-5)


@every_drawn
def test_equal_in_float64(model_type: str, seed: int, monkeypatch: pytest.MonkeyPatch):
    with double_precision(monkeypatch):
        theirs = build(model_type, drawn(model_type, seed))
        tokens, real = batch(theirs.config.vocab_size)
        with torch.no_grad():
            whole = theirs(tokens)[0]
        padded, by_token = theirs_padded(theirs, tokens, real), theirs_by_token(theirs, tokens)
    ours = from_huggingface(theirs)
    with torch.no_grad():
        assert_close(ours(tokens), whole, 1e-11)
        assert_close(ours(tokens, padding_mask=real)[real], padded[real], 1e-11)
    assert_close(ours_by_token(ours, tokens), by_token, 1e-11)
    if not grows(ours.config):
        assert_close(ours_by_token(ours, tokens), whole, 1e-11)


@every_relative
def test_folders_of_either_library(model_type: str, tmp_path: Path):
    theirs = build(model_type, drawn(model_type, 0))
    theirs.save_pretrained(tmp_path / "theirs")
    ours, live = from_huggingface(tmp_path / "theirs"), from_huggingface(theirs)
    assert ours.config == live.config
    tokens, _ = batch(ours.config.vocab)
    with torch.no_grad():
        expected = live(tokens)
        assert torch.equal(ours(tokens), expected)
        to_huggingface(ours, tmp_path / "ours", model_type=model_type)
        assert torch.equal(from_huggingface(tmp_path / "ours")(tokens), expected)
        again, report = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
        assert not any(report.values())
        assert_close(again.eval()(tokens)[0], expected, 1e-5)
