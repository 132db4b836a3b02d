"""Capture sees what passes, by name, and leaves nothing behind."""

import copy
import gc
import pickle
import re
import subprocess
import sys
import weakref

import pytest
import torch
from measured_transformer.inference.generate import generate
from measured_transformer.internals.capture import capture, watching
from measured_transformer.internals.intervene import intervene
from measured_transformer.internals.names import matching, taps
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder

CONFIG = Config(vocab=9, d_model=12, n_layers=2, n_heads=3, d_ff=20, positions="rotary")
TOKENS = torch.tensor([[1, 2, 3, 4, 5], [8, 0, 8, 0, 1]])
B, Q, H, D, E, FF = 2, 5, 3, 12, 4, 20
SHAPES = {
    "residual_pre": (B, Q, D),
    "residual_mid": (B, Q, D),
    "residual_post": (B, Q, D),
    "attention.queries": (B, H, Q, E),
    "attention.keys": (B, H, Q, E),
    "attention.values": (B, H, Q, E),
    "attention.rotated_queries": (B, H, Q, E),
    "attention.rotated_keys": (B, H, Q, E),
    "attention.scores": (B, H, Q, Q),
    "attention.pattern": (B, H, Q, Q),
    "attention.mixed": (B, H, Q, E),
    "attention.head_outputs": (B, H, Q, D),
    "attention.out": (B, Q, D),
    "attention_norm.scale": (B, Q, 1),
    "feedforward_norm.scale": (B, Q, 1),
    "feedforward.pre_activation": (B, Q, FF),
    "feedforward.neurons": (B, Q, FF),
    "feedforward.out": (B, Q, D),
}
ALL = {
    "embedding": (B, Q, D),
    **{f"blocks.{i}.{name}": shape for i in range(2) for name, shape in SHAPES.items()},
    "final_norm.scale": (B, Q, 1),
    "final_state": (B, Q, D),
    "logits": (B, Q, 9),
}


def made(config=CONFIG, kind=Decoder, seed=0):
    torch.manual_seed(seed)
    model = kind(config)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def watched(model):
    return [name for name, tap in taps(model).items() if tap.watched]


@pytest.mark.parametrize("kind", [Decoder, Encoder])
def test_every_tap_is_seen_with_its_name_and_shape(kind):
    model = made(kind=kind)
    assert set(taps(model)) == set(ALL)
    with capture(model) as seen:
        out = model(TOKENS)
    assert {name: tuple(value.shape) for name, value in seen.items()} == ALL
    assert torch.equal(seen["logits"], out)
    assert not any(value.requires_grad for value in seen.values())


def test_names_and_globs_choose():
    model = made()
    for patterns, expected in (
        (["logits"], ["logits"]),
        (["blocks.1.attention.pattern"], ["blocks.1.attention.pattern"]),
        (["*.pattern"], ["blocks.0.attention.pattern", "blocks.1.attention.pattern"]),
        (["blocks.?.residual_m*"], ["blocks.0.residual_mid", "blocks.1.residual_mid"]),
        (["blocks.[1-3].residual_mid"], ["blocks.1.residual_mid"]),
        (["logits", "*gits", "embedding"], ["embedding", "logits"]),
    ):
        with capture(model, *patterns) as seen:
            assert set(watched(model)) == set(expected)
            model(TOKENS)
        assert sorted(seen) == expected


def test_looking_does_not_change_what_the_model_computes():
    for config in (CONFIG, CONFIG.replace(norm="rms", activation="swiglu", n_kv_heads=1)):
        model = made(config).double()
        plain = model(TOKENS)
        plain.square().sum().backward()
        grads = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        for patterns in [(), *((name,) for name in taps(model))]:
            with capture(model, *patterns):
                out = model(TOKENS)
            torch.testing.assert_close(out, plain, rtol=0, atol=1e-12)
        with capture(model):
            model(TOKENS).square().sum().backward()
        for parameter, grad in zip(model.parameters(), grads, strict=True):
            torch.testing.assert_close(parameter.grad, grad, rtol=0, atol=1e-9)


def test_a_second_call_overwrites_and_a_later_one_changes_nothing():
    model = made()
    with capture(model, "logits") as seen:
        model(TOKENS)
        first = seen["logits"].clone()
        model(TOKENS[:, :3])
        assert seen["logits"].shape == (2, 3, 9)
        model(TOKENS)
    kept = seen["logits"].clone()
    model(TOKENS[:1])
    assert torch.equal(seen["logits"], kept)
    assert torch.equal(kept, first)


