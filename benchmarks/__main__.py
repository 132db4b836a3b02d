"""`python -m benchmarks`: the library beside its peers, as ratios that one run measures."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from measured_transformer.parts.kernels.linear import has_onednn
from rich.console import Console
from rich.table import Table

from benchmarks.contenders import CONTENDERS, Contender, Ours, OursFastest, Size
from benchmarks.ensembles import ALONE, MEMBERS, ensemble_timings
from benchmarks.generation import (
    CACHED,
    DEPTHS,
    FUSED,
    LENGTHS,
    PLAIN,
    PREFIXES,
    checkpointed,
    kernels,
    steps,
)
from benchmarks.linear import FEW, SHAPES, linear_maps, packed_maps
from benchmarks.measure import Timing, Workload, in_turns, peak_bytes
from benchmarks.norms import LAYER, norms
from benchmarks.smollm2 import DOINGS, LANGUAGE_MODELS, SMOLLM2, doing
from benchmarks.states import SOFTMAX, states
from benchmarks.sublayers import NETWORK, lengths, sublayers
from benchmarks.workloads import captured, decoding, inference, training_step, written_out

PARTS = (
    *("training", "inference", "capture", "decoding", "memory"),  # of whole models
    *("linear", "packed", "ensemble", "sublayers", "norms"),
    *("step", "kernel", "checkpointing", "states"),
    "smollm2",
)
EVERYTHING = ", everything"
Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what was asked for, print a table of each part and write the figures down."""
    parser = _options()
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.parts) - set(PARTS)):
        parser.error(f"unknown parts {unknown}; expected some of {', '.join(PARTS)}")
    if options.threads:
        torch.set_num_threads(options.threads)
    _quiet()
    console = Console(width=110)
    there = [kind for kind in CONTENDERS if kind is not OursFastest or options.device == "cpu"]
    chosen = [kind for kind in there if issubclass(kind, Ours) or kind.version()]
    for kind in there:
        if kind not in chosen:
            console.print(
                f"not installed, left out: {kind.name} (pip install -e '.[benchmark]')",
                style="yellow",
                markup=False,  # the extra's name stands in square brackets
            )
    rows: list[Row] = []
    for width in options.widths:
        size = Size(width, length=options.length, batch=options.batch, device=options.device)
        for part in options.parts:
            if part in PARTS[:5]:
                rows += _measured(part, size, chosen, options, console)
    if "linear" in options.parts and options.device == "cpu":
        rows += _linear(options, console)
    if "packed" in options.parts and options.device == "cpu" and has_onednn():
        rows += _packed(options, console)
    if "ensemble" in options.parts:
        rows += _ensembles(options, console)
    if "sublayers" in options.parts:
        rows += _sublayers(options, console)
    if "norms" in options.parts:
        rows += _norms(options, console)
    if "step" in options.parts:
        for width in options.widths:
            made = {n: steps(n, width=width, device=options.device) for n in options.prefixes}
            rows += _beside("step", "length", made, CACHED, options, console, width=width)
    if "kernel" in options.parts:
        made = {n: kernels(n, device=options.device) for n in options.lengths}
        rows += _beside("kernel", "length", made, FUSED, options, console)
    if "checkpointing" in options.parts:
        made = {n: checkpointed(n, device=options.device) for n in options.depths}
        rows += _beside("checkpointing", "layers", made, PLAIN, options, console)
    if "states" in options.parts:
        made = {n: states(n, device=options.device) for n in options.lengths}
        rows += _beside("states", "length", made, SOFTMAX, options, console)
    if "smollm2" in options.parts:
        rows += _smollm2(options, console)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        report = {"machine": _machine(options.device), "rounds": options.rounds, "rows": rows}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
        console.print(f"written: {options.json}")
    return 0


