"""One rank of a DDP job that stops in one way or another: stuck.py, with the environment of torchrun.

Each step also averages two metrics, in two groups of all ranks. The file FAULTS/stuck-RANK says how the
rank stops: `spin`, `sleep` and `lock` on the host, `gpu` by a kernel that does not end, `size` by a
tensor of another size, `order` by the two groups in the other order.
"""
import os
import threading
import time

import torch
import torch.distributed as dist
import torch.nn as nn

RANK, FAULTS = int(os.environ["RANK"]), os.environ["FAULTS"]
DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"]))


def spin_for_ever():
    while True:
        pass


def wait_for_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def read_batch(fault):
    """The batch of a data set in which the rank may stop."""
    if fault == "spin":
        spin_for_ever()
    if fault == "sleep":
        time.sleep(3600)
    if fault == "lock":
        wait_for_a_lock()
    return torch.randn(512, 1024)


def average_metrics(metrics, groups, fault):
    size = metrics.numel() // 2 if fault == "size" else metrics.numel()
    for group in reversed(groups) if fault == "order" else groups:
        dist.all_reduce(metrics[:size], group=group)


def fault_of_this_step():
    try:
        with open(f"{FAULTS}/stuck-{RANK}") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def main():
    torch.zeros(1, device=DEVICE)
    while not os.path.exists(f"{FAULTS}/go"):
        time.sleep(0.02)
    torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl", device_id=DEVICE)
    with open(f"{FAULTS}/pid-{RANK}", "w") as file:
        file.write(str(os.getpid()))
    groups = [dist.new_group(), dist.new_group()]
    layers = [layer for _ in range(8) for layer in (nn.Linear(1024, 1024), nn.GELU())]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).to(DEVICE), device_ids=[DEVICE.index])
    optimizer, metrics = torch.optim.AdamW(model.parameters()), torch.zeros(1 << 24, device=DEVICE)
    steps = open(f"{FAULTS}/steps-{RANK}", "w", buffering=1)
    while True:
        fault = fault_of_this_step()
        batch = read_batch(fault).to(DEVICE)
        if fault == "gpu":
            torch.cuda._sleep(10**13)
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        average_metrics(metrics, groups, fault)
        torch.cuda.synchronize()
        steps.write(f"{time.monotonic_ns()} 1\n")


main()
