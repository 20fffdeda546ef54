"""What the benchmarks beside other libraries share."""

import importlib
import time


def load(name):
    """The module, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def best_ms(call, runs):
    """Of several runs the fastest: other processes only ever make a run slower."""
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return 1e3 * best
