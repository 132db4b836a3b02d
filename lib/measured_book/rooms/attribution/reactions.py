"""Reactions of six textbook kinds, whose product atoms are known to come from certain atoms of the reactants.

A reaction is made from two molecules by forming one bond. What leaves is known from experiment, not from any
model: in esters the oxygen between the two halves is that of the alcohol, as isotopes showed (Roberts and Urey,
1938). In all others the elements alone leave no choice. Atoms that are alike in a molecule count as one.

A seed draws one reaction of each kind: its molecules, a solvent, the order in which they stand, and the atom
with which the product's string begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from measured_transformer.training.seeding import make_generator

from measured_book.rooms.attribution.molecules import (
    TOKEN,
    alike,
    element,
    is_atom,
    join,
    read,
    write,
)

SETS = ("judging", "look")
"""Molecules of the reactions that judge, and others that judge nothing."""
ACIDS = {
    "judging": (
        "Cc1ccc(cc1)C(=O)O", "CCC(C)C(=O)O", "Clc1cccc(c1)C(=O)O", "COc1ccc(cc1)CC(=O)O", "FC(F)c1ccccc1C(=O)O",
        "c1ccc2cc(ccc2c1)C(=O)O",
    ),
    "look": ("CC(C)CC(=O)O", "Fc1ccc(cc1)C(=O)O", "c1ccncc1C(=O)O"),
}  # fmt: skip
"""End in the carboxyl group, whose last oxygen leaves."""
CHLORIDES = {
    "judging": (
        "CCCCC(=O)Cl", "Brc1ccc(cc1)C(=O)Cl", "COc1cccc(c1)C(=O)Cl", "CC(C)CCC(=O)Cl", "N#Cc1ccc(cc1)C(=O)Cl",
    ),
    "look": ("CCC(=O)Cl", "Cc1cccc(c1)C(=O)Cl", "c1ccsc1C(=O)Cl"),
}  # fmt: skip
"""End in a chlorine, which leaves."""
SULFONYLS = {
    "judging": (
        "Cc1ccc(cc1)S(=O)(=O)Cl", "CCCS(=O)(=O)Cl", "Fc1ccc(cc1)S(=O)(=O)Cl", "COc1ccc(cc1)S(=O)(=O)Cl",
    ),
    "look": ("CCS(=O)(=O)Cl", "Clc1ccc(cc1)S(=O)(=O)Cl"),
}  # fmt: skip
AMINES = {
    "judging": (
        "NCc1ccccc1F", "NCCOC", "NC1CCCCC1", "N1CCOCC1", "Nc1ccc(C)c(C)c1", "NCCc1ccc(Cl)cc1", "N1CCCC1C",
    ),
    "look": ("NCCC", "NCc1ccco1", "N1CCCCC1"),
}  # fmt: skip
"""Begin with the nitrogen that binds."""
ALCOHOLS = {
    "judging": ("OCCC(C)C", "OCc1ccc(F)cc1", "OC1CCCC1", "OCCCCl", "OCCc1ccccc1"),
    "look": ("OCC", "OCc1ccccc1"),
}
"""Begin with the oxygen that binds."""
PHENOLS = {
    "judging": ("Oc1ccc(C)cc1Cl", "Oc1cccc(C#N)c1", "Oc1ccc(OC)cc1", "Oc1ccc(F)c(C)c1"),
    "look": ("Oc1ccccc1C", "Oc1ccc(Br)cc1"),
}
BROMIDES = {
    "judging": ("BrCCCC", "BrCc1ccc(C)cc1", "BrCCOCC", "BrCc1cccc(F)c1", "BrCC(C)C"),
    "look": ("BrCC", "BrCc1ccccc1"),
}
"""Begin with the bromine, which leaves."""
ARYLS = {
    "judging": ("Brc1ccc(C=O)cc1", "Brc1cccnc1C", "Brc1ccc(OC)c(F)c1", "Brc1ccc(C#N)cc1", "Brc1cccc(N)c1"),
    "look": ("Brc1ccc(C)cc1", "Brc1ccccn1"),
}  # fmt: skip
BORONIC = {
    "judging": ("OB(O)c1ccc(C)cc1", "OB(O)c1cccc(OC)c1", "OB(O)c1ccc(Cl)cc1F", "OB(O)c1ccsc1"),
    "look": ("OB(O)c1ccccc1", "OB(O)c1ccc(F)cc1"),
}
"""Begin with the boron and its two oxygens, which leave."""
SOLVENTS = ("ClCCl", "CN(C)C=O", "C1CCOC1", "CCOC(C)=O", "CC#N", "Cc1ccccc1")
"""Stand beside the reactants and are in no product."""
KINDS = (
    "amide of an acid", "amide of a chloride", "sulfonamide", "ester", "ether", "biaryl",
)  # fmt: skip


@dataclass(frozen=True)
class Reaction:
    """A reaction as a string, and where its product's atoms come from.

    Attributes:
        tokens: the pieces of its string.
        product: places of the product's atoms among the tokens.
        reactants: places of all atoms before the arrow, solvent included.
        right: for each atom of the product the places it may come from.
    """

    tokens: list[str]
    product: list[int]
    reactants: list[int]
    right: list[set[int]]

    def candidates(self, place: int) -> list[int]:
        """Atoms before the arrow that are of the element of one behind it."""
        wanted = element(self.tokens[place])
        return [one for one in self.reactants if element(self.tokens[one]) == wanted]

    def open(self) -> list[int]:
        """Numbers of those product atoms for which not every atom of their element is right."""
        return [
            i for i, place in enumerate(self.product) if set(self.candidates(place)) - self.right[i]
        ]


def _last(smiles: str) -> tuple[int, tuple[int, ...]]:
    """Where a molecule binds whose last atom leaves: at its neighbour."""
    molecule = read(smiles)
    leaving = len(molecule.atoms) - 1
    return next(iter(molecule.bonds[leaving])), (leaving,)


def reactions(seed: int, which: str = "judging") -> list[Reaction]:
    """One reaction of each of `KINDS`.

    Args:
        seed: of the draw.
        which: one of `SETS`.

    >>> "".join(reactions(0, "look")[0].tokens).count(">>")
    1
    """
    chance = make_generator(seed, f"reactions, {which}")

    def one_of(some: Sequence[str]) -> str:
        return some[int(torch.randint(len(some), (), generator=chance))]

    found = []
    leaving: tuple[tuple[int, ...], tuple[int, ...]]
    for kind in KINDS:
        if kind == "ether":
            first, second = one_of(BROMIDES[which]), one_of(PHENOLS[which])
            bonds, leaving = (1, 0), ((0,), ())
        elif kind == "biaryl":
            first, second = one_of(ARYLS[which]), one_of(BORONIC[which])
            bonds, leaving = (1, 3), ((0,), (0, 1, 2))
        else:
            acyl = {"amide of a chloride": CHLORIDES, "sulfonamide": SULFONYLS}.get(kind, ACIDS)
            first = one_of(acyl[which])
            second = one_of((ALCOHOLS if kind == "ester" else AMINES)[which])
            at, gone = _last(first)
            bonds, leaving = (at, 0), (gone, ())
        found.append(_made((first, second), bonds, leaving, one_of(SOLVENTS), chance))
    return found


def _made(
    pair: tuple[str, str],
    bond: tuple[int, int],
    leaving: tuple[tuple[int, ...], tuple[int, ...]],
    solvent: str,
    chance: torch.Generator,
) -> Reaction:
    """A reaction of two molecules in a solvent, in an order that is drawn."""
    molecules = [read(smiles) for smiles in (*pair, solvent)]
    product, origins = join(molecules[0], molecules[1], bond, leaving)
    ends = [i for i, bonds in enumerate(product.bonds) if len(bonds) == 1] or [0]
    start = ends[int(torch.randint(len(ends), (), generator=chance))]
    written, order = write(product, start)
    sequence = torch.randperm(3, generator=chance).tolist()
    before = ".".join((*pair, solvent)[i] for i in sequence)
    tokens = TOKEN.findall(f"{before}>>{written}")
    atoms = [place for place, token in enumerate(tokens) if is_atom(token)]
    arrow = tokens.index(">>")
    reactants = [place for place in atoms if place < arrow]
    place_of, seen = {}, 0
    for i in sequence:
        for atom in range(len(molecules[i].atoms)):
            place_of[i, atom] = reactants[seen]
            seen += 1
    classes = alike(molecules)
    right = []
    for atom in order:
        molecule, number = origins[atom]
        kind = classes[molecule][number]
        right.append(
            {
                place_of[molecule, other]
                for other, one in enumerate(classes[molecule])
                if one == kind
            }
        )
    return Reaction(tokens, [place for place in atoms if place > arrow], reactants, right)
