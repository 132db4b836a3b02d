"""Tuning: the same grid for every arm, the best rate of each, and a record that is never stale."""

import importlib
import json
import math
import shutil
from pathlib import Path

import pytest
from measured_transformer.models.config import Config
from measured_transformer.tasks.fixed import FixedSet
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training import fingerprint, tuning
from measured_transformer.training.tuning import tuned_rates

TASK = Reversal(vocab=5, length=4)
ARMS = {
    "narrow": Config(vocab=5, d_model=8, n_layers=1, n_heads=1),
    "wide": Config(vocab=5, d_model=16, n_layers=1, n_heads=2),
}
ASK = {"rates": (1e-2, 1e-5), "seeds": (1, 2), "steps": 15, "batch_size": 16}


@pytest.fixture
def counted(monkeypatch):
    calls = []
    train = tuning.train

    def counting(*args, **kwargs):
        calls.append((args, kwargs))
        return train(*args, **kwargs)

    monkeypatch.setattr(tuning, "train", counting)
    return calls


def test_every_arm_sees_the_whole_grid_and_the_better_rate_wins(tmp_path, counted):
    tuned = tuned_rates("t", ARMS, TASK, records=tmp_path, **ASK)
    assert len(counted) == len(ARMS) * 2 * 2
    assert tuned.rates == {"narrow": 1e-2, "wide": 1e-2}
    for arm in ARMS:
        assert set(tuned.table[arm]) == {1e-2, 1e-5}
        assert tuned.table[arm][1e-2] < tuned.table[arm][1e-5]
    assert tuned.at_edge == ("narrow", "wide")
    assert not tuned.reused


def test_a_stored_choice_is_used_again_without_training(tmp_path, counted):
    first = tuned_rates("t", ARMS, TASK, records=tmp_path, **ASK)
    counted.clear()
    again = tuned_rates("t", ARMS, TASK, records=tmp_path, **ASK)
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
        {"profile": "full"},
    ],
)
def test_any_change_of_what_it_depends_on_tunes_anew(tmp_path, counted, change):
    ask = {"arms": ARMS, "task": TASK, **ASK}
    tuned_rates("t", records=tmp_path, **ask)
    counted.clear()
    assert not tuned_rates("t", records=tmp_path, **{**ask, **change}).reused
    assert counted


def test_a_change_of_the_code_that_trains_tunes_anew(tmp_path, counted, monkeypatch):
    tuned_rates("t", ARMS, TASK, records=tmp_path, **ASK)
    package = tmp_path / "package"
    (package / "training").mkdir(parents=True)
    (package / "training" / "loop.py").write_text("changed = True\n")
    monkeypatch.setattr(fingerprint.measured_transformer, "__file__", str(package / "__init__.py"))
    assert not tuned_rates("t", ARMS, TASK, records=tmp_path, **ASK).reused


def test_a_change_of_the_statistics_does_not(tmp_path, monkeypatch):
    package = tmp_path / "package"
    shutil.copytree(Path(fingerprint.measured_transformer.__file__).parent, package)
    monkeypatch.setattr(fingerprint.measured_transformer, "__file__", str(package / "__init__.py"))
    tuned_rates("t", ARMS, TASK, records=tmp_path, **ASK)
    (package / "evidence" / "statistics.py").write_text("changed = True\n")
    assert tuned_rates("t", ARMS, TASK, records=tmp_path, **ASK).reused
    with (package / "parts" / "norms.py").open("a") as file:
        file.write("# changed\n")
    assert not tuned_rates("t", ARMS, TASK, records=tmp_path, **ASK).reused


