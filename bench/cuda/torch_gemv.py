"""torch's float16 GEMV on the shapes of bench_cuda: the baseline of docs/cuda.md.

    python bench/cuda/torch_gemv.py >> result.jsonl

A launch reads another copy of the weights than the ones before it: together they exceed L2 five
times. The launches are replayed as one CUDA graph, timed by events; the median of 20 replays.
"""

from __future__ import annotations

import json
import statistics
import sys

import torch

HIDDEN, INTERMEDIATE, QKV, VOCAB = 3584, 18944, 4608, 152064  # Qwen2.5-7B
SHAPES = {
    "qkv": (QKV, HIDDEN),
    "o": (HIDDEN, HIDDEN),
    "gate_up": (2 * INTERMEDIATE, HIDDEN),
    "down": (HIDDEN, INTERMEDIATE),
    "lm_head": (VOCAB, HIDDEN),
}
ROUNDS = 20


def seconds_per_launch(rows: int, k: int) -> float:
    device = torch.device("cuda")
    l2 = torch.cuda.get_device_properties(device).L2_cache_size
    copies = max(2, 5 * l2 // (2 * rows * k) + 1)
    weights = torch.randn(copies, rows, k, device=device, dtype=torch.float16)
    x = torch.randn(k, device=device, dtype=torch.float16)
    y = torch.empty(rows, device=device, dtype=torch.float16)

    def launches() -> None:
        for _ in range(4):
            for w in weights:
                torch.mv(w, x, out=y)

    launches()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launches()
    times = []
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3 / (4 * copies))
    return statistics.median(times)


def main() -> None:
    torch.manual_seed(1)
    for name, (rows, k) in SHAPES.items():
        seconds = seconds_per_launch(rows, k)
        size = 2 * rows * k
        line = {
            "kind": "torch_f16",
            "name": name,
            "us": round(seconds * 1e6, 2),
            "bytes": size,
            "gb_s": round(size / seconds * 1e-9),
            "torch": torch.__version__,
        }
        print(json.dumps(line))
        print(f"torch f16  {name:20} {line['us']:9.2f} us {line['gb_s']:7} GB/s", file=sys.stderr)


if __name__ == "__main__":
    main()
