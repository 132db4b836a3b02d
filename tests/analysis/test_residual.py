"""The account of the stream, against sums by hand, hand-made blocks and closed forms."""

import math

import pytest
import torch
from measured_transformer.analysis.residual import (
    Ledger,
    ledger,
    random_model,
    token_spread,
)


def by_hand() -> Ledger:
    """The stream of two numbers of the chapter: (3, 1), then (-1, 2) and (1, 1) are written."""
    states = torch.tensor([[3.0, 1.0], [2.0, 3.0], [3.0, 4.0]])[:, None, None]
    writes = torch.tensor([[-1.0, 2.0], [1.0, 1.0]])[:, None, None]
    return Ledger(("blocks.0.attention", "blocks.0.feedforward"), states, writes)


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


def test_token_spread_of_equal_orthogonal_and_centred_tokens():
    equal = torch.ones(1, 2, 4, 3)
    orthogonal = torch.eye(4)[None, None].expand(1, 2, 4, 4)
    centred = torch.tensor([[1.0, 0], [-1.0, 0]])[None, None]
    assert token_spread(equal)[0] == pytest.approx(0, abs=1e-6)
    assert token_spread(orthogonal)[0] == pytest.approx(math.sqrt(3 / 4))
    assert token_spread(centred)[0] == pytest.approx(1)
