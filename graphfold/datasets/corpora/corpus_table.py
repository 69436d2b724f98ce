"""The named corpora, as `corpora.yaml` lists them. None is downloaded.

Each is a folder under `data.root`, or made when it is first read. A folder with files of the same
names loads in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from graphfold.datasets.corpora.corpus import Corpus, CorpusFile
from graphfold.datasets.readers.spec import AdapterSpec
from graphfold.errors import ConfigError, did_you_mean


def find_corpus(name: str) -> Corpus:
    """A corpus by its name; raises ConfigError with the nearest name for an unknown one."""
    if name not in CORPORA:
        raise ConfigError(
            f"there is no corpus '{name}'.{did_you_mean(name, CORPORA)} Use one of "
            f"{', '.join(CORPORA)}; or name an adapter and set data.path.",
            corpus=name,
        )
    return CORPORA[name]


def _corpus(name: str, facts: dict[str, Any]) -> Corpus:
    adapter = AdapterSpec(facts.pop("adapter"), facts.pop("options", {}))
    files = tuple(CorpusFile(**file) for file in facts.pop("files", ()))
    return Corpus(name, adapter=adapter, files=files, **facts)


_TABLE = Path(__file__).with_name("corpora.yaml").read_text(encoding="utf-8")

# PyYAML's loader in C takes a seventh of the time; a PyYAML built without libyaml lacks it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

#: All corpora by name.
CORPORA: Mapping[str, Corpus] = {
    name: _corpus(name, facts) for name, facts in yaml.load(_TABLE, _LOADER).items()
}
