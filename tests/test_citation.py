"""What archives and citation managers read: valid, and of one mind."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]


def cited() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "CITATION.cff").read_text())


def loaded(name: str) -> dict[str, Any]:
    return json.loads((ROOT / name).read_text())


def test_version_title_and_authors_agree_everywhere():
    cff, zenodo, code = cited(), loaded(".zenodo.json"), loaded("codemeta.json")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {cff["version"], zenodo["version"], code["version"]} == {project["version"]}
    assert {cff["title"], zenodo["title"], code["name"]} == {"The Measured Transformer"}
    names = [author["name"] for author in cff["authors"]]
    assert [creator["name"] for creator in zenodo["creators"]] == names
    assert [author["name"] for author in code["author"]] == names
    assert cff["date-released"] == zenodo["publication_date"] == code["dateModified"]
    assert cff["keywords"] == zenodo["keywords"] == code["keywords"]


def test_addresses_are_those_of_the_repository_and_no_identifier_is_invented():
    repository = yaml.safe_load((ROOT / "_config.yml").read_text())["repository"]["url"]
    assert cited()["repository-code"] == repository == loaded("codemeta.json")["codeRepository"]
    for name in ("CITATION.cff", ".zenodo.json", "codemeta.json"):
        assert not re.search(r"\bdoi\b", (ROOT / name).read_text(), re.IGNORECASE)


def test_zenodo_is_told_what_it_asks_for_in_its_own_words():
    zenodo = loaded(".zenodo.json")
    assert {"title", "upload_type", "description", "creators"} <= set(zenodo)
    assert zenodo["upload_type"] == "software"
    assert zenodo["access_right"] == "open"
    assert zenodo["license"] == "BSD-3-Clause", "it takes a single one, that of the software"
    for words in ("text and figures", "results of its measurements", "CC BY 4.0", "BSD"):
        assert words in zenodo["notes"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", zenodo["publication_date"])


def test_codemeta_is_of_its_third_version_and_names_both_licences():
    code = loaded("codemeta.json")
    assert code["@context"] == "https://w3id.org/codemeta/3.0"
    assert code["@type"] == "SoftwareSourceCode"
    known = {license.rpartition("/")[2] for license in code["license"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert known == set(cited()["license"]) == set(project["license"].split(" AND "))


def test_codemeta_names_the_pythons_that_the_package_does():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = re.findall(r"Python :: (\d+\.\d+)$", "\n".join(project["classifiers"]), re.MULTILINE)
    pythons = sorted(found, key=lambda version: int(version.partition(".")[2]))
    assert project["requires-python"] == f">={pythons[0]}"
    assert loaded("codemeta.json")["runtimePlatform"] == f"Python {pythons[0]} to {pythons[-1]}"


def test_the_changelog_has_the_version_that_is_cited():
    text = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## {re.escape(cited()['version'])} \(", text, re.MULTILINE)
    assert re.search(r"^## Unreleased$", text, re.MULTILINE)
