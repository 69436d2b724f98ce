"""The sum and the minimum of a list, learned as what to do with two numbers.

    python examples/sum_and_min.py sum --length 16
    python examples/sum_and_min.py min

`Reduce` applies the learned block to neighbours, again and again, until one number is left; only
the last one is compared with the target. Settings are chosen with --validation, which looks at
other lists than the result.
"""

import argparse
import random

import torch
from torch import nn

from graphfold import blocks as td

TARGETS = {"sum": sum, "min": min}


def reduction(size=32):
    """The block from a list of numbers to one number, by a learned function of two numbers."""
    hidden = td.Concat() >> td.FC(size, nn.functional.leaky_relu)  # no unit ever is silent for good
    combine = hidden >> td.FC(1, None) >> td.Function(lambda y: y.squeeze(1))
    return td.Map(td.Scalar()) >> td.Reduce(combine)


def random_lists(rng, count, length):
    """Lists of 1 to `length` numbers from 0 to 1."""
    return [[rng.random() for _ in range(rng.randint(1, length))] for _ in range(count)]


def target_range(name, length):
    """How far apart the targets of lists of up to that length can be."""
    return float(length) if name == "sum" else 1.0


def targets(name, lists):
    """[len(lists)] what the block should give."""
    return torch.tensor([TARGETS[name](numbers) for numbers in lists])


def train(model, lists, wanted, epochs, lr=0.01):
    """Minimizes the mean absolute error and a fifth of the largest; the rate falls to zero."""
    data = td.BlockDataset(model, lists)
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, epochs)
    for _ in range(epochs):
        for numbers in torch.randperm(len(lists), generator=generator).split(100):
            errors = (model(data[numbers.tolist()]) - wanted[numbers]).abs()
            optimizer.zero_grad()
            (errors.mean() + 0.2 * errors.max()).backward()
            optimizer.step()
        decay.step()


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--length", type=int, default=16, help="of the longest list")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--lists", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--validation", action="store_true", help="other lists than for the result")
    options = parser.parse_args(argv)
    torch.manual_seed(options.seed)
    rng = random.Random(options.seed)
    model = td.compile(reduction())
    sizes = options.lists, 1000, 1000
    known, validation, test = (random_lists(rng, size, options.length) for size in sizes)
    train(model, known, targets(options.target, known), options.epochs)
    new = validation if options.validation else test
    with torch.no_grad():
        errors = (model(new) - targets(options.target, new)).abs()
    share = errors / target_range(options.target, options.length)
    part = "validation" if options.validation else "test"
    print(f"{part} error: mean {share.mean():.2%}, largest {share.max():.2%} of the range")
    return share


if __name__ == "__main__":
    main()
