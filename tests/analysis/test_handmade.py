"""The hand-made models do what their names say, on every sequence."""

import pytest
import torch
from measured_transformer.analysis.handmade import (
    Layout,
    composed_model,
    empty_model,
    heads_model,
    induction_model,
    previous_token_model,
    reversal_model,
    set_head,
    uniform_model,
)
from measured_transformer.internals.capture import capture
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.tasks.induction import Induction
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import evaluate

VOCAB, LENGTH = 7, 6
ROLES = ["previous", "next", "self", "first", "mirror", "same_token", "uniform"]


def patterns(model, tokens, layer=0):
    with capture(model, f"blocks.{layer}.attention.pattern") as seen:
        model(tokens)
    return seen[f"blocks.{layer}.attention.pattern"]


def drawn(seed=0, rows=5, n=LENGTH):
    return torch.randint(VOCAB, (rows, n), generator=torch.Generator().manual_seed(seed))


def wanted(role, tokens, causal):
    """The pattern of a role, written down place by place."""
    rows, n = tokens.shape
    pattern = torch.zeros(rows, n, n, dtype=torch.float64)
    for row, p in torch.cartesian_prod(torch.arange(rows), torch.arange(n)).tolist():
        seen = range(p + 1) if causal else range(n)
        looks = {
            "previous": [p - 1],
            "next": [p + 1],
            "self": [p],
            "first": [0],
            "mirror": [n - 1 - p],
            "same_token": [j for j in seen if tokens[row, j] == tokens[row, p]],
            "uniform": [],
        }[role]
        looks = [j for j in looks if 0 <= j < n] or list(seen)
        pattern[row, p, looks] = 1 / len(looks)
    return pattern


@torch.no_grad()
@pytest.mark.parametrize("causal", [False, True])
def test_each_head_looks_where_its_role_says_and_copies_what_it_sees(causal):
    roles = [r for r in ROLES if not (causal and r in ("next", "mirror"))]
    model, tokens = (
        heads_model(roles, vocab=VOCAB, length=LENGTH, causal=causal),
        drawn(),
    )
    found, layout = patterns(model, tokens), Layout(VOCAB, LENGTH, len(roles))
    stream = model.stream(tokens)
    one_hot = torch.nn.functional.one_hot(tokens, VOCAB).double()
    assert torch.equal(stream[..., layout.token], one_hot)
    for head, role in enumerate(roles):
        expected = wanted(role, tokens, causal)
        torch.testing.assert_close(found[:, head], expected, rtol=0, atol=1e-12)
        note = stream[..., layout.note(head)]
        torch.testing.assert_close(note, expected @ one_hot, rtol=0, atol=1e-12)
    assert isinstance(model, Decoder if causal else Encoder)
    for read in (0, 2, -1):
        again = heads_model(roles, vocab=VOCAB, length=LENGTH, causal=causal, read=read)
        note = stream[..., layout.note(read % len(roles))]
        torch.testing.assert_close(again(tokens), note, rtol=0, atol=1e-12)


@torch.no_grad()
def test_small_sharpness_spreads_attention():
    soft = heads_model(["self"], vocab=VOCAB, length=LENGTH, sharpness=1.0)
    share = torch.e / (torch.e + LENGTH - 1)
    diagonal = patterns(soft, drawn())[:, 0].diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(diagonal, torch.full_like(diagonal, share), rtol=0, atol=1e-12)


@torch.no_grad()
def test_the_models_solve_their_tasks():
    reversal = Reversal(vocab=9, length=8)
    assert evaluate(reversal_model(vocab=9, length=8), reversal, seed=0).accuracy == 1
    induction = Induction(vocab=12, length=20, shortest=3, longest=8)
    assert evaluate(induction_model(vocab=12, length=20), induction, seed=0).accuracy == 1
    tokens = drawn()
    said = previous_token_model(vocab=VOCAB, length=LENGTH)(tokens).argmax(-1)
    assert torch.equal(said[:, 1:], tokens[:, :-1])
    mean = torch.nn.functional.one_hot(tokens, VOCAB).double().mean(1, keepdim=True)
    told = uniform_model(vocab=VOCAB, length=LENGTH)(tokens)
    torch.testing.assert_close(told, mean.expand_as(told), rtol=0, atol=1e-12)


@torch.no_grad()
def test_the_second_head_uses_what_the_first_wrote():
    tokens = torch.tensor([[4, 2, 5, 4, 2, 0]])
    looked = {
        "q": {4: [0, 3], 5: [1, 4], 2: [1]},  # copies of the token one place back
        "k": {3: [1], 4: [2]},  # one place behind earlier copies of the own token
        "v": {4: [3], 5: [4]},  # one place back
    }
    for by, expected in looked.items():
        model = composed_model(by, vocab=VOCAB, length=LENGTH)
        pattern = patterns(model, tokens, layer=1)[0, 0]
        for place, seen in expected.items():
            row = torch.zeros(LENGTH, dtype=torch.float64)
            row[seen] = 1 / len(seen)
            torch.testing.assert_close(pattern[place], row, rtol=0, atol=1e-12)
    said = composed_model("v", vocab=VOCAB, length=LENGTH)(drawn()).argmax(-1)
    assert torch.equal(said[:, 2:], drawn()[:, :-2])


def test_errors_say_what_was_expected(unhooked):
    sizes = {"vocab": VOCAB, "length": LENGTH}
    with pytest.raises(ValueError, match="cannot look ahead, got the roles next"):
        heads_model(["self", "next"], **sizes, causal=True)
    with pytest.raises(ValueError, match=r"roles previous, .*got \['prev'\]"):
        heads_model(["prev"], **sizes)
    with pytest.raises(ValueError, match="got none"):
        heads_model([], **sizes)
    with pytest.raises(ValueError, match="one of 1 heads, got 1"):
        heads_model(["self"], **sizes, read=1)
    with pytest.raises(ValueError, match="got 'x'"):
        composed_model("x", **sizes)
    with pytest.raises(ValueError, match="from 0 to 0, got 1"):
        Layout(VOCAB, LENGTH).note(1)
    model = empty_model(Layout(VOCAB, LENGTH), n_layers=1, n_heads=1, causal=True)
    eye = torch.eye(model.config.d_model, dtype=torch.float64)
    with pytest.raises(ValueError, match="query must join d_model=20 with at most d_head=7"):
        set_head(model.blocks[0].attention, 0, query=eye, key=eye, value=eye, output=eye)
    with pytest.raises(ValueError, match=r"head must lie in -1\.\.0, got 1"):
        set_head(model.blocks[0].attention, 1, query=eye, key=eye, value=eye, output=eye)
    shared = MultiHeadAttention(8, 2, n_kv_heads=1)
    with pytest.raises(ValueError, match="n_heads=2 and n_kv_heads=1"):
        set_head(shared, 0, query=eye, key=eye, value=eye, output=eye)
