"""Equal to `transformers`, state by state: tiny random models of each architecture, both precisions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hf_reference import randomise
from measured_transformer import capture
from measured_transformer.interop import from_huggingface
from torch import Tensor, nn

transformers = pytest.importorskip("transformers", reason="the reference is not installed")

PRECISIONS = [(torch.float32, 1e-5), (torch.float64, 1e-9)]
precisions = pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS, ids=["f32", "f64"])
paddings = pytest.mark.parametrize("padding", ["none", "left", "right"])
LENGTHS = (7, 3, 1)

GPT2S: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied": {"tie_word_embeddings": False},
    "exact gelu, own width": {"activation_function": "gelu", "n_inner": 20},
    "relu, eps": {"activation_function": "relu", "layer_norm_epsilon": 1e-2},
    "pytorch tanh": {"activation_function": "gelu_pytorch_tanh"},
    "fast gelu": {"activation_function": "gelu_fast"},
    "quick gelu, unscaled": {"activation_function": "quick_gelu", "scale_attn_weights": False},
    "one head": {"n_head": 1, "n_layer": 1},
    "accurate gelu": {"activation_function": "gelu_accurate"},
    "python tanh": {"activation_function": "gelu_python_tanh", "n_inner": 1},
}
LLAMAS: dict[str, dict[str, Any]] = {
    "as many keys as queries": {},
    "grouped": {"num_key_value_heads": 2},
    "one key head, tied": {"num_key_value_heads": 1, "tie_word_embeddings": True},
    "wide heads": {"head_dim": 10, "num_key_value_heads": 2},
    "attention bias": {"attention_bias": True},
    "ffn bias, base": {
        "mlp_bias": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
    },
    "gated gelu": {"hidden_act": "gelu", "rms_norm_eps": 1e-3},
}
BERTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "untied": {"tie_word_embeddings": False},
    "three types, relu": {"type_vocab_size": 3, "hidden_act": "relu"},
    "new gelu, eps": {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3},
}
T5S: dict[str, dict[str, Any]] = {
    "1.0": {},
    "1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "own head": True},
    "1.1, tied": {"feed_forward_proj": "gated-gelu"},
    "unscaled, tied": {"tie_word_embeddings": False},
    "few buckets, uneven": {
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 6,
        "num_decoder_layers": 1,
        "feed_forward_proj": "gated-silu",
    },
    "wide heads": {"d_kv": 10},
    "gated by name, exact by function": {
        "feed_forward_proj": "gated-gelu",
        "dense_act_fn": "gelu",
    },
    "gated by flag": {"feed_forward_proj": "relu", "is_gated_act": True},
}


def gpt2(**settings: Any) -> nn.Module:
    sizes = {"vocab_size": 31, "n_embd": 24, "n_layer": 3, "n_head": 4, "n_positions": 16}
    return prepared(transformers.GPT2LMHeadModel(transformers.GPT2Config(**(sizes | settings))))


def llama(**settings: Any) -> nn.Module:
    sizes = {
        "vocab_size": 31,
        "hidden_size": 24,
        "intermediate_size": 20,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 32,
    }
    return prepared(transformers.LlamaForCausalLM(transformers.LlamaConfig(**(sizes | settings))))


def bert(kind: str = "BertForMaskedLM", **settings: Any) -> nn.Module:
    sizes = {
        "vocab_size": 31,
        "hidden_size": 24,
        "intermediate_size": 20,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 16,
    }
    return prepared(getattr(transformers, kind)(transformers.BertConfig(**(sizes | settings))))


def t5(**settings: Any) -> nn.Module:
    sizes = {
        "vocab_size": 31,
        "d_model": 24,
        "d_kv": 6,
        "d_ff": 20,
        "num_layers": 2,
        "num_heads": 4,
    }
    own_head = settings.pop("own head", False)
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**(sizes | settings)))
    if own_head:  # version 5 ties every fresh T5; checkpoints of 1.1 hold a head of their own
        model.lm_head.weight = nn.Parameter(torch.empty(31, 24))
    return prepared(model)


def prepared(model: nn.Module) -> nn.Module:
    randomise(model)
    return model.eval()


def batch(padding: str, vocab: int = 31) -> tuple[Tensor, Tensor]:
    """Three rows of different lengths, and where their tokens are real."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(vocab, (len(LENGTHS), max(LENGTHS)), generator=generator)
    where = torch.arange(max(LENGTHS))
    lengths = torch.tensor(LENGTHS)[:, None]
    if padding == "none":
        return tokens, torch.ones_like(tokens, dtype=torch.bool)
    return tokens, where < lengths if padding == "right" else where >= max(LENGTHS) - lengths


