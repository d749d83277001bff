"""Stops one rank of a DDP job of torchrun under a live agent and server, and records what Echo says and when.

    hangs.py OUT BIN FAULT@RANK[,RANK]...     on a host with WORLD GPUs (default 4), as root

The faults are those of stuck.py, and `stop` and `kill` by a signal. Each job is healthy for HEALTHY_S
seconds, then Echo is asked every second for STUCK_S seconds, then the job is killed and Echo asked until
nothing is open. OUT gets hangs.json, and bundles.tar with the bundles of the incidents.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import drive

HEALTHY_S, STUCK_S, AFTER_S = 12, float(os.environ.get("STUCK_S", "33")), 14
BUNDLES = pathlib.Path("/dev/shm/bundles")


class Job:
    """torchrun and its ranks; they import their libraries and wait for `go`."""

    def __init__(self, text, index, binaries):
        self.fault, _, ranks = text.partition("@")
        self.ranks = [int(rank) for rank in ranks.split(",")]
        self.folder = pathlib.Path(f"/dev/shm/stuck-{index}")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        environment = {**os.environ, "FAULTS": str(self.folder), "OMP_NUM_THREADS": "4", "NCCL_NVLS_ENABLE": "0",
                       "NCCL_PROFILER_PLUGIN": str(binaries / "libfleet_nccl_profiler.so")}
        environment.pop("LD_LIBRARY_PATH", None)
        recorder = self.folder / "recorder-"  # PyTorch's, which the agent asks for a dump
        environment |= {"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_FR_DUMP_TEMP_FILE": str(recorder),
                        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(recorder)}
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(drive.WORLD),
                   "--master-port", str(29600 + index), str(drive.HERE / "stuck.py")]
        self.log = open(self.folder / "log", "w")
        self.torchrun = subprocess.Popen(command, env=environment, stdout=self.log, stderr=self.log, start_new_session=True)

    def pid(self, rank):
        return int((self.folder / f"pid-{rank}").read_text())

    def begin(self):
        for rank in self.ranks:
            if self.fault in ("kill", "stop"):
                os.kill(self.pid(rank), signal.SIGKILL if self.fault == "kill" else signal.SIGSTOP)
            else:
                part = self.folder / "part"
                part.write_text(self.fault)
                part.rename(self.folder / f"stuck-{rank}")

    def end(self):
        os.killpg(self.torchrun.pid, signal.SIGKILL)
        for rank in range(drive.WORLD):
            try:
                os.kill(self.pid(rank), signal.SIGKILL)
            except (OSError, ValueError):
                pass
        self.torchrun.wait()


def cli(binaries, *arguments):
    command = [str(binaries / "fleet-echo"), *arguments, "--server", f"http://127.0.0.1:{drive.HTTP}"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=30)
    return answer.stdout + answer.stderr


def what_is_open():
    seen = drive.ask("fleet.cluster.find_outlier_nodes")
    return [
        {key: one[key] for key in ("incident_id", "kind", "class", "rank", "ranks", "reason") if one.get(key) is not None}
        for one in seen["outliers"] + seen["conditions"] if one["state"] == "open"]


def play(job, binaries):
    server, agent, recorder = drive.start(binaries, pathlib.Path("/dev/shm/echo"))
    result = {"fault": f"{job.fault}@{job.ranks}", "polls": []}

    def watch(since, seconds, until=lambda seen: False):
        while drive.now() - since < seconds:
            try:
                seen = what_is_open()
            except OSError as error:
                seen = [str(error)]
            if not result["polls"] or result["polls"][-1][1] != seen:
                result["polls"].append((round(drive.now() - since, 1), seen))
            if until(seen):
                return
            time.sleep(0.5)

    (job.folder / "go").touch()
    begun = drive.now()
    while len(drive.steps(job.folder)) < 30:
        if job.torchrun.poll() is not None or drive.now() - begun > 60:
            result["failed"] = (job.folder / "log").read_text()[-3000:]
            break
        time.sleep(0.2)
    else:
        time.sleep(HEALTHY_S)
        job.begin()
        watch(drive.now(), STUCK_S)
        result["status"] = cli(binaries, "status")
        result["explain"] = cli(binaries, "explain", "--rank", str(job.ranks[0]))
        result["outliers"] = drive.ask("fleet.cluster.find_outlier_nodes")
        for incident in {one["incident_id"] for one in what_is_open()}:
            cli(binaries, "bundle", incident, "--file", str(BUNDLES / f"{job.fault}-{incident}.tar.gz"))
    job.end()
    if "failed" not in result:
        killed = drive.now()
        watch(killed, AFTER_S, lambda seen: not seen)
        result["cleared_after_s"] = round(drive.now() - killed, 1)
        result["cost"] = drive.ask("fleet.cluster.get_cost")
        result["history"] = drive.ask("fleet.cluster.event_history")
    drive.stop(server, agent, recorder)
    result["agent_log"] = pathlib.Path("/dev/shm/echo/run.log").read_text()[-3000:]
    result["server_log"] = pathlib.Path("/dev/shm/echo/serve.log").read_text()[-2000:]
    return result


def main(out, binaries, faults):
    out, binaries, results = pathlib.Path(out), pathlib.Path(binaries), []
    BUNDLES.mkdir(exist_ok=True)
    job = Job(faults[0], 0, binaries)
    for index, text in enumerate(faults):
        playing = job
        job = Job(faults[index + 1], index + 1, binaries) if index + 1 < len(faults) else None
        results.append(play(playing, binaries))
        (out / "hangs.json").write_text(json.dumps(results))
        print(text, "failed" if "failed" in results[-1] else [(at, [(o.get("kind"), o.get("rank", o.get("ranks"))) if isinstance(o, dict) else o for o in seen]) for at, seen in results[-1]["polls"]], flush=True)
    with tarfile.open(out / "bundles.tar", "w") as archive:
        archive.add(BUNDLES, "bundles")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
