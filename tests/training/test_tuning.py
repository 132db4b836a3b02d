"""Tuning: the same grid for every arm, the best rate of each, and a record that is never stale."""

import importlib
import json
import math

import pytest
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training import tuning
from measured_transformer.training.tuning import tuned_rates

TASK = Reversal(vocab=5, length=4)
ARMS = {
    "narrow": Config(vocab=5, d_model=8, n_layers=1, n_heads=1),
    "wide": Config(vocab=5, d_model=16, n_layers=1, n_heads=2),
}
ASK = {"rates": (1e-2, 1e-5), "seeds": (1, 2), "steps": 15, "batch_size": 16}


@pytest.fixture
def table(tmp_path):
    return tmp_path / "tuned.jsonl"


@pytest.fixture
def counted(monkeypatch):
    calls = []
    train = tuning.train

    def counting(*args, **kwargs):
        calls.append((args, kwargs))
        return train(*args, **kwargs)

    monkeypatch.setattr(tuning, "train", counting)
    return calls


def test_every_arm_sees_the_whole_grid_and_the_better_rate_wins(table, counted):
    tuned = tuned_rates("t", ARMS, TASK, table=table, **ASK)
    assert len(counted) == len(ARMS) * 2 * 2
    assert tuned.rates == {"narrow": 1e-2, "wide": 1e-2}
    for arm in ARMS:
        assert set(tuned.table[arm]) == {1e-2, 1e-5}
        assert tuned.table[arm][1e-2] < tuned.table[arm][1e-5]
    assert tuned.at_edge == ("narrow", "wide")
    assert not tuned.reused


def test_a_stored_choice_is_used_again_without_training(table, counted):
    first = tuned_rates("t", ARMS, TASK, table=table, **ASK)
    counted.clear()
    again = tuned_rates("t", ARMS, TASK, table=table, **ASK)
    assert not counted
    assert again.reused
    assert again.table == first.table
    assert again.rates == first.rates


@pytest.mark.parametrize(
    "change",
    [
        {"rates": (1e-2, 1e-4)},
        {"seeds": (1, 3)},
        {"steps": 31},
        {"batch_size": 8},
        {"task": Reversal(vocab=5, length=5)},
        {"arms": {**ARMS, "wide": ARMS["wide"].replace(norm="rms")}},
    ],
)
def test_any_change_of_what_it_depends_on_tunes_anew(table, counted, change):
    ask = {"arms": ARMS, "task": TASK, **ASK}
    tuned_rates("t", table=table, **ask)
    counted.clear()
    assert not tuned_rates("t", table=table, **{**ask, **change}).reused
    assert counted


def rewritten(table, **changed):
    """Change the lines of a table, as if they came from other code."""
    lines = [json.loads(text) | changed for text in table.read_text().splitlines()]
    table.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_choice_of_other_code_holds_when_a_training_of_it_comes_back(table, counted):
    first = tuned_rates("t", ARMS, TASK, table=table, **ASK)
    rewritten(table, code="other")
    counted.clear()
    again = tuned_rates("t", ARMS, TASK, table=table, **ASK)
    assert len(counted) == 1
    assert again.reused
    assert again.table == first.table
    counted.clear()
    assert tuned_rates("t", ARMS, TASK, table=table, **ASK).reused
    assert not counted


def test_a_choice_of_other_code_is_made_anew_when_it_does_not(table, counted):
    tuned_rates("t", ARMS, TASK, table=table, **ASK)
    line = json.loads(table.read_text())
    losses = {
        arm: [[rate, [loss * 1.01 for loss in each]] for rate, each in rows]
        for arm, rows in line["losses"].items()
    }
    rewritten(table, code="other", losses=losses)
    counted.clear()
    assert not tuned_rates("t", ARMS, TASK, table=table, **ASK).reused
    assert len(counted) == 1 + 2 * 2 * 2


def test_on_another_kind_of_machine_rounding_is_no_change(table, counted):
    tuned_rates("t", ARMS, TASK, table=table, **ASK)
    line = json.loads(table.read_text())
    losses = {
        arm: [[rate, [loss * 1.01 for loss in each]] for rate, each in rows]
        for arm, rows in line["losses"].items()
    }
    rewritten(table, code="other", kind="another machine", losses=losses)
    assert tuned_rates("t", ARMS, TASK, table=table, **ASK).reused
    losses = {arm: [[r, [2 * x for x in each]] for r, each in rows] for arm, rows in losses.items()}
    rewritten(table, code="other", kind="another machine", losses=losses)
    assert not tuned_rates("t", ARMS, TASK, table=table, **ASK).reused