def counted(real: Tensor) -> Tensor:
    return (real.long().cumsum(1) - 1).clamp(min=0)


def assert_close(ours: Tensor, theirs: Tensor, real: Tensor, tolerance: float) -> None:
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours[real], theirs[real], rtol=tolerance, atol=tolerance)


def states(seen: dict[str, Tensor], side: str = "") -> list[Tensor]:
    """What `transformers` calls hidden states: the last is the final state."""
    after = [v for k, v in seen.items() if k.startswith(f"{side}blocks") and "post" in k]
    return [seen[f"{side}embedding"], *after[:-1], seen[f"{side}final_state"]]


def check_decoder(theirs: nn.Module, padding: str, dtype: torch.dtype, tolerance: float) -> None:
    theirs = theirs.to(dtype)
    ours = from_huggingface(theirs)
    tokens, real = batch(padding)
    with torch.no_grad():
        expected = theirs(
            tokens,
            attention_mask=real.long(),
            position_ids=counted(real),
            output_hidden_states=True,
        )
        with capture(ours) as seen:
            logits = ours(tokens, padding_mask=None if padding == "none" else real)
    fused = ours(tokens, padding_mask=None if padding == "none" else real)
    assert_close(logits, expected.logits, real, tolerance)
    assert_close(fused.detach(), expected.logits, real, tolerance)
    mine = states(seen)
    assert len(mine) == len(expected.hidden_states)
    for our_state, their_state in zip(mine, expected.hidden_states, strict=True):
        assert_close(our_state, their_state, real, tolerance)


@precisions
@paddings
@pytest.mark.parametrize("settings", GPT2S.values(), ids=GPT2S.keys())
def test_gpt2(settings, padding, dtype, tolerance, float64_throughout):
    check_decoder(gpt2(**settings), padding, dtype, tolerance)


@precisions
@paddings
@pytest.mark.parametrize("settings", LLAMAS.values(), ids=LLAMAS.keys())
def test_llama(settings, padding, dtype, tolerance, request):
    if dtype == torch.float64:
        request.getfixturevalue("float64_throughout")
    check_decoder(llama(**settings), padding, dtype, tolerance)


@precisions
@paddings
@pytest.mark.parametrize("settings", BERTS.values(), ids=BERTS.keys())
@pytest.mark.parametrize("kind", ["BertForMaskedLM", "BertModel"])
def test_bert(kind, settings, padding, dtype, tolerance):
    theirs = bert(kind, **settings).to(dtype)
    ours = from_huggingface(theirs)
    tokens, real = batch(padding)
    types = torch.randint(ours.config.token_types, tokens.shape)
    with torch.no_grad():
        expected = theirs(
            tokens,
            attention_mask=real.long(),
            position_ids=counted(real),
            token_type_ids=types,
            output_hidden_states=True,
        )
        with capture(ours) as seen:
            answer = ours(tokens, padding_mask=real, token_types=types)
        without_types = theirs(tokens, attention_mask=real.long(), position_ids=counted(real))
    assert_close(answer, expected[0], real, tolerance)
    assert_close(ours(tokens, padding_mask=real).detach(), without_types[0], real, tolerance)
    for our_state, their_state in zip(states(seen), expected.hidden_states, strict=True):
        assert_close(our_state, their_state, real, tolerance)
    if kind == "BertModel" and padding != "left":
        pooled = ours.pool(answer)
        torch.testing.assert_close(pooled, expected.pooler_output, rtol=tolerance, atol=tolerance)


def test_bert_for_pretraining_has_head_and_pooler():
    theirs = bert("BertForPreTraining").double()
    with pytest.warns(UserWarning, match=r"no such head: cls\.seq_relationship\.bias, cls"):
        from_huggingface(theirs)
    ours = from_huggingface(theirs, ignore=["cls.seq_relationship.*"])
    tokens, _ = batch("none")
    expected = theirs(tokens).prediction_logits
    torch.testing.assert_close(ours(tokens), expected, rtol=1e-9, atol=1e-9)
    assert ours.config.pooler


