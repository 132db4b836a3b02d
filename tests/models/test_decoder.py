"""Decoder and Encoder against torch.nn put together by hand, and what holds inside of them."""

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.stack import Stack
from torch import nn

SCHEMES = ["sinusoidal", "learned", "rotary", "alibi", "none"]
TIGHT = {"rtol": 0, "atol": 1e-10}


def made(config, kind=Decoder, seed=0, spread=0.0):
    torch.manual_seed(seed)
    model = kind(config)
    for parameter in model.parameters():
        parameter.data += spread * torch.randn_like(parameter)
    return model


def tokens(vocab, *shape, seed=0):
    return torch.randint(vocab, shape, generator=torch.Generator().manual_seed(seed))


def by_torch(model, x, *, causal):
    """The whole forward pass with torch.nn's own layers and a sinusoidal table by the formula."""
    c = model.config
    layers = []
    for block in model.blocks:
        layer = nn.TransformerEncoderLayer(
            c.d_model,
            c.n_heads,
            c.neurons,
            dropout=0.0,
            activation=c.activation,
            norm_first=c.placement == "pre",
            batch_first=True,
            layer_norm_eps=c.norm_eps,
        ).double()
        a, f = block.attention, block.feedforward
        copies = {
            layer.self_attn.in_proj_weight: (a.query.weight, a.key.weight, a.value.weight),
            layer.self_attn.in_proj_bias: (a.query.bias, a.key.bias, a.value.bias),
            layer.self_attn.out_proj.weight: (a.output.weight,),
            layer.self_attn.out_proj.bias: (a.output.bias,),
            layer.linear1.weight: (f.up.weight,),
            layer.linear1.bias: (f.up.bias,),
            layer.linear2.weight: (f.down.weight,),
            layer.linear2.bias: (f.down.bias,),
            layer.norm1.weight: (block.attention_norm.weight,),
            layer.norm1.bias: (block.attention_norm.bias,),
            layer.norm2.weight: (block.feedforward_norm.weight,),
            layer.norm2.bias: (block.feedforward_norm.bias,),
        }
        for to, parts in copies.items():
            to.data = torch.cat([p.data for p in parts])
        layers.append(layer)
    n, d = x.shape[1], c.d_model
    table = torch.tensor(
        [
            [(math.cos if j % 2 else math.sin)(p / 10000 ** ((j - j % 2) / d)) for j in range(d)]
            for p in range(n)
        ],
        dtype=torch.float64,
    )
    scale = math.sqrt(d) if c.initialisation == "xavier" else 1.0
    state = scale * model.token_embedding.weight[x]
    if c.positions == "sinusoidal":
        state = state + table
    if c.positions == "learned":
        state = state + model.positions.table[:n]
    ahead = torch.ones(n, n, dtype=torch.bool).triu(1) if causal else None
    for layer in layers:
        state = layer(state, src_mask=ahead)
    if c.has_final_norm:
        norm = model.final_norm
        state = nn.functional.layer_norm(state, (d,), norm.weight, norm.bias, c.norm_eps)
    return state @ model.unembedding.weight.T


@pytest.mark.parametrize("kind", [Decoder, Encoder])
@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "none"])
@pytest.mark.parametrize("initialisation", ["xavier", "gpt2"])
@pytest.mark.parametrize("tie", [False, True])
def test_equal_to_layers_of_torch(kind, placement, positions, initialisation, tie):
    config = Config(
        vocab=11,
        d_model=12,
        n_heads=3,
        n_layers=3,
        d_ff=20,
        activation="gelu" if tie else "relu",
        placement=placement,
        positions=positions,
        initialisation=initialisation,
        tie_embeddings=tie,
        norm_eps=1e-3,
    )
    model = made(config, kind, spread=0.1).double()
    x = tokens(11, 2, 9)
    expected = by_torch(model, x, causal=kind is Decoder)
    torch.testing.assert_close(model(x), expected, **TIGHT)
    with capture(model) as seen:
        torch.testing.assert_close(model(x), expected, **TIGHT)
    torch.testing.assert_close(seen["logits"], expected, **TIGHT)


