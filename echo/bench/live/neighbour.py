"""Computes on GPU RANK while the file FAULTS/neighbour-RANK exists: neighbour.py RANK."""
import os
import sys
import time

import torch

flag = f"{os.environ['FAULTS']}/neighbour-{sys.argv[1]}"
x = torch.randn(4096, 4096, device=f"cuda:{sys.argv[1]}", dtype=torch.bfloat16)
while True:
    if os.path.exists(flag):
        for _ in range(20):
            x = (x @ x) * 0.01
        torch.cuda.synchronize(x.device)
    else:
        time.sleep(0.01)
