"""The measurements of positions against closed forms, plain numpy and models whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from measured_transformer.analysis.positions import (
    Band,
    RandomTable,
    WithoutAttention,
    attention_window,
    captured,
    changed_positions,
    class_probe_accuracy,
    distinct_rows,
    equivariance_error,
    excess_loss,
    exp_log_table,
    explained_by_offset,
    explained_by_position,
    largest_climb,
    loss_without_places,
    offset_deviation,
    position_r2_by_layer,
    position_scores,
    position_vectors,
    probe_r2,
    rises,
    rotary_drift,
    rotary_scores,
    rounded_angles,
    score_map,
    shift_matrix,
    similarity_by_distance,
    smallest_distance,
    task_loss,
    third,
    turn_rates,
    untrained,
    wrong_order_share,
)
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.parts.positions import sinusoidal_encoding
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import evaluate, make_model, train
from measured_transformer.training.seeding import stream
from torch import nn

DOUBLE = torch.float64


def closed_form(n: int, d: int, base: float = 10000.0) -> np.ndarray:
    table = np.empty((n, d))
    for p in range(n):
        for i in range(d // 2):
            table[p, 2 * i] = math.sin(p / base ** (2 * i / d))
            table[p, 2 * i + 1] = math.cos(p / base ** (2 * i / d))
    return table


# Geometry -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d", "base"), [(3, 2, 10000.0), (40, 16, 10000.0), (25, 6, 50.0)])
def test_similarity_is_the_first_row_of_the_gram_matrix(n: int, d: int, base: float) -> None:
    table = closed_form(n, d, base)
    np.testing.assert_allclose(
        similarity_by_distance(n, d, base=base), table @ table[0], atol=1e-12
    )


def test_similarity_at_distances_worked_out_by_hand() -> None:
    s = similarity_by_distance(7, 4)
    assert s[0] == 2
    assert s[3] == pytest.approx(math.cos(3) + math.cos(0.03))
    assert s[6] > s[3]


def test_offset_statistics_tell_offset_matrices_from_others() -> None:
    toeplitz = torch.tensor([[abs(i - j) ** 2.0 for j in range(6)] for i in range(6)], dtype=DOUBLE)
    assert offset_deviation(toeplitz) == 0
    bumped = toeplitz.clone()
    bumped[2, 4] += 8.0  # one of the eight entries at distance two
    assert offset_deviation(bumped) == pytest.approx(7.0)
    directed = torch.tensor([[float(i - j) for j in range(5)] for i in range(5)])
    assert explained_by_offset(directed) == pytest.approx(1.0)
    assert offset_deviation(directed) > 0  # |i - j| alone does not say the sign
    rows = torch.arange(4.0)[:, None].expand(4, 4)
    by_hand = np.array([[i - j for j in range(4)] for i in range(4)])
    matrix = rows.numpy()
    means = np.array([[matrix[by_hand == o].mean() for o in line] for line in by_hand])
    expected = 1 - ((matrix - means) ** 2).mean() / matrix.var()
    assert explained_by_offset(rows) == pytest.approx(expected)


def test_offset_statistics_refuse_what_they_cannot_judge() -> None:
    with pytest.raises(ValueError, match="square"):
        offset_deviation(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="no variance"):
        explained_by_offset(torch.ones(3, 3))


def test_order_statistics_by_brute_force() -> None:
    values = np.random.default_rng(0).normal(size=30)
    pairs = [(k, far) for k in range(30) for far in range(k + 1, 30)]
    wrong = sum(values[far] > values[k] for k, far in pairs) / len(pairs)
    assert wrong_order_share(values) == pytest.approx(wrong)
    assert rises(values).tolist() == [k for k in range(29) if values[k + 1] > values[k]]
    climbs = [
        values[b] - values[a]
        for a in range(30)
        for b in range(a + 1, 30)
        if all(values[k + 1] > values[k] for k in range(a, b))
    ]
    height, foot, top = largest_climb(values)
    assert height == pytest.approx(max(climbs))
    assert values[top] - values[foot] == pytest.approx(height)
    falling = np.arange(5.0)[::-1].copy()
    assert wrong_order_share(falling) == 0
    assert len(rises(falling)) == 0
    assert largest_climb(falling) == (0.0, 0, 0)


def test_turn_rates_are_read_off_the_table_and_not_off_the_formula() -> None:
    wanted = np.array([3.0, 0.5, 0.01])
    angles = np.arange(20)[:, None] * wanted
    table = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(20, 6)
    np.testing.assert_allclose(turn_rates(torch.from_numpy(table)).numpy(), wanted, atol=1e-12)


def test_smallest_distance_agrees_with_all_pairs_whatever_the_block() -> None:
    table = torch.randn(57, 5, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    wanted = torch.pdist(table).min().item()
    for block in (1, 10, 57, 1000):
        assert smallest_distance(table, block=block) == pytest.approx(wanted)
    repeated = torch.cat((table, table[3:4]))
    assert smallest_distance(repeated, block=10) == pytest.approx(0, abs=1e-7)


def test_rounded_angles_lose_positions_and_the_library_does_not() -> None:
    # bfloat16 has eight significant bits: 257 is rounded to 256
    table = rounded_angles(258, 8, torch.bfloat16)
    assert torch.equal(table[256], table[257])
    assert distinct_rows(table) == 257
    assert distinct_rows(sinusoidal_encoding(258, 8, dtype=torch.bfloat16)) == 258
    exact = rounded_angles(258, 8, DOUBLE)
    np.testing.assert_allclose(exact.numpy(), closed_form(258, 8), atol=1e-12)


def test_the_exp_log_route_is_the_same_table_and_needs_an_even_width() -> None:
    np.testing.assert_allclose(
        exp_log_table(30, 10, DOUBLE).numpy(), closed_form(30, 10), atol=1e-12
    )
    with pytest.raises(RuntimeError):
        exp_log_table(30, 9, DOUBLE)


@pytest.mark.parametrize("k", [0, 1, 7, 2.5])
def test_the_shift_matrix_is_a_rotation_that_moves_every_position(k: float) -> None:
    matrix = shift_matrix(k, 6)
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(6, dtype=DOUBLE))
    places = torch.arange(9, dtype=DOUBLE)
    torch.testing.assert_close(
        sinusoidal_encoding(places, 6, dtype=DOUBLE) @ matrix,
        sinusoidal_encoding(places + k, 6, dtype=DOUBLE),
    )


# Attention and order --------------------------------------------------------------------------


class _Cumulative(nn.Module):
    """Adds up what came before when causal, and everything when not."""

    def forward(self, x: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
        return x.cumsum(1) if causal else x.sum(1, keepdim=True).expand_as(x)


def test_equivariance_error_is_zero_for_a_sum_and_not_for_a_running_sum() -> None:
    x = torch.tensor([[[1.0], [2.0], [4.0]]])
    order = torch.tensor([2, 1, 0])
    assert equivariance_error(_Cumulative(), x, order) == 0
    # 4, 6, 7 against 7, 3, 1
    assert equivariance_error(_Cumulative(), x, order, causal=True) == 6


def test_rotary_scores_by_complex_numbers() -> None:
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 5, 8))
    m, n = rng.integers(0, 50, size=(2, 5))
    rate = 10000.0 ** (-np.arange(0, 8, 2) / 8)
    turned_q = (q[:, 0::2] + 1j * q[:, 1::2]) * np.exp(1j * m[:, None] * rate)
    turned_k = (k[:, 0::2] + 1j * k[:, 1::2]) * np.exp(1j * n[:, None] * rate)
    wanted = (turned_q * turned_k.conj()).real.sum(1) / math.sqrt(8)
    arguments = [torch.from_numpy(a) for a in (q, k, m, n)]
    for angles_in_dtype in (False, True):
        scores = rotary_scores(*arguments, angles_in_dtype=angles_in_dtype)
        np.testing.assert_allclose(scores.numpy(), wanted, atol=1e-12)


def test_drift_is_rounding_with_exact_angles_and_ruinous_with_rounded_ones() -> None:
    exact = rotary_drift([1, 10000], dtype=DOUBLE)
    assert exact.error.max() < 1e-9
    assert exact.control.min() > 0.1
    low = rotary_drift([1, 10000], dtype=torch.bfloat16)
    wrong = rotary_drift([1, 10000], dtype=torch.bfloat16, angles_in_dtype=True)
    assert low.error.max() < 0.1 < 1 < wrong.error.max()


def test_explained_by_position_of_hand_made_patterns() -> None:
    n = 4
    fixed = torch.eye(n).flip(1).expand(6, n, n)  # the same for all inputs
    flat = torch.full((6, n, n), 1 / n)  # nothing to explain
    content = torch.stack([torch.eye(n)[torch.full((n,), b % n)] for b in range(4)] + [flat[0]] * 2)
    pattern = torch.stack((fixed, flat, content), dim=1)
    shares = explained_by_position(pattern)
    assert shares[0] == pytest.approx(1)
    assert shares[1] == 0
    assert shares[2] == pytest.approx(0, abs=1e-6)  # every key is as often the one
    causal = torch.tril(torch.ones(n, n))
    causal = (causal / causal.sum(1, keepdim=True)).expand(2, 1, n, n)
    assert explained_by_position(causal, causal=True)[0] == 0


# Probes ---------------------------------------------------------------------------------------


def test_the_probe_finds_what_is_there_and_nothing_else() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(200, 10, 6, generator=generator)
    places = torch.arange(10.0)[None, :, None].expand(200, 10, 1)
    assert probe_r2(torch.cat((noise, places), dim=-1)) > 0.99
    assert probe_r2(noise) < 0.02
    assert probe_r2(torch.cat((noise, places), dim=-1), shuffle_seed=0) < 0.02
    with pytest.raises(ValueError, match="sequences"):
        probe_r2(noise[:1])


def test_the_probe_of_half_signal_half_noise_has_the_textbook_r2() -> None:
    generator = torch.Generator().manual_seed(1)
    places = torch.arange(20.0).expand(2000, 20)
    spread = np.arange(20).std()
    noisy = places + spread * torch.randn(2000, 20, generator=generator)
    assert probe_r2(noisy[..., None]) == pytest.approx(0.5, abs=0.03)


def test_the_class_probe_answers_positions_it_has_not_seen() -> None:
    classes = np.arange(60) // 20
    columns = np.eye(3)[classes]
    assert class_probe_accuracy(columns, classes, seed=0) == 1
    names = np.eye(60)  # a column a position: nothing carries over to others
    assert class_probe_accuracy(names, classes, seed=0) < 0.6


def test_thirds_are_even_and_cover_all_dimensions() -> None:
    for d in (6, 16, 32, 64, 512):
        covered = [i for name in ("fastest", "middle", "slowest") for i in range(d)[third(d, name)]]
        assert covered == list(range(d))
        assert all(third(d, name).start % 2 == 0 for name in ("fastest", "middle", "slowest"))


# Models ---------------------------------------------------------------------------------------

TINY = Config(vocab=8, d_model=16, n_heads=2, n_layers=2, max_length=12)


def test_preparations_freeze_what_they_say() -> None:
    task = Reversal(vocab=8, length=6)
    learned = TINY.but(positions="learned")
    for prepare in (RandomTable(), Band("slowest")):
        fresh = make_model(learned, causal=False, seed=1)
        prepare(fresh)
        before = position_vectors(fresh, 12).clone()
        run = train(learned, task, steps=3, learning_rate=1e-2, seed=1, prepare=prepare)
        assert torch.equal(position_vectors(run.model, 12), before)
    band = position_vectors(run.model, 12)
    kept = third(16, "slowest")
    assert torch.equal(band[:, kept], sinusoidal_encoding(12, 16)[:, kept])
    assert band[:, : kept.start].abs().max() == 0
    trained = train(learned, task, steps=3, learning_rate=1e-2, seed=1).model
    assert not torch.equal(
        position_vectors(trained, 12),
        position_vectors(make_model(learned, causal=False, seed=1), 12),
    )
    with pytest.raises(ValueError, match="learned positions"):
        RandomTable()(make_model(TINY, causal=False, seed=1))


def test_without_attention_a_token_does_not_notice_the_others() -> None:
    run = train(
        TINY,
        Reversal(vocab=8, length=6),
        steps=3,
        learning_rate=1e-2,
        seed=2,
        prepare=WithoutAttention(),
    )
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6]])
    other = torch.tensor([[7, 7, 3, 7, 7, 7]])
    torch.testing.assert_close(run.model(tokens)[:, 2], run.model(other)[:, 2])


@pytest.mark.parametrize("scheme", ["sinusoidal", "learned", "rotary", "alibi", "none"])
def test_a_shift_changes_only_schemes_that_know_where_they_are(scheme: str) -> None:
    config = TINY.but(positions=scheme, max_length=40)
    task = Lag(vocab=8, length=10)
    run = train(config, task, steps=5, learning_rate=1e-2, seed=3)
    here = excess_loss(run.model, task, seed=0, length=10)
    there = excess_loss(run.model, task, seed=0, length=10, shift=20)
    moved = np.nanmax(np.abs(here - there))
    assert (moved > 1e-3) == (scheme in ("sinusoidal", "learned"))


def test_excess_loss_is_evaluation_minus_the_ideal() -> None:
    task = Lag(vocab=8, length=10)
    model = make_model(TINY, causal=True, seed=0)
    score = evaluate(model, task, seed=4, size=64)
    excess = excess_loss(model, task, seed=4, length=10)
    assert np.isnan(excess[:2]).all()
    batch = task.batch(stream(4, "evaluation"), 64)
    wanted = score.loss_by_position - task.ideal_loss(batch).numpy()
    np.testing.assert_allclose(excess[2:], wanted[2:], atol=1e-5)


def test_the_attention_window_cuts_off_exactly_beyond_its_width() -> None:
    model = make_model(TINY.but(n_layers=1), causal=True, seed=0)
    tokens = torch.randint(8, (1, 9), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[0, 0] = (changed[0, 0] + 1) % 8
    with attention_window(model, 4), torch.no_grad():
        before, after = model(tokens), model(changed)
    same = torch.isclose(before, after).all(-1)[0].tolist()
    assert same == [False] * 4 + [True] * 5
    with attention_window(model, 4), capture(model, "*.pattern") as seen:
        model(tokens)
    pattern = seen["blocks.0.attention.pattern"]
    torch.testing.assert_close(pattern.sum(-1), torch.ones(1, 2, 9))
    with attention_window(model, None), torch.no_grad():
        torch.testing.assert_close(
            model(tokens), make_model(TINY.but(n_layers=1), causal=True, seed=0)(tokens)
        )


@pytest.mark.parametrize("scheme", ["sinusoidal", "learned"])
def test_changed_positions_replace_what_is_added(scheme: str) -> None:
    model = make_model(TINY.but(positions=scheme), causal=False, seed=0)
    bare = make_model(TINY.but(positions="none"), causal=False, seed=0)
    bare.load_state_dict(
        {k: v for k, v in model.state_dict().items() if not k.startswith("positions")}
    )
    tokens = torch.randint(8, (2, 7), generator=torch.Generator().manual_seed(0))
    with changed_positions(model, torch.zeros(7, 16)), torch.no_grad():
        torch.testing.assert_close(model(tokens), bare(tokens), atol=1e-5, rtol=1e-5)
    assert position_vectors(bare, 7).abs().max() == 0


def test_task_loss_and_captured_use_the_evaluation_stream() -> None:
    task = Reversal(vocab=8, length=6)
    model = make_model(TINY, causal=False, seed=0)
    assert task_loss(model, task, seed=3) == pytest.approx(
        evaluate(model, task, seed=3, size=256).loss
    )
    seen = captured(model, task, "embedding", seed=3, size=5)
    assert seen["embedding"].shape == (5, 6, 16)


def test_position_is_read_by_layer_where_it_is() -> None:
    task = Reversal(vocab=8, length=6)
    with_positions = position_r2_by_layer(make_model(TINY, causal=False, seed=0), task, seed=0)
    without = position_r2_by_layer(
        make_model(TINY.but(positions="none"), causal=False, seed=0), task, seed=0
    )
    assert with_positions.shape == (3,)
    assert with_positions[0] > 0.9
    assert (np.abs(without) < 0.1).all()


def test_taking_out_places_matters_only_to_models_that_have_them() -> None:
    task = Reversal(vocab=8, length=6)
    without = make_model(TINY.but(positions="none"), causal=False, seed=0)
    plain = task_loss(without, task, seed=0)
    losses = loss_without_places(without, task, seed=0)
    assert len(losses) == 3
    assert losses == pytest.approx([plain] * 3, abs=0.05)
    trained = train(TINY, task, steps=150, learning_rate=1e-2, seed=0, batch_size=32).model
    assert loss_without_places(trained, task, seed=0)[0] > task_loss(trained, task, seed=0) + 0.5


def test_position_scores_are_those_of_a_model_with_silent_tokens() -> None:
    model = make_model(TINY.but(norm="none"), causal=False, seed=0)
    with torch.no_grad():
        model.token_embedding.weight.zero_()
        model.blocks[0].attention_norm = nn.Identity()
        model.blocks[0].attention_norm.weight = torch.ones(16)
        vectors = position_vectors(model, 6)
        model.positions.table = vectors - vectors.mean(-1, keepdim=True)
    seen = captured(model, Reversal(vocab=8, length=6), "blocks.0.attention.scores", seed=0, size=1)
    torch.testing.assert_close(position_scores(model, 6), seen["blocks.0.attention.scores"][0])


def test_score_maps_show_each_scheme_for_what_it_is() -> None:
    one = Config(vocab=2, d_model=16, n_heads=1, n_layers=1, max_length=20)
    none = score_map(one.but(positions="none"), 20)
    assert (none - none[0, 0]).abs().max() < 1e-5
    for scheme, relative in (("rotary", True), ("alibi", True), ("learned", False)):
        share = explained_by_offset(score_map(one.but(positions=scheme), 20).double())
        assert (share > 0.999) == relative, scheme


def test_untrained_is_the_same_config_with_other_weights() -> None:
    model = train(TINY, Reversal(vocab=8, length=6), steps=2, learning_rate=1e-2, seed=5).model
    fresh = untrained(model, seed=5)
    assert fresh.config == model.config
    reference = make_model(TINY, causal=False, seed=5)
    for (name, a), (_, b) in zip(
        fresh.named_parameters(), reference.named_parameters(), strict=True
    ):
        assert torch.equal(a, b), name
    assert not torch.equal(fresh.unembedding.weight, model.unembedding.weight)
