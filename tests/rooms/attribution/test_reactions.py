"""Reactions: strings that write what they should, and atoms whose origins are those of the textbook."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from measured_book.evidence.seeds import seeds_of
from measured_book.rooms.attribution import atoms, chemistry
from measured_book.rooms.attribution import reactions as drawing
from measured_book.rooms.attribution.molecules import (
    TOKEN,
    Molecule,
    alike,
    element,
    is_atom,
    join,
    read,
    write,
)
from measured_book.rooms.attribution.reactions import SETS, Reaction, reactions
from measured_transformer.models.factorised import FactorisedConfig, FactorisedEncoder

needs_model = pytest.mark.skipif(not chemistry.is_installed(), reason="needs rxnmapper (3 MB)")
LISTS = (
    *("ACIDS", "CHLORIDES", "SULFONYLS", "AMINES", "ALCOHOLS"),
    *("PHENOLS", "BROMIDES", "ARYLS", "BORONIC"),
)
MOLECULES = sorted(
    {one for name in LISTS for some in getattr(drawing, name).values() for one in some}
    | set(drawing.SOLVENTS)
)
VALENCE = {"C": 4, "N": 3, "O": 2, "S": 6, "B": 3, "F": 1, "Cl": 1, "Br": 1}


def same(one: Molecule, other: Molecule, order: list[int]) -> bool:
    """Whether `other` is `one` with its atoms in this order."""
    place = {atom: i for i, atom in enumerate(order)}
    return all(
        one.atoms[atom] == other.atoms[i]
        and {place[near]: kind for near, kind in one.bonds[atom].items()} == other.bonds[i]
        for i, atom in enumerate(order)
    )


@pytest.mark.parametrize("smiles", MOLECULES)
def test_a_molecule_is_the_same_from_wherever_it_is_written(smiles: str) -> None:
    molecule = read(smiles)
    for start in range(len(molecule.atoms)):
        text, order = write(molecule, start)
        assert order[0] == start
        assert same(molecule, read(text), order), text
    for atom, bonds in zip(molecule.atoms, molecule.bonds, strict=True):
        ring = list(bonds.values()).count(0)
        assert ring in ((2, 3) if atom.islower() else (0,))
        if atom not in "so":  # sulphur and oxygen share a pair of their own with the ring
            used = sum(bonds.values()) + (ring + 1 if ring else 0)
            assert used <= VALENCE[element(atom)], (smiles, atom)


def test_a_molecule_that_stays_open_is_refused() -> None:
    for smiles, said in (
        ("CC(C", "closed"),
        ("C1CC", "closed"),
        ("C[O-]", "expected atoms"),
        ("Cx", "SMILES"),
    ):
        with pytest.raises(ValueError, match=said):
            read(smiles)


def test_neighbours_of_a_substituent_are_alike_and_ends_are_not() -> None:
    (classes,) = alike([read("Cc1ccc(F)cc1")])
    assert classes[2] == classes[7]
    assert classes[3] == classes[6]
    assert len(set(classes)) == 6
    ((one, two, *_),) = alike([read("OC=O")])
    assert one != two


def test_an_ester_has_the_oxygen_of_the_alcohol() -> None:
    acid, alcohol = read("CC(=O)O"), read("OCC")
    product, origins = join(acid, alcohol, (1, 0), ((3,), ()))
    bridge = next(
        i for i, atom in enumerate(product.atoms) if atom == "O" and len(product.bonds[i]) == 2
    )
    assert origins[bridge] == (1, 0)


@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize("seed", [0, 40, 90])
def test_every_origin_is_of_the_element_and_has_neighbours_that_stay(which: str, seed: int) -> None:
    found = reactions(seed, which)
    assert len(found) == len(drawing.KINDS)
    for one in found:
        assert "".join(one.tokens).count(">>") == 1
        assert len(one.product) == len(one.right)
        for place, right in zip(one.product, one.right, strict=True):
            assert right <= set(one.candidates(place))
            assert {one.tokens[origin] for origin in right} == {one.tokens[place]}
        every = [origin for right in one.right for origin in right]
        assert set(every) <= set(one.reactants)
        assert one.open(), "some atom has a choice"
        # Exactly one bond is new: all others lie between origins that were bound before the arrow.
        before, behind = "".join(one.tokens).split(">>")
        product = read(behind)
        old = _bonds(before, one.reactants)
        new = 0
        for i, bonds in enumerate(product.bonds):
            for j in bonds:
                if i < j:
                    new += not any((a, b) in old for a in one.right[i] for b in one.right[j])
        assert new == 1


def _bonds(before: str, places: list[int]) -> set[tuple[int, int]]:
    found, seen = set(), 0
    for smiles in before.split("."):
        molecule = read(smiles)
        for i, bonds in enumerate(molecule.bonds):
            found |= {(places[seen + i], places[seen + j]) for j in bonds}
        seen += len(molecule.atoms)
    return found


def test_sets_share_no_reactant_and_a_draw_is_the_same_twice() -> None:
    for name in LISTS:
        some = getattr(drawing, name)
        assert not set(some["judging"]) & set(some["look"])
    assert reactions(20) == reactions(20)
    strings = ["".join(one.tokens) for seed in seeds_of(10) for one in reactions(seed)]
    assert max(Counter(strings).values()) == 1


def test_right_is_the_candidate_put_first() -> None:
    tokens = TOKEN.findall("CC(=O)Cl.NC>>CC(=O)NC")
    atoms_ = [i for i, token in enumerate(tokens) if is_atom(token)]
    reaction = Reaction(
        tokens,
        [place for place in atoms_ if place > tokens.index(">>")],
        [place for place in atoms_ if place < tokens.index(">>")],
        [{0}, {1}, {4}, {8}, {9}],
    )
    said = torch.zeros(2, len(tokens) + 2)
    said[0, 1], said[0, 7] = 1.0, 9.0  # a chlorine is no candidate for a carbon
    said[1, 10] = 1.0
    assert atoms.right(reaction, [0, 1], said).tolist() == [1.0, 0.0]
    assert atoms.by_chance(reaction, [0, 3]).tolist() == pytest.approx([1 / 3, 1.0])
    assert reaction.open() == [0, 1, 4]
    order = atoms.in_order(reaction, [0, 1, 4], len(tokens) + 2)
    assert atoms.right(reaction, [0, 1, 4], order).tolist() == [1.0, 1.0, 1.0]


@pytest.fixture
def model() -> FactorisedEncoder:
    torch.manual_seed(0)
    config = FactorisedConfig(
        vocab=30, d_model=96, n_layers=12, n_heads=8, head="mlm", head_bias=True, tie_embeddings=True,
        positions="learned", placement="post", embedding_norm=True, token_types=2, d_embedding=16,
        shared_groups=1,
    )  # fmt: skip
    return FactorisedEncoder(config).eval().requires_grad_(False)


def test_ways_score_every_atom_and_deletion_only_what_it_hides(
    model: FactorisedEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: dict[str, int] = {}

    def numbers(tokens: list[str]) -> torch.Tensor:
        every = ("[CLS]", *tokens, "[SEP]")
        return torch.tensor([known.setdefault(token, len(known)) for token in every])

    monkeypatch.setattr(atoms, "numbers", numbers)
    monkeypatch.setattr(atoms, "mask", lambda: 29)
    (reaction, asked), *_ = atoms.drawn(0, "look")
    said, both = atoms.scores(model, reaction, asked)
    length = len(reaction.tokens) + 2
    assert set(said) == set(atoms.WAYS) - {"chance"}
    assert both.shape == (12, 8, len(asked), length)
    for one in said.values():
        assert one.shape == (len(asked), length)
        assert one.isfinite().all()
    places = [place + 1 for place in reaction.reactants]
    assert (said["deletion"][:, places] > 0).all()
    others = [i for i in range(length) if i not in places]
    assert not said["deletion"][:, others].any()


def test_a_head_taken_away_fetches_nothing_or_from_all_alike() -> None:
    pattern = torch.rand(2, 8, 3, 4)
    for how, value in (("zero", 0.0), ("even", 0.25)):
        found = atoms.without(5, how)(pattern)
        assert (found[:, 5] == value).all()
        others = [0, 1, 2, 3, 4, 6, 7]
        assert torch.equal(found[:, others], pattern[:, others])


@needs_model
def test_the_model_knows_every_piece() -> None:
    for which in SETS:
        for seed in range(0, 60, 10):
            for one in reactions(seed, which):
                assert len(chemistry.numbers(one.tokens)) == len(one.tokens) + 2
    with pytest.raises(ValueError, match="knows, got X"):
        chemistry.numbers(["X"])


def test_without_the_package_the_command_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("measured_transformer.language.packaged.find_spec", lambda _: None)
    chemistry.chemist.cache_clear()
    with pytest.raises(ImportError, match=r"pip install --no-deps rxnmapper==0\.4\.3"):
        chemistry.chemist()