def test_a_change_of_what_a_task_builds_on_is_seen_and_a_comment_is_none(
    tmp_path, table, monkeypatch, counted
):
    base = tmp_path / "own_tasks_base.py"
    base.write_text(
        "from measured_transformer.tasks.reversal import Reversal\n"
        "class Base(Reversal):\n    def batch(self, *args, **kwargs):\n"
        "        return super().batch(*args, **kwargs)\n"
    )
    (tmp_path / "own_tasks.py").write_text(
        "from own_tasks_base import Base\nclass Own(Base):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    task = importlib.import_module("own_tasks").Own(vocab=5, length=4)
    tuned_rates("t", ARMS, task, table=table, **ASK)
    counted.clear()
    assert tuned_rates("t", ARMS, task, table=table, **ASK).reused
    base.write_text(base.read_text() + "# a comment\n")
    assert tuned_rates("t", ARMS, task, table=table, **ASK).reused
    assert not counted
    base.write_text(base.read_text().replace("return super", "self = self; return super"))
    assert tuned_rates("t", ARMS, task, table=table, **ASK).reused
    assert len(counted) == 1  # the training that attests it


def test_a_task_whose_code_cannot_be_read_is_never_taken_for_another(table):
    space = {"__name__": "of_no_file", "Reversal": Reversal}
    exec("class Own(Reversal):\n    pass", space)
    task = space["Own"](vocab=5, length=4)
    assert not tuned_rates("t", ARMS, task, table=table, **ASK).reused
    assert not tuned_rates("t", ARMS, task, table=table, **ASK).reused


def test_half_a_line_is_left_out_and_other_lines_stay(table, counted):
    first = tuned_rates("t", ARMS, TASK, table=table, **ASK)
    tuned_rates("u", ARMS, TASK, table=table, **{**ASK, "seeds": (5,)})
    lines = table.read_text().splitlines()
    table.write_text(lines[0][:40] + "\n" + lines[1] + "\n")
    counted.clear()
    assert tuned_rates("u", ARMS, TASK, table=table, **{**ASK, "seeds": (5,)}).reused
    assert not counted
    again = tuned_rates("t", ARMS, TASK, table=table, **ASK)
    assert not again.reused
    assert again.table == first.table
    assert len(table.read_text().splitlines()) == 2


def test_diverged_runs_lose_and_an_arm_without_any_finite_run_is_an_error(table, monkeypatch):
    monkeypatch.setattr(
        tuning._Question, "trial", lambda self, arm, rate, seed: math.inf if rate > 1e-3 else 1.0
    )
    first = tuned_rates("t", ARMS, TASK, table=table, **ASK)
    assert first.rates["wide"] == 1e-5
    assert tuned_rates("t", ARMS, TASK, table=table, **ASK).table == first.table
    before = table.read_text()
    with pytest.raises(ValueError, match="diverged for narrow, wide"):
        tuned_rates("u", ARMS, TASK, table=table, **{**ASK, "rates": (1.0,)})
    assert table.read_text() == before


def test_inside_a_book_the_choice_is_kept_in_the_build_folder(tmp_path, monkeypatch, counted):
    (tmp_path / "_config.yml").write_text("title: small\n")
    (tmp_path / "book" / "part").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "book" / "part")
    tuned_rates("t", ARMS, TASK, **ASK)
    assert (tmp_path / "_build" / "tuned.jsonl").is_file()
    counted.clear()
    assert tuned_rates("t", ARMS, TASK, **ASK).reused
    assert not counted


def test_the_table_that_comes_with_the_library_is_used_anywhere(tmp_path, monkeypatch, counted):
    shipped = tmp_path / "shipped" / "tuned.jsonl"
    tuned_rates("t", ARMS, TASK, table=shipped, **ASK)
    monkeypatch.setattr(tuning, "PACKAGED", shipped)
    counted.clear()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert tuned_rates("t", ARMS, TASK, **ASK).reused
    assert tuning.known_rates("t", ARMS, TASK, **ASK).rates == {"narrow": 1e-2, "wide": 1e-2}
    assert not counted
    assert not tuned_rates("t", ARMS, TASK, **{**ASK, "seeds": (7,)}).reused
    assert tuning.known_rates("t", ARMS, TASK, **{**ASK, "seeds": (8,)}) is None


def test_outside_a_book_nothing_is_stored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tuned_rates("t", ARMS, TASK, **ASK)
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_tune_is_an_error():
    with pytest.raises(ValueError, match="at least one arm, rate and seed"):
        tuned_rates("t", {}, TASK, **ASK)
