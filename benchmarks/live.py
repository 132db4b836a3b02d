"""`python -m benchmarks.live`: what a keystroke costs in a live model, from the letter to the drawn answer.

The book's byte model in headless Chromium, in the page itself: the browser slows down pages and not workers.
Three changes of a text of 64 bytes are timed, each in the whole model and with a head switched off: of the last
letter, of one in the middle, and of the first, after which nothing that was known holds.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measured_book.rooms.workbench.live import TEXTS, live_byte_model
from rich.console import Console
from rich.table import Table

LENGTH = 64
PLACES = {"at the end": LENGTH - 1, "in the middle": LENGTH // 2, "at the beginning": 0}
SLOWER = (1, 4)

_TYPE = """async ([place, letter]) => {
  const area = document.querySelector(".lm-live textarea");
  const text = area.value;
  const drawn = new Promise((resolve) => {
    new MutationObserver((_, watch) => { watch.disconnect(); resolve(); })
      .observe(document.querySelector(".lm-readout"), { childList: true });
  });
  const began = performance.now();
  area.value = text.slice(0, place) + letter + text.slice(place + 1);
  area.dispatchEvent(new Event("input", { bubbles: true }));
  await drawn;
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  return [performance.now() - began, Number(document.querySelector(".lm-live").dataset.milliseconds)];
}"""


def keystrokes(page: Any, place: int, count: int) -> tuple[float, float]:
    """Median milliseconds of a keystroke: until its answer is drawn, and of the model alone."""
    took = [page.evaluate(_TYPE, [place, "abcdefgh"[i % 8]]) for i in range(count + 4)]
    whole, model = zip(*took[4:], strict=True)
    return statistics.median(whole), statistics.median(model)


def main(arguments: Sequence[str] | None = None) -> int:
    """Time keystrokes, print a table and write the figures down where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live", description=__doc__)
    parser.add_argument("--count", type=int, default=20, help="keystrokes of each kind")
    parser.add_argument(
        "--slower", type=float, nargs="+", default=SLOWER, help="how much slower than this machine"
    )
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    options = parser.parse_args(arguments)
    from playwright.sync_api import sync_playwright

    table = Table("slower", "changed letter", "model", "keystroke, ms", "model alone, ms")
    rows = []
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        path = live_byte_model().save(Path(folder) / "live.html")
        page = browser.new_page()
        page.add_init_script("delete window.Worker;")
        page.goto(path.as_uri())
        page.locator(".lm-strip button").first.wait_for()
        session = page.context.new_cdp_session(page)
        for rate in options.slower:
            session.send("Emulation.setCPUThrottlingRate", {"rate": rate})
            for head in (False, True):
                page.get_by_label("Switch off layer 1, head 2").set_checked(head)
                page.get_by_label("Text (the model").fill((TEXTS[0] * 2)[:LENGTH])
                for name, place in PLACES.items():
                    whole, model = keystrokes(page, place, options.count)
                    row = {
                        "slower": rate,
                        "letter": name,
                        "head off": head,
                        "keystroke": whole,
                        "model": model,
                    }
                    rows.append(row)
                    which = "a head off" if head else "whole"
                    table.add_row(f"{rate:g} times", name, which, f"{whole:.1f}", f"{model:.1f}")
        browser.close()
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
