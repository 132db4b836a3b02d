"""The benchmarks measure what they say. How fast anything is depends on the machine and is asserted nowhere."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import __main__ as command
from benchmarks import ensembles, measure
from benchmarks.contenders import CONTENDERS, Contender, Gpt2, Ours, Size, Torch
from benchmarks.generation import CHECKPOINTED, checkpointed, kernels, steps
from benchmarks.linear import FEW, SHAPES, linear_maps, packed_maps
from benchmarks.measure import Timing, in_turns, peak_bytes
from benchmarks.smollm2 import DOINGS, LanguageModel, Llama, OurLanguageModel, doing
from benchmarks.states import states
from benchmarks.sublayers import ATTENTION, NETWORK, lengths, sublayers
from benchmarks.workloads import decoding, drawn_tokens, training_step

LOCKED = (Ours, Torch, Gpt2)  # the contenders whose packages the lock has
SIZE = Size(width=16, length=12, batch=2, vocab=32, layers=2, heads=2, prompt=4)
MIB = 2**20


@pytest.fixture
def locked() -> list[Contender]:
    torch.manual_seed(0)
    contenders = [kind(SIZE) for kind in LOCKED]
    for contender in contenders:
        contender.model.eval()
    return contenders


# --- ratios and their intervals -------------------------------------------------------------------


def test_a_median_is_that_of_the_rounds():
    assert Timing((4.0, 1.0, 2.0)).median == 2.0
    assert Timing((4.0, 1.0, 2.0, 3.0)).median == 2.5


def test_a_ratio_is_that_of_the_medians_and_lies_within_its_interval():
    ours, theirs = Timing((1.0, 1.1, 0.9, 1.0, 9.0)), Timing((2.0, 2.2, 1.8, 2.1, 2.0))
    ratio, low, high = ours.times_faster_than(theirs)
    assert ratio == 2.0  # medians 2 and 1, whatever the round of 9 says
    assert low <= ratio <= high
    assert low < high


def test_an_interval_leaves_out_1_where_all_rounds_differ_and_holds_it_where_none_does():
    fast = Timing(tuple(1.0 + 0.01 * i for i in range(15)))
    slow = Timing(tuple(1.5 + 0.02 * i for i in range(15)))
    _, low, high = fast.times_faster_than(slow)
    assert 1 < low < high < 2
    _, low, high = slow.times_faster_than(fast)
    assert 0.5 < low < high < 1
    _, low, high = fast.times_faster_than(Timing(tuple(reversed(fast.seconds))))
    assert low < 1 < high


def test_rounds_are_drawn_in_pairs():
    """A disturbance of a round meets both: where each round has the same ratio, so has each draw."""
    rounds = (1.0, 7.0, 2.0, 30.0, 4.0)
    doubled = Timing(tuple(2 * seconds for seconds in rounds))
    assert Timing(rounds).times_faster_than(doubled) == (2.0, 2.0, 2.0)


# --- turns ------------------------------------------------------------------------------------------


class Clock:
    """Time that passes only where a piece of work says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.called: list[str] = []

    def perf_counter(self) -> float:
        return self.now

    def work(self, name: str, *seconds: float) -> measure.Workload:
        """Workload whose calls take these times one after the other, and the last of them from then on."""

        def call() -> None:
            self.now += seconds[min(self.called.count(name), len(seconds) - 1)]
            self.called.append(name)

        return call


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(measure, "time", clock)
    return clock


def test_every_work_has_its_turn_in_each_round_and_each_round_begins_with_another(clock: Clock):
    workloads = {name: clock.work(name, 1.0) for name in "abc"}
    in_turns(workloads, rounds=4, seconds=1.0, device="cpu")
    assert "".join(clock.called) == "aabbcc" + "abc" + "bca" + "cab" + "abc"


def test_a_turn_lasts_about_as_long_as_asked_and_gives_the_seconds_of_one_call(clock: Clock):
    workloads = {"quick": clock.work("quick", 0.25), "slow": clock.work("slow", 3.0)}
    timings = in_turns(workloads, rounds=3, seconds=1.0, device="cpu")
    assert timings == {"quick": Timing((0.25,) * 3), "slow": Timing((3.0,) * 3)}
    # The first two calls count for nothing; then 1 s holds four quick calls, and one slow call at least.
    assert Counter(clock.called) == {"quick": 2 + 3 * 4, "slow": 2 + 3 * 1}


