"""Circuits of hand-made heads are what was written into them; those of any head give its scores and writes."""

import itertools
import math

import pytest
import torch
from measured_transformer.analysis.circuits import (
    LowRank,
    composition,
    composition_baseline,
    composition_by_chance,
    compositions,
    copying_score,
    head_circuits,
    module_circuits,
    offset_rotation,
    token_circuit,
    virtual_pattern,
)
from measured_transformer.analysis.handmade import (
    Layout,
    composed_model,
    heads_model,
    induction_model,
    previous_token_model,
    reversal_model,
    uniform_model,
)
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from torch import nn

VOCAB, LENGTH = 5, 6


def low_rank(rows=7, inner=3, columns=7, seed=0):
    torch.manual_seed(seed)
    return LowRank(torch.randn(rows, inner).double(), torch.randn(inner, columns).double())


def test_a_product_of_factors_is_the_matrix():
    a, b = low_rank(7, 3, 9), low_rank(9, 2, 4, seed=1)
    whole = a.matrix @ b.matrix
    for product in (a @ b, (b.T @ a.T).T):
        torch.testing.assert_close(product.matrix, whole)
        assert product.left.shape[1] == 2
    torch.testing.assert_close((3.0 * a).matrix, 3 * a.matrix)
    assert a.norm() == pytest.approx(a.matrix.norm().item(), rel=1e-12)
    torch.testing.assert_close(a.singular_values(), torch.linalg.svdvals(a.matrix)[:3])
    assert (a.rank(), (a @ b).rank(), a.rank(tolerance=1.0)) == (3, 2, 0)
    square = low_rank()
    dense = torch.linalg.eigvals(square.matrix)
    largest = dense[dense.abs().argsort(descending=True)][:3]
    own = square.eigenvalues()
    assert sorted(own.abs().tolist()) == pytest.approx(sorted(largest.abs().tolist()))
    assert own.sum().real.item() == pytest.approx(square.matrix.trace().item())
    with pytest.raises(ValueError, match=r"eigenvalues, got shape \(7, 9\)"):
        a.eigenvalues()


def test_circuits_of_hand_made_heads():
    layout = Layout(VOCAB, LENGTH)
    places = torch.zeros(LENGTH, LENGTH).double()
    expected = {
        "previous": places + torch.diag(torch.ones(LENGTH - 1), -1),
        "mirror": torch.eye(LENGTH).double().flip(0),
        "uniform": places,
    }
    models = {
        "previous": previous_token_model(vocab=VOCAB, length=LENGTH),
        "mirror": reversal_model(vocab=VOCAB, length=LENGTH),
        "uniform": uniform_model(vocab=VOCAB, length=LENGTH),
    }
    ranks = {"previous": LENGTH - 1, "mirror": LENGTH, "uniform": 0}
    for role, model in models.items():
        qk, ov = head_circuits(model, 0, 0)
        form = torch.zeros(layout.width, layout.width).double()
        form[layout.place, layout.place] = 60 * expected[role]
        torch.testing.assert_close(qk.form.matrix, form)
        assert qk.form.rank() == ranks[role]
        carried = torch.zeros(layout.width, layout.width).double()
        carried[layout.token, layout.note(0)] = torch.eye(VOCAB).double()
        torch.testing.assert_close(ov.form.matrix, carried)
        assert ov.form.rank() == VOCAB
        for bias in (qk.query_bias, qk.key_bias, qk.constant, ov.bias):
            assert not bias.any()
        circuit = token_circuit(model, ov.form)
        torch.testing.assert_close(circuit.matrix, torch.eye(VOCAB).double())
        assert copying_score(circuit.eigenvalues()) == pytest.approx(1)
        forgetting = token_circuit(model, -1.0 * ov.form)
        assert copying_score(forgetting.eigenvalues()) == pytest.approx(-1)


def test_each_head_of_a_layer_has_its_own_circuits():
    roles = ["self", "same_token", "previous"]
    model = heads_model(roles, vocab=VOCAB, length=LENGTH)
    layout = Layout(VOCAB, LENGTH, 3)
    for head, asked in enumerate((layout.place, layout.token, layout.place)):
        qk, ov = head_circuits(model, 0, head)
        assert qk.form.matrix[asked, asked].norm() == qk.form.matrix.norm() > 0
        assert ov.form.matrix[layout.token, layout.note(head)].trace() == VOCAB
        assert ov.form.norm() == pytest.approx(math.sqrt(VOCAB))


def test_hand_made_pairs_compose_as_they_were_written_to():
    for by in ("q", "k", "v"):
        found = compositions(composed_model(by, vocab=VOCAB, length=LENGTH), 0, 1)
        # An identity on VOCAB directions, of which the key's reader looks at twice as many.
        expected = 1 / math.sqrt(2 * VOCAB if by == "k" else VOCAB)
        assert getattr(found, by).item() == pytest.approx(expected)
        assert all(getattr(found, other).item() == 0 for other in "qkv" if other != by)
        assert found.baseline == composition_baseline(VOCAB * 3 + LENGTH)
    model = induction_model(vocab=VOCAB, length=LENGTH)
    assert compositions(model, 0, 1).k.item() > compositions(model, 0, 1).baseline


