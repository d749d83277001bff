"""Reads exported Kineto traces with HolisticTraceAnalysis, and compares its figures with the recording.

    hta_figures.py TRACES RECORDING

TRACES is the folder of an export, RECORDING what it was made of, with the times of the GPU of each collective. Fails
where HTA sees other ranks, other kernels, or another time of communication.
"""

import collections
import gzip
import json
import sys

from hta.trace_analysis import TraceAnalysis

# HTA cuts times and durations to whole microseconds.
PER_KERNEL_US = 2


def recorded(path):
    """Returns the count and the microseconds of each kernel, by rank and name."""
    kernels = collections.defaultdict(lambda: [0, 0.0])
    with gzip.open(path, "rt") as lines:
        for line in lines:
            row = json.loads(line)
            if row["kind"] == "coll":
                kernel = kernels[row["rank"], "ncclDevKernel_" + row["func"]]
                kernel[0] += 1
                kernel[1] += (row["gpu_stop_ns"] - row["gpu_start_ns"]) / 1e3
    return kernels


def main():
    traces, recording = sys.argv[1:]
    expected = recorded(recording)
    analysis = TraceAnalysis(trace_dir=traces)
    kinds, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=100, duration_ratio=1.0)
    if list(kinds["kernel_type"]) != ["COMMUNICATION"]:
        sys.exit(f"HTA sees other kinds of kernels:\n{kinds}")
    found = {}
    for _, row in kernels.iterrows():
        found[row["rank"], row["name"]] = (row["sum (us)"] / row["mean (us)"], row["sum (us)"])
    if found.keys() != expected.keys():
        sys.exit(f"HTA sees {sorted(found)}, recorded are {sorted(expected)}")
    for key, (count, total_us) in expected.items():
        seen, seen_us = found[key]
        if round(seen) != count or abs(seen_us - total_us) > PER_KERNEL_US * count:
            sys.exit(f"{key}: HTA sees {seen} kernels of {seen_us} us, recorded are {count} of {total_us} us")
    for _, row in analysis.get_temporal_breakdown(visualize=False).iterrows():
        if row["compute_time(us)"] != 0 or not row["non_compute_time(us)"] > 0:
            sys.exit(f"HTA sees time of computation:\n{row}")
    print(f"{len(expected)} kinds of kernels of {len({rank for rank, _ in expected})} ranks are as recorded")


if __name__ == "__main__":
    main()