CONFIGS = st.builds(
    Config,
    vocab=st.integers(1, 20),
    d_model=st.sampled_from([8, 24]),
    n_layers=st.integers(1, 4),
    n_heads=st.sampled_from([2, 4]),
    n_kv_heads=st.sampled_from([None, 1, 2]),
    d_head=st.sampled_from([None, 6]),
    d_ff=st.sampled_from([None, 5]),
    positions=st.sampled_from(SCHEMES),
    rotary_pairing=st.sampled_from(["interleaved", "halves"]),
    norm=st.sampled_from(["layer", "rms", "none"]),
    activation=st.sampled_from(["relu", "gelu", "gelu_tanh", "swiglu"]),
    final_norm=st.sampled_from([None, True, False]),
    bias=st.booleans(),
    dropout=st.sampled_from([0.0, 0.2]),
    tie_embeddings=st.booleans(),
    initialisation=st.sampled_from(["xavier", "gpt2"]),
)


@settings(deadline=None, max_examples=40)
@given(config=CONFIGS, kind=st.sampled_from([Decoder, Encoder]), n=st.integers(1, 12))
def test_the_stream_is_the_embedding_plus_what_all_parts_wrote(config, kind, n):
    model = made(config, kind, spread=0.05).eval()
    with capture(model) as seen:
        out = model(tokens(config.vocab, 2, n))
    total = seen["embedding"]
    for i in range(config.n_layers):
        torch.testing.assert_close(seen[f"blocks.{i}.residual_pre"], total, rtol=0, atol=1e-5)
        total = total + seen[f"blocks.{i}.attention.out"]
        torch.testing.assert_close(seen[f"blocks.{i}.residual_mid"], total, rtol=0, atol=1e-5)
        total = total + seen[f"blocks.{i}.feedforward.out"]
        torch.testing.assert_close(seen[f"blocks.{i}.residual_post"], total, rtol=0, atol=1e-5)
    torch.testing.assert_close(model.unembed(total), out, rtol=1e-4, atol=1e-4)
    assert out.shape == (2, n, config.vocab)
    assert out.isfinite().all()


@pytest.mark.parametrize("changes", [{"placement": "post"}, {"residual": False}])
def test_with_post_norm_or_no_residual_it_is_not(changes):
    model = made(Config(vocab=9, d_model=8, n_heads=2, **changes))
    with capture(model) as seen:
        model(tokens(9, 2, 5))
    total = seen["embedding"] + sum(
        seen[f"blocks.{i}.{part}.out"] for i in range(2) for part in ("attention", "feedforward")
    )
    assert (total - seen["blocks.1.residual_post"]).abs().max() > 0.1


@pytest.mark.parametrize("positions", SCHEMES)
def test_what_enters_the_first_block_is_tokens_plus_positions(positions):
    model = made(Config(vocab=9, d_model=8, n_heads=2, positions=positions))
    x = tokens(9, 2, 5)
    with capture(model, "embedding") as seen:
        model(x)
    added = seen["embedding"] - math.sqrt(8) * model.token_embedding.weight[x]
    torch.testing.assert_close(added[0], added[1], rtol=0, atol=1e-5)
    assert (added.abs().max() > 0.1) == (positions in ("sinusoidal", "learned"))


@pytest.mark.parametrize("pairing", ["interleaved", "halves"])
def test_the_rotary_base_and_pairing_reach_attention(pairing):
    config = Config(vocab=9, d_model=8, n_heads=2, positions="rotary", rotary_pairing=pairing)
    x = tokens(9, 1, 20)
    torch.testing.assert_close(made(config)(x), made(config)(x))
    assert not torch.allclose(made(config)(x), made(config.replace(rotary_base=50.0))(x), atol=1e-4)
    other = "halves" if pairing == "interleaved" else "interleaved"
    assert not torch.allclose(
        made(config)(x), made(config.replace(rotary_pairing=other))(x), atol=1e-4
    )


def test_rotary_weights_of_one_pairing_work_in_the_other_when_their_rows_are_permuted():
    config = Config(vocab=9, d_model=16, n_heads=2, positions="rotary")
    neighbours = made(config, spread=0.1).double()
    halves = made(config.replace(rotary_pairing="halves")).double()
    halves.load_state_dict(neighbours.state_dict())
    order = torch.tensor([*range(0, 8, 2), *range(1, 8, 2)])
    rows = torch.cat([order, 8 + order])
    for block in halves.blocks:
        for part in (block.attention.query, block.attention.key):
            part.weight.data, part.bias.data = part.weight.data[rows], part.bias.data[rows]
    x = tokens(9, 2, 12)
    torch.testing.assert_close(halves(x), neighbours(x), **TIGHT)


