"""Checkpoints of all four families under the instruments: the same comes out as from `transformers`.

The oracle is `transformers` with autograd, its attentions and forward hooks; the instruments see the folder
that it saves. T5 is looked at from both of its sides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from measured_transformer import Config, Decoder, Encoder, EncoderDecoder, capture
from measured_transformer.analysis.ablation import Component, heads
from measured_transformer.analysis.attribution import (
    answer_logit,
    attention_times_gradient,
    attention_weights,
    completeness_gap,
    direct_logits,
    embedded,
    flow,
    gradient_times_input,
    gradients,
    integrated_gradients,
    occlusion,
    relevance_rollout,
    rollout,
    weighted_norms,
)
from measured_transformer.analysis.lens import fit_tuned_lens, lens_logits, logit_lens
from measured_transformer.analysis.patching import patched, path_patched, restored_tokens
from measured_transformer.interop import from_huggingface, to_huggingface
from measured_transformer.interop.sides import SourceSide, TargetSide
from measured_transformer.tasks.task import Batch
from test_huggingface_checkpoints import BERT, GPT2, LLAMA, T5
from test_huggingface_parity import bert, gpt2, llama, t5
from torch import Tensor, nn

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9], [9, 2, 6, 5, 3, 5]])
OTHER = torch.tensor([[2, 7, 1, 8, 2, 8], [1, 4, 1, 4, 2, 1]])
WRITTEN = torch.tensor([[0, 7, 2], [0, 5, 5]])
ANSWERS = torch.tensor([6, 2])
TARGET = answer_logit(-1, ANSWERS)
CLOSE = {
    "rtol": 1e-4,
    "atol": 1e-5,
}  # its attention takes some softmaxes in float32 whatever the model's precision


def whole(model: Any) -> Any:
    return model


@dataclass(frozen=True)
class Case:
    """One family, and from which side it is looked at.

    Attributes:
        make: a tiny model of `transformers`.
        seen: what the instruments get of ours.
        side: under which name `transformers` returns hidden states and attentions.
        inputs: what `transformers` gets for tokens.
        blocks: its blocks on that side.
        read: its logits from a hidden state, where a lens has a meaning.
    """

    make: Callable[[], nn.Module]
    seen: Callable[[Any], Any]
    side: str
    inputs: Callable[[Tensor], dict[str, Tensor]]
    blocks: Callable[[Any], Any]
    read: Callable[[Any, Tensor], Tensor] | None


def ids(tokens: Tensor) -> dict[str, Tensor]:
    return {"input_ids": tokens}


def read_bert(model: Any, state: Tensor) -> Tensor:
    return model.cls(state)


CASES = {
    "gpt2": Case(
        gpt2,
        whole,
        "",
        ids,
        lambda model: model.transformer.h,
        lambda model, state: model.lm_head(model.transformer.ln_f(state)),
    ),
    "llama": Case(
        lambda: llama(num_key_value_heads=2),
        whole,
        "",
        ids,
        lambda model: model.model.layers,
        lambda model, state: model.lm_head(model.model.norm(state)),
    ),
    "bert": Case(bert, whole, "", ids, lambda model: model.bert.encoder.layer, read_bert),
    "t5, source": Case(
        lambda: t5(feed_forward_proj="gated-gelu"),
        lambda model: SourceSide(model, WRITTEN),
        "encoder_",
        lambda tokens: {"input_ids": tokens, "decoder_input_ids": WRITTEN},
        lambda model: model.encoder.block,
        None,
    ),
    "t5, target": Case(
        lambda: t5(feed_forward_proj="gated-gelu"),
        lambda model: TargetSide(model, OTHER),
        "decoder_",
        lambda tokens: {"input_ids": OTHER, "decoder_input_ids": tokens},
        lambda model: model.decoder.block,
        lambda model, state: model.lm_head(model.decoder.final_layer_norm(state) * 24**-0.5),
    ),
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


@pytest.fixture
def pair(case: Case, tmp_path: Path, float64_throughout: None) -> tuple[Any, Any]:
    """Theirs in float64, and what the instruments see of the folder that it saves."""
    theirs = case.make().double()
    theirs.save_pretrained(tmp_path)
    theirs.set_attn_implementation("eager")
    return theirs, case.seen(from_huggingface(tmp_path))


def outputs(theirs: Any, case: Case, tokens: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
    """Logits, hidden states and attentions (layer example head query key) of `transformers`."""
    found = theirs(**case.inputs(tokens), output_hidden_states=True, output_attentions=True)
    states, patterns = found[f"{case.side}hidden_states"], found[f"{case.side}attentions"]
    return found.logits, list(states), torch.stack(patterns)


@cases
def test_attention_and_slopes_are_those_of_transformers(case, pair):
    theirs, ours = pair
    logits, states, patterns = outputs(theirs, case, TOKENS)
    assert attention_weights(ours, TOKENS).allclose(patterns)
    (slopes,) = torch.autograd.grad(TARGET(logits).sum(), states[0])
    found = gradients(ours, TOKENS, TARGET)
    assert found.abs().max() > 1e-2
    torch.testing.assert_close(found, slopes, **CLOSE)
    product = (slopes * states[0]).sum(-1)
    torch.testing.assert_close(gradient_times_input(ours, TOKENS, TARGET), product, **CLOSE)


@cases
def test_a_patch_is_a_forward_hook_of_transformers(case, pair):
    theirs, ours = pair
    with torch.no_grad():
        donor = outputs(theirs, case, OTHER)[1][1][:, [2, 4]]

        def put(module: nn.Module, args: Any, output: Any) -> Any:
            state = (output[0] if isinstance(output, tuple) else output).clone()
            state[:, [2, 4]] = donor
            return (state, *output[1:]) if isinstance(output, tuple) else state

        handle = case.blocks(theirs)[0].register_forward_hook(put)
        expected = TARGET(theirs(**case.inputs(TOKENS)).logits)
        handle.remove()
        untouched = TARGET(theirs(**case.inputs(TOKENS)).logits)
    part = [Component("blocks.0.residual_post")]
    found = patched(ours, TOKENS, OTHER, part, TARGET, positions=[2, 4])
    torch.testing.assert_close(found, expected, **CLOSE)
    assert (found - untouched).abs().max() > 1e-2


@cases
def test_the_lens_reads_what_the_head_of_transformers_reads(case, pair):
    theirs, ours = pair
    if case.read is None:
        with pytest.raises(ValueError, match="take the TargetSide"):
            lens_logits(ours, TOKENS)
        return
    with torch.no_grad():
        logits, states, _ = outputs(theirs, case, TOKENS)
        expected = [*(case.read(theirs, state) for state in states[:-1]), logits]
    found = lens_logits(ours, TOKENS)
    torch.testing.assert_close(found, torch.stack(expected), **CLOSE)
    batch = Batch(TOKENS, TOKENS, torch.ones_like(TOKENS, dtype=torch.bool))
    assert logit_lens(ours, batch).loss.shape == (len(states),)
    assert (fit_tuned_lens(ours, batch, seed=0, steps=2, size=4).gap[0] >= 0).all()


@cases
def test_every_attribution_has_its_exact_property_on_a_checkpoint(case, pair):
    _, ours = pair
    norms = weighted_norms(ours, TOKENS)
    assert norms.shape == (len(ours.blocks), 2, 6, 6)
    usual = embedded(ours, OTHER).mean(
        (0, 1)
    )  # from zero, RMS norms leave a gap at any number of steps
    integrated = integrated_gradients(ours, TOKENS, TARGET, baseline=usual, steps=100)
    gap = completeness_gap(ours, TOKENS, TARGET, integrated, baseline=usual)
    assert gap.abs().max() < 1e-2 * integrated.abs().max()
    with torch.no_grad():
        if ours.config.placement == "post":
            with pytest.raises(ValueError, match=r"placement='post'.*patching"):
                direct_logits(ours, TOKENS)
        elif case.read is not None:
            parts = direct_logits(ours, TOKENS)
            assert (parts.logits.sum(0) - ours(TOKENS)).abs().max() < 1e-9


NATIVE: dict[str, tuple[type, Config, Callable[[Any], Any]]] = {
    "gpt2": (Decoder, GPT2, whole),
    "llama": (Decoder, LLAMA, whole),
    "bert": (Encoder, BERT, whole),
    "t5, source": (EncoderDecoder, T5, lambda model: SourceSide(model, WRITTEN[:1])),
    "t5, target": (EncoderDecoder, T5, lambda model: TargetSide(model, OTHER[:1])),
}


def everything(model: Any) -> dict[str, Tensor]:
    """What each instrument says."""
    weights = attention_weights(model, TOKENS)
    products = attention_times_gradient(model, TOKENS, TARGET)
    head, last = Component("blocks.0.attention.mixed", 1), len(model.blocks) - 1
    after = [Component(f"blocks.{last}.residual_post")]
    said = {
        "weights": weights,
        "norms": weighted_norms(model, TOKENS),
        "rollout": rollout(weights.mean(2)),
        "flow": flow(weights.mean(2), -1),
        "integrated": integrated_gradients(model, TOKENS, TARGET, steps=5),
        "products": products,
        "relevance": relevance_rollout(products),
        "restored": restored_tokens(model, TOKENS, OTHER, TARGET),
        "path": path_patched(model, TOKENS, OTHER, head, after, TARGET),
    }
    for how in ("zero", "mean", "resample", "delete"):
        said[how] = occlusion(model, TOKENS, TARGET, how=how, reference=OTHER)
    return said


@pytest.mark.parametrize("name", NATIVE)
def test_a_checkpoint_says_what_the_native_model_says(name, tmp_path):
    kind, config, seen = NATIVE[name]
    native = kind(config).double().eval()
    to_huggingface(native, tmp_path)
    expected, found = (everything(seen(each)) for each in (native, from_huggingface(tmp_path)))
    for instrument, value in expected.items():
        assert value.isfinite().all(), instrument
        assert value.abs().max() > 0, instrument
        torch.testing.assert_close(found[instrument], value)


def test_an_encoder_without_a_head_is_explained_by_its_states_and_has_no_lens(tmp_path):
    native = Encoder(BERT.replace(head="none", head_bias=False, tie_embeddings=False)).double()
    to_huggingface(native.eval(), tmp_path)
    model = from_huggingface(tmp_path)
    others = model(OTHER).mean(1).detach()

    def alike(states: Tensor) -> Tensor:
        return (states.mean(1) * others).sum(-1)

    assert gradients(model, TOKENS, alike).abs().max() > 0
    assert occlusion(model, TOKENS, alike, how="zero").abs().max() > 0
    assert patched(model, TOKENS, OTHER, heads(model), alike).isfinite().all()
    batch = Batch(TOKENS, TOKENS, torch.ones_like(TOKENS, dtype=torch.bool))
    for lens in (
        lambda: lens_logits(model, TOKENS),
        lambda: logit_lens(model, batch),
        lambda: fit_tuned_lens(model, batch, seed=0),
    ):
        with pytest.raises(ValueError, match=r"no head.*probe"):
            lens()


def test_sides_share_their_parts_and_say_what_does_not_fit():
    model = EncoderDecoder(T5).eval()
    source, target = SourceSide(model, WRITTEN), TargetSide(model, OTHER)
    assert source.blocks is model.encoder.blocks
    assert target.blocks is model.decoder.blocks
    with capture(target, "blocks.*.cross_attention.pattern") as seen:
        target(TOKENS)
    assert {tuple(each.shape) for each in seen.values()} == {(2, 4, 6, 6)}
    three = TOKENS[[0, 1, 0]]
    with pytest.raises(ValueError, match=r"of the target .* each of 3, got 2"):
        source(three)
    with pytest.raises(ValueError, match=r"of the source .* each of 3, got 2"):
        target(three)
    one = TargetSide(model, OTHER[:1])
    assert one(three).allclose(model(OTHER[:1].expand(3, -1), three))
    with pytest.raises(ValueError, match="no token types"):
        source(TOKENS, token_types=torch.zeros_like(TOKENS))
    with pytest.raises(ValueError, match="cache"):
        target(TOKENS, cache=model.make_cache())


def test_padding_of_a_source_is_seen_by_neither_side():
    model = EncoderDecoder(T5).double().eval()
    real = torch.tensor([[True] * 4 + [False] * 2] * 2)
    side = TargetSide(model, OTHER, source_padding_mask=real)
    assert side(TOKENS).allclose(model(OTHER[:, :4], TOKENS))
    reading = SourceSide(model, WRITTEN)
    assert reading(OTHER, padding_mask=real).allclose(reading(OTHER[:, :4]))
