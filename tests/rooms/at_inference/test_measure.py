"""What one more token costs, against counts, small cases and the library's own caches."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from measured_book.evidence.results import load_results
from measured_book.measuring.measurement import measurements_of
from measured_book.measuring.state import HOLDS, standing
from measured_book.rooms.at_inference import measure
from measured_transformer.analysis.roofline import A100, Machine, intensity
from measured_transformer.inference.speculative import per_pass
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from torch.utils.flop_counter import FlopCounterMode

RESULTS = load_results("at_inference")
TINY = Config(vocab=11, d_model=16, n_layers=3, n_heads=4, n_kv_heads=2, activation="swiglu")


def test_every_result_is_of_this_code():
    for one in measurements_of("at_inference").values():
        assert standing(one).state in HOLDS, standing(one).why


def test_every_control_fails_and_every_identity_holds():
    assert abs(RESULTS["drawn"].error).max() < 1e-10
    assert abs(RESULTS["drawn"].control).min() > 1e-3


def test_bytes_of_published_models_are_those_of_their_caches():
    config = TINY.replace(n_layers=2)
    model = Decoder(config).half()
    cache = model.make_cache()
    keys = torch.zeros(1, 2, 5, config.head_width, dtype=torch.float16)
    for layer in cache.layers:
        layer.extend(keys, keys)
    kept = measure.Kept(config.n_layers, 2 * config.kv_heads * config.head_width)
    assert kept.bytes(5) == cache.bytes
    window = measure.Kept(2, 8, window=4)
    assert [window.bytes(n) for n in (2, 4, 40)] == [64, 128, 128]
    assert measure.CACHES["Llama 3 8B: 8 of 32"].bytes(1) == 131072


def test_operations_are_those_that_pytorch_counts():
    model, n = Decoder(TINY.replace(bias=False)).eval(), 7
    counted = {}
    for tokens in (1, n):
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model(torch.zeros(1, tokens, dtype=torch.int64))
        counted[tokens] = counter.get_total_flops()  # the fused kernel is unknown to it on a CPU
    for tokens, operations in counted.items():
        assert measure.by_weights(TINY, tokens).operations == operations
    sizes = [a * b for a, b in measure.matrices(TINY)]
    weights = [p.numel() for name, p in model.named_parameters() if p.ndim == 2]
    assert sorted([*sizes, 11 * 16]) == sorted(weights)


def test_a_batch_shares_weights_and_no_caches():
    one, many = (measure.step_attention(TINY, 100, b) for b in (1, 8))
    assert many.intensity == one.intensity
    assert one.intensity == pytest.approx(2, rel=0.05)  # two query heads to a key
    config = measure.LLAMA_2
    assert measure.by_weights(config, 8).intensity == pytest.approx(8, rel=0.02)
    both = one + many
    assert (both.operations, both.bytes) == (9 * one.operations, 9 * one.bytes)
    assert measure.one_step(config, 4096).intensity == pytest.approx(1, rel=0.01)
    assert measure.first_pass(config, 4096).intensity > A100.ridge


def test_the_largest_batch_just_fits():
    for config, n in itertools.product((measure.LLAMA_2, measure.LLAMA_3), (512, 4096)):
        most = measure.largest_batch(config, n)
        each = 4 * config.n_layers * config.kv_heads * 128 * n
        used = 2 * (sum(a * b for a, b in measure.matrices(config)) + config.vocab * 4096)
        assert used + most * each <= measure.MEMORY < used + (most + 1) * each
    slow = Machine("slow", 1e12, 1e9)
    assert measure.tokens_a_second(TINY, 10, 4, slow) < measure.tokens_a_second(TINY, 10, 4)


def test_the_roofline_is_the_lower_of_two():
    machine = Machine("m", 100.0, 10.0)
    assert machine.ridge == 10
    assert [machine.attainable(x) for x in (1.0, 10.0, 100.0)] == [10, 100, 100]
    assert measure.Work(50.0, 10.0).seconds(machine) == 1.0
    assert intensity(8, 2) == 2.0


@pytest.mark.parametrize("variant", measure.VARIANTS)
def test_variants_are_cheaper_the_less_they_keep(variant):
    costs = [measure.variant_operations(variant, kept=k) for k in (8, 64, 256)]
    assert costs == sorted(costs)
    assert costs[-1] < 4 * 4096**2 * 64
    with pytest.raises(ValueError, match="window, rank"):
        measure.variant_operations("none")


def test_operations_of_the_window_are_those_of_its_pairs():
    n, w, d = 12, 5, 4
    pairs = sum(min(q + 1, w) for q in range(n))
    assert measure.variant_operations("window", n=n, d=d, kept=w) == 4 * d * pairs


def test_attended_counts_scores_and_mixing():
    assert measure.attended(3, 10, width=4) == 4 * 3 * 10 * 4


@pytest.mark.parametrize("block", [1, 2, 5, 9])
def test_blocks_give_the_whole_softmax_if_they_are_rescaled(block):
    generator = torch.Generator().manual_seed(block)
    scores = 4 * torch.randn(9, generator=generator, dtype=torch.float64).sort().values
    values = torch.randn(9, 3, generator=generator, dtype=torch.float64)
    whole = scores.softmax(0) @ values
    torch.testing.assert_close(measure.by_blocks(scores, values, block), whole)
    wrong = measure.by_blocks(scores, values, block, rescaled=False)
    assert torch.allclose(wrong, whole) == (block == 9)


def test_everything_that_can_be_spoken_adds_up_to_one():
    target = torch.tensor([[0.5, 0.3, 0.2]] * 3).double()
    draft = torch.tensor([[0.2, 0.6, 0.2]] * 3).double()
    table = measure.spoken(target, draft, 1)
    assert sum(table.values()) == pytest.approx(1)
    assert table[(0, 1)] == pytest.approx(0.15)
    wrong = measure.spoken(target, draft, 1, wrong=True)
    first = [sum(p for text, p in wrong.items() if text[0] == token) for token in range(3)]
    assert first == pytest.approx([0.35, 0.39, 0.26])


def test_expected_passes_are_those_of_a_simulation_and_of_the_formula():
    rng = np.random.default_rng(0)
    alpha, ahead, written, texts = 0.7, 4, 24, 4000
    passes = 0
    for _ in range(texts):
        left = written
        while left:
            most = min(ahead, left - 1)
            stood = int(np.argmin([*(rng.random(most) < alpha), False]))
            left -= stood + 1
            passes += 1
    expected = measure.expected_per_pass(alpha, ahead, written)
    assert expected == pytest.approx(texts * written / passes, rel=0.02)
    assert measure.expected_per_pass(alpha, ahead, 5000) == pytest.approx(
        per_pass(alpha, ahead), rel=1e-3
    )
    assert measure.expected_per_pass(0.0, 4) == 1.0


def test_waste_is_less_than_a_page_each():
    assert measure.wasted([3, 4, 5], 4) == pytest.approx(1 - 12 / 16)
    assert measure.wasted([7, 9], 1) == 0
    lengths = measure.drawn_lengths(0, 500, typical=300.0, most=2048)
    assert min(lengths) >= 1
    assert max(lengths) <= 2048
    assert 200 < np.median(lengths) < 420


def test_a_schedule_serves_everybody_in_full():
    limits, running = measure.schedule(0)
    for request, limit in enumerate(limits):
        assert sum(request in step for step in running) == limit
    assert max(map(len, running)) == measure.SLOTS
    results = RESULTS["requests"]
    assert (results.steps < results.waiting_steps).all()
    assert (results.busy > results.waiting_busy).all()


def test_the_committed_run_says_what_it_was():
    rows = {part: measure.benchmark_rows(part) for part in ("step", "kernel", "checkpointing")}
    for part in rows.values():
        assert all(len(row["each"]) == measure.ROUNDS for row in part)
    assert {row["width"] for row in rows["step"]} == {256}
    clocked = RESULTS["clocked"]
    first = {(r["length"], r["name"]): r for r in rows["step"]}[(1024, "without")]["each"]
    values = [float(x) for x in clocked.step_plain.sel(length=1024)]
    assert values == pytest.approx([math.log(x) for x in first]), "each seed is one round"


def test_rates_of_the_draft_are_not_at_the_edge():
    job = measure.draft_trainings(0)["draft"]
    rate = job.settings["learning_rate"]
    assert measure.DRAFT_RATES[0] < rate < measure.DRAFT_RATES[-1]
