"""Time from a fresh process to a model that is ready, and its memory then.

    python bench/bench_start.py MODEL ... [--runs 5]

Runs of the models alternate, each in a process of its own with one thread. Files should be in the
page cache: one start of each before the clock counts sees to that. Linux only (/proc).
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

from intattention.machine import cpu_model
from intattention.machine_facts import commit

CHILD = """
import json, sys, time
begin = time.perf_counter()
from intattention import LLM
imported = time.perf_counter()
LLM.load(sys.argv[1], threads=1)
ready = time.perf_counter()
lines = (line.partition(":") for line in open("/proc/self/status"))
memory = {key: int(value.split()[0]) / 1024 for key, _, value in lines if key.startswith("Rss")}
print(json.dumps({"import": imported - begin, "load": ready - imported, **memory}))
"""


def start(model: str) -> dict[str, float]:
    """Seconds ("import", "load", and "process" until it has ended) and MiB (RssAnon, RssFile)."""
    begin = time.perf_counter()
    out = subprocess.run([sys.executable, "-c", CHILD, model], check=True, capture_output=True)
    result: dict[str, float] = json.loads(out.stdout)
    return {**result, "process": time.perf_counter() - begin}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", help="files or names")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    print(f"{cpu_model()}, 1 thread, commit {commit()}, medians of {options.runs}")
    for model in options.models:
        start(model)
    runs = [{model: start(model) for model in options.models} for _ in range(options.runs)]
    for model in options.models:
        median = {key: statistics.median(run[model][key] for run in runs) for key in runs[0][model]}
        print(
            f"{model}: import {median['import']:.3f} s + load {median['load']:.3f} s = ready "
            f"{median['import'] + median['load']:.3f} s, process {median['process']:.3f} s; "
            f"RssAnon {median['RssAnon']:.0f} MiB, RssFile {median['RssFile']:.0f} MiB"
        )


if __name__ == "__main__":
    main()
