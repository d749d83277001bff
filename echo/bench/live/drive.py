"""Runs loops with faults under live agents and a live server, and compares what Echo says with the truth.

    drive.py OUT BIN LOOP[:OPTION...]...     on a host with WORLD GPUs (default 4), as root

BIN has fleet-echo, fleet-agent and libfleet_nccl_profiler.so. A loop of job.py is healthy first; then its
faults follow one another, with healthy pauses. Options: `bare` (no profiler plugin), `healthy` (no
fault), `clips` (each fault is recorded by itself, with CLIP_S seconds before it, 6), or faults, each
FAULT@RANK[*STRENGTH]: sleep (of the data set; strength in steps), cpu (one core shared with three busy
loops), neighbour (a process computes on the GPU), stop (stopped by signals for STRENGTH seconds of every
1.5), everyone (sleep, on all ranks), or what the data set does instead of sleeping, by its name in
job.py's SLOW: gc, decode, copy, alloc, recapture, lock, disk. Without faults given, one of the plans of
three is chosen by the position of the loop. A loop whose name begins with `engine` is a process per GPU
that has no rank and no NCCL. OUT gets result.json, recordings as blocks (blocks.tar) and, without the
plugin or with the option `raw`, as they are. No loop begins after LIMIT_S seconds (500). PHASES_S has
the seconds before the first fault, of a fault, between two, and after the last one.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import urllib.request

HERE, SCRATCH = pathlib.Path(__file__).parent, pathlib.Path("/dev/shm/echo")
WORLD = int(os.environ.get("WORLD", "4"))
# Agents send every 5 s, and what processes lose time to every 10 s, compared with three such periods.
HEALTHY_S, FAULT_S, PAUSE_S, AFTER_S = (int(s) for s in os.environ.get("PHASES_S", "14,20,8,14").split(","))
HTTP = 18081
LIMIT_S = float(os.environ.get("LIMIT_S", "500"))
CLIP_S = float(os.environ.get("CLIP_S", "6"))


def steps(folder, rank=0):
    try:
        lines = (folder / f"steps-{rank}").read_text().split("\n")[:-1]
    except FileNotFoundError:
        return []
    return [tuple(map(int, line.split())) for line in lines]


def pace(log, since, until):
    """Seconds per unit of work between two instants of the monotonic clock, and the units."""
    inside = [(t, u) for t, u in log if since <= t / 1e9 <= until]
    units = sum(u for _, u in inside[1:])
    return ((inside[-1][0] - inside[0][0]) / 1e9 / units if units else None), units


def threads(pid):
    return [int(t) for t in os.listdir(f"/proc/{pid}/task")]


class Fault:
    """One fault from outside, between `begin` and `end`."""

    def __init__(self, text, job):
        self.text = text
        self.kind, at = text.split("@")
        rank, _, strength = at.partition("*")
        self.rank, self.strength, self.job = int(rank), float(strength or 0.7), job
        self.undo = []

    def begin(self):
        begin = getattr(self, self.kind, None)
        begin() if begin else self.flag("sleep", self.kind)

    def end(self):
        for undo in self.undo:
            undo()

    def flag(self, name, text="", rank=None):
        path = self.job.folder / f"{name}-{self.rank if rank is None else rank}"
        path.write_text(text)
        self.undo.append(path.unlink)

    def sleep(self):
        self.flag("sleep", f"{self.strength * self.job.step_s():.6f}")

    def everyone(self):
        text = f"{self.strength * self.job.step_s():.6f}"
        for rank in range(WORLD):
            self.flag("sleep", text, rank)

    def neighbour(self):
        self.flag("neighbour")

    def cpu(self):
        pid, core = self.job.ranks[self.rank].pid, 60 % os.cpu_count()
        usual = os.sched_getaffinity(pid)
        busy = [subprocess.Popen(["taskset", "-c", str(core), "sh", "-c", "while :; do :; done"]) for _ in range(3)]

        def pin(cores):
            for thread in threads(pid):
                try:
                    os.sched_setaffinity(thread, cores)
                except ProcessLookupError:
                    pass

        pin({core})
        self.undo += [lambda: pin(usual), *(one.kill for one in busy)]

    def stop(self):
        pid, over = self.job.ranks[self.rank].pid, threading.Event()

        def pulses():
            while not over.is_set():
                os.kill(pid, signal.SIGSTOP)
                time.sleep(self.strength)
                os.kill(pid, signal.SIGCONT)
                over.wait(max(0.2, 1.5 - self.strength))

        worker = threading.Thread(target=pulses)
        worker.start()
        self.undo += [over.set, worker.join]


PLANS = [
    ["sleep@2", "neighbour@1", "cpu@3"], ["cpu@0", "sleep@3*0.4", "neighbour@2"], ["neighbour@3", "cpu@1", "sleep@0"],
    ["sleep@1*1.5", "stop@2*0.4", "neighbour@0"], ["cpu@2", "neighbour@0", "sleep@1*0.5"], ["sleep@3*0.3", "cpu@0", "gc@2"],
]


class Job:
    """The processes of one loop; they import their libraries and wait for `go`."""

    def __init__(self, text, index, binaries):
        self.name, *options = text.split(":")
        self.text, self.bare, self.raw, self.clips = text, "bare" in options, "raw" in options, "clips" in options
        faults = [one for one in options if "@" in one] or PLANS[index % len(PLANS)]
        self.faults = [] if "healthy" in options else [Fault(one, self) for one in faults]
        self.faults = [one for one in self.faults if one.rank < WORLD]
        self.folder = pathlib.Path(f"/dev/shm/job-{index}")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        environment = {
            **os.environ, "FAULTS": str(self.folder), "NCCL_NVLS_ENABLE": "0", "OMP_NUM_THREADS": "4", "TOKENIZERS_PARALLELISM": "false"}
        environment.pop("LD_LIBRARY_PATH", None)
        if not self.bare:
            environment["NCCL_PROFILER_PLUGIN"] = str(binaries / "libfleet_nccl_profiler.so")
        self.log = open(self.folder / "log", "w")
        self.is_engine = self.name.startswith("engine")
        launcher = {"WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29500 + index)}

        def identity(rank):
            return {"GPU": str(rank)} if self.is_engine else launcher | {"RANK": str(rank), "LOCAL_RANK": str(rank)}

        self.ranks = [self.spawn(["job.py", self.name], environment | identity(r)) for r in range(WORLD)]
        gpus = {one.rank for one in self.faults if one.kind == "neighbour"}
        self.neighbours = [self.spawn(["neighbour.py", str(gpu)], environment) for gpu in gpus]

    def spawn(self, command, environment):
        command = [sys.executable, str(HERE / command[0]), *command[1:]]
        return subprocess.Popen(command, env=environment, stdout=self.log, stderr=self.log)

    def step_s(self):
        recent = [t for t, _ in steps(self.folder)[-40:]]
        return (recent[-1] - recent[0]) / 1e9 / max(1, len(recent) - 1)

    def alive(self):
        return all(rank.poll() is None for rank in self.ranks)

    def end(self):
        for one in self.ranks + self.neighbours:
            one.kill()
        for one in self.ranks + self.neighbours:
            one.wait()


def ask(tool, **arguments):
    request = urllib.request.Request(
        f"http://127.0.0.1:{HTTP}/api/v1/tools/{tool}", json.dumps({"cluster": "lab"} | (arguments if "from" in arguments else {"window": "all"} | arguments)).encode(),
        {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def explained(job, fault, since):
    """What an operator reads about the process that has the fault."""
    pid, window = job.ranks[fault.rank].pid, {"from": int(1000 * (since + time.time() - now())), "to": int(1000 * time.time())}
    try:
        answers = {name: ask(f"fleet.host.{name}", pid=pid, **window) for name in ("get_causal_chains", "get_trace_stats", "get_stacks")}
        if not job.is_engine:
            answers["explain_rank"] = ask("fleet.cluster.explain_rank", rank=fault.rank)
        return answers
    except OSError as error:
        return f"{error}: {error.read().decode() if hasattr(error, 'read') else ''}"


def start(binaries, scratch):
    """A server and an agent with default flags, and a recorder beside it."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    outputs = {name: open(scratch / f"{name}.log", "w") for name in ("serve", "run", "record")}

    def spawn(name, program, *arguments):
        return subprocess.Popen([str(binaries / program), name, *arguments], stdout=outputs[name], stderr=outputs[name])

    server = spawn("serve", "fleet-echo", "--db", str(scratch / "db"), "--insecure-no-tls", "--http-listen", f"127.0.0.1:{HTTP}",
                   "--otlp-listen", "127.0.0.1:14317")
    for _ in range(100):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{HTTP}/healthz", timeout=1)
            break
        except OSError:
            time.sleep(0.1)
    else:
        sys.exit(f"fleet-echo does not answer: {(scratch / 'serve.log').read_text()}")
    agent = spawn("run", "fleet-agent", "--endpoint", "http://127.0.0.1:14317", "--cluster", "lab", "--metrics-listen", "127.0.0.1:19464")
    recorder = spawn("record", "fleet-agent", str(scratch / "all.jsonl.gz"))
    return server, agent, recorder


