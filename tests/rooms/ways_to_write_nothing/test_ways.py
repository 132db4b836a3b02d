"""Arms differ in what is said; every window begins with the same byte; readings are what their names say."""

import pytest
import torch
from measured_book.evidence.results import load_result
from measured_book.ladder import BATCH, LONG, SMALL, speaker, steps_for
from measured_book.measuring.grids import Trained
from measured_book.rooms.ways_to_write_nothing import figures, measure
from measured_book.rooms.ways_to_write_nothing.measure import (
    ARMS,
    START,
    AtTheFirst,
    Opened,
    ways,
)
from measured_transformer.internals.capture import capture
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.standard_library import StandardLibrary, library_text
from measured_transformer.tasks.task import SplitTask, Task, held_out
from measured_transformer.variants.gates import HeadGates, gate_heads
from measured_transformer.variants.score_clip import ScoreClip, watch_scores

RESULT = load_result("ways_to_write_nothing", "ways")


@pytest.fixture(autouse=True)
def _rates_are_not_searched_for(monkeypatch):
    monkeypatch.setattr(measure, "tuned", lambda search: search.rates[0])


def job_of(arm, seed=0):
    return ways.trainings.train(seed, arm=arm)


def test_arms_differ_in_one_thing():
    assert set(ARMS) == {"softmax", "sink", "gate", "clip"}
    jobs = {arm: job_of(arm) for arm in ARMS}
    assert {job.task for job in jobs.values()} == {Opened()}
    assert {job.settings["steps"] * BATCH for job in jobs.values()} == {
        steps_for(SMALL, LONG) * BATCH
    }
    assert [arm for arm, job in jobs.items() if job.config != speaker(SMALL)] == ["sink"]
    assert jobs["sink"].config == speaker(SMALL).replace(sinks=True)
    assert jobs["gate"].settings["prepare"] is gate_heads
    assert jobs["clip"].settings["prepare"] is watch_scores
    assert jobs["clip"].settings["after_step"] == ScoreClip(10.0)
    assert jobs["softmax"].settings.get("prepare") is None


def test_every_window_begins_with_a_byte_that_the_text_has_not():
    assert bytes([START]) not in library_text("train") + library_text("validation")
    task = Opened(length=8)
    assert isinstance(task, Task)
    assert isinstance(task, SplitTask)
    assert held_out(task).part == "validation"
    batch = task.batch(torch.Generator().manual_seed(3), 5)
    plain = StandardLibrary(length=8).batch(torch.Generator().manual_seed(3), 5)
    assert (batch.inputs[:, 0] == START).all()
    assert torch.equal(batch.inputs[:, 1:], plain.inputs[:, :-1])
    assert torch.equal(batch.targets, plain.inputs)
    assert batch.scored.all()


@pytest.mark.parametrize("arm", ARMS)
def test_readings_are_what_their_names_say(arm):
    torch.manual_seed(0)
    job = job_of(arm)
    model = Decoder(job.config).eval()
    if arm == "gate":
        gate_heads(model)
        for module in model.modules():
            if isinstance(module, HeadGates):
                torch.nn.init.normal_(module.gate.weight)
    if arm == "sink":
        for block in model.blocks:
            torch.nn.init.constant_(block.attention.sinks, 3.0)
    run = type("Run", (), {"model": model})
    found = AtTheFirst(windows=4)(Trained(run, 1, {"arm": arm}, ways.trainings.train))
    task = held_out(Opened())
    inputs = task.batch(measure.make_generator(1, "evaluation"), 4).inputs
    with capture(model, "*") as seen, torch.no_grad():
        model(inputs)
    first, kept = found["first"][1], found["kept"][1]
    for b in range(3):
        for h in range(2):
            rows = seen[f"blocks.{b}.attention.pattern"][:, h, 32:]
            assert first[b][h] == pytest.approx(float(rows[..., 0].mean()), rel=1e-5)
            assert kept[b][h] == pytest.approx(float(rows.sum(-1).mean()), rel=1e-5)
            lengths = seen[f"blocks.{b}.attention.values"][:, h].norm(dim=-1)
            ratio = float(lengths[:, 0].mean() / lengths[:, 1:].mean())
            assert found["value"][1][b][h] == pytest.approx(ratio, rel=1e-5)
            if arm == "gate":
                gates = seen[f"blocks.{b}.attention.mixed.opened"][:, h, 32:]
                assert found["opened"][1][b][h] == pytest.approx(float(gates.mean()), rel=1e-5)
        lengths = seen[f"blocks.{b}.residual_post"].norm(dim=-1)
        ratio = float(lengths[:, 0].mean() / lengths[:, 1:].mean())
        assert found["norm"][1][b] == pytest.approx(ratio, rel=1e-5)
    assert found["most"] == max(map(max, first))
    assert found["unspent"] == pytest.approx(1 - min(map(min, kept)))
    if arm == "sink":
        assert found["unspent"] > 0.1
    else:
        assert found["unspent"] == pytest.approx(0, abs=1e-5)
    if arm != "gate":
        assert found["opened"][1] == [[1.0, 1.0]] * 3
    seen_pairs = torch.ones(64, 64, dtype=torch.bool).tril()
    largest = max(
        float(seen[f"blocks.{b}.attention.scores"][..., seen_pairs].max()) for b in range(3)
    )
    assert found["largest"] == pytest.approx(largest, rel=1e-5)


def test_results_are_shares_and_the_figure_shows_each_seed():
    assert ((RESULT["first"] >= 0) & (RESULT["first"] <= RESULT.most + 1e-9)).all()
    assert (abs(RESULT.kept.sel(arm=["softmax", "gate", "clip"]) - 1) < 1e-5).all()
    assert (RESULT.opened.sel(arm=["softmax", "sink", "clip"]) == 1).all()
    panels = figures.plot_ways(RESULT).figure.axes
    assert len(panels) == 2