def test_alibi_adds_the_papers_bias_to_the_scores():
    model = made(Config(vocab=9, d_model=16, n_heads=8, n_layers=1, positions="alibi"))
    with capture(model, "*.queries", "*.keys", "*.scores") as seen:
        model(tokens(9, 1, 6))
    q, k, scores = (seen[f"blocks.0.attention.{name}"] for name in ("queries", "keys", "scores"))
    added = scores - q @ k.transpose(-2, -1) / math.sqrt(2)
    for h in range(8):
        for i in range(6):
            for j in range(i + 1):
                assert added[0, h, i, j].item() == pytest.approx(
                    -(2.0 ** -(h + 1)) * (i - j), abs=1e-5
                )


# --- weights ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("travel", ["as made", "deepcopy", "pickle", "double", "load", "trained"])
def test_tied_embeddings_stay_tied(travel):
    config = Config(vocab=9, d_model=8, n_heads=2, tie_embeddings=True)
    model = made(config)
    if travel == "deepcopy":
        model = copy.deepcopy(model)
    if travel == "pickle":
        model = pickle.loads(pickle.dumps(model))
    if travel == "double":
        model = model.double()
    if travel == "load":
        other = made(config, seed=1)
        other.load_state_dict(model.state_dict())
        model = other
    if travel == "trained":
        optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
        before = model.unembedding.weight.detach().clone()
        model(tokens(9, 2, 4)).square().sum().backward()
        optimiser.step()
        assert not torch.equal(before, model.unembedding.weight)
    assert model.unembedding.weight is model.token_embedding.weight
    names = [name for name, _ in model.named_parameters()]
    assert "unembedding.weight" not in names
    untied = made(config.replace(tie_embeddings=False))
    assert untied.unembedding.weight is not untied.token_embedding.weight


def test_xavier_weights_have_the_stated_sizes():
    model = made(Config(vocab=500, d_model=128, n_heads=4, n_layers=2, positions="learned"))
    for name, parameter in model.named_parameters():
        if "norm" in name:
            assert (parameter == (1 if name.endswith("weight") else 0)).all()
        elif name.endswith("bias"):
            assert (parameter == 0).all()
        elif "embedding" in name:
            assert parameter.std().item() == pytest.approx(128**-0.5, rel=0.03)
        elif name == "positions.table":
            assert parameter.std().item() == pytest.approx(0.5**0.5, rel=0.03)
        else:
            bound = math.sqrt(6 / sum(parameter.shape))
            assert parameter.abs().max() <= bound
            assert parameter.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03)
    with capture(model, "embedding") as seen:
        model(tokens(500, 4, 100))
    assert seen["embedding"].var().item() == pytest.approx(1.5, rel=0.1)  # tokens 1, positions 1/2


def test_gpt2_weights_have_the_stated_sizes():
    config = Config(
        vocab=500,
        d_model=128,
        n_heads=4,
        n_layers=8,
        positions="learned",
        activation="swiglu",
        initialisation="gpt2",
    )
    model = made(config)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            assert (parameter == (1 if name.endswith("weight") else 0)).all()
        elif name.endswith("bias"):
            assert (parameter == 0).all()
        else:
            writes = "output" in name or "down" in name
            expected = 0.02 / 4 if writes else 0.02
            assert parameter.std().item() == pytest.approx(expected, rel=0.04), name


@pytest.mark.parametrize("positions", SCHEMES)
def test_a_checkpoint_holds_parameters_only_and_loads(positions):
    config = Config(vocab=9, d_model=8, n_heads=2, positions=positions)
    model, other = made(config), made(config, seed=1)
    x = tokens(9, 2, 30)
    expected = model(x)
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}
    assert any("positions" in name for name in model.state_dict()) == (positions == "learned")
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), expected)