def test_what_only_the_first_call_takes_is_neither_planned_with_nor_counted(clock: Clock):
    workloads = {"a": clock.work("a", 100.0, 0.5)}
    assert in_turns(workloads, rounds=2, seconds=1.0, device="cpu") == {"a": Timing((0.5, 0.5))}
    assert clock.called == ["a"] * (2 + 2 * 2)


def test_rounds_that_differ_are_told_apart(clock: Clock):
    workloads = {"a": clock.work("a", 1.0, 1.0, 2.0, 3.0, 4.0)}
    timings = in_turns(workloads, rounds=3, seconds=1.0, device="cpu")
    assert timings["a"].seconds == (2.0, 3.0, 4.0)


# --- memory -----------------------------------------------------------------------------------------


def taking(mib: int) -> torch.Tensor:
    return torch.empty(mib * MIB, dtype=torch.uint8)


def test_what_is_freed_before_the_next_is_taken_counts_once():
    def one_after_the_other() -> None:
        first = taking(4)
        del first
        second = taking(4)
        del second

    assert peak_bytes(one_after_the_other, "cpu") == 4 * MIB


def test_what_is_alive_at_once_is_added_up():
    def together() -> None:
        first, second = taking(4), taking(4)
        del first
        third = taking(3)
        del second, third

    assert peak_bytes(together, "cpu") == 8 * MIB


def test_memory_that_was_there_before_does_not_count():
    held = [taking(16)]

    def takes_and_keeps() -> None:
        taking(3)
        held.append(taking(2))

    assert peak_bytes(takes_and_keeps, "cpu") == 3 * MIB
    assert peak_bytes(lambda: held[0].fill_(1), "cpu") == 0


# --- contenders -------------------------------------------------------------------------------------


def test_the_lock_has_three_contenders_and_every_contender_says_what_it_is():
    assert [kind for kind in CONTENDERS if kind in LOCKED] == list(LOCKED)
    assert all(kind.version() for kind in LOCKED)
    assert len({kind.name for kind in CONTENDERS}) == len(CONTENDERS)

    class Missing(Ours):
        package = "a-package-that-is-not-there"

    assert Missing.version() is None


def test_contenders_have_the_same_parameters_and_logits_of_the_same_shape(locked: list[Contender]):
    parameters = {c.name: sum(p.numel() for p in c.model.parameters()) for c in locked}
    assert len(set(parameters.values())) == 1, parameters
    sizes = {c.name: Counter(p.numel() for p in c.model.parameters()) for c in locked}
    assert sizes[Ours.name][SIZE.vocab * SIZE.width] >= 2  # embedding and unembedding are not tied
    tokens = drawn_tokens(locked[0])[:, :-1]
    for contender in locked:
        logits = contender.logits(tokens)
        assert logits.shape == (SIZE.batch, SIZE.length, SIZE.vocab), contender.name
        assert logits.dtype == torch.float32, contender.name


@torch.no_grad()
def test_no_contender_sees_ahead_and_each_looks_back(locked: list[Contender]):
    tokens = drawn_tokens(locked[0])[:, :-1]
    changed = tokens.clone()
    changed[:, 6] = (changed[:, 6] + 1) % SIZE.vocab
    for contender in locked:
        before, after = contender.logits(tokens), contender.logits(changed)
        torch.testing.assert_close(after[:, :6], before[:, :6], msg=contender.name)
        moved = (after - before)[:, 6:].abs().amax(dim=(0, 2))
        assert (moved > 1e-5).all(), contender.name


