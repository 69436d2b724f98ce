"""Pictures of predictions: of many records a part is drawn, and counted whole."""

from __future__ import annotations

import pytest
import torch

from graphfold.dag import Column
from graphfold.layers.heads import plots


@pytest.mark.parametrize("count", [7, 10, 1003])
def test_of_many_records_some_are_drawn(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "MOST_POINTS", 10)
    target = torch.arange(float(count))
    ends = torch.stack([target - 1, target + 1], 1)
    ends[-1] += 5  # an interval that misses its target
    figure = plots.scatter_plots(
        [Column("y", "float32")], {"y": (-target, target)}, {"y": (ends, target)}
    )
    assert figure is not None
    (axes,) = figure.axes
    *lines, points = axes.collections
    shown = [[k * count // 10, -(k * count // 10)] for k in range(10)]
    if count <= 10:
        shown = [[k, -k] for k in range(count)]
    assert points.get_offsets().tolist() == shown
    assert sum(len(line.get_paths()) for line in lines) == len(shown)
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == [f"interval holds it: {count - 1}", "interval misses it: 1"]
    assert axes.get_title("right") == ("10 of 1,003 records" if count > 10 else "")
    assert axes.lines[0].get_xdata()[1] == count - 1  # the diagonal is as long as all values


@pytest.mark.parametrize(("count", "shown", "title"), [(5, 5, None), (40, 24, "24 of 40")])
@pytest.mark.parametrize("of", ["numbers", "classes"])
def test_every_target_is_drawn_or_counted(
    of: str, count: int, shown: int, title: str | None
) -> None:
    values = torch.tensor([0.0, 1.0])
    names = [f"y{number}" for number in range(count)]
    inputs = dict.fromkeys(names, (values, values))
    if of == "numbers":
        figure = plots.scatter_plots([Column(name, "float32") for name in names], inputs)
    else:
        figure = plots.probability_plots(inputs)
    assert figure is not None
    assert [axes.get_title() for axes in figure.axes] == names[:shown]
    assert figure.get_suptitle() == ("" if title is None else f"{title} targets")