@torch.no_grad()
def test_two_heads_composed_by_values_are_one_virtual_head():
    model = composed_model("v", vocab=VOCAB, length=LENGTH)
    tokens = torch.randint(VOCAB, (3, LENGTH), generator=torch.Generator().manual_seed(0))
    with capture(model, "*.pattern", "embedding", "*.1.attention.head_outputs") as seen:
        model(tokens)
    forms = [head_circuits(model, layer, 0)[1].form for layer in (0, 1)]
    pattern = virtual_pattern([seen[f"blocks.{i}.attention.pattern"][:, 0] for i in (0, 1)])
    torch.testing.assert_close(
        pattern[:, 2:].diagonal(dim1=1, dim2=2), torch.ones(3, LENGTH - 2).double()
    )
    first, second = torch.rand(2, 4, 4).unbind()
    torch.testing.assert_close(virtual_pattern([first, second, first]), first @ second @ first)
    torch.testing.assert_close(virtual_pattern([first, second]), second @ first)
    path = pattern @ seen["embedding"] @ (forms[0] @ forms[1]).matrix
    torch.testing.assert_close(path, seen["blocks.1.attention.head_outputs"][:, 0])
    assert copying_score(token_circuit(model, *forms).eigenvalues()) == pytest.approx(1)


@torch.no_grad()
def perturbed(model, seed=0):
    """Every weight moved, so that no bias is zero and no norm is trivial."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter += 0.3 * torch.randn(
            parameter.shape, generator=generator, dtype=parameter.dtype
        ).to(parameter)
    return model.double().eval()


CONFIG = Config(vocab=VOCAB, d_model=12, n_layers=2, n_heads=4, d_head=6)
VARIANTS = {
    "plain": {"norm": "none", "bias": False},
    "biases": {},
    "rms": {"norm": "rms", "positions": "learned"},
    "norms without weights": {"norm": "layer_plain"},
    "offset": {"norm": "rms", "norm_offset": 1.0, "bias": False},
    "post": {"placement": "post"},
    "no norms, biases": {"norm": "none", "positions": "none"},
    "scale": {"attention_scale": 1.0},
    "grouped": {"n_kv_heads": 2},
    "multi-query": {"n_kv_heads": 1},
    "rotary": {"positions": "rotary", "n_kv_heads": 2},
    "rotary in halves": {"positions": "rotary", "rotary_pairing": "halves", "rotary_base": 50.0},
}


def same_scores(model, seen, layer, head, read, fold):
    """Return whether the QK circuit gives the scores."""
    real = seen[f"blocks.{layer}.attention.scores"][:, head]
    n = real.shape[-1]
    if model.rotary is None:
        found = head_circuits(model, layer, head, fold_norm=fold)[0].scores(read, read)
    else:
        found = torch.zeros_like(real)
        for offset in range(1 - n, n):
            qk, _ = head_circuits(model, layer, head, offset=offset, fold_norm=fold)
            rows = torch.arange(max(offset, 0), n + min(offset, 0))
            found[:, rows, rows - offset] = qk.scores(read, read)[:, rows, rows - offset]
    torch.testing.assert_close(found, real, rtol=0, atol=1e-10)


@torch.no_grad()
@pytest.mark.parametrize("kind", [Encoder, Decoder])
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_circuits_give_the_scores_and_writes_of_any_model(kind, changes):
    config = CONFIG.replace(**changes)
    model = perturbed(kind(config))
    tokens = torch.randint(VOCAB, (3, 5), generator=torch.Generator().manual_seed(1))
    with capture(model, "blocks.*") as seen:
        model(tokens)
    for layer, head in itertools.product(range(2), range(4)):
        at = f"blocks.{layer}"
        stream, pattern = seen[f"{at}.residual_pre"], seen[f"{at}.attention.pattern"][:, head]
        norm, folds = model.blocks[layer].attention_norm, config.placement == "pre"
        given = norm(stream) if folds else stream
        scale = seen.get(f"{at}.attention_norm.scale", 1.0) if folds else 1.0
        offset = 1 if model.rotary is not None else None
        for read, fold in ((stream / scale, True), (given, False)):
            same_scores(model, seen, layer, head, read, fold)
            _, ov = head_circuits(model, layer, head, offset=offset, fold_norm=fold)
            torch.testing.assert_close(
                ov.writes(pattern, read),
                seen[f"{at}.attention.head_outputs"][:, head],
                rtol=0,
                atol=1e-10,
            )


@torch.no_grad()
def test_cross_attention_reads_two_streams():
    model = perturbed(EncoderDecoder(CONFIG.replace(n_layers=1, norm="none")))
    source = torch.randint(VOCAB, (2, 4), generator=torch.Generator().manual_seed(1))
    target = torch.randint(VOCAB, (2, 3), generator=torch.Generator().manual_seed(2))
    with capture(model, "*") as seen:
        model(source, target)
    crossed = model.decoder.blocks[0].cross_attention
    asked, told = seen["decoder.blocks.0.residual_mid"], seen["encoder.final_state"]
    for head in range(4):
        qk, ov = module_circuits(crossed, head)
        scores = seen["decoder.blocks.0.cross_attention.scores"][:, head]
        torch.testing.assert_close(qk.scores(asked, told), scores)
        pattern = seen["decoder.blocks.0.cross_attention.pattern"][:, head]
        writes = seen["decoder.blocks.0.cross_attention.head_outputs"][:, head]
        torch.testing.assert_close(ov.writes(pattern, told), writes)
    qk, _ = head_circuits(model.encoder, 0, 1)
    stream = seen["encoder.blocks.0.residual_pre"]
    scores = seen["encoder.blocks.0.attention.scores"][:, 1]
    torch.testing.assert_close(qk.scores(stream, stream), scores)


@torch.no_grad()
def test_token_circuits_know_embedding_scale_and_final_norm():
    model = perturbed(Decoder(CONFIG.replace(n_layers=1)))
    _, ov = head_circuits(model, 0, 0)
    embedding = model.embedding_scale * model.token_embedding.weight
    after = embedding @ ov.form.matrix
    final = (after - after.mean(-1, keepdim=True)) * model.final_norm.weight
    expected = final @ model.unembedding.weight.T
    torch.testing.assert_close(token_circuit(model, ov.form).matrix, expected)


def test_chance_is_one_over_the_root_of_the_width():
    first, second = low_rank(20, 3, 20), low_rank(20, 5, 20, seed=1)
    by_chance = composition_by_chance(first, second, draws=3000)
    assert by_chance.square().mean().sqrt().item() == pytest.approx(20**-0.5, rel=0.02)
    # The same by turning the whole matrices, and for a rank above half of the width.
    torch.manual_seed(2)
    second = low_rank(20, 15, 20, seed=3)
    slow = []
    for _ in range(500):
        turn = torch.linalg.qr(torch.randn(20, 20).double()).Q
        slow.append(composition(LowRank(first.left, first.right @ turn), second))
    slow = torch.tensor(slow)
    quick = composition_by_chance(first, second, draws=500)
    assert slow.square().mean().sqrt().item() == pytest.approx(20**-0.5, rel=0.03)
    assert quick.std().item() == pytest.approx(slow.std().item(), rel=0.2)
    assert torch.equal(quick, composition_by_chance(first, second, draws=500))


def test_errors_say_what_was_expected(unhooked):
    model = Decoder(CONFIG)
    with pytest.raises(ValueError, match=r"layer must lie in -2\.\.1, got 2"):
        head_circuits(model, 2, 0)
    with pytest.raises(ValueError, match=r"head must lie in -4\.\.3, got 4"):
        head_circuits(model, 0, 4)
    with pytest.raises(ValueError, match="model's are 'sinusoidal'"):
        head_circuits(model, 0, 0, offset=1)
    with pytest.raises(ValueError, match="give offset"):
        head_circuits(Decoder(CONFIG.replace(positions="rotary")), 0, 0)
    for positions in ("alibi", "relative"):
        with pytest.raises(ValueError, match=f"'{positions}' positions add a bias"):
            head_circuits(Decoder(CONFIG.replace(positions=positions)), 0, 0)
    with pytest.raises(ValueError, match="expected rotary positions, got 'sinusoidal'"):
        offset_rotation(model, 1)
    attention = model.blocks[0].attention
    with pytest.raises(ValueError, match=r"\(6, 6\), got \(4, 4\)"):
        module_circuits(attention, 0, turn=torch.eye(4))
    with pytest.raises(ValueError, match="got BatchNorm1d"):
        module_circuits(attention, 0, norm=nn.BatchNorm1d(12))
    with pytest.raises(ValueError, match="earlier < later, got layers 1 and 1"):
        compositions(model, 1, 1)
    with pytest.raises(ValueError, match="placement='post'"):
        compositions(Decoder(CONFIG.replace(placement="post")), 0, 1)
    with pytest.raises(ValueError, match="without the residual connection"):
        compositions(Decoder(CONFIG.replace(residual=False)), 0, 1)
    zero = LowRank(torch.zeros(3, 1), torch.zeros(1, 3))
    with pytest.raises(ValueError, match="composes with nothing"):
        composition(zero, zero)
    with pytest.raises(ValueError, match="two maps that are not zero"):
        composition_by_chance(zero, zero)
    with pytest.raises(ValueError, match="copies nothing"):
        copying_score(zero.eigenvalues())
    with pytest.raises(ValueError, match="must be positive, got 0"):
        composition_baseline(0)
    with pytest.raises(ValueError, match="at least one head"):
        token_circuit(model)
    with pytest.raises(ValueError, match="head='linear'"):
        token_circuit(Decoder(CONFIG.replace(head="none")), zero)
    with pytest.raises(ValueError, match="at least one pattern"):
        virtual_pattern([])
