"""Position schemes against closed forms, complex numbers and the papers' own numbers."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_transformer.parts.positions import (
    LearnedPositions,
    Rotation,
    SinusoidalPositions,
    alibi_bias,
    alibi_slopes,
    frequencies,
    rotation,
    sinusoidal_encoding,
)

DOUBLE = torch.float64
TIGHT = {"rtol": 0, "atol": 1e-12}


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=DOUBLE)


# --- frequencies and sinusoids ---------------------------------------------------------------------


@pytest.mark.parametrize("d", [2, 4, 6, 64, 512])
@pytest.mark.parametrize("base", [10000.0, 500000.0, 2.0])
def test_frequencies_are_a_geometric_series_from_one(d, base):
    omega = frequencies(d, base=base)
    assert omega.dtype == DOUBLE
    expected = [base ** (-2 * i / d) for i in range(d // 2)]
    torch.testing.assert_close(omega, torch.tensor(expected, dtype=DOUBLE), rtol=1e-14, atol=0)


@settings(deadline=None, max_examples=40)
@given(
    position=st.one_of(st.integers(0, 10**6), st.floats(0, 1e4)),
    pair=st.integers(0, 31),
    base=st.sampled_from([100.0, 10000.0]),
)
def test_each_entry_is_the_closed_form(position, pair, base):
    where = torch.tensor([position], dtype=DOUBLE)
    (row,) = sinusoidal_encoding(where, 64, base=base, dtype=DOUBLE)
    angle = position / base ** (2 * pair / 64)
    tolerance = 1e-13 * (1 + abs(angle))
    assert row[2 * pair].item() == pytest.approx(math.sin(angle), abs=tolerance)
    assert row[2 * pair + 1].item() == pytest.approx(math.cos(angle), abs=tolerance)


def test_a_number_means_the_positions_from_zero():
    direct = sinusoidal_encoding(torch.arange(7), 6)
    assert torch.equal(sinusoidal_encoding(7, 6), direct)
    assert direct.shape == (7, 6)
    assert torch.equal(direct[0], torch.tensor([0.0, 1.0] * 3))


def test_sines_may_stand_before_all_cosines():
    table = sinusoidal_encoding(7, 6, pairing="halves", dtype=DOUBLE)
    plain = sinusoidal_encoding(7, 6, dtype=DOUBLE)
    assert torch.equal(table, torch.cat((plain[:, 0::2], plain[:, 1::2]), dim=1))
    module = SinusoidalPositions(6, pairing="halves").double()
    assert torch.equal(module(3, offset=2), table[2:5])


def test_another_order_of_sines_is_refused(unhooked):
    with pytest.raises(ValueError, match="pairing must be 'interleaved' or 'halves', got 'x'"):
        sinusoidal_encoding(7, 6, pairing="x")


def test_far_positions_are_exact_in_float32():
    far = 10_000_019
    (row,) = sinusoidal_encoding(torch.tensor([far]), 4)
    exact = [f(far * w) for w in (1.0, 0.01) for f in (math.sin, math.cos)]
    assert row.dtype == torch.float32
    torch.testing.assert_close(row, torch.tensor(exact), rtol=0, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_dtype_only_rounds_the_result(dtype):
    exact = sinusoidal_encoding(50, 8, dtype=DOUBLE)
    assert torch.equal(sinusoidal_encoding(50, 8, dtype=dtype), exact.to(dtype))


def test_a_shift_is_a_rotation_and_products_know_only_the_distance():
    a, b = torch.tensor([3.0, 11.0, 40.0]), torch.tensor([5.0, 2.0, 41.0])
    products = [
        (
            sinusoidal_encoding(a + s, 32, dtype=DOUBLE)
            * sinusoidal_encoding(b + s, 32, dtype=DOUBLE)
        )
        .sum(-1)
        .numpy()
        for s in (0, 1, 1000, 123456)
    ]
    cosines = torch.cos(frequencies(32) * (a - b).double()[:, None]).sum(-1).numpy()
    for product in products:
        np.testing.assert_allclose(product, cosines, atol=1e-9)


# --- the modules -----------------------------------------------------------------------------------


def test_the_sinusoidal_table_grows_and_its_rows_stay():
    module = SinusoidalPositions(6, base=100.0)
    first = module(3).clone()
    assert torch.equal(module(200)[:3], first)
    assert torch.equal(module(5, offset=40), sinusoidal_encoding(45, 6, base=100.0)[40:])
    assert module(0).shape == (0, 6)
    for n in (1, 2, 3, 4, 5, 8, 9, 255, 256, 257):
        assert torch.equal(
            SinusoidalPositions(6, base=100.0)(n), sinusoidal_encoding(n, 6, base=100.0)
        )


def test_a_sinusoidal_checkpoint_is_empty_and_loads_at_any_length():
    short, long = SinusoidalPositions(4), SinusoidalPositions(4)
    long(100)
    assert long.state_dict() == {}
    assert list(long.parameters()) == []
    short.load_state_dict(long.state_dict())
    assert torch.equal(short(9), long(9))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("before", [0, 20])
def test_the_table_follows_the_dtype_of_its_model(dtype, before):
    module = SinusoidalPositions(8)
    module(before)
    module.to(dtype)
    assert module(30).dtype == dtype
    assert torch.equal(module(30), sinusoidal_encoding(30, 8, dtype=dtype))
    back = copy.deepcopy(module).double()
    assert torch.equal(back(30), sinusoidal_encoding(30, 8, dtype=DOUBLE)), (
        "kept an earlier rounding"
    )


def test_the_table_follows_the_device_of_its_model():
    module = SinusoidalPositions(8).to("meta")
    assert module(30).device.type == "meta"
    assert torch.equal(module.to_empty(device="cpu")(30), sinusoidal_encoding(30, 8))


def test_learned_positions_are_rows_of_a_trained_table():
    module = LearnedPositions(10, 4)
    assert torch.equal(module(3), module.table[:3])
    assert torch.equal(module(3, offset=7), module.table[7:])
    module(4, offset=2).sum().backward()
    touched = module.table.grad.abs().sum(-1) > 0
    assert touched.tolist() == [2 <= i < 6 for i in range(10)]
    assert [n for n, _ in module.named_parameters()] == ["table"]


def test_learned_positions_require_gradients_only_where_they_are_recorded():
    scheme = LearnedPositions(5, 4)
    assert scheme(3).requires_grad
    with torch.no_grad():
        assert not scheme(3).requires_grad
        assert not scheme(torch.tensor([[0, 4]])).requires_grad


def test_learned_positions_end():
    module = LearnedPositions(10, 4)
    with pytest.raises(ValueError, match="reach to 9, got position 10"):
        module(11)
    with pytest.raises(ValueError, match="reach to 9, got position 12"):
        module(3, offset=10)


@pytest.mark.parametrize("module", [SinusoidalPositions(4), LearnedPositions(10, 4)])
def test_no_position_comes_before_the_first(module):
    with pytest.raises(ValueError, match="from 0, got the offset -1"):
        module(3, offset=-1)


# --- rotary ----------------------------------------------------------------------------------------


def by_complex_numbers(x, positions, base, pairing):
    """Each pair as a complex number, multiplied by exp(i w p)."""
    x = x.numpy()
    d = x.shape[-1]
    omega = base ** (-2 * np.arange(d // 2) / d)
    turn = np.exp(1j * np.asarray(positions, dtype=float)[:, None] * omega)
    if pairing == "halves":
        turned = (x[..., : d // 2] + 1j * x[..., d // 2 :]) * turn
        return torch.from_numpy(np.concatenate((turned.real, turned.imag), axis=-1))
    turned = (x[..., 0::2] + 1j * x[..., 1::2]) * turn
    return torch.from_numpy(np.stack((turned.real, turned.imag), axis=-1).reshape(x.shape))


@settings(deadline=None, max_examples=25)
@given(
    half=st.integers(1, 9),
    positions=st.lists(st.floats(0, 5000), min_size=1, max_size=6),
    base=st.sampled_from([10000.0, 50.0]),
    pairing=st.sampled_from(["interleaved", "halves"]),
)
def test_rotation_multiplies_complex_numbers_and_keeps_lengths(half, positions, base, pairing):
    x = normal(2, 3, len(positions), 2 * half)
    kept = x.clone()
    where = torch.tensor(positions, dtype=DOUBLE)
    turned = rotation(where, 2 * half, base=base, pairing=pairing, dtype=DOUBLE).apply(x)
    expected = by_complex_numbers(x, positions, base, pairing)
    torch.testing.assert_close(turned, expected, rtol=0, atol=1e-11)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1), **TIGHT)
    assert torch.equal(x, kept)


def test_position_zero_stays_and_the_quarter_turn_goes_the_right_way():
    x = torch.tensor([[[[1.0, 0.0]]]], dtype=DOUBLE)
    assert torch.equal(rotation(1, 2, dtype=DOUBLE).apply(x), x)
    quarter = rotation(torch.tensor([math.pi / 2], dtype=DOUBLE), 2, dtype=DOUBLE)
    up = torch.tensor([[[[0.0, 1.0]]]], dtype=DOUBLE)
    torch.testing.assert_close(quarter.apply(x), up, **TIGHT)


@pytest.mark.parametrize("d", [2, 4, 6, 16])
def test_the_pairings_differ_by_a_fixed_permutation(d):
    x = normal(2, 2, 5, d)
    order = [*range(0, d, 2), *range(1, d, 2)]
    neighbours = rotation(5, d, dtype=DOUBLE).apply(x)
    halves = rotation(5, d, pairing="halves", dtype=DOUBLE).apply(x[..., order])
    torch.testing.assert_close(halves, neighbours[..., order], **TIGHT)
    if d > 2:
        plain = rotation(5, d, pairing="halves", dtype=DOUBLE).apply(x)
        assert not torch.allclose(plain, neighbours, atol=1e-3)


@pytest.mark.parametrize("pairing", ["interleaved", "halves"])
@pytest.mark.parametrize(("shift", "tolerance"), [(1, 1e-11), (1000, 1e-10), (10**6, 1e-8)])
def test_scores_know_only_the_distance(pairing, shift, tolerance):
    q, k = normal(1, 2, 6, 16), normal(1, 2, 6, 16, seed=1)
    where = torch.tensor([0.0, 1.0, 2.0, 7.0, 30.5, 400.0], dtype=DOUBLE)

    def scores(at_query, at_key):
        options = {"pairing": pairing, "dtype": DOUBLE}
        turned = (
            rotation(at_query, 16, **options).apply(q),
            rotation(at_key, 16, **options).apply(k),
        )
        return turned[0] @ turned[1].transpose(-2, -1)

    here = scores(where, where)
    torch.testing.assert_close(scores(where + shift, where + shift), here, rtol=0, atol=tolerance)
    assert (scores(where + shift, where) - here).abs().max() > 0.1, "the distance must matter"


def test_interpolated_positions_give_the_angles_between():
    whole = rotation(torch.arange(8) / 4, 4, dtype=DOUBLE)
    torch.testing.assert_close(whole.cos[::4], rotation(2, 4, dtype=DOUBLE).cos, **TIGHT)
    torch.testing.assert_close(whole.sin[2], (0.5 * frequencies(4)).sin(), **TIGHT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rotation_keeps_the_dtype_of_what_it_turns(dtype):
    x = normal(1, 1, 4, 8)
    turned = rotation(4, 8).apply(x.to(dtype))
    assert turned.dtype == dtype
    torch.testing.assert_close(
        turned.double(), rotation(4, 8, dtype=DOUBLE).apply(x), rtol=0.02, atol=0.03
    )


def test_far_angles_are_exact_in_float32():
    far = 10_000_019
    turn = rotation(torch.tensor([far]), 2)
    assert turn.cos.item() == pytest.approx(math.cos(far), abs=1e-7)
    assert turn.sin.item() == pytest.approx(math.sin(far), abs=1e-7)


# --- ALiBi -----------------------------------------------------------------------------------------


def test_slopes_are_those_of_the_paper():
    assert alibi_slopes(8).tolist() == [2.0**-i for i in range(1, 9)]
    sixteen = [2 ** (-i / 2) for i in range(1, 17)]
    assert alibi_slopes(16).tolist() == pytest.approx(sixteen, rel=1e-14)
    assert alibi_slopes(1).tolist() == [2.0**-8]
    assert alibi_slopes(2).tolist() == [2.0**-4, 2.0**-8]


@pytest.mark.parametrize("n", [3, 5, 6, 7, 12, 20])
def test_other_head_counts_fill_up_from_the_next_power(n):
    lower = 2 ** math.floor(math.log2(n))
    whole = [2 ** (-8 * i / lower) for i in range(1, lower + 1)]
    finer = [2 ** (-8 * i / (2 * lower)) for i in range(1, 2 * lower + 1)][0::2][: n - lower]
    assert alibi_slopes(n).tolist() == pytest.approx(whole + finer, rel=1e-14)
    assert len(set(alibi_slopes(n).tolist())) == n


def test_twelve_heads():
    expected = [2.0**-i for i in range(1, 9)] + [2.0**-i for i in (0.5, 1.5, 2.5, 3.5)]
    assert alibi_slopes(12).tolist() == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(("n_query", "n_key"), [(5, 5), (2, 5), (1, 4), (1, 1)])
def test_the_bias_is_minus_slope_times_distance(n_query, n_key):
    slopes = alibi_slopes(3)
    bias = alibi_bias(slopes, n_query, n_key)
    assert bias.shape == (3, n_query, n_key)
    for h in range(3):
        for i in range(n_query):
            for j in range(n_key):
                distance = abs((n_key - n_query + i) - j)
                assert bias[h, i, j].item() == -slopes[h].item() * distance


# --- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: frequencies(5), "even, got 5"),
        (lambda: frequencies(0), "even, got 0"),
        (lambda: frequencies(4, base=1.0), "greater than one, got 1.0"),
        (lambda: sinusoidal_encoding(3, 7), "even, got 7"),
        (lambda: sinusoidal_encoding(torch.zeros(2, 2), 4), r"vector, got shape \(2, 2\)"),
        (lambda: SinusoidalPositions(7), "even, got 7"),
        (lambda: rotation(3, 5), "even, got 5"),
        (lambda: rotation(torch.zeros(2, 2), 4), r"vector, got shape \(2, 2\)"),
        (lambda: rotation(3, 4, pairing="other"), "'interleaved' or 'halves', got 'other'"),
        (lambda: rotation(3, 4).apply(torch.zeros(1, 1, 4, 4)), r"\(3, 4\), got \(4, 4\)"),
        (lambda: rotation(3, 4).apply(torch.zeros(1, 1, 3, 6)), r"\(3, 4\), got \(3, 6\)"),
        (lambda: alibi_slopes(0), "at least one head, got 0"),
        (lambda: alibi_bias(torch.ones(2), 3, 2), "3 queries and 2 keys"),
    ],
)
def test_what_does_not_fit_is_refused(unhooked, call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_rotation_cannot_be_changed():
    turn = rotation(2, 4)
    with pytest.raises(AttributeError):
        turn.pairing = "halves"
    assert isinstance(turn, Rotation)
