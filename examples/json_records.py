"""What kind of record a JSON value is, whatever it is made of and however it is nested.

    python examples/json_records.py orders.jsonl reports.jsonl

Every file is a class, every line of it a JSON value; a fifth of the lines is held out. Without
files the classes are invented: jobs made of jobs, where somewhere inside one may have failed or
taken too long.
"""

import argparse
import json
import math
import random
from pathlib import Path

import torch
from torch import nn

from graphfold import blocks as td


def record_model(num_classes, size=32):
    """The block from any JSON value to a score for every class."""
    character = td.InputTransform(lambda c: min(ord(c), 255)) >> td.Scalar("int64")
    text = td.Map(character >> td.Embedding(256, size)) >> last_state(size)
    constant = td.InputTransform((None, False, True).index) >> td.Scalar("int64")
    number = td.InputTransform(sign_and_logarithm) >> td.Vector(2) >> td.FC(size, torch.tanh)

    @td.recursive(output_type=[size])
    def value(value):
        pair = td.Record((text, value)) >> td.Concat() >> td.FC(size, torch.tanh)
        pairs = td.InputTransform(lambda record: sorted(record.items())) >> td.Map(pair)
        cases = {
            "constant": constant >> td.Embedding(3, size),
            "number": number,
            "text": text,
            "list": td.Map(value) >> last_state(size),
            "object": pairs >> td.Max(),
        }
        return td.OneOf(kind_of, cases)

    return value >> nn.Linear(size, num_classes)


def last_state(size):
    """From a sequence of vectors to the last state of a GRU along it."""
    return td.RNN(nn.GRUCell(size, size)) >> td.GetItem(1)


def kind_of(value):
    """Which case a JSON value is."""
    if value is None or isinstance(value, bool):
        return "constant"
    kinds = {str: "text", list: "list", dict: "object"}
    return kinds.get(type(value), "number")


def sign_and_logarithm(number):
    """Numbers of any size as two that a network can take."""
    return math.copysign(1.0, number), math.log1p(abs(number))


def invented_record(rng, kind, depth=3):
    """A job of jobs: kind 0 went well, in kind 1 one of them failed, in kind 2 one was slow."""
    here = kind if depth == 0 or rng.random() < 0.4 else 0  # whether it is this one
    job = {
        "id": "".join(rng.choices("abcdef0123456789", k=6)),
        "status": "failed" if here == 1 else rng.choice(["done", "skipped"]),
        "seconds": rng.uniform(1000, 9999) if here == 2 else rng.uniform(1, 99),
        "user": rng.choice([None, "ann", "bob", {"name": "eve", "admin": rng.random() < 0.5}]),
    }
    if depth:
        kinds = [kind - here, *[0] * rng.randint(0, 2)]
        rng.shuffle(kinds)
        jobs = [invented_record(rng, inner, depth - 1) for inner in kinds]
        job["jobs"] = jobs if rng.random() < 0.5 else {f"step {n}": j for n, j in enumerate(jobs)}
    return dict(rng.sample(list(job.items()), len(job)))


def read(path):
    """The JSON values of a file, one on a line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def train(model, known, epochs, lr=0.003):
    """Learns from (value, class)."""
    data = td.BlockDataset(model, [value for value, _ in known])
    classes = torch.tensor([number for _, number in known])
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(epochs):
        for numbers in torch.randperm(len(known)).split(25):
            loss = nn.functional.cross_entropy(model(data[numbers.tolist()]), classes[numbers])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@torch.no_grad()
def accuracy(model, examples):
    """The share of values whose class has the highest score."""
    scores = model([value for value, _ in examples])
    return (scores.argmax(1) == torch.tensor([number for _, number in examples])).double().mean()


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="JSON lines, a file for each class")
    parser.add_argument("--records", type=int, default=300, help="at most so many of each class")
    parser.add_argument("--epochs", type=int, default=15)
    options = parser.parse_args(argv)
    if len(options.files) == 1:
        parser.error("one file is one class: name at least two")
    torch.manual_seed(0)
    rng = random.Random(0)
    classes = [read(path)[: options.records] for path in options.files]
    count = range(options.records)
    classes = classes or [[invented_record(rng, kind) for _ in count] for kind in range(3)]
    examples = [(value, kind) for kind, values in enumerate(classes) for value in values]
    rng.shuffle(examples)
    held_out = len(examples) // 5
    known, new = examples[held_out:], examples[:held_out]
    model = td.compile(record_model(len(classes)))
    train(model, known, options.epochs)
    found = float(accuracy(model, new))
    print(f"{found:.1%} of {len(new)} held-out values of {len(classes)} classes")
    return found


if __name__ == "__main__":
    main()
