"""Explainer: contributions of atoms, bonds and words to the predictions of a trained model.

Molecules are drawn, too: an SVG file for each molecule and target, beside the output.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphfold.dag import TypedDAG
from graphfold.datasets.inspection.graph_hash import has_molecules, molecule_smiles
from graphfold.errors import RecordError
from graphfold.files import write_text
from graphfold.inference.explanation.methods import (
    Explained,
    Kind,
    Units,
    find_units,
    gradient_times_input,
    integrated_gradients,
    kind_names,
    mask_each,
    networks_of,
)
from graphfold.inference.prediction import Prediction, node_facts
from graphfold.inference.predictor import Predictor

#: Name -> what computes [num_units, num_targets] contributions.
METHODS: Mapping[str, Callable[[Explained, Units], Tensor]] = {
    "gradient": gradient_times_input,
    "integrated": integrated_gradients,
    "masking": mask_each,
}

#: Digits of a contribution: those of a float32, so that sums can be checked.
_DIGITS = 7


@dataclass(frozen=True)
class Contributions:
    """The contributions of the parts of one graph.

    Args:
        values: target -> kind of unit, such as "atom" -> one number for each unit. Nodes are in
            node order, which for atoms is the order of the record.
        nodes: kind -> type, span and word of each node.
        ends: kind of bond -> the positions of the two atoms of each.
        smiles: of a molecule, the one that its graph was made of.
        base: target -> the number without any input. By the method "integrated" the contributions
            add up to the explained number less this one.
    """

    values: Mapping[str, Mapping[str, Sequence[float]]]
    nodes: Mapping[str, Sequence[Mapping[str, Any]]]
    ends: Mapping[str, Sequence[tuple[int, int]]]
    smiles: str | None
    base: Mapping[str, float]

    def listed(self, target: str, kind: str) -> list[Any]:
        """Plain values for JSON: a number for each node, [atom, atom, number] for each bond."""
        numbers = [float(f"{value:.{_DIGITS}g}") for value in self.values[target][kind]]
        if kind not in self.ends:
            return list(numbers)
        return [[*ends, n] for ends, n in zip(self.ends[kind], numbers, strict=True)]

    def base_of(self, target: str) -> float:
        """The number without any input, as it is written."""
        return float(f"{self.base[target]:.{_DIGITS}g}")

    def base_to_dict(self) -> Any:
        """target -> the number without any input; with one target the number alone."""
        found = {target: self.base_of(target) for target in self.values}
        return next(iter(found.values())) if len(found) == 1 else found

    def to_dict(self) -> Any:
        """target -> a dict for each node or bond; with one target its name is left out."""
        named = {target: list(self._each(target)) for target in self.values}
        return next(iter(named.values())) if len(named) == 1 else named

    def _each(self, target: str) -> Iterator[dict[str, Any]]:
        for kind in self.values[target]:
            listed = self.listed(target, kind)
            if kind in self.ends:
                for *ends, number in listed:
                    yield {"type": kind, "nodes": ends, "contribution": number}
                continue
            for facts, number in zip(self.nodes[kind], listed, strict=True):
                yield {**facts, "contribution": number}


class Explainer:
    """Predicts and says what each part of a graph contributes.

    Contributions to the prediction of an ensemble are means over those to its members'.

    Args:
        predictor: the model.
        method: a name of `METHODS`.
        targets: the names of the targets; None for all.

    Raises:
        ConfigError: if the model cannot be explained.
    """

    def __init__(
        self, predictor: Predictor, method: str, targets: Sequence[str] | None = None
    ) -> None:
        self.predictor = predictor
        self.method = method
        self.members = networks_of(predictor.trained.model)
        model = self.members[0]
        self.targets = tuple(targets or model.head.targets)
        self.kinds = kind_names(model, predictor.trained.schema)
        if method != "masking":  # gradients are those of the inputs of nodes
            self.kinds = [name for name in self.kinds if name in model.encoder.encoders]

    @property
    def columns(self) -> list[str]:
        """The columns of a table: TARGET_base and TARGET_KIND_contributions, target by target."""
        kinds = [f"{kind}_contributions" for kind in self.kinds]
        return [f"{target}_{what}" for target in self.targets for what in ("base", *kinds)]

    def cells(self, found: Contributions) -> Iterator[Any]:
        """The numbers and lists that stand in these columns."""
        for target in self.targets:
            yield found.base_of(target)
            for kind in self.kinds:
                yield found.listed(target, kind)

    def predict_graphs(self, dag: TypedDAG) -> list[tuple[Prediction, Contributions]]:
        """The prediction for each graph, as the adapter reads it, and the contributions to it."""
        predictions = self.predictor.predict_graphs(dag)
        return list(zip(predictions, self.explain_graphs(dag), strict=True))

    def explain_graphs(self, dag: TypedDAG) -> list[Contributions]:
        """The contributions to the prediction for each graph, as the adapter reads it."""
        trained = self.predictor.trained
        encoded = trained.spec.encode(dag)
        batch = self.members[0].plan(encoded, "depth", share=False).to(trained.device)
        explained = Explained.of_members(self.members, batch, self.targets)
        units = [find_units(member, batch) for member in self.members]
        method = METHODS[self.method]
        found = torch.stack([method(*pair) for pair in zip(explained, units, strict=True)]).mean(0)
        base = torch.stack([one.base() for one in explained]).mean(0)
        kinds = [kind for kind in units[0].kinds if kind.name in self.kinds]
        return list(_by_graph(found.cpu(), base.tolist(), kinds, dag, self.targets))


def _by_graph(
    found: Tensor,
    base: Sequence[Sequence[float]],
    kinds: Sequence[Kind],
    dag: TypedDAG,
    targets: Sequence[str],
) -> Iterator[Contributions]:
    """The contributions of each graph; nodes are counted from its first one."""
    facts, starts = list(node_facts(dag)), dag.node_ptr.tolist()
    smiles = molecule_smiles(dag) if has_molecules(dag) else [None] * dag.num_graphs
    graphs = torch.arange(dag.num_graphs + 1)
    ptr = {kind.name: torch.searchsorted(kind.graph.cpu(), graphs).tolist() for kind in kinds}
    columns = {kind.name: found[kind.unit.cpu()].T.tolist() for kind in kinds}
    nodes = {kind.name: kind.unit.tolist() for kind in kinds if kind.ends is None}
    ends = {kind.name: kind.ends.tolist() for kind in kinds if kind.ends is not None}
    for graph, start in enumerate(starts[:-1]):
        own = {name: slice(p[graph], p[graph + 1]) for name, p in ptr.items()}
        yield Contributions(
            {
                target: {name: columns[name][number][own[name]] for name in own}
                for number, target in enumerate(targets)
            },
            {name: [facts[node] for node in nodes[name][own[name]]] for name in nodes},
            {name: [(a - start, b - start) for a, b in ends[name][own[name]]] for name in ends},
            smiles[graph],
            dict(zip(targets, base[graph], strict=True)),
        )


class Drawings:
    """The folder of the drawings of one output, made with the first of them.

    A file is called after the line of its record, and with several targets after the target too.

    Args:
        output: the file of the predictions; the folder is called after it.
        explainer: what the contributions come from.
    """

    def __init__(self, output: Path, explainer: Explainer) -> None:
        self.folder = drawings_folder(output)
        self.explainer = explainer

    def draw(self, line: int, found: Contributions) -> None:
        """Draws a molecule; other graphs are not drawn, and what cannot be is warned of."""
        if found.smiles is None:
            return
        self.folder.mkdir(exist_ok=True)
        for number, target in enumerate(found.values):
            name = str(line)
            if len(found.values) > 1:
                name += f"_{number}_{re.sub(r'[^A-Za-z0-9]+', '_', target)}"
            try:
                drawing = draw(self.explainer, found, target)
            except RecordError as error:
                warnings.warn(f"line {line} is not drawn: {error.fault}.", stacklevel=2)
                return
            write_text(self.folder / f"{name}.svg", drawing)


def drawings_folder(output: Path) -> Path:
    """The folder of the drawings beside an output: of `a.csv` it is `a_drawings`."""
    return output.with_name(f"{output.name.partition('.')[0]}_drawings")


def draw(explainer: Explainer, found: Contributions, target: str) -> str:
    """A molecule with the contributions to one target, as an SVG element."""
    from graphfold.datasets.molecules.drawing import draw_contributions

    hydrogens = getattr(explainer.predictor.adapter, "explicit_hydrogens", False)
    bonds = found.listed(target, "bond") if "bond" in found.values[target] else []
    places = [facts["span"][0] for facts in found.nodes["atom"]]
    of_place = dict(zip(places, found.listed(target, "atom"), strict=True))
    atoms = [of_place[place] for place in sorted(of_place)]
    bonds = [(places[a], places[b], value) for a, b, value in bonds]
    return draw_contributions(found.smiles or "", atoms, bonds, hydrogens)
