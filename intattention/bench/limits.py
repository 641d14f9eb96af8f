"""What this machine can do at most: the rates that figures are set against."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from intattention import _core

BANDWIDTH_BYTES = 1 << 28  # far beyond any last-level share of one core
CACHE_SIZES = Path("/sys/devices/system/cpu/cpu0/cache")
ASSUMED_CACHE = 32 << 20  # where the system does not tell


def read_bandwidth(threads: int) -> float:
    """Bytes per second that ``threads`` NumPy sums over separate arrays read, best of three."""
    arrays = [np.ones(BANDWIDTH_BYTES // 8, np.int64) for _ in range(threads)]
    best = 0.0
    with ThreadPoolExecutor(threads) as executor:
        for _ in range(3):
            start = time.perf_counter()
            list(executor.map(np.sum, arrays))
            best = max(best, threads * BANDWIDTH_BYTES / (time.perf_counter() - start))
    return best


def peak_gmacs(pool: _core.ThreadPool) -> float:
    """GMAC/s of the active table's own s8 gemm on data in the first-level cache, best of five."""
    rng = np.random.default_rng(0)
    q = rng.standard_normal((8 * pool.threads, 512, 128), np.float32)
    k = np.ascontiguousarray(q[:, :256])
    best = 0.0
    for _ in range(5):
        stages = _core.attention_stages(q, k, k, False, 0.1, pool)
        macs = q.shape[0] * 512 * 256 * 128
        best = max(best, macs * pool.threads / stages["qk"] / 1e9)
    return best


def last_level_cache() -> int:
    """Bytes of the largest cache that CPU 0 has, ASSUMED_CACHE if the system does not tell."""
    sizes = [path.read_text().strip() for path in CACHE_SIZES.glob("index*/size")]
    units = {"K": 1 << 10, "M": 1 << 20}
    known = [int(size[:-1]) * units[size[-1]] for size in sizes if size[-1:] in units]
    return max(known, default=ASSUMED_CACHE)