def _measured(
    part: str,
    size: Size,
    kinds: list[type[Contender]],
    options: argparse.Namespace,
    console: Console,
) -> list[Row]:
    """One part at one size: who takes part, their figures, and the table."""
    torch.manual_seed(0)
    if part == "decoding":
        kinds = [kind for kind in kinds if kind.decodes]
    if part == "capture":
        kinds = [kind for kind in kinds if kind.captures]
    contenders = [kind(replace(size, decoding=part == "decoding")) for kind in kinds]
    title = f"{part}, width {size.width}"
    if part == "memory":
        peaks = {c.name: _peak(c) for c in contenders}
        return _memory_table(title, size, contenders, peaks, console)
    workloads: dict[str, Workload] = {}
    for contender in contenders:
        if part == "capture":
            workloads[contender.name] = captured(contender, everything=False)
            workloads[f"{contender.name}{EVERYTHING}"] = captured(contender, everything=True)
            if type(contender) is Ours:
                workloads["explicit attention, nothing kept"] = written_out(contender)
        else:
            make: Callable[[Contender], Workload] = {
                "training": training_step,
                "inference": inference,
                "decoding": decoding,
            }[part]
            workloads[contender.name] = make(contender)
    timings = in_turns(
        workloads, rounds=options.rounds, seconds=options.seconds, device=size.device
    )
    new = size.length - (size.prompt if part == "decoding" else 0)
    return _time_table(part, title, size.width, timings, size.batch * new, console)


def _time_table(
    part: str, title: str, width: int, timings: dict[str, Timing], tokens: int, console: Console
) -> list[Row]:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for column in ("ms", "tokens/s", "its time / ours", "95 % of this run"):
        table.add_column(column, justify="right")
    rows = []
    for name, timing in timings.items():
        own = _ours_beside(name)
        ratio, low, high = timings[own].times_faster_than(timing)
        table.add_row(
            name,
            f"{1000 * timing.median:.2f}",
            f"{tokens / timing.median:,.0f}",
            "" if own == name else f"{ratio:.2f}",
            "" if own == name else f"{low:.2f} to {high:.2f}",
        )
        row = {"part": part, "width": width, "name": name, "seconds": timing.median, "beside": own}
        rows.append(
            row | {"tokens_per_second": tokens / timing.median, "ratio": [ratio, low, high]}
        )
    console.print(table)
    return rows


def _ours_beside(name: str) -> str:
    """Which of our own rows does the same work: what keeps everything is compared with what does so, too."""
    return f"{Ours.name}{EVERYTHING}" if name.endswith(EVERYTHING) else Ours.name


def _peak(contender: Contender) -> int:
    """Of the second training step: the first one makes the optimiser's averages."""
    work = training_step(contender)
    work()
    contender.model.zero_grad()
    return peak_bytes(work, contender.size.device)


def _memory_table(
    title: str, size: Size, contenders: list[Contender], peaks: dict[str, int], console: Console
) -> list[Row]:
    table = Table(title=f"{title}: the most a training step adds", title_justify="left")
    table.add_column("")
    for column in ("MiB", "of ours", "parameters"):
        table.add_column(column, justify="right")
    rows = []
    for contender in contenders:
        peak = peaks[contender.name]
        parameters = sum(p.numel() for p in contender.model.parameters())
        ratio = peak / peaks[Ours.name]
        table.add_row(contender.name, f"{peak / 2**20:.2f}", f"{ratio:.3f}", f"{parameters:,}")
        row = {"part": "memory", "width": size.width, "name": contender.name, "bytes": peak}
        rows.append(row | {"ratio": ratio})
    console.print(table)
    return rows


def _linear(options: argparse.Namespace, console: Console) -> list[Row]:
    cases = (
        (
            shape,
            "forward, backward" if gradients else "forward",
            linear_maps(shape, gradients=gradients),
        )
        for shape in SHAPES
        for gradients in (False, True)
    )
    return _beside_the_product("linear", "oneDNN", cases, options, console)


def _packed(options: argparse.Namespace, console: Console) -> list[Row]:
    cases = ((shape, "forward", packed_maps(shape)) for shape in FEW)
    return _beside_the_product("packed", "packed", cases, options, console)


def _beside_the_product(
    part: str,
    name: str,
    cases: Iterable[tuple[tuple[int, int, int], str, dict[str, Workload]]],
    options: argparse.Namespace,
    console: Console,
) -> list[Row]:
    """Rows of one linear map each, whose workloads are PyTorch's product and another kernel."""
    title = "linear map" if part == "linear" else f"linear map, {part} weights"
    table = Table(title=title, title_justify="left")
    for column in ("vectors, width in, width out", "passes"):
        table.add_column(column)
    for column in (f"{name}, ms", "product, ms", f"product / {name}", "95 % of this run"):
        table.add_column(column, justify="right")
    rows = []
    for shape, passes, workloads in cases:
        seconds = options.seconds / 5
        timings = in_turns(workloads, rounds=options.rounds, seconds=seconds, device="cpu")
        product, other = timings.values()
        ratio, low, high = other.times_faster_than(product)
        table.add_row(
            ", ".join(map(str, shape)),
            passes,
            f"{1000 * other.median:.3f}",
            f"{1000 * product.median:.3f}",
            f"{ratio:.2f}",
            f"{low:.2f} to {high:.2f}",
        )
        rows.append({"part": part, "shape": shape, "passes": passes, "ratio": [ratio, low, high]})
    console.print(table)
    return rows


