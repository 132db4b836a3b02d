"""The names of a model's taps, and what a name or glob matches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase

from torch import nn

from measured_transformer.internals.modules import Site, matching_sites
from measured_transformer.parts.tap import Tap


def taps(model: nn.Module) -> dict[str, Tap]:
    """Every tap of the model by its name, in the order in which the modules were made.

    A compiled model's taps have the names that they had before.
    """
    return {
        name.removeprefix("_orig_mod."): module
        for name, module in model.named_modules()
        if isinstance(module, Tap)
    }


def matching(model: nn.Module, patterns: Iterable[str]) -> Mapping[str, Tap | Site]:
    """The taps that match at least one name or glob (`*`, `?`, `[0-3]`); of a model without taps its modules.

    Raises:
        KeyError: when a pattern matches no tap or module; the message gives the nearest names.
        ValueError: when a pattern is no text or the model no module; when a pattern matches a tap of a module
            that stands at several places of the model: the values of those places could not be told apart; and
            see `modules.matching_sites`.
    """
    patterns = _names(patterns)
    if not isinstance(model, nn.Module):
        raise ValueError(
            "taps are those of a model, an object of torch.nn.Module (of a LanguageModel its `model`), got "
            f"{type(model).__name__}"
        )
    known = taps(model)
    if not known:
        return matching_sites(model, patterns)
    shared = _at_several_places(model)
    found: set[str] = set()
    for pattern in patterns:
        hits = [name for name in known if fnmatchcase(name, pattern)]
        if not hits:
            near = get_close_matches(pattern, known, n=3, cutoff=0.4)
            hint = f"; the nearest names are {', '.join(near)}" if near else ""
            raise KeyError(
                f"no tap is called {pattern!r}{hint} "
                f"(the model has {len(known)}: measured_transformer.internals.names.taps lists them)"
            )
        for name in hits:
            if places := shared.get(name):
                raise ValueError(
                    f"{' and '.join(places)} are one module at several places, whose values nobody could tell "
                    "apart: give each place a module of its own (copy.deepcopy), or take other taps"
                )
        found.update(hits)
    return {name: tap for name, tap in known.items() if name in found}


def _names(patterns: Iterable[str]) -> list[str]:
    """The patterns, when each is a text by itself: another object would match by accident or not at all."""
    found = [patterns] if isinstance(patterns, str) else list(patterns)
    for each in found:
        if isinstance(each, list | tuple | set | frozenset | dict):
            told = ", ".join(repr(one) for one in each)
            raise ValueError(
                f"each name or glob of a tap is a text of its own, got a {type(each).__name__}: write "
                f"capture(model, {told}), or capture(model, *names) for names in a list"
            )
        if not isinstance(each, str):
            raise ValueError(
                f"the name or glob of a tap is a text, such as 'blocks.*.residual_post', got {each!r}"
            )
    return found


def _at_several_places(model: nn.Module) -> dict[str, list[str]]:
    """The taps that several names lead to, by the first of them."""
    names: dict[Tap, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, Tap):
            names.setdefault(module, []).append(name.removeprefix("_orig_mod."))
    return {known[0]: known for known in names.values() if len(known) > 1}
