"""The account of the stream, against sums by hand, hand-made blocks and closed forms."""

import math

import numpy as np
import pytest
import torch
from measured_transformer.analysis.residual import (
    Ledger,
    deleted,
    embedding_part,
    growth,
    kept_cosines,
    ledger,
    mean_norm,
    mirror_attention,
    needed_cosine,
    nested,
    random_model,
    six_operations,
    staged,
    step_ratios,
    stream_norms,
    token_spread,
    write_cosines,
    write_ratios,
)
from measured_transformer.internals.intervene import intervene
from torch import nn


def by_hand() -> Ledger:
    """The stream of two numbers of the chapter: (3, 1), then (-1, 2) and (1, 1) are written."""
    states = torch.tensor([[3.0, 1.0], [2.0, 3.0], [3.0, 4.0]])[:, None, None]
    writes = torch.tensor([[-1.0, 2.0], [1.0, 1.0]])[:, None, None]
    return Ledger(("blocks.0.attention", "blocks.0.feedforward"), states, writes)


def test_measures_of_a_stream_of_two_numbers():
    account = by_hand()
    assert account.step_errors().tolist() == [0.0, 0.0]
    assert account.sum_error() == 0.0
    assert account.blocks.flatten().tolist() == [3.0, 1.0, 3.0, 4.0]
    np.testing.assert_allclose(stream_norms(account.states), [10**0.5, 13**0.5, 5], rtol=1e-6)
    np.testing.assert_allclose(write_ratios(account), [(5 / 10) ** 0.5, (2 / 13) ** 0.5], rtol=1e-6)
    np.testing.assert_allclose(
        write_cosines(account), [-1 / 50**0.5, 5 / 26**0.5], rtol=1e-5, atol=1e-7
    )
    np.testing.assert_allclose(kept_cosines(account.blocks), [13 / 250**0.5], rtol=1e-5)
    np.testing.assert_allclose(step_ratios(account.blocks), [3 / 10**0.5], rtol=1e-6)
    assert mean_norm(account.states[-1]) == pytest.approx(5)