def test_sizes_reach_the_parts():
    config = Config(vocab=9, d_model=8, n_heads=4, n_kv_heads=2, d_head=6, d_ff=5)
    model = made(config)
    with capture(model) as seen:
        model(tokens(9, 2, 3))
    for i in range(2):
        assert seen[f"blocks.{i}.attention.queries"].shape == (2, 4, 3, 6)
        assert seen[f"blocks.{i}.attention.keys"].shape == (2, 2, 3, 6)
        assert seen[f"blocks.{i}.attention.values"].shape == (2, 2, 3, 6)
        assert seen[f"blocks.{i}.feedforward.neurons"].shape == (2, 3, 5)


def test_without_biases_there_are_none():
    model = made(Config(vocab=9, d_model=8, n_heads=2, bias=False, activation="swiglu"))
    assert not [name for name, _ in model.named_parameters() if name.endswith("bias")]


def test_the_same_seed_gives_the_same_model_and_another_seed_another():
    config = Config(vocab=9, d_model=8, n_heads=2)
    a, b, c = made(config), made(config), made(config, seed=1)
    x = tokens(9, 2, 5)
    assert torch.equal(a(x), b(x))
    assert not torch.allclose(a(x), c(x), atol=1e-3)


# --- dtype, device, transforms ---------------------------------------------------------------------


