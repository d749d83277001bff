"""Measures how much longer a step takes beside an agent: phases without an agent alternate with phases beside one.

    cost.py OUT BIN LOOP...     on a host with WORLD GPUs, as root; loops and BIN as in drive.py

The agent runs with default flags in one phase, and without processes that have no rank (`--processes nccl`) in
another. CYCLES (4) times three phases of PHASE_S (15) seconds; of each the first SETTLE_S (4) are not counted. OUT gets
cost.json with the durations of a step per unit of work, in milliseconds: median, mean, and that of each phase.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import drive

CYCLES, PHASE_S, SETTLE_S = (int(os.environ.get(name, usual)) for name, usual in (("CYCLES", "4"), ("PHASE_S", "15"), ("SETTLE_S", "4")))
ARMS = {"no agent": None, "default flags": [], "--processes nccl": ["--processes", "nccl"]}


def step_ms(log, since, until):
    """Milliseconds per unit of work of each step between two instants."""
    inside = [(t / 1e9, units) for t, units in log if since <= t / 1e9 <= until]
    return [1e3 * (t - before) / units for (before, _), (t, units) in zip(inside, inside[1:])]


def cpu_s(pid):
    """CPU time of a process so far, in seconds."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def phase(binaries, flags, logs):
    """Lets a phase pass, with an agent if there are flags for one. Returns begin and end of the part that counts, in seconds, and the agent's share of a core."""
    agent = None
    if flags is not None:
        command = [str(binaries / "fleet-agent"), "run", "--endpoint", "http://127.0.0.1:14317", "--cluster", "lab", *flags]
        agent = subprocess.Popen(command, stdout=logs, stderr=logs)
    time.sleep(SETTLE_S)
    since, used = drive.now(), agent and cpu_s(agent.pid)
    time.sleep(PHASE_S - SETTLE_S)
    until = drive.now()
    share = agent and (cpu_s(agent.pid) - used) / (until - since)
    if agent:
        agent.terminate()
        agent.wait()
    return since, until, share


def measure(job, binaries, logs):
    (job.folder / "go").touch()
    begun = drive.now()
    while len(drive.steps(job.folder)) < 30:
        if not job.alive() or drive.now() - begun > 90:
            sys.exit((job.folder / "log").read_text()[-3000:])
        time.sleep(0.2)
    time.sleep(5)
    phases = {arm: [] for arm in ARMS}
    for cycle in range(CYCLES):
        # Each arm is the first of a cycle in turn.
        order = list(ARMS)[cycle % len(ARMS):] + list(ARMS)[:cycle % len(ARMS)]
        for arm in order:
            phases[arm].append(phase(binaries, ARMS[arm], logs))
    log = drive.steps(job.folder)
    result = {}
    for arm, of_arm in phases.items():
        each = [step_ms(log, since, until) for since, until, _ in of_arm]
        every = [ms for one in each for ms in one]
        shares = [share for *_, share in of_arm if share is not None]
        result[arm] = {
            "median_ms": round(statistics.median(every), 4), "mean_ms": round(statistics.fmean(every), 4),
            "phase_means_ms": [round(statistics.fmean(one), 4) for one in each], "steps": len(every),
            "agent_cpu": round(statistics.fmean(shares), 4) if shares else None}
    return result


def main(out, binaries, *loops):
    out, binaries, scratch = pathlib.Path(out), pathlib.Path(binaries), drive.SCRATCH
    scratch.mkdir(parents=True, exist_ok=True)
    logs = open(out / "agents.log", "w")
    command = [str(binaries / "fleet-echo"), "serve", "--db", str(scratch / "db"), "--insecure-no-tls", "--http-listen",
               f"127.0.0.1:{drive.HTTP}", "--otlp-listen", "127.0.0.1:14317"]
    server = subprocess.Popen(command, stdout=logs, stderr=logs)
    results = {}
    for index, text in enumerate(loops):
        job = drive.Job(f"{text}:healthy", index, binaries)
        try:
            results[text] = measure(job, binaries, logs)
        finally:
            job.end()
        print(text, json.dumps(results[text]), flush=True)
        (out / "cost.json").write_text(json.dumps(results, indent=1))
    server.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
