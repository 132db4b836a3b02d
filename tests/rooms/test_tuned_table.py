"""Every line of the library's table of tuned rates answers a question that some room asks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from measured_transformer.training.tuned_table import PACKAGED, lines_of


def test_every_line_of_the_table_is_asked_for():
    script = Path(__file__).with_name("asked_rates.py")
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True, timeout=600
    )
    asked = set(done.stdout.split())
    unasked = sorted(line["name"] for line in lines_of(PACKAGED) if line["asked"] not in asked)
    assert unasked == [], f"remove these lines from {PACKAGED.name}: no room asks for them"
