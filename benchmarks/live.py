"""`python -m benchmarks.live`: what a keystroke costs in a live model, from the letter to the drawn answer.

The models that the book's pages serve, in headless Chromium, in the page itself: the browser slows down pages
and not workers. Three changes of a text of 64 tokens are timed, each in the whole model and with a head
switched off: of the last token, of one in the middle, and of the first, after which nothing that was known
holds. The aim is 50 ms without slowing down. `--view Overview` times them with that view open.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measured_book.rooms.one_sitting.live import live_heads
from measured_book.rooms.workbench.live import live_byte_model, live_story_model, story_merges
from measured_transformer.tasks.byte_pairs import pieces
from measured_transformer.viewer.live import Live
from rich.console import Console
from rich.table import Table

LENGTH = 64
PLACES = {"at the end": LENGTH - 1, "in the middle": LENGTH // 2, "at the beginning": 0}
SLOWER = (1, 4)
MODELS = {"bytes": live_byte_model, "stories": live_story_model, "heads": live_heads}
"""By the names under which they are timed."""

_TYPE = """async ([before, letter, behind]) => {
  const area = document.querySelector(".lm-live textarea");
  const drawn = new Promise((resolve) => {
    new MutationObserver((_, watch) => { watch.disconnect(); resolve(); })
      .observe(document.querySelector(".lm-readout"), { childList: true });
  });
  const began = performance.now();
  area.value = before + letter + behind;
  area.dispatchEvent(new Event("input", { bubbles: true }));
  await drawn;
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  return [performance.now() - began, Number(document.querySelector(".lm-live").dataset.milliseconds)];
}"""


def units(bench: Live) -> tuple[list[str], list[str]]:
    """A text of `LENGTH` strings of which each is a token, and others to put in the place of one."""
    if bench._data["cut"] != "pieces":
        return list((bench._data["texts"][0] * 3)[:LENGTH]), list("abcdefgh")
    said = [piece.decode(errors="replace") for piece in pieces(story_merges())]
    drawn = dict.fromkeys(said[token] for token in bench.kept.flatten().tolist())
    words = [each for each in drawn if re.fullmatch(" [A-Za-z]+", each)]
    return words[:LENGTH], words[LENGTH : LENGTH + 8]


def keystrokes(page: Any, bench: Live, place: int, count: int) -> tuple[float, float, float]:
    """Milliseconds of a keystroke until its answer is drawn, median and fastest, and the model's own median."""
    text, others = units(bench)
    before, behind = "".join(text[:place]), "".join(text[place + 1 :])
    took = [page.evaluate(_TYPE, [before, others[i % 8], behind]) for i in range(count + 4)]
    whole, model = zip(*took[4:], strict=True)
    return statistics.median(whole), min(whole), statistics.median(model)


def opened(browser: Any, bench: Live, folder: Path) -> Any:
    """A page with the model, without workers."""
    page = browser.new_page()
    page.add_init_script("delete window.Worker;")
    page.goto(bench.save(folder / "live.html").as_uri())
    page.locator(".lm-strip button").first.wait_for()
    return page


def main(arguments: Sequence[str] | None = None) -> int:
    """Time keystrokes, print a table and write the figures down where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live", description=__doc__)
    parser.add_argument("--count", type=int, default=20, help="keystrokes of each kind")
    parser.add_argument(
        "--slower", type=float, nargs="+", default=SLOWER, help="how much slower than this machine"
    )
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--view", help="name of the view that is open, else each model's first")
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    options = parser.parse_args(arguments)
    from playwright.sync_api import sync_playwright

    numbers = ("keystroke, ms", "fastest, ms", "model alone, ms")
    table = Table("model", "slower", "changed token", "asked of", *numbers)
    rows = []
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name in options.models:
            bench = MODELS[name]()
            page = opened(browser, bench, Path(folder))
            if options.view:
                page.get_by_role("tab", name=options.view, exact=True).click()
            session = page.context.new_cdp_session(page)
            for rate, head in itertools.product(options.slower, (False, True)):
                session.send("Emulation.setCPUThrottlingRate", {"rate": rate})
                page.get_by_label("Switch off layer 1, head 2").set_checked(head)
                for where, place in PLACES.items():
                    whole, least, model = keystrokes(page, bench, place, options.count)
                    tokens = page.locator(".lm-strip button").count()
                    rows.append(
                        {
                            "model": name,
                            "slower": rate,
                            "token": where,
                            "head off": head,
                            "tokens": tokens,
                            "keystroke": whole,
                            "fastest": least,
                            "model alone": model,
                        }
                    )
                    which = "a head off" if head else "whole"
                    said = (f"{each:.1f}" for each in (whole, least, model))
                    table.add_row(name, f"{rate:g} times", where, which, *said)
            page.close()
        browser.close()
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