@torch.no_grad()
@pytest.mark.parametrize("kind", [Ours, Gpt2])
def test_decoding_gives_what_the_argmax_of_the_logits_gives(kind: type[Contender]):
    torch.manual_seed(0)
    contender = kind(SIZE)
    contender.model.eval()
    for weight in contender.model.parameters():
        weight.mul_(8)  # fresh weights say next to the same everywhere
    prompt = drawn_tokens(contender)[:, : SIZE.prompt]
    naive = prompt
    for _ in range(SIZE.length - SIZE.prompt):
        naive = torch.cat([naive, contender.logits(naive)[:, -1:].argmax(-1)], dim=1)
    expected = naive[:, SIZE.prompt :]
    assert len(expected.unique()) > 2, "a text of one token could be guessed"
    assert torch.equal(contender.decode(prompt, SIZE.length - SIZE.prompt), expected)
    decoding(contender)()


@torch.no_grad()
def test_captures_hold_every_pattern_and_residual_state_or_everything(locked: list[Contender]):
    ours = locked[0]
    assert isinstance(ours, Ours)
    tokens = drawn_tokens(ours)[:, :-1]
    some, everything = (ours.capture(tokens, all_of_it) for all_of_it in (False, True))
    patterns = [seen for name, seen in some.items() if name.endswith(".pattern")]
    assert [seen.shape for seen in patterns] == [(2, 2, 12, 12)] * SIZE.layers
    assert any(".residual_" in name for name in some)
    assert set(some) < set(everything)
    torch.testing.assert_close(ours.explicit(tokens), ours.logits(tokens))


def test_a_training_step_learns(locked: list[Contender]):
    for contender in locked:
        before = [p.detach().clone() for p in contender.model.parameters()]
        training_step(contender)()
        assert all(
            not torch.equal(old, new.detach())
            for old, new in zip(before, contender.model.parameters(), strict=True)
        ), contender.name


@pytest.mark.parametrize("shape", [(6, 4, 8), (6, 8, 4)])
def test_both_linear_maps_give_the_same_gradients(shape: tuple[int, int, int]):
    for gradients in (True, False):
        theirs, ours = (work() for work in linear_maps(shape, gradients=gradients).values())
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-2)


def test_a_packed_map_gives_the_same():
    theirs, ours = (work() for work in packed_maps((6, 4, 8)).values())
    torch.testing.assert_close(ours, theirs)


def test_sublayers_have_lengths_that_divide_their_tokens():
    assert lengths(192) == [64, 96, 192]
    with pytest.raises(ValueError, match="at least 64"):
        lengths(63)


def test_sublayers_do_what_their_names_say():
    """Counted by PyTorch, as the formulas say; and with gradients of the input and of all weights."""

    def operations(work: measure.Workload) -> int:
        with FlopCounterMode(display=False) as counter:
            work()
        return counter.get_total_flops()

    for length in (8, 32):
        workloads = sublayers(length, tokens=64, width=16, gradients=False)
        counted = {name: operations(work) for name, work in workloads.items()}
        sequences = 64 // length
        assert counted[NETWORK] == sequences * 16 * length * 16**2
        expected = sequences * (8 * length * 16**2 + 4 * length**2 * 16)
        assert counted[f"{ATTENTION}, written out"] == expected
        others = {ATTENTION, f"{ATTENTION}, causal", f"{ATTENTION}, written out"}
        assert set(counted) == {NETWORK} | others
        both = sublayers(length, tokens=64, width=16, gradients=True)
        assert set(both) == {NETWORK, ATTENTION}
        for work in both.values():
            of_input, *of_weights = work()
            assert of_input.shape == (sequences, length, 16)
            assert of_input.abs().sum() > 0
            assert all(gradient.isfinite().all() for gradient in of_weights)


@torch.no_grad()
def test_a_step_with_a_cache_can_be_taken_again_and_again():
    """Each call finds the cache as it was: the operations counted do not grow."""
    workloads = steps(12, width=16)

    def operations(name: str) -> int:
        with FlopCounterMode(display=False) as counter:
            workloads[name]()
        return counter.get_total_flops()

    first, again = operations("with a cache"), operations("with a cache")
    assert first == again > 0
    assert operations("without") > 5 * first


def test_both_kernels_compute_and_the_formula_takes_more_memory():
    peaks = {name: peak_bytes(work, "cpu") for name, work in kernels(256).items()}
    assert peaks["formula"] > 2 * peaks["fused"] > 0


