# graphfold on CPUs: the command, and the server of examples/serve.py.
#
#   docker build -t graphfold .
#   docker run --rm -v "$PWD:/work" graphfold predict runs/solubility new.csv
#   docker run --rm -v "$PWD:/work" -p 8000:8000 --entrypoint graphfold-serve graphfold runs/solubility
#
# Images for GPUs differ in the index of torch alone.
FROM python:3.11-slim-bookworm

# A model's own kernels are compiled where it runs, so the compiler stays; RDKit draws with two
# libraries of X.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --no-install-recommends --yes gcc libc6-dev libgomp1 libxext6 libxrender1 \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /graphfold
COPY constraints.txt ./
RUN pip install --no-cache-dir --constraint constraints.txt \
    --index-url https://download.pytorch.org/whl/cpu --extra-index-url https://pypi.org/simple \
    torch hatchling packaging
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY configs ./configs
COPY graphfold ./graphfold
RUN pip install --no-cache-dir --no-build-isolation --constraint constraints.txt '.[serve]'
COPY examples/serve.py /usr/local/lib/graphfold/serve.py
RUN printf '#!/bin/sh\nexec python /usr/local/lib/graphfold/serve.py "$@" --host 0.0.0.0\n' \
        > /usr/local/bin/graphfold-serve \
    && chmod 755 /usr/local/bin/graphfold-serve \
    && useradd --uid 1000 --create-home graphfold

# Runs and data are in /work; compiled kernels are kept in the home of the user.
USER 1000
WORKDIR /work
EXPOSE 8000
ENTRYPOINT ["graphfold"]
CMD ["--help"]
