"""What is imported from the package itself: the same objects as from their modules, and only when asked for."""

from __future__ import annotations

import subprocess
import sys

import measured_transformer
import pytest


def test_every_name_leads_to_its_home():
    names = set(measured_transformer.__all__) - {"__version__"}
    assert names == set(measured_transformer._HOMES)
    for name in names:
        found = getattr(measured_transformer, name)
        assert found.__module__ == measured_transformer._HOMES[name]
        assert found.__name__ == name
    assert set(dir(measured_transformer)) == names | {"__version__"}


def test_another_name_is_none():
    with pytest.raises(AttributeError, match="has no attribute 'Oracle'"):
        measured_transformer.Oracle  # noqa: B018


def test_nothing_is_imported_before_it_is_asked_for():
    code = (
        "import sys, measured_transformer as m\n"
        "before = [n for n in sys.modules if n.startswith('measured_transformer.')]\n"
        "m.TextFile\n"
        "after = [n for n in sys.modules if n.startswith('measured_transformer.models')]\n"
        "print(before, after)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['measured_transformer._versions'] []"


def test_the_three_lines_of_a_text_need_these_names_alone(tmp_path):
    from measured_transformer import Config, TextFile, evaluate, generate, load, save, train

    (tmp_path / "mine.txt").write_text("To be, or not to be, that is the question.\n" * 50)
    task = TextFile(tmp_path / "mine.txt", length=32)
    config = Config(vocab=task.vocab, d_model=16, n_layers=1)
    run = train(config, task, steps=5, learning_rate=1e-2, seed=0, batch_size=4)
    save(run, tmp_path / "model")
    again = load(tmp_path / "model")
    assert evaluate(again, task, seed=0) is not None
    assert evaluate(again, task, seed=0).loss == evaluate(run.model, task, seed=0).loss
    prompt = [task.encode("To be")]
    written = generate(again, prompt, max_new_tokens=4).tokens[0]
    assert task.decode(written) == task.decode(
        generate(run.model, prompt, max_new_tokens=4).tokens[0]
    )
