"""The geometry of position vectors against closed forms and plain numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from measured_transformer.analysis.sinusoids import (
    distinct_rows,
    exp_log_table,
    explained_by_offset,
    largest_climb,
    offset_deviation,
    rises,
    rounded_angles,
    shift_matrix,
    similarity_by_distance,
    smallest_distance,
    turn_rates,
    wrong_order_share,
)
from measured_transformer.parts.positions import sinusoidal_encoding

DOUBLE = torch.float64


def closed_form(n: int, d: int, base: float = 10000.0) -> np.ndarray:
    table = np.empty((n, d))
    for p in range(n):
        for i in range(d // 2):
            table[p, 2 * i] = math.sin(p / base ** (2 * i / d))
            table[p, 2 * i + 1] = math.cos(p / base ** (2 * i / d))
    return table


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
