"""Attention over a sequence: the sum of the two numbers that are marked, wherever they stand.

    python examples/attention.py --length 50

Raffel and Ellis (2015), https://arxiv.org/abs/1512.08756, section 2.2: each element is a number
from -1 to 1 and a mark; the target is 0.5 + (first + second marked number) / 4, and a prediction is
right if it is no more than 0.04 away.
"""

import argparse
import random

import torch
from torch import nn

from graphfold import blocks as td


def attention(score):
    """The mean of a sequence, weighted by the softmax of its scores: equations 2 to 4.

    `td.Attention` is the same, safe from overflow.
    """
    exp = td.Map(td.convert_to_block(score) >> td.Function(torch.exp))

    @td.compose
    def weighted_mean(h):
        e = exp(h)
        alpha = td.ZipWith(td.Function(torch.div))(e, td.Broadcast()(td.Sum()(e)))
        return (td.ZipWith(td.Function(torch.mul)) >> td.Sum())(alpha, h)

    return weighted_mean


def adder(size=50):
    """The block from a list of (number, mark) to the target."""
    element = td.Vector(2) >> nn.Linear(2, size) >> nn.LeakyReLU()
    score = nn.Sequential(nn.Linear(size, 1), nn.Tanh())
    output = nn.Sequential(nn.Linear(size, size), nn.LeakyReLU(), nn.Linear(size, 1))
    value = td.Function(lambda y: y.squeeze(1), "value")
    return td.Map(element) >> attention(score) >> output >> value


def random_sequence(rng, length):
    """A sequence of `length` to 1.1 `length` elements and its target."""
    length = rng.randint(length, length * 11 // 10)
    numbers = [rng.uniform(-1, 1) for _ in range(length)]
    first, second = rng.sample(range(length), 2)
    sequence = [(x, float(place in (first, second))) for place, x in enumerate(numbers)]
    return sequence, 0.5 + (numbers[first] + numbers[second]) / 4


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=50)
    parser.add_argument("--sequences", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args(argv)
    torch.manual_seed(0)
    rng = random.Random(0)
    sequences = [random_sequence(rng, options.length) for _ in range(options.sequences)]
    known, wanted = zip(*sequences, strict=True)
    new, truth = zip(*(random_sequence(rng, options.length) for _ in range(500)), strict=True)
    model = td.compile(adder())
    data, held_out = td.BlockDataset(model, list(known)), model.batch(list(new))
    wanted, truth = torch.tensor(wanted), torch.tensor(truth)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for epoch in range(options.epochs):
        for numbers in torch.randperm(len(known)).split(50):
            loss = nn.functional.mse_loss(model(data[numbers.tolist()]), wanted[numbers])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            right = ((model(held_out) - truth).abs() <= 0.04).double().mean().item()
        print(f"epoch {epoch + 1}: {right:.1%} right")
    return right


if __name__ == "__main__":
    main()