def test_a_change_of_what_a_task_builds_on_tunes_anew(tmp_path, monkeypatch):
    base = tmp_path / "own_tasks_base.py"
    base.write_text(
        "from measured_transformer.tasks.reversal import Reversal\nclass Base(Reversal):\n    pass\n"
    )
    (tmp_path / "own_tasks.py").write_text(
        "from own_tasks_base import Base\nclass Own(Base):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    task = importlib.import_module("own_tasks").Own(vocab=5, length=4)
    tuned_rates("t", ARMS, task, records=tmp_path, **ASK)
    assert tuned_rates("t", ARMS, task, records=tmp_path, **ASK).reused
    base.write_text(base.read_text() + "# changed\n")
    assert not tuned_rates("t", ARMS, task, records=tmp_path, **ASK).reused


def test_a_task_whose_code_cannot_be_read_is_never_taken_for_another(tmp_path):
    space = {"__name__": "of_no_file", "Reversal": Reversal}
    exec("class Own(Reversal):\n    pass", space)
    task = space["Own"](vocab=5, length=4)
    assert not tuned_rates("t", ARMS, task, records=tmp_path, **ASK).reused
    assert not tuned_rates("t", ARMS, task, records=tmp_path, **ASK).reused


def test_a_damaged_record_is_replaced(tmp_path):
    first = tuned_rates("t", ARMS, TASK, records=tmp_path, **ASK)
    file = tmp_path / "quick" / "tuned" / "t.json"
    file.write_text(file.read_text()[:40])
    again = tuned_rates("t", ARMS, TASK, records=tmp_path, **ASK)
    assert not again.reused
    assert again.table == first.table
    assert json.loads(file.read_text())["best"] == first.rates


def test_diverged_runs_lose_and_an_arm_without_any_finite_run_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(
        tuning, "_trial", lambda config, task, rate, *rest: math.inf if rate > 1e-3 else 1.0
    )
    first = tuned_rates("t", ARMS, TASK, records=tmp_path, **ASK)
    assert first.rates["wide"] == 1e-5
    assert tuned_rates("t", ARMS, TASK, records=tmp_path, **ASK).table == first.table
    with pytest.raises(ValueError, match="diverged for narrow, wide"):
        tuned_rates("u", ARMS, TASK, records=tmp_path, **{**ASK, "rates": (1.0,)})
    assert not (tmp_path / "quick" / "tuned" / "u.json").exists()


def test_inside_a_book_the_choice_is_kept_in_the_build_folder(tmp_path, monkeypatch, counted):
    (tmp_path / "_config.yml").write_text("title: small\n")
    (tmp_path / "book" / "part").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "book" / "part")
    tuned_rates("t", ARMS, TASK, **ASK)
    assert (tmp_path / "_build" / "records" / "quick" / "tuned" / "t.json").is_file()
    counted.clear()
    assert tuned_rates("t", ARMS, TASK, **ASK).reused
    assert not counted


def test_a_record_that_comes_with_the_library_is_used_anywhere(tmp_path, monkeypatch, counted):
    shipped = tmp_path / "shipped"
    tuned_rates("t", ARMS, TASK, records=shipped, **ASK)
    monkeypatch.setattr(tuning, "_PACKAGED", shipped)
    counted.clear()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert tuned_rates("t", ARMS, TASK, **ASK).reused
    assert not counted
    assert not tuned_rates("t", ARMS, TASK, **{**ASK, "seeds": (7,)}).reused


def test_outside_a_book_nothing_is_stored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tuned_rates("t", ARMS, TASK, **ASK)
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_tune_is_an_error():
    with pytest.raises(ValueError, match="at least one arm, rate and seed"):
        tuned_rates("t", {}, TASK, **ASK)


def test_a_better_docstring_keeps_the_choice_and_any_code_beside_it_does_not(tmp_path, monkeypatch):
    package = tmp_path / "package"
    shutil.copytree(Path(fingerprint.measured_transformer.__file__).parent, package)
    monkeypatch.setattr(fingerprint.measured_transformer, "__file__", str(package / "__init__.py"))
    tuned_rates("t", ARMS, TASK, records=tmp_path, **ASK)
    file = package / "training" / "loop.py"
    source = file.read_text()
    file.write_text(
        source.replace('"""Train a fresh model on fresh batches.', '"""Said better.', 1)
    )
    assert file.read_text() != source
    assert tuned_rates("t", ARMS, TASK, records=tmp_path, **ASK).reused
    file.write_text(source.replace("updates.step()", "updates.step(); pass", 1))
    assert not tuned_rates("t", ARMS, TASK, records=tmp_path, **ASK).reused


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        ('"""Of a module."""\nx = 1  # why\n', "x = 1  # why"),
        ('def f():\n    """Of a\n    function."""\n    return 1', "def f():\n    return 1"),
        ('class A:\n    """é"""\n\n    x = """kept"""', 'class A:\n\n    x = """kept"""'),
        ('def f(): "kept"; return 1', 'def f(): "kept"; return 1'),
        ('def f():\n    "kept"; return 1', 'def f():\n    "kept"; return 1'),
        ("def f():\n    1\n    'kept'", "def f():\n    1\n    'kept'"),
        ("no python at all", "no python at all"),
    ],
)
def test_of_the_code_docstrings_alone_do_not_count(source, kept):
    assert fingerprint._code(source) == kept


def test_the_code_of_a_task_inside_another_counts(tmp_path, monkeypatch):
    inner = tmp_path / "inner_tasks.py"
    inner.write_text(
        "from measured_transformer.tasks.reversal import Reversal\nclass Inner(Reversal):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    task = FixedSet(importlib.import_module("inner_tasks").Inner(vocab=5, length=4), 64)
    tuned_rates("t", ARMS, task, records=tmp_path, **ASK)
    assert tuned_rates("t", ARMS, task, records=tmp_path, **ASK).reused
    inner.write_text(inner.read_text() + "# changed\n")
    assert not tuned_rates("t", ARMS, task, records=tmp_path, **ASK).reused