def test_transform_is_applied_to_each_value_at_once():
    model = made()
    with (
        capture(model, "*.pattern") as whole,
        capture(model, "*.pattern", transform=lambda value: value.mean(dim=(0, 2))) as means,
    ):
        model(TOKENS)
    for name, value in whole.items():
        assert torch.equal(means[name], value.mean(dim=(0, 2)))
        assert means[name].shape == (3, 5)


def test_gradients_are_those_of_autograd():
    model = made().double()
    with capture(model, gradients=True) as seen:
        loss = model(TOKENS).square().sum()
    assert all(seen[name].grad is None for name in ALL)
    loss.backward()
    with capture(model, gradients=True) as again:
        loss = model(TOKENS).square().sum()
    expected = torch.autograd.grad(loss, [again[name] for name in ALL])
    for name, grad in zip(ALL, expected, strict=True):
        torch.testing.assert_close(seen[name].grad, grad, rtol=0, atol=1e-12)
        assert grad.abs().max() > 0


def test_gradients_agree_with_finite_differences():
    model = made().double()
    name = "blocks.0.attention.pattern"
    with capture(model, name, gradients=True) as seen:
        model(TOKENS)[0, -1, 3].backward()
    pattern, grad = seen[name].detach(), seen[name].grad
    for where in ((0, 0, 3, 1), (0, 2, 4, 4)):
        ends = []
        for step in (1e-5, -1e-5):
            moved = pattern.clone()
            moved[where] += step
            with intervene(model, {name: moved}), torch.no_grad():
                ends.append(model(TOKENS)[0, -1, 3].item())
        assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(grad[where].item(), abs=1e-7)


def test_gradients_need_no_graph():
    model = made()
    with torch.no_grad(), capture(model, gradients=True) as seen:
        model(TOKENS)
    assert set(seen) == set(ALL)


def test_gradients_of_a_frozen_model():
    model, frozen = made(), made().requires_grad_(False)
    with capture(model, gradients=True) as expected:
        model(TOKENS).square().sum().backward()
    with capture(frozen, gradients=True) as seen:
        frozen(TOKENS).square().sum().backward()
    for name, value in expected.items():
        torch.testing.assert_close(seen[name].grad, value.grad, msg=name)
    assert all(parameter.grad is None for parameter in frozen.parameters())
    assert not frozen(TOKENS).requires_grad


def test_gradients_and_transform_exclude_each_other():
    model = made()
    with (
        pytest.raises(ValueError, match="transform and gradients"),
        capture(model, gradients=True, transform=torch.abs),
    ):
        pass
    assert watched(model) == []


@pytest.mark.parametrize("gradients", [False, True])
def test_nothing_is_left_behind(gradients):
    model = made()
    before = pickle.dumps(model)
    with capture(model, gradients=gradients):
        assert set(watched(model)) == set(ALL)
        model(TOKENS)
    assert watched(model) == []
    assert pickle.dumps(model) == before


def test_nothing_is_left_behind_after_an_error():
    model = made()
    plain = model(TOKENS)
    misfit = {"blocks.0.residual_mid": torch.zeros(7)}
    with (
        pytest.raises(ValueError, match="replacement"),
        capture(model) as seen,
        intervene(model, misfit),
    ):
        model(TOKENS)
    assert watched(model) == []
    assert "blocks.0.attention.out" in seen
    with pytest.raises(ZeroDivisionError), capture(model, "logits", transform=lambda _: 1 / 0):
        model(TOKENS)
    with pytest.raises(KeyError), intervene(model, {"logits": 0.0, "nothing": 0.0}):
        pass
    assert watched(model) == []
    assert torch.equal(model(TOKENS), plain)


def test_contexts_may_end_in_any_order():
    model = made()
    tap = taps(model)["logits"]
    calls = []
    first, second = (
        watching(tap, lambda _: calls.append(1)),
        watching(tap, lambda _: calls.append(2)),
    )
    first.__enter__()
    second.__enter__()
    model(TOKENS)
    first.__exit__(None, None, None)
    model(TOKENS)
    second.__exit__(None, None, None)
    model(TOKENS)
    assert calls == [1, 2, 2]


def test_captures_nest():
    model = made()
    with capture(model, "logits") as outer:
        with capture(model, "logits", "embedding") as inner:
            model(TOKENS)
        model(TOKENS[:, :2])
    assert inner["logits"].shape == (2, 5, 9)
    assert outer["logits"].shape == (2, 2, 9)
    assert "embedding" not in outer


@pytest.mark.parametrize("gradients", [False, True])
def test_what_was_captured_does_not_hold_the_model(gradients):
    model = made()
    gone = weakref.ref(model), weakref.ref(taps(model)["logits"])
    with capture(model, gradients=gradients) as seen:
        model(TOKENS)
    del model
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
    assert set(seen) == set(ALL)


