"""Too little memory is said before a model is loaded."""

from __future__ import annotations

import measured_book.smollm2.model as laboratory
import measured_transformer.language.memory as memory
import measured_transformer.language.published as published
import pytest
from measured_transformer import pretrained
from measured_transformer.language.encoder import TextEncoder
from measured_transformer.language.model import LanguageModel
from measured_transformer.language.packaged import Published


@pytest.mark.parametrize(
    ("name", "needed"), [("smollm2-135m-instruct", 1.5), ("all-minilm-l6-v2", 0.5)]
)
def test_too_little_memory_is_said_before_anything_is_loaded(monkeypatch, tmp_path, name, needed):
    monkeypatch.setattr(memory, "memory_left", lambda: 0.3)
    monkeypatch.setattr(Published, "place", lambda one: tmp_path / one.file)
    for kind, loads in ((LanguageModel, "from_gguf"), (TextEncoder, "from_huggingface")):
        monkeypatch.setattr(kind, loads, lambda *_, **__: pytest.fail("loaded"))
    about = published.PUBLISHED[name].about
    with pytest.raises(MemoryError) as said:
        pretrained(name)
    assert str(said.value) == (
        f"expected {needed} GB of free memory to load {about}, got 0.3 GB: close other programs, or use a "
        "machine with more memory"
    )


def test_the_laboratory_says_it_with_the_same_words(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "memory_left", lambda: 0.7)
    monkeypatch.setattr(Published, "place", lambda one: tmp_path / one.file)
    monkeypatch.setattr(LanguageModel, "from_gguf", lambda *_, **__: pytest.fail("loaded"))
    with pytest.raises(MemoryError, match=r"expected 1\.5 GB .* SmolLM2.*, got 0\.7 GB: close"):
        laboratory.smollm2.__wrapped__()


def test_a_system_that_does_not_say_is_no_obstacle(monkeypatch):
    monkeypatch.setattr(memory, "memory_left", lambda: None)
    memory.check_memory(1e9, "everything")


def test_memory_is_that_of_the_container_where_it_has_less(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    8000000 kB\n")
    assert memory.memory_left(tmp_path) == pytest.approx(8.192)
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("1000\n")
    (group / "memory.stat").write_text("anon 5\ninactive_file 500000000\n")
    assert memory.memory_left(tmp_path) == pytest.approx(8.192)
    (group / "memory.max").write_text("3000000000\n")
    (group / "memory.current").write_text("1000000000\n")
    assert memory.memory_left(tmp_path) == pytest.approx(2.5)  # what files hold can be given back
    assert memory.memory_left(tmp_path / "nothing") is None
