"""A calculator that learns what its buttons mean, from expressions and their values.

    python examples/calculator.py --depth 3 --operators '+-*'

An expression is a digit or (operator, expression, expression). What the operators do is not told:
each has a layer of its own, and the values of whole expressions are the only targets. Digits are
0 to 9, values no larger than 1000 in size; a prediction is right if it rounds to the value.
Settings are chosen with --validation, which looks at other expressions than the result.
"""

import argparse
import operator
import random

import torch
from torch import nn

from graphfold import blocks as td

MEANING = {"+": operator.add, "-": operator.sub, "*": operator.mul}


class Button(nn.Module):
    """An operator on two vectors: linear in them and in products of what it reads off them."""

    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(2 * size, size)
        self.left, self.right = nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, left, right):
        products = self.left(left) * self.right(right)
        return self.linear(torch.cat([left, right], 1)) + products


def calculator(operators, size=4):
    """The block from an expression to its value."""
    digit = td.Scalar("int64") >> td.Embedding(10, size)

    @td.recursive(output_type=[size])
    def number(number):
        pair = td.Record([(1, number), (2, number)])
        buttons = {button: pair >> Button(size) for button in operators}
        return td.OneOf(button_of, {"digit": digit, **buttons})

    return number >> nn.Linear(size, 1) >> td.Function(lambda y: y.squeeze(1), "value")


def button_of(expression):
    """The operator of an expression; "digit" for a digit."""
    return "digit" if isinstance(expression, int) else expression[0]


def value(expression):
    """What a real calculator says."""
    if isinstance(expression, int):
        return expression
    button, left, right = expression
    return MEANING[button](value(left), value(right))


def random_expression(rng, depth, operators):
    """An expression of exactly that depth."""
    if depth == 0:
        return rng.randrange(10)
    operands = [
        random_expression(rng, depth - 1, operators),
        random_expression(rng, rng.randrange(depth), operators),
    ]
    rng.shuffle(operands)
    return (rng.choice(operators), *operands)


def distinct_expressions(rng, count, depth, operators, largest=1000):
    """Different expressions of that depth, whose value is at most `largest` in size."""
    found = {}
    while len(found) < count:
        expression = random_expression(rng, depth, operators)
        if abs(value(expression)) <= largest:
            found[expression] = None
    return list(found)


def values(expressions):
    """[len(expressions)] their values."""
    return torch.tensor([float(value(expression)) for expression in expressions])


def train(model, expressions, epochs, lr=0.02):
    """Minimizes the error, where an error in a large value weighs less."""
    data, wanted = td.BlockDataset(model, expressions), values(expressions)
    weight = (1 + wanted.abs()).rsqrt()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    steps = epochs * -(-len(data) // 200)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, lr, total_steps=steps, pct_start=0.1, cycle_momentum=False
    )
    for _ in range(epochs):
        for numbers in torch.randperm(len(data)).split(200):
            found = model(data[numbers.tolist()])
            errors = nn.functional.smooth_l1_loss(found, wanted[numbers], reduction="none")
            optimizer.zero_grad()
            (errors * weight[numbers]).mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()


@torch.no_grad()
def accuracy(model, expressions):
    """The share of expressions whose value is right when rounded."""
    return (model(expressions).round() == values(expressions)).double().mean().item()


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--operators", default="+-*")
    parser.add_argument("--expressions", type=int, default=16000, help="of that depth, to learn")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--validation", action="store_true", help="not those of the result")
    options = parser.parse_args(argv)
    torch.manual_seed(options.seed)
    rng = random.Random(options.seed)
    count = options.expressions
    found = distinct_expressions(rng, count + 2000, options.depth, options.operators)
    known, validation, test = found[:count], found[count : count + 1000], found[count + 1000 :]
    for depth in range(options.depth):  # a few smaller ones, from which the meaning is seen sooner
        known += [random_expression(rng, depth, options.operators) for _ in range(count // 8)]
    model = td.compile(calculator(options.operators))
    train(model, known, options.epochs)
    share = accuracy(model, validation if options.validation else test)
    part = "validation" if options.validation else "test"
    print(f"{share:.1%} of 1000 {part} expressions of depth {options.depth} are right")
    return share


if __name__ == "__main__":
    main()