def stop(server, agent, recorder):
    """Ends what `start` began; agent and recorder write what they have first."""
    for one in (agent, recorder):
        one.send_signal(signal.SIGINT)
    for one in (agent, recorder):
        try:
            one.wait(10)
        except subprocess.TimeoutExpired:
            one.kill()
    server.kill()
    server.wait()


def metrics(port):
    try:
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
    except OSError as error:
        return [str(error)]
    wanted = ("lost", "dropped", "discard", "cpu_seconds", "resident", "sent_bytes", "points")
    return [line for line in text.split("\n") if not line.startswith("#") and any(word in line for word in wanted)][:200]


def now():
    return time.monotonic()


def play(job, binaries, scratch):
    """One loop from its first step to the answers about it."""
    server, agent, recorder = start(binaries, scratch)
    result = {"loop": job.text, "phases": [], "polls": [], "unix_minus_monotonic": time.time() - now()}
    over = threading.Event()

    def poll():
        while not over.wait(1.0):
            try:
                seen = ask("fleet.cluster.find_outlier_nodes")
            except OSError:
                continue
            open_now = [one.get("rank") for one in seen["outliers"] if one["state"] == "open"]
            open_now += [one.get("kind") for one in seen["conditions"] if one["state"] == "open"]
            result["polls"].append((round(now(), 1), open_now))

    (job.folder / "go").touch()
    begun = now()
    while len(steps(job.folder)) < 30:
        if not job.alive() or now() - begun > 60:
            result["failed"] = (job.folder / "log").read_text()[-3000:]
            break
        time.sleep(0.2)
    else:
        watcher = threading.Thread(target=poll, daemon=True)
        watcher.start()

        def phase(name, seconds):
            since = now()
            time.sleep(seconds)
            result["phases"].append({"name": name, "since": since, "until": now()})

        phase("healthy", HEALTHY_S)
        for number, fault in enumerate(job.faults):
            if job.clips:
                name = f"{number}-{fault.kind}{fault.rank}"
                clip = subprocess.Popen([str(binaries / "fleet-agent"), "record", str(scratch / f"clip-{job.name}-{name}.jsonl.gz")],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                time.sleep(CLIP_S)
            fault.begin()
            phase(fault.text, FAULT_S)
            if job.clips:
                clip.send_signal(signal.SIGINT)
                clip.wait()
            result["phases"][-1]["explained"] = explained(job, fault, result["phases"][-1]["since"])
            fault.end()
            phase("healthy", PAUSE_S if number + 1 < len(job.faults) else AFTER_S)
        if not job.faults:
            phase("healthy", 46)
        result["alive"] = job.alive()
        if not job.is_engine:
            result["outliers"] = ask("fleet.cluster.find_outlier_nodes")
            result["cost"] = ask("fleet.cluster.get_cost")
            unix_ms = lambda instant: int(1000 * (instant + result["unix_minus_monotonic"]))
            for one, after in zip(result["phases"][1::2], result["phases"][2::2]):
                one["cost"] = ask("fleet.cluster.get_cost", **{"from": unix_ms(one["since"]), "to": unix_ms(after["until"])})
        over.set()
        watcher.join()
    result["agent"], result["server"] = metrics(19464), metrics(HTTP)
    # Each engine has a pace of its own.
    log = steps(job.folder, job.faults[0].rank if job.is_engine and job.faults else 0)
    usual = None
    for one in result["phases"]:
        per_unit, units = pace(log, one["since"] + (1.5 if one["name"] == "healthy" else 0), one["until"])
        one["s_per_unit"] = per_unit
        if one["name"] == "healthy":
            usual = per_unit
        elif usual and per_unit:
            one["lost_gpu_s"] = round(WORLD * (one["until"] - one["since"]) * (1 - usual / per_unit), 1)
    job.end()
    stop(server, agent, recorder)
    result["agent_log"] = (scratch / "run.log").read_text()[-4000:]
    result["server_log"] = (scratch / "serve.log").read_text()[-2000:]
    return result


def reduce(recording, target):
    """Blocks of the recording, in the smallest size that stays below 65 kB."""
    script = HERE / "../../../testdata/straggler/reduce.py"
    script = script if script.exists() else HERE / "reduce.py"
    for exponent in range(2, 12):
        reduced = subprocess.run(["nice", sys.executable, str(script), str(recording), str(target), str(exponent)], check=False)
        if reduced.returncode:
            return print(f"{recording} is kept: it could not be reduced")
        if target.stat().st_size < 65_000:
            break
    recording.unlink()


def main(out, binaries, loops):
    out, binaries = pathlib.Path(out), pathlib.Path(binaries)
    results, reducing, blocks = [], [], pathlib.Path("/dev/shm/blocks")
    shutil.rmtree(blocks, ignore_errors=True)
    blocks.mkdir()
    next_job, begun = Job(loops[0], 0, binaries), now()
    for index, text in enumerate(loops):
        # The next job imports its libraries meanwhile.
        has_next = index + 1 < len(loops) and now() - begun < LIMIT_S
        job, next_job = next_job, Job(loops[index + 1], index + 1, binaries) if has_next else None
        result = play(job, binaries, SCRATCH)
        results.append(result)
        (out / "result.json").write_text(json.dumps(results))
        print(text, "failed" if "failed" in result else [(p["name"], p.get("lost_gpu_s")) for p in result["phases"]], flush=True)
        for clip in SCRATCH.glob("clip-*"):
            shutil.move(clip, out / clip.name)
        recording = pathlib.Path(f"/dev/shm/{index}.jsonl.gz")
        if "failed" not in result and (SCRATCH / "all.jsonl.gz").exists():
            shutil.move(SCRATCH / "all.jsonl.gz", recording)
            if job.bare or job.raw:
                # Without GPU times there are no sums of them; the calls are the recording.
                shutil.copy(recording, out / f"{index}.jsonl.gz")
            if job.bare:
                continue
            target = blocks / f"{index}-{text.replace(':', '_').replace('@', '').replace('*', 'x')}.gz"
            reducing.append(threading.Thread(target=reduce, args=(recording, target)))
            reducing[-1].start()
        if not next_job:
            print(f"{len(loops) - index - 1} loops were left out")
            break
    for one in reducing:
        one.join(60)
    with tarfile.open(out / "blocks.tar", "w") as archive:
        archive.add(blocks, "blocks")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