def test_a_wrong_entry_shows_in_the_account():
    account = by_hand()
    cooked = Ledger(account.names, account.states, account.writes + 0.25)
    assert cooked.step_errors().tolist() == [0.25, 0.25]
    assert cooked.sum_error() == pytest.approx(0.5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("norm", ["layer", "rms", "none"])
def test_pre_norm_accounts_balance_and_agree_with_forward_hooks(norm, causal):
    model, tokens = random_model(5, causal=causal, norm=norm, placement="pre")
    outputs = []
    hooks = [
        part.register_forward_hook(lambda _, __, out: outputs.append(out.detach()))
        for block in model.blocks
        for part in (block.attention, block.feedforward)
    ]
    last = []
    hooks.append(model.final_norm.register_forward_hook(lambda _, x, __: last.append(x[0])))
    account = ledger(model, tokens)
    for hook in hooks:
        hook.remove()
    torch.testing.assert_close(account.writes, torch.stack(outputs), rtol=0, atol=0)
    torch.testing.assert_close(account.states[-1], last[0], rtol=0, atol=0)
    assert account.sum_error() < 1e-12
    assert float(account.step_errors().max()) < 1e-12


def test_post_norm_accounts_do_not_balance():
    assert ledger(*random_model(5, placement="post")).sum_error() > 0.1


def test_random_models_differ_and_repeat():
    (one, tokens), (again, same), (other, _) = (random_model(seed) for seed in (1, 1, 2))
    assert torch.equal(tokens, same)
    torch.testing.assert_close(one(tokens), again(same), rtol=0, atol=0)
    assert one.config != other.config or not torch.equal(
        one.token_embedding.weight, other.token_embedding.weight
    )
    assert (
        float(one.blocks[0].attention.query.bias.detach().abs().max()) > 0
    )  # biases are random, too


def test_growth_of_an_exponential_is_its_rate():
    assert growth(np.exp(0.3 * np.arange(7))) == pytest.approx(0.3)
    assert growth(np.full(4, 2.0)) == pytest.approx(0.0)


def test_token_spread_of_equal_orthogonal_and_centred_tokens():
    equal = torch.ones(1, 2, 4, 3)
    orthogonal = torch.eye(4)[None, None].expand(1, 2, 4, 4)
    centred = torch.tensor([[1.0, 0], [-1.0, 0]])[None, None]
    assert token_spread(equal)[0] == pytest.approx(0, abs=1e-6)
    assert token_spread(orthogonal)[0] == pytest.approx(math.sqrt(3 / 4))
    assert token_spread(centred)[0] == pytest.approx(1)


def test_the_embeddings_part_is_all_of_a_stream_that_nobody_writes_to():
    for placement in ("pre", "post"):
        model, tokens = random_model(7, placement=placement, n_layers=3)
        with torch.no_grad():
            for block in model.blocks:
                for last in (block.attention.output, block.feedforward.down):
                    last.weight.zero_()
                    last.bias.zero_()
                for norm in (block.attention_norm, block.feedforward_norm):
                    norm.bias.zero_()
        torch.testing.assert_close(embedding_part(model, tokens), ledger(model, tokens).states)


def test_the_embeddings_part_is_linear_in_the_embedding_at_fixed_divisors():
    """Parts of the embedding, the writes and the biases, each sent through the norms, make the state."""
    model, tokens = random_model(8, placement="post", n_layers=1)
    account, block = ledger(model, tokens), model.blocks[0]
    first = account.states[0] + account.writes[0]
    scale = (first.var(dim=-1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    embedding = account.states[0] - account.states[0].mean(dim=-1, keepdim=True)
    expected = embedding / scale * block.attention_norm.weight
    torch.testing.assert_close(embedding_part(model, tokens)[1], expected)


def test_embedding_part_refuses_a_norm_it_does_not_know():
    model, tokens = random_model(8, placement="post", norm="rms")
    with pytest.raises(ValueError, match="'rms'"):
        embedding_part(model, tokens)


def test_mirror_attention_of_uniform_and_of_planted_patterns():
    model, tokens = random_model(2, n_layers=2)
    n = tokens.shape[1]
    planted = torch.eye(n, dtype=torch.float64).flip(0)
    changes = {"blocks.0.attention.pattern": 1 / n, "blocks.1.attention.pattern": planted}
    with intervene(model, changes):
        np.testing.assert_allclose(mirror_attention(model, tokens), [1 / n, 1.0])


def test_needed_cosine_recovers_the_angle():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 5))
    lengths = [float(np.linalg.norm(v)) for v in (x, w, x + w)]
    cosine = float(x @ w) / (lengths[0] * lengths[1])
    assert needed_cosine(lengths[0], [lengths[1]], lengths[2]) == pytest.approx(cosine)
    assert needed_cosine(1.0, [1.0, 1.0], 3.0) == pytest.approx(1)
    assert needed_cosine(1.0, [1.0, 1.0], 3.1) > 1


@pytest.mark.parametrize("sublayer", ["attention", "feedforward"])
def test_deleting_against_blocks_written_by_hand(sublayer):
    model, tokens = random_model(11, placement="pre", n_layers=2)
    states = ledger(model, tokens).states

    def last(block, x, what):
        attend = block.attention(block.attention_norm(x))
        keep, add = 1.0, 1.0
        if sublayer == "attention":
            keep, add = (0.0, 1.0) if what == "skip" else (1.0, 0.0)
        x = keep * x + add * attend
        keep, add = 1.0, 1.0
        if sublayer == "feedforward":
            keep, add = (0.0, 1.0) if what == "skip" else (1.0, 0.0)
        return keep * x + add * block.feedforward(block.feedforward_norm(x))

    for what in ("branch", "skip"):
        with torch.no_grad():
            expected = model.unembed(last(model.blocks[1], states[2], what))
            with deleted(model, f"blocks.1.{sublayer}", what):
                found = model(tokens)
        torch.testing.assert_close(found, expected)
        assert not torch.allclose(found, model(tokens))


def test_deleting_needs_a_pre_norm_model_with_skip_connections():
    for changes in ({"placement": "post"}, {"residual": False}):
        model, _ = random_model(1, **changes)
        with (
            pytest.raises(ValueError, match="expected"),
            deleted(model, "blocks.0.attention", "skip"),
        ):
            pass
    model, _ = random_model(1)
    with pytest.raises(KeyError, match="blocks"), deleted(model, "blocks.9.attention", "branch"):
        pass


@pytest.mark.parametrize("training", [False, True])
def test_six_operations_are_pytorchs_post_norm_layer(training):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.4, batch_first=True).double()
    layer.self_attn.dropout = layer.dropout.p = 0.0
    layer.train(training)
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    results = []
    for function in (layer, lambda x: six_operations(x, layer)):
        torch.manual_seed(1)
        with torch.no_grad():
            results.append(function(x))
    torch.testing.assert_close(*results, rtol=0, atol=1e-12)


def test_nested_and_staged_forms_are_the_post_norm_block_and_not_the_pre_norm_one():
    model, tokens = random_model(4, placement="post", n_layers=1)
    other, _ = random_model(4, placement="pre", n_layers=1)
    states = ledger(model, tokens).states
    with torch.no_grad():
        for form in (nested, staged):
            torch.testing.assert_close(form(model.blocks[0], states[0]), states[-1])
            assert not torch.allclose(
                form(other.blocks[0], states[0]), other.blocks[0](states[0]), atol=1e-2
            )
