"""Operations by formula against PyTorch's counter, and where measured times cross."""

import numpy as np
import pytest
import torch
from measured_transformer.analysis.cost import Operations
from measured_transformer.chapters.cost.measure import (
    Measured,
    counted_attention,
    counted_network,
    crossovers,
    drawn_sizes,
    equal_from,
    measured_sublayers,
    pattern_to_stream,
)


@pytest.mark.parametrize(("n", "d", "heads"), [(3, 2, 1), (48, 64, 4), (600, 32, 4), (7, 12, 3)])
def test_the_counter_sees_the_formula_whatever_the_heads(n, d, heads):
    assert counted_attention(n, d, heads=heads) == Operations(n, d).attention
    assert counted_network(n, d) == Operations(n, d).network
    assert counted_network(n, d, wider=2) == Operations(n, d, wider=2).network


@pytest.mark.parametrize("wider", [2, 3, 4, 8])
def test_at_the_crossovers_both_sides_are_equal(wider):
    d = 30
    found = crossovers(float(wider))
    at = {name: Operations(round(x * d), d, wider) for name, x in vars(found).items()}
    if wider > 2:
        assert at["whole"].attention == at["whole"].network
        assert at["whole"].share == 0.5
    else:
        assert found.whole == 0
    assert at["quadratic"].pairs == at["quadratic"].network
    assert at["linear"].pairs == at["linear"].network + at["linear"].projections


def test_drawn_sizes_are_spread_over_the_whole_range():
    sizes = drawn_sizes(500, seed=0)
    assert sizes == drawn_sizes(500, seed=0) != drawn_sizes(500, seed=1)
    for axis in (0, 1):
        values = np.log2([size[axis] for size in sizes])
        assert values.min() >= 1
        assert values.max() <= 8
        assert abs(values.mean() - 4.5) < 0.3  # even in logarithms
    assert abs(np.corrcoef(np.log(np.array(sizes)).T)[0, 1]) < 0.15
    with pytest.raises(ValueError, match="at least 2"):
        drawn_sizes(3, seed=0, largest=1)


def test_equality_is_where_the_ratio_stays_above_one():
    assert equal_from([64, 128, 256], np.array([0.5, 0.8, 1.25])) == pytest.approx(128 * 2**0.5)
    # a bump at 128 does not count: at 256 attention is cheaper again
    bumpy = equal_from([64, 128, 256, 512], np.array([0.5, 1.1, 0.5, 2.0]))
    assert bumpy == pytest.approx(256 * 2**0.5)
    for wrong in ([0.5, 0.9], [1.5, 2.0], [2.0, 0.5]):
        with pytest.raises(ValueError, match="rise through 1"):
            equal_from([64, 128], np.array(wrong))


def handmade_run() -> Measured:
    def row(length, name, seconds, fastest, ratio):
        return {
            "part": "sublayers", "width": 32, "tokens": 256, "passes": "forward", "length": length,
            "name": name, "seconds": seconds, "fastest": fastest, "ratio": ratio,
        }  # fmt: skip

    rows = []
    for length in (64, 128, 256):
        rows.append(row(length, "feed-forward network", 2.0, 1.0, [1.0, 1.0, 1.0]))
        x = length / 128  # equal at 128: four widths
        rows.append(row(length, "attention", 2 * x, 2 * x, [x, x / 2, 2 * x]))
    return Measured({"device": "none"}, 3, rows)


def test_crossovers_of_a_run_are_those_of_its_ratios():
    run = handmade_run()
    times = run.times()
    assert times.lengths == (64, 128, 256)
    assert (times.width, times.tokens) == (32, 256)
    assert times.seconds.tolist() == [1.0, 2.0, 4.0]
    assert times.fastest.tolist() == [1.0, 2.0, 4.0]
    assert times.crossover == pytest.approx(4)
    with pytest.raises(ValueError, match="rise through 1"):
        _ = times.crossover_interval  # the lower ends stay at one half, one, ... and touch 1 only
    with pytest.raises(ValueError, match="feed-forward network"):
        run.times("something else")


def test_the_committed_run_says_what_it_was():
    run = measured_sublayers()
    assert run.machine["threads"] == 1
    assert run.machine["precision"] == "float32"
    assert {"torch", "measured-transformer"} <= set(run.machine["versions"])
    for name in ("attention", "attention, causal", "attention, written out"):
        times = run.times(name)
        assert times.width == 256
        assert (times.low <= times.ratios).all()
        assert (times.ratios <= times.high).all()
        early, late = times.crossover_interval
        assert early <= times.crossover <= late
    assert run.times(passes="forward, backward").lengths == run.times().lengths


def test_patterns_are_as_many_numbers_as_they_have_entries():
    pattern, stream = torch.empty(12, 100, 100), torch.empty(100, 768)
    assert pattern_to_stream(100, 768, 12) == pytest.approx(pattern.numel() / stream.numel())
