"""Run the benches, or one of them.

python -m bench [NAME] [--quick]
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module

from bench.processes import NotMeasured
from bench.result import HEADING, RESULTS, Result

# Names only: a bench without Spark must not wait for pyspark to load.
BENCHES: Mapping[str, str] = {
    "idle_memory": "resident memory of an idle coordinator",
    "submit": "submit to start in a worker",
    "sync": "no-op tasks claimed and finished per second",
    "first_row": "command to first committed row",
    "demo": "the demo job against a hand-written script",
    "epochs": "the demo job in 1, 10 and 100 epochs against the script",
    "failover": "SIGKILL of the leader to the next completed epoch",
    "compaction": "500 small files against Iceberg's own rewrite_data_files",
    "passes": "a full pass of the leader over 5,000 and 20,000 open jobs",
    "planning": "planning a table of 100,000 files on a worker",
    "row_kinds": "an epoch of inserted rows against one that knows no row kinds",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description="Measure against the aims.")
    parser.add_argument("name", nargs="?", choices=sorted(BENCHES), help="only this one")
    parser.add_argument("--quick", action="store_true", help="smaller, into results/quick/")
    asked = parser.parse_args()
    # Asked to stop it unwinds, and takes with it what it started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    folder = RESULTS / "quick" if asked.quick else RESULTS
    print(HEADING, flush=True)
    failed = 0
    for name in [asked.name] if asked.name else BENCHES:
        run: Callable[..., Iterator[Result]] = import_module(f"bench.{name}").run
        try:
            for result in run(quick=asked.quick):
                result.write(folder)
                print(result.line(), flush=True)
        except NotMeasured as error:
            print(f"{name}: not measured: {error}", file=sys.stderr, flush=True)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
