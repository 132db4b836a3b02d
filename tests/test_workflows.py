"""The workflow files: valid, without known weaknesses, and doing what the README says they do."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))

Job = dict[str, Any]


def load(name: str) -> dict[str, Any]:
    """Read a workflow; YAML 1.1 reads the key `on` as true, so it is put right."""
    workflow = yaml.safe_load((FOLDER / name).read_text())
    workflow["on"] = workflow.pop(True)
    return workflow


def jobs() -> list[tuple[str, str, Job]]:
    return [
        (path.name, name, job) for path in FILES for name, job in load(path.name)["jobs"].items()
    ]


def steps_using(job: Job, action: str) -> list[dict[str, Any]]:
    return [step for step in job["steps"] if step.get("uses", "").startswith(f"{action}@")]


def test_they_follow_the_schema_of_workflows():
    schema = ["--builtin-schema", "vendor.github-workflows"]
    command = [sys.executable, "-m", "check_jsonschema", *schema, *map(str, FILES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_auditor_finds_nothing():
    zizmor = Path(sys.executable).with_name("zizmor")
    command = [zizmor, "--offline", "--persona=pedantic", "--no-progress", FOLDER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_action_is_pinned_by_commit_and_names_its_release(path: Path):
    uses = re.findall(r"uses: *(.*)", path.read_text())
    assert uses
    for line in uses:
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_every_job_ends_in_time_and_no_checkout_keeps_its_token():
    for file, name, job in jobs():
        assert isinstance(job["timeout-minutes"], int), f"{file}: {name} may run for ever"
        for step in steps_using(job, "actions/checkout"):
            assert step["with"]["persist-credentials"] is False, f"{file}: {name}"


def test_checks_run_on_every_python_that_the_package_names():
    checks = load("checks.yml")["jobs"]
    (own,) = steps_using(checks["everything"], "actions/setup-python")
    versions = {own["with"]["python-version"], *checks["library"]["strategy"]["matrix"]["python"]}
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    named = {one.rpartition(" ")[2] for one in told if re.search(r"Python :: 3\.\d", one)}
    assert versions == named


def test_a_gpu_run_can_be_asked_to_measure_what_still_holds():
    """The schedule sets it: a committed set that is current would else leave nothing to measure."""
    assert load("gpu.yml")["jobs"]["measure"]["env"]["EVERYTHING"]
    assert "${EVERYTHING:+--renew}" in (ROOT / "tools" / "renew").read_text()


def test_a_gpu_run_ends_its_slice_before_its_time():
    """Where it were cancelled, nothing would be proposed."""
    job = load("gpu.yml")["jobs"]["measure"]
    minutes = re.search(r"'(\d+)'", job["env"]["MINUTES"])
    assert minutes is not None
    assert int(minutes[1]) + 45 <= job["timeout-minutes"]
    (kept,) = steps_using(job, "actions/upload-artifact")
    assert "_build/parity.tar" in kept["with"]["path"].split()
    assert "_build/parity.tar" in (ROOT / "tools" / "renew").read_text()


def test_the_gpu_run_has_the_python_of_the_kept_results():
    (python,) = steps_using(load("gpu.yml")["jobs"]["measure"], "actions/setup-python")
    assert python["with"]["python-version"] == commonest_python(), "texts differ between releases"


def commonest_python() -> str:
    """The Python that most of the kept results were measured with."""
    folders = ROOT / "lib/measured_book/rooms"
    kept = [json.loads(path.read_text()) for path in folders.glob("*/results/*.json")]
    measured = [told["provenance"]["versions"]["python"] for told in kept if "provenance" in told]
    return Counter(measured).most_common(1)[0][0]


def test_what_was_measured_is_proposed_by_a_job_that_the_runner_has_no_part_in():
    jobs_of = load("gpu.yml")["jobs"]
    propose = jobs_of["propose"]
    (downloaded,) = steps_using(propose, "actions/download-artifact")
    (uploaded,) = steps_using(jobs_of["measure"], "actions/upload-artifact")
    assert downloaded["with"]["name"] == uploaded["with"]["name"]
    assert propose["steps"][-1]["run"] == 'tools/propose "$RESULTS" measured/renewed'
    writing = [(f, n) for f, n, job in jobs() if job["permissions"].get("contents") == "write"]
    assert writing == [("gpu.yml", "propose"), ("pages.yml", "push")]


def test_nothing_goes_on_after_an_error():
    for step in (step for _, _, job in jobs() for step in job["steps"]):
        assert "continue-on-error" not in step


def pipes_in(script: str) -> list[str]:
    """The lines of a script with a pipe in them; `||` is none."""
    return [line for line in script.splitlines() if re.search(r"(?<!\|)\|(?!\|)", line)]


def test_a_pipe_fails_with_any_of_its_commands():
    """Only a shell that is named has `pipefail`: `bash` then runs as `bash -eo pipefail`, else as `bash -e`."""
    assert pipes_in("false | tee log") == ["false | tee log"]
    assert pipes_in("false || true") == []
    piped = [
        (file, step)
        for file, _, job in jobs()
        for step in job["steps"]
        if pipes_in(step.get("run", ""))
    ]
    assert piped, "that of the preview at least"
    for file, step in piped:
        assert step.get("shell") == "bash", f"{file}: {step['run']}"


def test_what_is_looked_at_weekly_is_a_command_each_that_the_readme_explains():
    check = load("weekly.yml")["jobs"]["check"]
    asked = check["strategy"]["matrix"]["what"]
    assert asked == ["links", "audit", "canary", "notebooks", "test-all"]
    assert check["steps"][-1]["run"] == 'make "$WHAT" PYTHON=python'
    makefile = (ROOT / "Makefile").read_text()
    for what in asked:
        assert re.search(rf"^{what}:", makefile, re.MULTILINE), what
        assert f"`make {what}`" in (ROOT / "README.md").read_text(), what


def test_notebooks_are_those_of_the_pages_printed_now_and_all_of_them():
    said = subprocess.run(
        ["make", "-n", "notebooks", "VENV=venv"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    lines = [line for line in said.stdout.splitlines() if "venv/bin/python -m" in line]
    assert [line.split(" -m ")[1].split()[0] for line in lines] == ["bookpress", "pytest"]
    pytest_line = lines[1]
    assert "MEASURED_NOTEBOOKS=all" in pytest_line
    assert "MEASURED_BUILT=_build/html" in pytest_line
    file, word = re.fullmatch(r".* -m pytest (\S+) -k (\w+)", pytest_line).groups()
    tests = re.findall(r"^def (test_\w+)", (ROOT / file).read_text(), re.MULTILINE)
    assert "test_a_notebook_runs_outside_the_repository" in [t for t in tests if word in t]


@pytest.mark.parametrize("file", ["gpu.yml", "weekly.yml"])
def test_a_scheduled_run_that_fails_opens_an_issue(file: str):
    report = load(file)["jobs"]["report"]
    others = set(load(file)["jobs"]) - {"report"}
    needs = report["needs"]
    assert {needs} if isinstance(needs, str) else set(needs) == others
    condition = " ".join(report["if"].split())
    assert condition.startswith("always() && github.event_name == 'schedule' && ")
    assert "== 'failure'" in condition
    assert "!= 'success'" not in condition, "what is skipped in a fork has not failed"
    step = report["steps"][-1]
    assert step["run"].startswith("tools/report ")
    assert "${{" not in step["run"], "values reach a script through its environment"


def test_only_what_passed_is_pushed_by_a_job_that_runs_nothing_else():
    jobs_of = load("pages.yml")["jobs"]
    push = jobs_of["push"]
    assert push["needs"] == "print"
    assert push["if"].startswith("needs.print.result == 'success' &&")
    (fetched,) = steps_using(push, "actions/download-artifact")
    (handed,) = steps_using(jobs_of["print"], "actions/upload-artifact")
    assert fetched["with"] == {"name": handed["with"]["name"], "path": handed["with"]["path"]}
    (script,) = [step["run"] for step in push["steps"] if "run" in step]
    assert "python3 -m bookpress.publish" in script
    assert "pip" not in script
    assert "${{" not in script, "values reach a script through its environment"


@pytest.mark.parametrize(
    ("open_one", "asked"), [("", "issue create --title"), ("12", "issue comment 12")]
)
def test_a_report_opens_an_issue_or_adds_to_the_open_one(tmp_path: Path, open_one: str, asked: str):
    gh = tmp_path / "gh"
    gh.write_text(
        f'#!/bin/sh\necho "gh $*" >>"$LOG"; case "$*" in *list*) echo "{open_one}";; esac\n'
    )
    gh.chmod(0o755)
    log = tmp_path / "log"
    subprocess.run(
        [ROOT / "tools" / "report", "It fails", "See there"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(log)},
        check=True,
        timeout=60,
    )
    assert asked in log.read_text().splitlines()[-1]
    assert "--body See there" in log.read_text()


def test_dependabot_is_told_what_its_schema_knows():
    schema = ["--builtin-schema", "vendor.dependabot", ROOT / ".github" / "dependabot.yml"]
    command = [sys.executable, "-m", "check_jsonschema", *schema]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflows_take_torch_from_an_index_of_its_own_and_mix_no_indexes():
    for path in FILES:
        text = path.read_text()
        assert "EXTRA_INDEX" not in text, path.name
        assert "TORCH_INDEX: ${{ vars.TORCH" in text, path.name


def test_the_gpu_runner_never_runs_code_of_a_pull_request():
    for file, name, job in jobs():
        if "GPU_RUNNER" in job["runs-on"]:
            assert not any("pull_request" in event for event in load(file)["on"]), f"{file}: {name}"


def test_ci_runs_exactly_the_command_of_the_readme():
    script = (ROOT / ".ci" / "run").read_text()
    assert script.rstrip().endswith("exec make --no-print-directory test")
    assert "make test" in (ROOT / "README.md").read_text()
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111, "it must be executable"


# --- .ci/run on a machine that lacks something -----------------------------------------------------


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Lay out a checkout on a machine without Chromium, whose other tools are stand-ins."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("bash", "cat", "dirname", "mktemp", "rm", "tail"):
        (folder / tool).symlink_to(shutil.which(tool) or tool)
    scripts = {
        "sudo": 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"',
        "apt-get": 'echo "apt-get $*" >>"$LOG"; case "$*" in *"$BROKEN"*) echo "no route"; exit 100;; esac',
        "make": 'echo "made $*"; [ -t 0 ] || cat',
        "python3": "exit 0",
    }
    for name, script in scripts.items():
        (folder / name).write_text(f"#!{shutil.which('sh')}\n{script}\n")
        (folder / name).chmod(0o755)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    return tmp_path


def run_ci(checkout: Path, broken: str = "nothing") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / ".ci" / "run"],
        env={"PATH": str(checkout / "bin"), "LOG": str(checkout / "log"), "BROKEN": broken},
        cwd="/",
        input="never read",
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_ci_installs_what_is_missing_and_then_runs_the_tests(bare: Path):
    done = run_ci(bare)
    assert done.returncode == 0, done.stderr
    asked = (bare / "log").read_text().splitlines()
    assert [" ".join(line.split()[4:]) for line in asked] == [
        "update",
        "install --yes --no-install-recommends chromium",
    ]
    assert done.stdout.endswith("made --no-print-directory test\n"), "nothing comes after it"


def test_ci_installs_nothing_where_nothing_is_missing(bare: Path):
    (bare / "bin" / "google-chrome").symlink_to(bare / "bin" / "python3")
    done = run_ci(bare)
    assert (done.returncode, done.stdout) == (0, "made --no-print-directory test\n")
    assert not (bare / "log").exists()


@pytest.mark.parametrize("step", ["update", "install"])
def test_ci_says_what_apt_said_when_it_fails(bare: Path, step: str):
    done = run_ci(bare, broken=step)
    assert done.returncode != 0
    assert "no route" in done.stderr
    assert f"error: apt-get {step}" in done.stderr
    assert "made" not in done.stdout


def test_ci_says_what_is_missing_where_nothing_can_be_installed(bare: Path):
    (bare / "bin" / "apt-get").unlink()
    done = run_ci(bare)
    assert done.returncode != 0
    assert "error: missing: chromium" in done.stderr


def test_ci_fails_when_the_tests_fail(bare: Path):
    (bare / "bin" / "make").write_text(f"#!{shutil.which('sh')}\nexit 2\n")
    assert run_ci(bare).returncode == 2


def test_the_audit_asks_about_every_pin_and_fails_where_nothing_is_known():
    """Its tool refuses a list in which some have hashes and others have none."""
    said = subprocess.run(
        ["make", "-n", "audit"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    asked = [line.split() for line in said.stdout.splitlines() if "bin/pip-audit" in line]
    assert all("--strict" in words for words in asked)
    locks = [[word for word in words if word.endswith(".txt")] for words in asked]
    assert locks == [["requirements-torch.txt"], ["requirements.txt"]]
    assert "--hash" in (ROOT / "requirements.txt").read_text()