@pytest.mark.parametrize("travel", ["deepcopy", "pickle"])
def test_copies_made_while_watched_are_whole_models(travel):
    model = made()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    assert not [name for name in state if "tap" in name.lower() or name.endswith("scale")]
    with capture(model) as seen, intervene(model, {"logits": lambda logits: logits + 1}):
        other = copy.deepcopy(model) if travel == "deepcopy" else pickle.loads(pickle.dumps(model))
        assert set(model.state_dict()) == set(state)
        assert watched(other) == []
        assert len(watched(model)) == len(ALL)
        other(TOKENS)
        assert seen == {}
    torch.testing.assert_close(other(TOKENS), model(TOKENS))


def test_it_works_in_training_with_dropout_and_a_step():
    model = made(CONFIG.replace(dropout=0.2)).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    with capture(model, "*.pattern", "logits", gradients=True) as seen:
        out = model(TOKENS)
        out.square().mean().backward()
        optimiser.step()
    assert torch.equal(seen["logits"], out)
    assert seen["blocks.1.attention.pattern"].grad.abs().max() > 0
    torch.testing.assert_close(
        seen["blocks.0.attention.pattern"].sum(-1), torch.ones(2, 3, 5), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "alibi", "none"])
def test_it_works_under_autocast(positions):
    model = made(CONFIG.replace(positions=positions))
    exact = model(TOKENS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        plain = model(TOKENS)
        with capture(model) as seen:
            looked = model(TOKENS)
    turned = {name for name in ALL if ".rotated_" in name}
    assert set(seen) == set(ALL) - (set() if positions == "rotary" else turned)
    assert seen["blocks.0.attention.queries"].dtype == torch.bfloat16
    size = exact.abs().max()
    for out in (plain, looked):
        assert (out.float() - exact).abs().max() / size < 0.05
    assert (plain.float() - exact).abs().max() > 0


def test_a_compiled_model_computes_the_same_and_can_be_looked_into():
    # In a process of its own: the shape checks of the tests cannot be compiled.
    script = """
import torch
from measured_transformer import Config, Decoder, capture, intervene
torch.manual_seed(0)
model = Decoder(Config(vocab=9, d_model=12, n_layers=1, n_heads=3))
tokens = torch.tensor([[1, 2, 3, 4, 5], [8, 0, 8, 0, 1]])
plain = model(tokens)
compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
torch.testing.assert_close(compiled(tokens), plain)
with capture(model, "*.pattern") as expected:
    model(tokens)
with capture(model, "*.pattern") as seen:
    torch.testing.assert_close(compiled(tokens), plain)
assert list(seen) == ["blocks.0.attention.pattern"], list(seen)
torch.testing.assert_close(seen, expected)
with capture(compiled, "*.pattern") as seen:
    compiled(tokens)
assert list(seen) == list(expected), list(seen)
torch.testing.assert_close(seen, expected)
for one in (model, compiled):
    with intervene(one, {"logits": 0.0}):
        assert (compiled(tokens) == 0).all()
torch.testing.assert_close(compiled(tokens), plain)
print("all equal")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "all equal\n", done.stderr


def test_functional_call_is_seen_with_its_own_weights():
    model, other = made(), made(seed=1)
    with capture(model, "logits", "*.pattern") as seen:
        torch.func.functional_call(model, dict(other.named_parameters()), (TOKENS,))
    with capture(other, "logits", "*.pattern") as expected:
        other(TOKENS)
    for name in expected:
        assert torch.equal(seen[name], expected[name])
    with capture(model, "logits") as own:
        model(TOKENS)
    assert not torch.allclose(own["logits"], seen["logits"])


@pytest.mark.parametrize(
    ("pattern", "near"),
    [
        ("blocks.0.attention.patern", "blocks.0.attention.pattern"),
        ("logit", "logits"),
        ("embeding", "embedding"),
        ("blocks.5.residual_mid", "blocks.0.residual_mid"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(pattern, near):
    model = made()
    message = f"no tap is called '{re.escape(pattern)}'; the nearest names are .*{re.escape(near)}"
    with pytest.raises(KeyError, match=message), capture(model, "logits", pattern):
        pass
    with pytest.raises(KeyError, match=message), intervene(model, {pattern: 0.0}):
        pass
    assert watched(model) == []


def test_a_name_like_no_other_is_answered_with_their_number():
    model = made()
    with pytest.raises(KeyError, match=rf"no tap is called 'zzzzzz' \(the model has {len(ALL)}"):
        matching(model, ["zzzzzz"])


# --- every call -------------------------------------------------------------------------------------


def test_every_call_is_kept_in_its_order():
    model = Decoder(CONFIG)
    parts = [TOKENS[:, :1], TOKENS[:, :3], TOKENS]
    with capture(model, "blocks.*.residual_post", every_call=True) as seen:
        assert seen == {}
        for part in parts:
            model(part)
    assert list(seen) == ["blocks.0.residual_post", "blocks.1.residual_post"]
    for name, values in seen.items():
        assert [value.shape[1] for value in values] == [1, 3, 5]
        for part, value in zip(parts, values, strict=True):
            with capture(model, name) as once:
                model(part)
            assert torch.equal(once[name], value)


def test_transform_and_gradients_hold_for_each_call():
    model = Decoder(CONFIG)
    with capture(model, "logits", transform=lambda x: x.sum(), every_call=True) as sums:
        outputs = [model(TOKENS[:, :n]) for n in (2, 4)]
    assert torch.equal(torch.stack(sums["logits"]), torch.stack([x.sum() for x in outputs]))
    with capture(model, "embedding", gradients=True, every_call=True) as seen:
        total = model(TOKENS).square().sum() + 3 * model(TOKENS).square().sum()
    total.backward()
    first, second = (value.grad for value in seen["embedding"])
    assert torch.allclose(3 * first, second, rtol=1e-4)


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal", "alibi", "relative", "none"])
def test_every_call_of_a_generation(positions):
    model = Decoder(CONFIG.replace(positions=positions)).double().eval()
    prompt, new = [1, 2, 3, 4], 5
    with capture(model, every_call=True) as seen:
        written = generate(model, [prompt], max_new_tokens=new)
    assert (
        written.tokens[0].tolist()
        == generate(model, [prompt], max_new_tokens=new).tokens[0].tolist()
    )
    whole = torch.tensor([[*prompt, *written.tokens[0].tolist()[:-1]]])
    with capture(model) as at_once:
        model(whole)
    assert {len(calls) for calls in seen.values()} == {new}
    for name, calls in seen.items():
        expected = at_once[name]
        if name.endswith(("pattern", "scores")):
            for step, value in enumerate(calls[1:]):
                n = len(prompt) + step
                assert torch.allclose(value, expected[:, :, n : n + 1, : n + 1])
            calls = calls[:1]  # the prompt's own
            expected = expected[:, :, : len(prompt), : len(prompt)]
        elif name in ("logits", "final_state", "final_norm.scale"):
            expected = expected[:, len(prompt) - 1 :]  # generation reads the last position alone
        elif name.endswith(("keys", "values")) and calls[-1].shape[2] > 1:
            calls = calls[-1:]
        assert torch.allclose(torch.cat(calls, dim=-2), expected), name


def test_without_a_cache_each_call_has_all_positions():
    model = Decoder(CONFIG).eval()
    row = [1, 2, 3]
    with capture(model, "blocks.1.attention.pattern", every_call=True) as seen, torch.no_grad():
        for _ in range(3):
            row.append(int(model(torch.tensor([row]))[0, -1].argmax()))
    assert [tuple(value.shape[2:]) for value in seen["blocks.1.attention.pattern"]] == [
        (3, 3),
        (4, 4),
        (5, 5),
    ]


def test_an_encoder_decoder_reads_its_source_once():
    model = EncoderDecoder(CONFIG).eval()
    with capture(model, "*residual_post", every_call=True) as seen:
        generate(model, [[1, 2, 3]], max_new_tokens=4, start=0)
    assert {name.split(".")[0]: len(calls) for name, calls in seen.items()} == {
        "encoder": 1,
        "decoder": 4,
    }


@pytest.mark.parametrize("kind", [list, tuple, set])
@pytest.mark.parametrize("other", [made(), torch.nn.Sequential(torch.nn.Linear(2, 2))])
def test_names_in_a_list_are_asked_for_one_by_one(unhooked, kind, other):
    """Of a model with taps and of one without: a tuple of one name would else match by accident."""
    given = kind(["embedding"])
    wanted = f"a {kind.__name__}: write capture(model, 'embedding'), or capture(model, *names)"
    with pytest.raises(ValueError, match=re.escape(wanted)), capture(other, given):
        pass


def test_a_name_that_is_no_text_and_a_model_that_is_none_are_refused(unhooked):
    with pytest.raises(ValueError, match="is a text, such as"), capture(made(), 3):
        pass
    with pytest.raises(ValueError, match=r"torch\.nn\.Module .*, got str"), capture("x", "*"):
        pass
    assert [*matching(made(), "logits")] == ["logits"]  # and not six names of a letter each
