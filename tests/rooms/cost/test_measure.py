"""Operations and traffic by formula against counts, what the patterns reach, and where measured times cross."""

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.measuring.measurement import measurements_of
from measured_book.measuring.state import HOLDS, standing
from measured_book.rooms.cost import measure
from measured_book.rooms.cost.measure import (
    Measured,
    counted_attention,
    counted_network,
    crossovers,
    drawn_sizes,
    equal_from,
    measured_sublayers,
    pattern_to_stream,
)
from measured_transformer.analysis.cost import Operations
from measured_transformer.analysis.roofline import A100
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.tiled import tiled_attention

RESULTS = load_results("cost")


def test_every_result_is_of_this_code():
    for one in measurements_of("cost").values():
        assert standing(one).state in HOLDS, standing(one).why


def reached(search_trainings):
    return {key: job.settings["learning_rate"] for key, job in search_trainings(0).items()}


def test_no_tuned_learning_rate_stands_at_the_edge_of_its_grid():
    rates = {
        **reached(measure.reach_trainings),
        **reached(measure.lookup_trainings),
        **reached(measure.capacity_trainings),
    }
    assert len(rates) == 24 + 3 + 4
    edges = (measure.RATES[0], measure.RATES[-1])
    at_edge = {key for key, rate in rates.items() if rate in edges}
    assert at_edge <= {("linear, 1", delay) for delay in measure.DELAYS}
    # where nothing is left to be gained, the best of a grid says nothing
    assert RESULTS["reach"].accuracy.sel(arm="linear, 1").min() > 0.999


def test_rates_are_chosen_at_a_delay_that_the_pattern_leads_to():
    assert all(measure.reachable(arm, delay) for arm, delay in measure.ARMS.items())


def test_what_a_pattern_does_not_lead_to_is_not_learned_and_all_else_is():
    chance = 1 / 8
    for arm in measure.ARMS:
        for delay in measure.DELAYS:
            accuracy = RESULTS["reach"].accuracy.sel(arm=arm, delay=delay)
            if not measure.reachable(arm, delay):
                assert abs(accuracy - chance).max() < 0.04, (arm, delay)
            elif "linear" not in arm:
                assert accuracy.mean() > 0.9, (arm, delay)


def test_reachable_is_what_changes_an_output():
    for arm in measure.ARMS:
        config, options = measure.reach_arm(arm)
        torch.manual_seed(0)
        model = Decoder(config).double()
        if prepare := options.get("prepare"):
            prepare(model)
        tokens = torch.randint(8, (1, 24), generator=torch.Generator().manual_seed(0))
        before = model(tokens)[0, 23]
        for delay in measure.DELAYS:
            changed = tokens.clone()
            changed[0, 23 - delay] = (changed[0, 23 - delay] + 1) % 8
            differs = not torch.equal(model(changed)[0, 23], before)
            assert differs == measure.reachable(arm, delay), (arm, delay)


@pytest.mark.parametrize("arm", measure.LOOKUP_ARMS)
def test_every_pair_can_be_reached_from_the_question(arm):
    config, options = measure.lookup_arm(arm)
    torch.manual_seed(0)
    model = Decoder(config).double()
    if prepare := options.get("prepare"):
        prepare(model)
    tokens = torch.randint(config.vocab, (1, 13), generator=torch.Generator().manual_seed(0))
    before = model(tokens)[0, 12]
    for back in measure.BACK:
        changed = tokens.clone()
        changed[0, 12 - back] = (changed[0, 12 - back] + 1) % config.vocab
        assert not torch.equal(model(changed)[0, 12], before), back


@pytest.mark.parametrize(("n", "d"), [(4, 2), (1, 1), (9, 3), (30, 16)])
def test_what_travels_is_what_the_formulas_say(n, d):
    assert measure.moved(measure.plain_attention, n, d) == measure.plain_traffic(n, d)
    for query_tile in (1, 2, 7, 40):
        for key_tile in (1, 3, 40):
            for causal in (False, True):
                how = {"key_tile": key_tile, "causal": causal}
                counted = measure.moved(tiled_attention, n, d, query_tile=query_tile, **how)
                assert counted == measure.tiled_traffic(n, d, query_tile, **how)
    assert measure.tiled_traffic(n, d, n) == 4 * n * d + n


def test_the_ledger_knows_loads_from_stores():
    ledger = measure.Ledger()
    slow = measure.Slow.of(torch.zeros(4, 5), ledger)
    part = slow[1:3]
    assert (ledger.loaded, ledger.stored) == (10, 0)
    assert type(part * 2) is torch.Tensor, "what is computed from a part stays in fast memory"
    slow[:1] = part[:1]
    assert (ledger.loaded, ledger.stored) == (10, 5)
    result = slow.softmax(-1)
    assert (ledger.loaded, ledger.stored) == (30, 25)
    assert isinstance(result, measure.Slow)
    assert result.transpose(0, 1).shape == (5, 4)
    assert ledger.moved == 55


def test_slow_tensors_compute_what_others_do():
    ledger = measure.Ledger()
    given = torch.randn(3, 6, 4, dtype=torch.float64).unbind(0)
    slow = [measure.Slow.of(each.clone(), ledger) for each in given]
    plain = measure.plain_attention(*given)
    assert torch.equal(measure.plain_attention(*slow).as_subclass(torch.Tensor), plain)
    tiled = tiled_attention(*slow, query_tile=2, key_tile=2, scale=1.0)[0]
    torch.testing.assert_close(tiled.as_subclass(torch.Tensor), plain)


def test_intensities_have_the_limits_that_the_page_names():
    n = 10**6
    plain = measure.intensity(4 * n * n * 64, measure.plain_traffic(n, 64))
    assert plain == pytest.approx(32, rel=1e-3)
    tiled = measure.intensity(4 * n * n * 64, measure.tiled_traffic(n, 64, 128))
    assert tiled == pytest.approx(128, rel=1e-3)
    assert A100.ridge == pytest.approx(312e12 / 2.039e12)
    assert A100.attainable(A100.ridge) == pytest.approx(312e12)
    assert A100.attainable(1.0) == 2.039e12
    assert A100.attainable(1e6) == 312e12


def test_pieces_of_a_model_are_those_of_the_formula():
    config = Config(vocab=9, d_model=32, n_heads=4, n_layers=3)
    by = Operations(20, 32)
    found = measure.pieces(20, config)
    assert found == {
        "projections": 3 * by.projections,
        "pairs": 3 * by.pairs,
        "network": 3 * by.network,
    }
    assert measure.equal_length(config) == 64
    wide = config.replace(n_kv_heads=1)
    at = round(measure.equal_length(wide))
    found = measure.pieces(at, wide)
    assert found["projections"] + found["pairs"] == pytest.approx(found["network"], rel=0.01)


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


@pytest.mark.parametrize("d", [2, 7, 64])
def test_counts_alone_give_the_crossovers_of_the_algebra(d):
    assert list(vars(measure.counted_crossovers(d)).values()) == pytest.approx([2, 4, 6])


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