@pytest.mark.parametrize("positions", SCHEMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_model_works_in_other_precisions(positions, dtype):
    model = made(Config(vocab=9, d_model=8, n_heads=2, positions=positions))
    x = tokens(9, 2, 30)
    expected = model(x).double()
    model = model.to(dtype)
    out = model(x)
    assert out.dtype == dtype
    with capture(model) as seen:
        model(x)
    exact = (".scores", ".pattern", ".scale")  # in float32 at least, as in PyTorch's kernels
    for name, value in seen.items():
        wide = torch.promote_types(dtype, torch.float32) if name.endswith(exact) else dtype
        assert value.dtype == wide, name
    torch.testing.assert_close(
        out.double(), expected, rtol=0, atol=0.15 if dtype == torch.bfloat16 else 1e-5
    )


@pytest.mark.parametrize("positions", SCHEMES)
def test_earlier_calls_leave_no_trace_in_the_results(positions):
    config = Config(vocab=9, d_model=8, n_heads=2, positions=positions)
    fresh, used = made(config), made(config)
    with torch.inference_mode():
        used(tokens(9, 1, 40))
    x = tokens(9, 2, 50)
    assert torch.equal(fresh(x), used(x))
    used(x).sum().backward()
    assert torch.equal(fresh.double()(x), used.double()(x))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("positions", SCHEMES)
def test_functional_call_and_ensembles_work(positions):
    config = Config(vocab=9, d_model=8, n_heads=2, positions=positions)
    models = [made(config, seed=seed).double() for seed in range(3)]
    x = tokens(9, 2, 5)
    alone = torch.stack([model(x) for model in models])
    swapped = torch.func.functional_call(models[0], dict(models[1].named_parameters()), (x,))
    torch.testing.assert_close(swapped, alone[1], **TIGHT)
    torch.testing.assert_close(models[0](x), alone[0], **TIGHT)

    weights, buffers = torch.func.stack_module_state(models)

    def loss(w, b):
        out = torch.func.functional_call(models[0], (w, b), (x,))
        return out.square().mean(), out

    grads, together = torch.func.vmap(torch.func.grad(loss, has_aux=True))(weights, buffers)
    torch.testing.assert_close(together, alone, **TIGHT)
    for i, model in enumerate(models):
        model(x).square().mean().backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(grads[name][i], parameter.grad, **TIGHT)


def test_one_token_and_no_tokens():
    for positions in SCHEMES:
        model = made(Config(vocab=9, d_model=8, n_heads=2, positions=positions))
        assert model(tokens(9, 2, 1)).isfinite().all()
        assert model(tokens(9, 0, 3)).shape == (0, 3, 9)


def test_int32_tokens_are_tokens():
    model = made(Config(vocab=9, d_model=8, n_heads=2))
    x = tokens(9, 2, 5)
    assert torch.equal(model(x.int()), model(x))


def test_dropout_works_in_training_only():
    model = made(Config(vocab=9, d_model=8, n_heads=2, dropout=0.3))
    x = tokens(9, 2, 5)
    assert not torch.allclose(model(x), model(x))
    assert torch.equal(model.eval()(x), model(x))
    with capture(model.train(), "embedding") as seen:
        model(tokens(9, 50, 20))
    assert (seen["embedding"] == 0).double().mean().item() == pytest.approx(0.3, abs=0.03)


def test_dropout_reaches_embedding_weights_and_branches():
    model = made(Config(vocab=9, d_model=8, n_heads=2, n_layers=1, dropout=0.3)).train()
    with capture(model) as seen:
        model(tokens(9, 50, 20))
    pattern, values, mixed = (
        seen[f"blocks.0.attention.{n}"] for n in ("pattern", "values", "mixed")
    )
    first_row = (mixed[:, :, 0] / values[:, :, 0]).mean(
        -1
    )  # one key: its weight is kept or dropped
    assert (first_row.abs() < 1e-6).double().mean().item() == pytest.approx(0.3, abs=0.15)
    assert not torch.allclose(mixed, pattern @ values, atol=0.1)
    added = seen["blocks.0.residual_mid"] - seen["blocks.0.residual_pre"]
    written = seen["blocks.0.residual_post"] - seen["blocks.0.residual_mid"]
    for branch in (added[:, 1:], written, seen["embedding"]):
        assert (branch == 0).double().mean().item() == pytest.approx(0.3, abs=0.04)


def test_reading_an_earlier_state_is_final_norm_and_unembedding():
    model = made(Config(vocab=9, d_model=8, n_heads=2), spread=0.2).double()
    x = tokens(9, 2, 5)
    with capture(model, "blocks.0.residual_post") as seen:
        model(x)
    state = seen["blocks.0.residual_post"]
    n = model.final_norm
    expected = nn.functional.layer_norm(state, (8,), n.weight, n.bias) @ model.unembedding.weight.T
    torch.testing.assert_close(model.unembed(state), expected, **TIGHT)
    changes = {"blocks.1.attention.out": 0.0, "blocks.1.feedforward.out": 0.0}
    with intervene(model, changes):
        torch.testing.assert_close(model(x), expected, **TIGHT)


# --- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Decoder, Encoder])
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.tensor([1, 2]), r"int64 of shape \(2,\)"),
        (torch.zeros(1, 2, 3, dtype=torch.long), r"shape \(1, 2, 3\)"),
        (torch.zeros(2, 3), "whole numbers .* got torch.float32"),
        (torch.zeros(2, 3, dtype=torch.bool), "got torch.bool"),
        (torch.tensor([[0, 9]]), r"0..8 \(vocab=9\), got values from 0 to 9"),
        (torch.tensor([[-1, 3]]), "got values from -1 to 3"),
        (torch.zeros(1, 7, dtype=torch.long), "reach to 5, got position 6"),
    ],
)
def test_tokens_that_do_not_fit_are_refused(unhooked, kind, x, message):
    model = kind(Config(vocab=9, d_model=8, n_heads=2, positions="learned", max_length=6))
    with pytest.raises(ValueError, match=message):
        model(x)


@pytest.mark.parametrize("kind", [Decoder, Encoder])
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(2, 3), r"Boolean of shape \(batch, position\) = \(2, 3\).*float32"),
        (torch.ones(2, 4, dtype=torch.bool), r"got torch.bool of shape \(2, 4\)"),
        (torch.ones(2, 3, dtype=torch.long), "int64"),
    ],
)
def test_padding_masks_that_do_not_fit_are_refused(unhooked, kind, mask, message):
    model = kind(Config(vocab=9, d_model=8, n_heads=2))
    with pytest.raises(ValueError, match=message):
        model(tokens(9, 2, 3), padding_mask=mask)


def test_both_models_are_stacks():
    assert issubclass(Decoder, Stack)
    assert issubclass(Encoder, Stack)


def test_tokens_of_another_kind_are_refused_with_advice(unhooked):
    model = Decoder(Config(vocab=10, d_model=16, n_layers=1, n_heads=2))
    with pytest.raises(ValueError, match=r"got list; make one with torch\.tensor\(tokens\)"):
        model([[1, 2]])
    with pytest.raises(ValueError, match=r"becomes a batch by tokens\[None\]"):
        model(torch.tensor([1, 2, 3]))