def _ensembles(options: argparse.Namespace, console: Console) -> list[Row]:
    table = Table(title="ensemble, two layers of width 64", title_justify="left")
    for column in ("members", ""):
        table.add_column(column)
    for column in ("s", "members/s, of one after another", "95 % of this run"):
        table.add_column(column, justify="right")
    rows = []
    for members in options.members:
        timings = ensemble_timings(
            members, rounds=options.rounds, seconds=options.seconds, device=options.device
        )
        for name, timing in timings.items():
            ratio, low, high = timing.times_faster_than(timings[ALONE])
            table.add_row(
                str(members),
                name,
                f"{timing.median:.3f}",
                "" if name == ALONE else f"{ratio:.2f}",
                "" if name == ALONE else f"{low:.2f} to {high:.2f}",
            )
            row = {"part": "ensemble", "members": members, "name": name, "seconds": timing.median}
            rows.append(row | {"ratio": [ratio, low, high]})
    console.print(table)
    return rows


def _sublayers(options: argparse.Namespace, console: Console) -> list[Row]:
    rows = []
    for width in options.widths:
        title = f"sublayers, width {width}, {options.tokens} tokens"
        table = Table(title=title, title_justify="left")
        for column in ("length", "passes", ""):
            table.add_column(column)
        for column in ("ms", "its time / the network's", "95 % of this run"):
            table.add_column(column, justify="right")
        for length in lengths(options.tokens):
            for gradients in (False, True):
                workloads = sublayers(
                    length,
                    tokens=options.tokens,
                    width=width,
                    gradients=gradients,
                    device=options.device,
                )
                timings = in_turns(
                    workloads,
                    rounds=options.rounds,
                    seconds=options.seconds / 4,
                    device=options.device,
                )
                passes = "forward, backward" if gradients else "forward"
                for name, timing in timings.items():
                    ratio, low, high = timings[NETWORK].times_faster_than(timing)
                    table.add_row(
                        str(length),
                        passes,
                        name,
                        f"{1000 * timing.median:.2f}",
                        "" if name == NETWORK else f"{ratio:.2f}",
                        "" if name == NETWORK else f"{low:.2f} to {high:.2f}",
                    )
                    row = {"part": "sublayers", "width": width, "tokens": options.tokens}
                    row |= {"length": length, "passes": passes, "name": name}
                    row |= {"seconds": timing.median, "fastest": min(timing.seconds)}
                    rows.append(row | {"ratio": [ratio, low, high]})
        console.print(table)
    return rows


def _norms(options: argparse.Namespace, console: Console) -> list[Row]:
    rows = []
    for width in options.widths:
        title = f"norms, width {width}, {options.tokens} tokens"
        table = Table(title=title, title_justify="left")
        for column in ("passes", ""):
            table.add_column(column)
        for column in ("ms", "its time / LayerNorm's", "95 % of this run"):
            table.add_column(column, justify="right")
        for gradients in (False, True):
            workloads = norms(
                width, tokens=options.tokens, gradients=gradients, device=options.device
            )
            timings = in_turns(
                workloads, rounds=options.rounds, seconds=options.seconds / 4, device=options.device
            )
            passes = "forward, backward" if gradients else "forward"
            for name, timing in timings.items():
                ratio, low, high = timings[LAYER].times_faster_than(timing)
                table.add_row(
                    passes,
                    name,
                    f"{1000 * timing.median:.3f}",
                    "" if name == LAYER else f"{ratio:.2f}",
                    "" if name == LAYER else f"{low:.2f} to {high:.2f}",
                )
                row = {"part": "norms", "width": width, "tokens": options.tokens}
                row |= {"passes": passes, "name": name, "seconds": timing.median}
                row |= {"each": list(timing.seconds), "ratio": [ratio, low, high]}
                rows.append(row)
        console.print(table)
    return rows


