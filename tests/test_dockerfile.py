"""The Dockerfile without Docker: what it copies is there and let in, what it installs exists."""

from __future__ import annotations

import re
import shlex
from fnmatch import fnmatch
from pathlib import Path

import tomllib

ROOT = Path(__file__).parents[1]
TEXT = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
INSTRUCTIONS = [line.split(maxsplit=1) for line in TEXT.splitlines() if re.match("[A-Z]", line)]


def arguments(name: str) -> list[str]:
    return [rest for instruction, rest in INSTRUCTIONS if instruction == name]


def test_what_is_copied_is_in_the_context():
    let_in = [line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"]
    sources = [word for rest in arguments("COPY") for word in shlex.split(rest)[:-1]]
    assert sources
    for source in map(Path, sources):
        assert (ROOT / source).exists(), source
        assert any(fnmatch(str(source), pattern) for pattern in let_in), source
    assert sorted(let_in) == sorted(str(Path(source)) for source in sources)


def test_the_build_has_all_that_the_wheel_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["only-include"], "hatch_build.py", "pyproject.toml", "README.md", "LICENSE"}
    copied = {str(Path(w)) for rest in arguments("COPY") for w in shlex.split(rest)[:-1]}
    assert needed <= copied
    (extras,) = [match for rest in arguments("RUN") for match in re.findall(r"'\.\[(.*)\]'", rest)]
    assert extras in project["project"]["optional-dependencies"]
    installed = " ".join(arguments("RUN"))
    for tool in project["build-system"]["requires"]:  # the build is not isolated
        assert re.split("[>=]", tool)[0] in installed


def test_it_runs_the_command_without_rights_of_root():
    assert arguments("ENTRYPOINT") == ['["graphfold"]']
    assert arguments("USER") == ["1000"]
    installed = " ".join(arguments("RUN"))
    assert "exec python /usr/local/lib/graphfold/serve.py" in installed
    assert "/usr/local/lib/graphfold/serve.py" in " ".join(arguments("COPY"))
