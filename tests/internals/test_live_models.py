"""Live models of `transformers`, of kinds that the library loads and of others, watched by their own names."""

from __future__ import annotations

import collections
import pickle

import pytest
import torch
from measured_transformer.internals.at import at
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.internals.modules import by_head, split_heads

transformers = pytest.importorskip("transformers")

V, X = 40, torch.tensor([[3, 9, 2, 30, 31, 7, 5], [8, 8, 1, 22, 6, 39, 4]])
SIZES = {"vocab_size": V, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
FFN = {"intermediate_size": 24}
TOKENS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
MODELS = {
    "Llama": ("LlamaForCausalLM", SIZES | FFN | {"num_key_value_heads": 2}),
    "GPT-2": (
        "GPT2LMHeadModel",
        {"vocab_size": V, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 32},
    ),
    "BERT": ("BertForMaskedLM", SIZES | FFN),
    "T5": (
        "T5ForConditionalGeneration",
        {"vocab_size": V, "d_model": 16, "d_ff": 24, "num_layers": 2, "num_heads": 4, "d_kv": 4},
    ),
    "Mixtral": (
        "MixtralForCausalLM",
        SIZES
        | FFN
        | {"num_key_value_heads": 2, "num_local_experts": 4, "experts_implementation": "eager"},
    ),
    "Falcon": ("FalconForCausalLM", SIZES),
    "Bloom": ("BloomForCausalLM", {"vocab_size": V, "hidden_size": 16, "n_layer": 2, "n_head": 4}),
    "ALBERT": ("AlbertForMaskedLM", SIZES | FFN | {"embedding_size": 8}),
    "Mamba": ("MambaForCausalLM", SIZES | {"state_size": 4}),
}
every_model = pytest.mark.parametrize("kind", MODELS)


def made(kind, **settings):
    name, sizes = MODELS[kind]
    model_class = getattr(transformers, name)
    torch.manual_seed(0)
    config = model_class.config_class(**sizes, **TOKENS, **settings)
    model = model_class(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


def inputs(kind):
    return {"input_ids": X} | ({"decoder_input_ids": X[:, :4]} if kind == "T5" else {})


def logits(kind, model):
    return model(**inputs(kind)).logits


@every_model
@torch.no_grad()
def test_watching_every_module_changes_nothing_and_leaves_nothing(kind):
    model = made(kind)
    before, wanted = pickle.dumps(model), logits(kind, model)
    with capture(model) as seen:
        assert torch.equal(logits(kind, model), wanted)
    assert torch.equal(logits(kind, model), wanted)
    assert pickle.dumps(model) == before
    assert len(seen) > 10
    with capture(model, ":output.logits") as seen:
        logits(kind, model)
    assert torch.equal(seen[":output.logits"], wanted)


@every_model
@torch.no_grad()
def test_every_value_seen_is_the_one_used(kind):
    """Put back what was seen: nothing changes. Put in noise: the logits change."""
    model, calls = made(kind), collections.Counter()
    with capture(model) as seen:
        wanted = logits(kind, model)
    counting = {name: lambda x, n=name: calls.update([n]) or x for name in seen}
    with intervene(model, counting):
        assert torch.equal(logits(kind, model), wanted)
    once = {name: value for name, value in seen.items() if calls[name] == 1}
    assert len(once) > 10
    with intervene(model, once):
        assert torch.equal(logits(kind, model), wanted)
    for name, value in once.items():
        if name.endswith(
            ".gate"
        ):  # of what Mixtral's router returns, its experts use the weights and numbers
            name, value = f"{name}:output.1", torch.rand(14, 2).double()
        with intervene(model, {name: torch.randn_like(value)}):
            assert not torch.allclose(logits(kind, model), wanted, atol=1e-6), name


LAYERS = {
    "Llama": "model.layers",
    "GPT-2": "transformer.h",
    "BERT": "bert.encoder.layer",
    "T5": "decoder.block",
    "Mixtral": "model.layers",
    "Falcon": "transformer.h",
    "Bloom": "transformer.h",
    "Mamba": "backbone.layers",
}
every_stack = pytest.mark.parametrize(("kind", "layers"), LAYERS.items())


@pytest.mark.parametrize("frozen", [False, True])
@every_stack
def test_gradients_are_those_of_what_is_added_there(kind, layers, frozen):
    model = made(kind).requires_grad_(not frozen)
    names = [f"{layers}.0", f"{layers}.1:input"]
    with capture(model, *names, gradients=True) as seen:
        out = logits(kind, model)
        out.square().sum().backward()
    assert torch.equal(out, logits(kind, model))
    for name in names:
        added = torch.zeros_like(seen[name], requires_grad=True)
        with intervene(model, {name: lambda x, added=added: x + added}):
            logits(kind, model).square().sum().backward()
        torch.testing.assert_close(seen[name].grad, added.grad)
        assert bool((added.grad != 0).any())


@pytest.mark.parametrize("kind", ["Llama", "GPT-2", "Mixtral", "Falcon", "Bloom", "Mamba"])
@torch.no_grad()
def test_under_generate_each_step_is_changed_and_the_last_one_kept(kind):
    model = made(kind)
    layer, shift = f"{LAYERS[kind]}.0", 9 * torch.randn(16).double()
    with intervene(model, {layer: lambda x: x + shift}), capture(model, layer) as seen:
        out = model.generate(X, max_new_tokens=4, do_sample=False, eos_token_id=None)
        tokens = X
        for _ in range(4):
            tokens = torch.cat((tokens, model(tokens).logits[:, -1:].argmax(-1)), 1)
    assert torch.equal(out, tokens)
    assert not torch.equal(
        out, model.generate(X, max_new_tokens=4, do_sample=False, eos_token_id=None)
    )
    assert seen[layer].shape == (2, 10, 16)
    with capture(model, layer) as seen:
        model.generate(X, max_new_tokens=4, do_sample=False, eos_token_id=None)
    assert seen[layer].shape == (2, 1, 16)


@pytest.mark.parametrize(
    ("kind", "site"),
    [
        ("Llama", "model.layers.1.self_attn.o_proj"),
        ("Mixtral", "model.layers.1.self_attn.o_proj"),
        ("BERT", "bert.encoder.layer.1.attention.output.dense"),
        ("T5", "decoder.block.1.layer.1.EncDecAttention.o"),
    ],
)
@torch.no_grad()
def test_a_head_is_removed_as_if_its_output_weights_were_zero(kind, site):
    model = made(kind)
    with intervene(model, {f"{site}:input": by_head(at(0.0, heads=2), 4)}):
        found = logits(kind, model)
    model.get_submodule(site).weight[:, 8:12] = 0
    torch.testing.assert_close(found, logits(kind, model), rtol=0, atol=1e-12)


@torch.no_grad()
def test_patterns_have_heads_and_are_asked_for():
    model = made("Llama", attn_implementation="eager")
    name = "model.layers.*.self_attn:output.1"
    with capture(model, name, "model.layers.0.self_attn.*") as seen:
        model(X)
    pattern = seen["model.layers.0.self_attn:output.1"]
    values = split_heads(seen["model.layers.0.self_attn.v_proj"], 2).repeat_interleave(2, 1)
    mixed = (pattern @ values).transpose(1, 2).flatten(2)
    assert pattern.shape == (2, 4, 7, 7)
    out = model.model.layers[0].self_attn.o_proj(mixed)
    torch.testing.assert_close(out, seen["model.layers.0.self_attn.o_proj"])
    model = made("Llama", attn_implementation="sdpa")
    message = r"self_attn:output\.1 is no tensor but None; .*'eager'"
    with pytest.raises(ValueError, match=message), capture(model, name):
        model(X)


@torch.no_grad()
def test_the_same_change_in_a_live_model_and_in_ours_gives_the_same_logits(tmp_path):
    from measured_transformer.interop.huggingface import from_huggingface

    live = made("Llama").float()
    live.save_pretrained(tmp_path)
    ours = from_huggingface(tmp_path)
    names = {
        "model.layers.0.mlp": "blocks.0.feedforward.out",
        "model.layers.1.self_attn": "blocks.1.attention.out",
        "model.layers.0": "blocks.0.residual_post",
        "model.layers.1:input": "blocks.1.residual_pre",
    }
    with capture(live, *names) as theirs, capture(ours, *names.values()) as seen:
        plain = live(X).logits
        torch.testing.assert_close(ours(X), plain, rtol=0, atol=1e-5)
    for theirs_name, name in names.items():
        torch.testing.assert_close(theirs[theirs_name], seen[name], rtol=0, atol=1e-5)
        change = at(torch.randn(16), positions=[2, -1], rows=1)
        with intervene(live, {theirs_name: change}), intervene(ours, {name: change}):
            changed = live(X).logits
            torch.testing.assert_close(ours(X), changed, rtol=0, atol=1e-5)
        assert not torch.allclose(changed[1], plain[1])
        assert torch.equal(changed[0], plain[0])


def test_checkpointing_is_refused_in_training():
    model = made("Llama").train()
    name = "activation_checkpointing_enable"  # as later versions call it
    getattr(model, name if hasattr(model, name) else "gradient_checkpointing_enable")()
    message = "a model with gradient checkpointing"
    with pytest.raises(ValueError, match=message), intervene(model, {"model.layers.0": 0.0}):
        model(X)


@torch.no_grad()
def test_a_compiled_live_model():
    torch.compiler.reset()
    model = made("GPT-2")
    wanted = model(X).logits
    compiled = torch.compile(model, backend="eager")
    torch.testing.assert_close(compiled(X).logits, wanted)
    with intervene(compiled, {"transformer.h.1.mlp": 0.0}):
        changed = compiled(X).logits
    model.transformer.h[1].mlp.forward = torch.zeros_like
    torch.testing.assert_close(changed, model(X).logits)
    torch.compiler.reset()
