"""How many records a second a server answers, and how soon: records per second, p50 and p99.

    python examples/serve.py runs/solubility &
    python examples/serve_load.py molecules.txt --clients 16 --seconds 10

Each client sends one record after the other over one connection, as soon as the last is answered.
The file has a record on each line: a SMILES or a tree.
"""

import argparse
import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from urllib.parse import urlsplit


def ask_until(end, url, records):
    """One client: the seconds that each answer took, and how many records had none."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname, place.port or 80)
    seconds, failed = [], 0
    for record in records:
        begin = time.perf_counter()
        if begin > end:
            break
        body = json.dumps({"records": [record]})
        connection.request("POST", "/predict", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        seconds.append(time.perf_counter() - begin)
        failed += answer.status != 200 or bool(json.loads(content)["predictions"][0]["reason"])
    connection.close()
    return seconds, failed


def measure(url, records, clients, seconds):
    """Records per second, the seconds of the answers in ascending order, how many failed."""
    end = time.perf_counter() + seconds
    with ThreadPoolExecutor(clients) as pool:
        parts = [islice(cycle(records), first, None) for first in range(clients)]
        answers = [*pool.map(lambda part: ask_until(end, url, part), parts)]
    times = sorted(time for part, _ in answers for time in part)
    return len(times) / seconds, times, sum(failed for _, failed in answers)


def main(argv=None):
    """Measures what the command line says, and prints it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="a record on each line")
    parser.add_argument("--url", default="http://localhost:8000")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args(argv)
    records = [line for line in options.file.read_text().splitlines() if line.strip()]
    rate, times, failed = measure(options.url, records, options.clients, options.seconds)
    p50, p99 = (1000 * times[int(share * (len(times) - 1))] for share in (0.5, 0.99))
    print(
        f"{options.clients} clients: {rate:.0f} records/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms, "
        f"{failed} without a prediction"
    )


if __name__ == "__main__":
    main()
