"""What other libraries reach: figures recorded on another machine, and published claims.

DyNet and DGL cannot be installed beside a current torch, so they are not measured in our own runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class PeerTable(NamedTuple):
    """Examples per second; each cell is inference / training unless the heading says otherwise."""

    headings: Sequence[str]
    lines: Sequence[Sequence[str]]


#: The machine of the tables below.
RECORDED_ON = (
    "one thread of a two-core AMD machine with AVX-512, where PyTorch's default products (MKL) "
    "reach 94 GFLOP/s and oneDNN's 210"
)

#: Benchmark -> what peers reached on that machine.
PEERS: Mapping[str, PeerTable] = {
    "treefc": PeerTable(
        ("random shapes", "h256 B1", "h256 B32", "h256 B128", "h1024 B32", "h1024 B128"),
        (
            ("DyNet 2.1, autobatch", "1160 / 497", "1496 / 626", "1448 / 602", "184 / 64",
             "191 / 65"),
            ("level loop by hand, MKL", "1047 / 386", "1641 / 645", "1745 / 624", "164 / 56",
             "160 / 56"),
            ("level loop by hand, oneDNN", "964 / 404", "2575 / 991", "2579 / 960", "294 / 108",
             "236 / 87"),
            ("hand-batched, identical shapes, oneDNN", "1964 / 640", "3373 / 1396", "3025 / 1515",
             "336 / 104", "307 / 109"),
            ("torchfold", "750 / 264", "957 / 425", "588 / 321", "148 / 48", "109 / 45"),
            ("DGL 2.1", "125 / 71", "843 / 287", "966 / 306", "113 / 35", "59 / 21"),
            ("one node at a time", "611 / 114", "412 / 77", "643 / 84", "72 / 7", ""),
        ),
    ),
    "sst": PeerTable(
        ("binary Tree-LSTM 300 -> 150", "B25", "B256"),
        (
            ("DyNet 2.1, autobatch", "2613 / 1124", "2726 / 1237"),
            ("DGL 2.1", "1215 / 631", "2303 / 1057"),
            ("pytorch-tree-lstm", "2093 / 623", "2339 / 628"),
            ("torchfold", "1109 / 539", "1465 / 832"),
            ("one node at a time", "966 / 168", "975 / 134"),
        ),
    ),
    "sequence": PeerTable(
        ("LSTM 256, SST sentences", "B64"),
        (
            ("packed nn.LSTM", "3215 / 922"),
            ("padded nn.LSTM", "4176 / 1019"),
            ("DyNet 2.1, autobatch", "2785 / 994"),
        ),
    ),
    "molecules": PeerTable(
        ("training, Lipophilicity, width 300, depth 3", "B64", "B512"),
        (
            ("chemprop, D-MPNN", "550", "367"),
            ("PyTorch Geometric, D-MPNN", "598", "393"),
            ("PyTorch Geometric, GINE", "646", "642"),
        ),
    ),
}  # fmt: skip

#: What authors say of their systems; each line with its source.
CLAIMS = (
    "TensorFlow Fold: dynamic batching is more than 10 times as fast on a CPU, and more than 100 "
    "times on a GPU, as alternative implementations "
    "([announcement](https://research.googleblog.com/2017/02/announcing-tensorflow-fold-deep.html)"
    ", 2017, of [Looks et al.](https://arxiv.org/abs/1702.02181)).",
    "DyNet: operations batched on the fly reach a throughput similar to that of batches made by "
    "hand ([Neubig et al.](https://arxiv.org/abs/1705.07860), 2017).",
    "Cavs: trains dynamic networks nearly ten times as fast as TensorFlow Fold and DyNet "
    "([Xu et al.](https://arxiv.org/abs/1712.04048), 2018).",
    "DGL: an epoch of the binary Tree-LSTM on SST, batch 256, takes 3.18 s on a V100 "
    "(its [example](https://github.com/dmlc/dgl/tree/master/examples/pytorch/tree_lstm)).",
)