def test_layers_with_a_state_go_through_all_pairs_when_they_are_trained():
    few, many = (
        {name: peak_bytes(work, "cpu") for name, work in states(length).items()}
        for length in (128, 512)
    )
    assert min(few.values()) > 0
    for name in ("linear", "delta rule"):
        assert many[name] > 6 * few[name]  # four times as much would be a state's
        assert many[name] > 1.5 * many["softmax, fused"]


def test_blocks_that_run_again_take_less_memory():
    workloads = checkpointed(6)
    for work in workloads.values():
        work()
    peaks = {name: peak_bytes(work, "cpu") for name, work in workloads.items()}
    assert peaks[CHECKPOINTED] < peaks["plain"]


TINY_MODEL = LanguageModel(
    width=12, layers=2, heads=3, kv_heads=1, neurons=20, vocab=40, length=24, prompt=4, new=6
)


@torch.no_grad()
def test_the_language_models_have_the_same_sizes_and_write_what_their_logits_say():
    made = [OurLanguageModel(TINY_MODEL), Llama(TINY_MODEL)]
    of_one, of_other = (Counter(p.shape for p in one.model.parameters()) for one in made)
    assert of_one == of_other
    for one in made:
        for what in DOINGS:
            if one.captures or what != "everything":
                doing(one, what)()
        for weight in one.model.parameters():
            weight.mul_(4)
        text = torch.arange(8)[None]
        assert torch.equal(one.decode(text, 1), one.logits(text)[:, -1:].argmax(-1))


# --- the command ------------------------------------------------------------------------------------


TINY = [
    *("--prefixes", "8", "--lengths", "16", "--depths", "2"),
    "--tokens",
    "128",
    "--members",
    "2",
    "--widths",
    "16",
    "--length",
    "32",
    "--batch",
    "2",
    "--rounds",
    "2",
    "--seconds",
    "0.001",
]