@precisions
@paddings
@pytest.mark.parametrize("settings", T5S.values(), ids=T5S.keys())
def test_t5(settings, padding, dtype, tolerance, request):
    if dtype == torch.float64:
        request.getfixturevalue("float64_throughout")
    theirs = t5(**settings).to(dtype)
    ours = from_huggingface(theirs)
    source, source_real = batch(padding)
    target = torch.randint(31, (len(LENGTHS), 5), generator=torch.Generator().manual_seed(2))
    target_real = torch.ones_like(target, dtype=torch.bool)
    if padding != "none":
        target_real[1, 0 if padding == "left" else -1] = False
    with torch.no_grad():
        expected = theirs(
            source,
            attention_mask=source_real.long(),
            decoder_input_ids=target,
            decoder_attention_mask=target_real.long(),
            output_hidden_states=True,
        )
        masks = {"source_padding_mask": source_real, "target_padding_mask": target_real}
        with capture(ours) as seen:
            logits = ours(source, target, **masks)
        fused = ours(source, target, **masks)
    assert_close(logits, expected.logits, target_real, tolerance)
    assert_close(fused, expected.logits, target_real, tolerance)
    encoder, decoder = states(seen, "encoder."), states(seen, "decoder.")
    for mine, yours in zip(encoder, expected.encoder_hidden_states, strict=True):
        assert_close(mine, yours, source_real, tolerance)
    for mine, yours in zip(decoder, expected.decoder_hidden_states, strict=True):
        assert_close(mine, yours, target_real, tolerance)


@pytest.mark.parametrize("settings", T5S.values(), ids=T5S.keys())
def test_t5_ties_what_the_checkpoint_ties(settings):
    ours = from_huggingface(t5(**settings))
    own_head = bool(settings.get("own head"))
    assert (ours.unembedding.weight is ours.encoder.token_embedding.weight) == (not own_head)
    assert ours.decoder.token_embedding.weight is ours.encoder.token_embedding.weight
    scaled = settings.get("tie_word_embeddings", True)
    assert ours.config.logit_scale == (24**-0.5 if scaled else 1.0)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("build", [gpt2, llama, bert])
def test_tied_weights_stay_tied(build, tied):
    ours = from_huggingface(build(tie_word_embeddings=tied))
    assert (ours.unembedding.weight is ours.token_embedding.weight) == tied


@pytest.mark.parametrize(
    ("kind", "build"), [("GPT2Model", gpt2), ("LlamaModel", llama)], ids=["gpt2", "llama"]
)
def test_a_model_without_head_gives_its_final_state(kind, build):
    theirs = getattr(transformers, kind)(build().config).eval()
    randomise(theirs)
    ours = from_huggingface(theirs)
    tokens, real = batch("none")
    expected = theirs(tokens).last_hidden_state
    assert_close(ours(tokens).detach(), expected.detach(), real, 1e-5)


def test_rows_numbered_by_place_as_transformers_does_unless_told():
    theirs = gpt2().double()
    ours = from_huggingface(theirs)
    tokens, real = batch("left")
    expected = theirs(tokens, attention_mask=real.long()).logits
    places = torch.arange(tokens.shape[1]).expand_as(tokens)
    logits = ours(tokens, padding_mask=real, positions=places)
    assert_close(logits.detach(), expected.detach(), real, 1e-9)
    assert not torch.allclose(ours(tokens, padding_mask=real)[real], expected[real], atol=1e-3)


def test_the_model_of_transformers_is_left_as_it_was():
    theirs = gpt2()
    before = {name: value.clone() for name, value in theirs.state_dict().items()}
    state = torch.random.get_rng_state()
    ours = from_huggingface(theirs)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.zero_()
    assert all(torch.equal(before[name], value) for name, value in theirs.state_dict().items())
    assert torch.equal(state, torch.random.get_rng_state())


def test_dtype_is_the_checkpoints_unless_told():
    theirs = gpt2().to(torch.bfloat16)
    assert next(from_huggingface(theirs).parameters()).dtype == torch.bfloat16
    wide = from_huggingface(theirs, dtype=torch.float32)
    assert {parameter.dtype for parameter in wide.parameters()} == {torch.float32}
    assert not wide.training


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (8, 6), (16, 100), (32, 20)])
def test_every_distance_falls_in_the_bucket_of_transformers(n_buckets, max_distance, bidirectional):
    from measured_transformer.parts.positions import relative_buckets
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = torch.arange(-700, 701)
    expected = T5Attention._relative_position_bucket(
        distance, bidirectional=bidirectional, num_buckets=n_buckets, max_distance=max_distance
    )
    ours = relative_buckets(
        distance, n_buckets=n_buckets, max_distance=max_distance, bidirectional=bidirectional
    )
    assert torch.equal(ours, expected)
