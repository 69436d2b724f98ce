"""A TreeRNN that learns logic: the truth of formulas from examples, without their rules.

    python examples/tree_rnn.py --depth 4

Every node has a vector, tanh(W [left; right] + b) with a W and b for each connective, as in
Bowman et al. (2015), https://arxiv.org/abs/1406.1827. A formula is True, False, ("not", formula) or
(connective, formula, formula).
"""

import argparse
import operator
import random

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from graphfold import blocks as td

CONNECTIVES = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


def tree_rnn(size=32):
    """The block from a formula to how sure it is that the formula holds (positive: it does)."""
    constant = td.OneHotFromList([False, True]) >> td.FC(size, torch.tanh)

    @td.recursive(output_type=[size])
    def tree(tree):
        pair = td.Record([(1, tree), (2, tree)]) >> td.Concat()
        cases = {symbol: pair >> td.FC(size, torch.tanh) for symbol in CONNECTIVES}
        cases["not"] = td.GetItem(1) >> tree >> td.FC(size, torch.tanh)
        return td.OneOf(symbol_of, {"constant": constant, **cases})

    return tree >> nn.Linear(size, 1) >> td.Function(lambda y: y.squeeze(1), "logit")


def symbol_of(formula):
    """What stands at the root."""
    return "constant" if isinstance(formula, bool) else formula[0]


def truth(formula):
    """What logic says."""
    if isinstance(formula, bool):
        return formula
    if formula[0] == "not":
        return not truth(formula[1])
    return CONNECTIVES[formula[0]](truth(formula[1]), truth(formula[2]))


def random_formula(rng, depth):
    """A formula of at most that depth."""
    if rng.random() > depth / (depth + 0.5):
        return rng.random() < 0.5
    symbol = rng.choice(["not", *CONNECTIVES])
    return (symbol, *(random_formula(rng, depth - 1) for _ in range(1 + (symbol != "not"))))


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--formulas", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args(argv)
    torch.manual_seed(0)
    rng = random.Random(0)
    formulas = {random_formula(rng, options.depth): None for _ in range(options.formulas * 5 // 4)}
    formulas = list(formulas)
    rng.shuffle(formulas)
    known, new = formulas[len(formulas) // 5 :], formulas[: len(formulas) // 5]
    model = td.compile(tree_rnn())
    data, held_out = td.BlockDataset(model, known), model.batch(new)
    wanted = torch.tensor([float(truth(formula)) for formula in known])
    holds = torch.tensor([truth(formula) for formula in new])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for epoch in range(options.epochs):
        for numbers in torch.randperm(len(known)).split(50):
            logits = model(data[numbers.tolist()])
            loss = binary_cross_entropy_with_logits(logits, wanted[numbers])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = ((model(held_out) > 0) == holds).double().mean().item()
        print(f"epoch {epoch + 1}: {accuracy:.1%} of {len(new)} unseen formulas")
    return accuracy


if __name__ == "__main__":
    main()