def _beside(
    part: str,
    axis: str,
    made: dict[int, dict[str, Workload]],
    first: str,
    options: argparse.Namespace,
    console: Console,
    **told: int,
) -> list[Row]:
    """Ways to do the same work, at several sizes: times beside those of the first way, and memory."""
    table = Table(title=", ".join([part, *(f"{k} {v}" for k, v in told.items())]))
    for column in (axis, ""):
        table.add_column(column)
    for column in ("ms", f"its time / {first}", "95 % of this run", "MiB"):
        table.add_column(column, justify="right")
    rows = []
    for size, workloads in made.items():
        peaks = {name: peak_bytes(work, options.device) for name, work in workloads.items()}
        timings = in_turns(
            workloads, rounds=options.rounds, seconds=options.seconds / 4, device=options.device
        )
        for name, timing in timings.items():
            ratio, low, high = timings[first].times_faster_than(timing)
            table.add_row(
                str(size),
                name,
                f"{1000 * timing.median:.3f}",
                "" if name == first else f"{ratio:.2f}",
                "" if name == first else f"{low:.2f} to {high:.2f}",
                f"{peaks[name] / 2**20:.2f}",
            )
            row = {"part": part, axis: size, "name": name, "seconds": timing.median, **told}
            row |= {"each": list(timing.seconds), "ratio": [ratio, low, high]}
            rows.append(row | {"peak": peaks[name]})
    console.print(table)
    return rows


def _smollm2(options: argparse.Namespace, console: Console) -> list[Row]:
    """A language model that people use: times and, where all is kept, memory at its fullest."""
    size = replace(SMOLLM2, device=options.device)
    contenders = [
        kind(size)
        for kind in LANGUAGE_MODELS
        if (issubclass(kind, Ours) or kind.version())
        and (options.device == "cpu" or not issubclass(kind, OursFastest))
    ]
    rows = []
    for what in DOINGS:
        works = {
            one.name: doing(one, what) for one in contenders if one.captures or what != "everything"
        }
        peaks = {}
        if what == "everything":
            peaks = {name: peak_bytes(work, options.device) for name, work in works.items()}
        timings = in_turns(
            works, rounds=options.rounds, seconds=options.seconds, device=options.device
        )
        table = Table(title=f"smollm2, {what}", title_justify="left")
        table.add_column("")
        for column in ("ms", "its time / ours", "95 % of this run", "MiB", "of ours"):
            table.add_column(column, justify="right")
        for name, timing in timings.items():
            ratio, low, high = timings[Ours.name].times_faster_than(timing)
            own, peak = name == Ours.name, peaks.get(name)
            table.add_row(
                name,
                f"{1000 * timing.median:.1f}",
                "" if own else f"{ratio:.2f}",
                "" if own else f"{low:.2f} to {high:.2f}",
                "" if peak is None else f"{peak / 2**20:.1f}",
                "" if peak is None else f"{peak / peaks[Ours.name]:.2f}",
            )
            row = {"part": "smollm2", "what": what, "name": name, "seconds": timing.median}
            rows.append(row | {"ratio": [ratio, low, high]} | ({} if not peak else {"bytes": peak}))
        console.print(table)
    return rows


def _machine(device: str) -> Row:
    versions = {kind.package: kind.version() for kind in CONTENDERS if kind.version()}
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else _processor(),
        "vector instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "precision": "bfloat16 autocast" if device == "cuda" else "float32",
        "python": platform.python_version(),
        "versions": versions,
        "date": datetime.now(UTC).date().isoformat(),
    }


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _quiet() -> None:
    """Peers warn about what does not concern a comparison: missing tokenizers, settings to come."""
    warnings.filterwarnings("ignore")
    if find_spec("transformers"):
        from transformers import logging

        logging.set_verbosity_error()


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="PART", help=f"{PARTS}")
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--length", type=int, default=256, help="tokens of a sequence")
    parser.add_argument("--batch", type=int, default=8, help="sequences")
    parser.add_argument(
        "--members", type=int, nargs="+", default=list(MEMBERS), help="of ensembles"
    )
    parser.add_argument("--tokens", type=int, default=3072, help="that the sublayers are given")
    parser.add_argument(
        "--prefixes", type=int, nargs="+", default=list(PREFIXES), help="tokens before a step"
    )
    parser.add_argument(
        "--lengths",
        type=int,
        nargs="+",
        default=list(LENGTHS),
        help="tokens that attention is given",
    )
    parser.add_argument(
        "--depths", type=int, nargs="+", default=list(DEPTHS), help="blocks that are run again"
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--seconds", type=float, default=0.4, help="of one contender's turn in a round"
    )
    parser.add_argument("--threads", type=int, help="of PyTorch; its own choice when not given")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", type=Path, help="where to write the figures down")
    return parser


if __name__ == "__main__":
    sys.exit(main())
