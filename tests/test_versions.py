"""A Python or a torch that does not suit is named in one sentence, when the library is imported."""

import sys
from importlib.metadata import PackageNotFoundError

import pytest
from measured_transformer import _versions


def said(monkeypatch, *, torch="2.13.0+cpu", python=(3, 12, 1)):
    def version(name):
        if torch is None:
            raise PackageNotFoundError(name)
        return torch

    monkeypatch.setattr(_versions, "version", version)
    monkeypatch.setattr(sys, "version_info", python)
    try:
        _versions.check()
    except ImportError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("torch", ["2.6.0", "2.13.0+cu126", "3.0.1", "a build of one's own"])
def test_what_suits(monkeypatch, torch):
    assert not said(monkeypatch, torch=torch)
    assert not said(monkeypatch, torch=torch, python=(3, 14, 0))


@pytest.mark.parametrize("torch", ["2.5.1", "1.13.1+cu117", "2.0"])
def test_a_torch_that_is_too_old(monkeypatch, torch):
    assert f"torch 2.6 or newer, got {torch}; upgrade it" in said(monkeypatch, torch=torch)


def test_no_torch(monkeypatch):
    assert "there is none; install it" in said(monkeypatch, torch=None)


def test_a_python_that_is_too_old(monkeypatch):
    assert "Python 3.11 or newer, this is 3.10" in said(monkeypatch, python=(3, 10, 14))