def test_the_command_prints_a_table_of_each_part_and_writes_the_figures_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(command, "SHAPES", SHAPES[-1:])
    monkeypatch.setattr(command, "FEW", FEW[:1])
    monkeypatch.setattr(command, "SMOLLM2", TINY_MODEL)
    file = tmp_path / "new" / "figures.json"
    assert command.main([*TINY, "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    for part in ("training", "inference", "capture", "decoding", "memory"):
        assert f"{part}, width 16" in printed
    assert "linear map" in printed
    assert "ensemble, two layers" in printed
    assert "sublayers, width 16, 128 tokens" in printed
    assert "step, width 16" in printed
    assert f"written: {file}" in printed.replace("\n", "")

    report = json.loads(file.read_text())
    machine = report["machine"]
    assert machine["threads"] == torch.get_num_threads()
    assert machine["precision"] == "float32"
    assert machine["device"]
    assert machine["versions"]["torch"] == torch.__version__
    assert report["rounds"] == 2

    here = [kind for kind in CONTENDERS if kind.version()]
    rows = {part: [r for r in report["rows"] if r["part"] == part] for part in command.PARTS}
    assert {row["what"] for row in rows["smollm2"]} == set(DOINGS)
    assert all(("bytes" in row) == (row["what"] == "everything") for row in rows["smollm2"])
    for part in ("training", "inference", "memory"):
        assert [row["name"] for row in rows[part]] == [kind.name for kind in here]
    assert [row["name"] for row in rows["decoding"]] == [k.name for k in here if k.decodes]
    assert {row["name"] for row in rows["capture"]} >= {
        Ours.name,
        f"{Ours.name}, everything",
        "explicit attention, nothing kept",
    }
    assert [row["shape"] for row in rows["linear"]] == 2 * [list(SHAPES[-1])]
    assert [row["passes"] for row in rows["linear"]] == ["forward", "forward, backward"]
    assert [row["shape"] for row in rows["packed"]] == [list(FEW[0])]
    assert [(row["members"], row["name"]) for row in rows["ensemble"]][:2] == [
        (2, "one after another"),
        (2, "stacked"),
    ]
    alone, stack = rows["ensemble"][:2]
    assert alone["ratio"] == [1.0, 1.0, 1.0]
    assert stack["ratio"][0] == pytest.approx(alone["seconds"] / stack["seconds"])
    assert {row["length"] for row in rows["sublayers"]} == {64, 128}
    assert {row["tokens"] for row in rows["sublayers"]} == {128}
    for row in rows["sublayers"]:
        alike = ("length", "passes")
        (beside,) = (
            other
            for other in rows["sublayers"]
            if other["name"] == NETWORK and all(other[key] == row[key] for key in alike)
        )
        assert row["ratio"][0] == pytest.approx(row["seconds"] / beside["seconds"])
        assert 0 < row["fastest"] <= row["seconds"]
    seconds = {row["name"]: row["seconds"] for row in rows["capture"]}
    for row in rows["capture"]:  # like beside like
        everything = row["name"].endswith(", everything")
        assert row["beside"] == (f"{Ours.name}, everything" if everything else Ours.name)
        assert row["ratio"][0] == pytest.approx(row["seconds"] / seconds[row["beside"]])
    for row in report["rows"]:
        if row["part"] != "memory":
            ratio, low, high = row["ratio"]
            assert 0 < low <= ratio <= high
    for row in rows["training"]:
        assert row["tokens_per_second"] == pytest.approx(2 * 32 / row["seconds"])
    for row in rows["decoding"]:
        assert row["tokens_per_second"] == pytest.approx(2 * (32 - 16) / row["seconds"])
    for part, names in {
        "step": ["with a cache", "without"],
        "kernel": ["fused", "formula"],
        "checkpointing": ["plain", "checkpointed"],
        "states": ["softmax, fused", "linear", "delta rule"],
    }.items():
        first, second, *_ = rows[part]
        assert [row["name"] for row in rows[part]] == names
        assert len(second["each"]) == 2
        assert second["ratio"][0] == pytest.approx(second["seconds"] / first["seconds"])
        assert first["peak"] > 0
    ours, *others = rows["memory"]
    assert ours["bytes"] > 0
    assert [row["ratio"] for row in others] == [row["bytes"] / ours["bytes"] for row in others]


def test_one_after_another_takes_as_many_times_as_long_as_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ensembles, "train", lambda *args, **options: None)
    trained: list[int] = []
    monkeypatch.setattr(
        ensembles,
        "train_ensemble",
        lambda config, task, seeds, **options: trained.append(len(seeds)),
    )

    def timed(workloads: dict[str, measure.Workload], **options: object) -> dict[str, Timing]:
        for work in workloads.values():
            work()
        return {name: Timing((2.0, 3.0)) for name in workloads}

    monkeypatch.setattr(ensembles, "in_turns", timed)
    timings = ensembles.ensemble_timings(4, rounds=2, seconds=1.0, device="cpu")
    assert timings == {"one after another": Timing((8.0, 12.0)), "stacked": Timing((2.0, 3.0))}
    assert trained == [4]


def test_peers_that_are_not_installed_are_named_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Gpt2, "package", "a-package-that-is-not-there")
    file = tmp_path / "figures.json"
    assert command.main(["inference", *TINY, "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    for kind in CONTENDERS:
        missing = f"not installed, left out: {kind.name} (pip install -e '.[benchmark]')"
        assert (missing in printed) == (kind.version() is None), kind.name
    names = [row["name"] for row in json.loads(file.read_text())["rows"]]
    assert names == [kind.name for kind in CONTENDERS if kind.version()]
    assert Gpt2.name not in names


def test_only_the_parts_and_widths_asked_for_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "figures.json"
    asked = ["memory", *TINY, "--widths", "8", "16", "--json", str(file)]
    assert command.main(asked) == 0
    printed = capsys.readouterr().out
    assert "memory, width 8" in printed
    assert "training" not in printed.replace("a training step", "")
    rows = json.loads(file.read_text())["rows"]
    assert {(row["part"], row["width"]) for row in rows} == {("memory", 8), ("memory", 16)}


def test_an_unknown_part_is_refused_by_its_name(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stopped:
        command.main(["inference", "speed"])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "unknown parts ['speed']" in said
    assert "training, inference, capture, decoding, memory, linear" in said
