"""Solubility of molecules by Weave convolutions over their atoms and all pairs of atoms.

    python examples/graph_convolution.py ../shared/data/esol/delaney-processed.csv

Kearnes et al. (2016), https://arxiv.org/abs/1603.00856, in the form of Looks et al. (2017),
https://arxiv.org/abs/1702.02181, appendix B. Without a file it learns a handful of molecules.
"""

import argparse
import csv
import random
from pathlib import Path

import torch
from rdkit import Chem
from torch import nn

from graphfold import blocks as td

ELEMENTS = ("C", "N", "O", "S", "F", "Cl", "Br", "I", "P")
BONDS = (Chem.BondType.SINGLE, Chem.BondType.DOUBLE, Chem.BondType.TRIPLE, Chem.BondType.AROMATIC)
ATOM_SIZE, PAIR_SIZE = len(ELEMENTS) + 4, len(BONDS) + 4

#: SMILES and measured solubility, log mol/L (Delaney 2004, https://doi.org/10.1021/ci034243x).
HANDFUL = (
    *(("C", -0.9), ("CCC", -1.94), ("CCCC", -2.57), ("CCCCC", -3.18), ("CCCCCC", -3.84)),
    *(("CO", 1.57), ("CCO", 1.1), ("CCCCO", 0.0), ("CCCCCCCCO", -2.39), ("CCOCC", -0.09)),
    *(("CC#N", 0.26), ("CC(=O)N", 1.58), ("NC(=O)N", 0.96), ("C1CCCCC1", -3.1)),
    *(("c1ccccc1", -1.64), ("Cc1ccccc1", -2.21), ("c1ccccc1O", 0.0), ("Nc1ccccc1", -0.41)),
    *(("Fc1ccccc1", -1.8), ("Clc1ccccc1", -2.38), ("c1ccncc1", 0.76), ("C=Cc1ccccc1", -2.82)),
)


def weave(atom_size, pair_size):
    """One Weave module: from (atoms, pairs), a sequence and a sequence of rows, to the same.

    atom i = f_A(f_AA(a_i), sum over j of f_PA(p_ij))
    pair ij = f_P(f_AP(a_i, a_j) + f_AP(a_j, a_i), f_PP(p_ij))
    """
    f_aa, f_pa, f_a = td.FC(atom_size), td.FC(atom_size), td.Concat() >> td.FC(atom_size)
    f_ap, f_pp, f_p = td.FC(pair_size), td.FC(pair_size), td.Concat() >> td.FC(pair_size)
    both = td.AllOf(td.Concat(), td.Slice(step=-1) >> td.Concat()) >> td.Map(f_ap) >> td.Sum()

    @td.compose
    def row(x):  # of pairs: atom i, all atoms, pairs ij
        with_others = td.Zip()(td.Broadcast()(x[0]), x[1])
        return td.ZipWith(f_p)(td.Map(both)(with_others), td.Map(f_pp)(x[2]))

    @td.compose
    def module(x):
        atoms, pairs = x[0], x[1]
        of_pairs = td.Map(td.Map(f_pa) >> td.Sum())(pairs)
        new_atoms = td.ZipWith(f_a)(td.Map(f_aa)(atoms), of_pairs)
        return new_atoms, td.ZipWith(row)(atoms, td.Broadcast()(atoms), pairs)

    return module


def solubility(sizes=((32, 16), (32, 16))):
    """The block from (atom vectors, rows of pair vectors) to one number."""
    molecule = td.Record((td.Map(td.Vector(ATOM_SIZE)), td.Map(td.Map(td.Vector(PAIR_SIZE)))))
    for size in sizes:
        molecule = molecule >> weave(*size)
    fingerprint = (
        molecule >> td.GetItem(0) >> td.AllOf(td.Sum(), td.Mean(), td.Max()) >> td.Concat()
    )
    output = td.FC(32) >> td.FC(1, None) >> td.Function(lambda y: y.squeeze(1))
    return fingerprint >> output


def molecule_of(smiles):
    """(atom vectors, rows of pair vectors) of a molecule."""
    molecule = Chem.MolFromSmiles(smiles)
    if molecule is None:
        raise ValueError(f"RDKit cannot read SMILES '{smiles}'. Correct it, or leave it out.")
    distances = Chem.GetDistanceMatrix(molecule)
    atoms = [atom_vector(atom) for atom in molecule.GetAtoms()]
    numbers = range(len(atoms))
    return atoms, [[pair_vector(molecule, distances, i, j) for j in numbers] for i in numbers]


def atom_vector(atom):
    """The element, and the charge, hydrogens, neighbours and aromaticity."""
    element = [float(atom.GetSymbol() == symbol) for symbol in ELEMENTS]
    numbers = atom.GetFormalCharge(), atom.GetTotalNumHs(), atom.GetDegree(), atom.GetIsAromatic()
    return [*element, *map(float, numbers)]


def pair_vector(molecule, distances, i, j):
    """The bond, whether it is in a ring, and whether the atoms are 1, 2 or 3 bonds apart."""
    bond = molecule.GetBondBetweenAtoms(i, j)
    kind = [float(bond is not None and bond.GetBondType() == known) for known in BONDS]
    ring = float(bond is not None and bond.IsInRing())
    return [*kind, ring, *(float(distances[i, j] == bonds) for bonds in (1, 2, 3))]


def read(path):
    """(SMILES, solubility) of every row of a table in the form of ESOL."""
    with path.open(newline="", encoding="utf-8") as file:
        columns = [
            (row["smiles"], row["measured log solubility in mols per litre"])
            for row in csv.DictReader(file)
        ]
    return [(smiles.strip(), float(number)) for smiles, number in columns]


def train(model, data, wanted, epochs, lr=0.003):
    """Minimizes the mean squared error; the learning rate falls to zero."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, epochs)
    for _ in range(epochs):
        for numbers in torch.randperm(len(data)).split(20):
            loss = nn.functional.mse_loss(model(data[numbers.tolist()]), wanted[numbers])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        decay.step()


@torch.no_grad()
def rmse(model, data, wanted):
    """The root of the mean squared error, log mol/L."""
    predicted = torch.cat(
        [model(data[part.tolist()]) for part in torch.arange(len(data)).split(50)]
    )
    return nn.functional.mse_loss(predicted, wanted).sqrt().item()


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, help="a table in the form of ESOL")
    parser.add_argument("--molecules", type=int, default=500, help="use no more than so many")
    parser.add_argument("--epochs", type=int, default=40)
    options = parser.parse_args(argv)
    torch.manual_seed(0)
    rows = read(options.file) if options.file else list(HANDFUL)
    random.Random(0).shuffle(rows)
    smiles, numbers = zip(*rows[: options.molecules], strict=True)
    molecules, wanted = [molecule_of(s) for s in smiles], torch.tensor(numbers)
    held_out = len(molecules) // 5
    model = td.compile(solubility())
    new = td.BlockDataset(model, molecules[:held_out])
    known = td.BlockDataset(model, molecules[held_out:])
    train(model, known, wanted[held_out:], options.epochs)
    errors = rmse(model, known, wanted[held_out:]), rmse(model, new, wanted[:held_out])
    print(
        f"RMSE {errors[0]:.2f} on {len(known)} known, {errors[1]:.2f} on {len(new)} new molecules"
    )
    return errors


if __name__ == "__main__":
    main()
