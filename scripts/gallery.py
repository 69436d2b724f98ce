"""Make the pictures of docs/gallery.md: train small models, then draw, explain and report.

    python scripts/gallery.py

Takes some minutes on one core. The treebanks of two pictures are looked for under GRAPHFOLD_DATA.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import graphfold
from graphfold.recipe import Run

PICTURES = Path(__file__).parents[1] / "docs" / "gallery"
CELECOXIB = "Cc1ccc(cc1)-c1cc(nn1-c1ccc(cc1)S(N)(=O)=O)C(F)(F)F"
EXPRESSION = "9\t( ( ( ( ( [MAX 2 ) ( ( ( [MIN 4 ) 7 ) ] ) ) 9 ) ( ( ( ( [SM 3 ) 8 ) 5 ) ] ) ) ] )"
REVIEW = "((((A) ((not so) (bad))) (start)) ((,) ((then) ((a) (((truly) (awful)) (ending))))))"
SENTENCE = """\
1 The the DET DT _ 3 det _ _
2 old old ADJ JJ _ 3 amod _ _
3 engine engine NOUN NN _ 4 nsubj _ _
4 runs run VERB VBZ _ 0 root _ _
5 deep deep ADJ JJ _ 6 amod _ _
6 trees tree NOUN NNS _ 4 obj _ _
7 quickly quickly ADV RB _ 4 advmod _ _
"""


def train(experiment: str, folder: Path, **overrides: object) -> Run:
    """A run without files for TensorBoard."""
    options = {"experiment": experiment, "logger": "none", **overrides}
    return graphfold.train(options, folder=folder / experiment)


def report_figures(run: Run) -> list[str]:
    """The figures of a report: curves, predictions, then the worst records."""
    text = (run.folder / "report.html").read_text(encoding="utf-8")
    return re.findall(r"<svg.*?</svg>", text, re.DOTALL)


def pictures(folder: Path) -> dict[str, str]:
    """Name -> SVG element."""
    molecules = train("chembl_gcn", folder)
    curves, scatter, *_ = report_figures(molecules)
    lists = train("listops_tree_lstm", folder)
    _, confusion, *worst = report_figures(lists)
    sentiment = train("sst_tree_lstm", folder, **{"trainer.max_epochs": 5})
    tagger = train("ud_upos", folder, **{"trainer.max_epochs": 2})
    return {
        "explained": molecules.load().draw(CELECOXIB).svg,
        "curves": curves,
        "predictions": scatter,
        "confusion": confusion,
        "worst": worst[0],
        "expression": lists.load().draw(EXPRESSION).svg,
        "review": sentiment.load().draw(REVIEW).svg,
        "sentence": tagger.load().draw(SENTENCE.replace(" ", "\t")).svg,
    }


def main() -> int:
    """Writes all pictures."""
    with tempfile.TemporaryDirectory() as folder:
        for name, svg in pictures(Path(folder)).items():
            (PICTURES / f"{name}.svg").write_text(svg.strip() + "\n", encoding="utf-8")
            print(f"{name}.svg: {len(svg):,} characters")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
