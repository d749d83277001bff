"""One rank of a training or inference loop: job.py KIND, with the environment of torchrun.

Loops are written with the public interfaces of PyTorch. The data set of a rank sleeps for as many
seconds as the file FAULTS/sleep-RANK says, or does what the function of that name in SLOW does, so a
fault comes from outside. The duration and the work units of each step go to FAULTS/steps-RANK.
The loop `engine` is one process without NCCL and without a rank; GPU is the number of its device.
"""
import contextlib
import gc
import os
import random
import sys
import threading
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

RANK, SIZE = int(os.environ.get("RANK") or os.environ["GPU"]), int(os.environ.get("WORLD_SIZE", "1"))
FAULTS = os.environ["FAULTS"]
DEVICE = torch.device("cuda", RANK)


class Block(nn.Module):
    def __init__(self, width, heads=8):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, layers=8, width=1024, vocab=8192):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocab, width), nn.Linear(width, vocab)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Tokens(torch.utils.data.IterableDataset):
    """Batches of random tokens; reading one takes as long as FAULTS/sleep-RANK says."""

    def __init__(self, batch=8, length=512, vocab=8192):
        self.shape, self.vocab = (batch, length + 1), vocab

    def __iter__(self):
        while True:
            read_slowly()
            yield torch.randint(self.vocab, self.shape)


def collect_garbage():
    garbage = [[i] for i in range(200_000)]
    gc.collect()
    del garbage


def decode_in_python():
    """Keeps a core busy for 80 ms, as the decoding of an image does."""
    until, total = time.monotonic() + 0.08, 0
    while time.monotonic() < until:
        total += sum(range(1000))
    return total


def copy_to_the_host():
    for _ in range(3):
        torch.ones(4096, 4096, device=DEVICE).cpu().numpy().sum()


def allocate_and_free():
    for megabytes in range(64, 96):
        torch.empty(megabytes << 20, dtype=torch.uint8, device=DEVICE)
        torch.cuda.empty_cache()


def capture_again():
    """Captures a CUDA graph for a batch size that comes once, as an engine without padding does."""
    x = torch.ones(512, random.randint(512, 1024), device=DEVICE)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(200):
            x = x * 1.001
    graph.replay()


def wait_for_a_lock():
    lock, held = threading.Lock(), threading.Event()

    def hold():
        with lock:
            held.set()
            time.sleep(0.03)

    threading.Thread(target=hold).start()
    held.wait()
    with lock:
        pass


def read_from_disk():
    """Reads 32 MB that are not in the page cache."""
    path = "/var/tmp/fleet-live-data"
    if not os.path.exists(path):
        with open(path, "wb") as file:
            file.write(os.urandom(32 << 20))
            os.fsync(file.fileno())
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return len(file.read())


SLOW = {
    "gc": collect_garbage, "decode": decode_in_python, "copy": copy_to_the_host, "alloc": allocate_and_free,
    "recapture": capture_again, "lock": wait_for_a_lock, "disk": read_from_disk,
}


def read_slowly():
    with contextlib.suppress(FileNotFoundError), open(f"{FAULTS}/sleep-{RANK}") as file:
        text = file.read()
        if text in SLOW:
            SLOW[text]()
        elif text:
            time.sleep(float(text))


def batches(workers=0, **shape):
    loader = torch.utils.data.DataLoader(Tokens(**shape), batch_size=None, num_workers=workers)
    return iter(loader)


def loss_of(logits, batch):
    return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def autocast():
    return torch.autocast("cuda", torch.bfloat16)


def trainer(model, data, per_step=1, no_sync=None, **options):
    """A step of `per_step` accumulated batches."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **(options or {"fused": True}))

    def step():
        for i in range(per_step):
            batch = next(data).to(DEVICE, non_blocking=True)
            quiet = no_sync() if no_sync and i + 1 < per_step else contextlib.nullcontext()
            with quiet:
                with autocast():
                    loss = loss_of(model(batch[:, :-1]), batch) / per_step
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def ddp(layers=8, **shape):
    model = nn.parallel.DistributedDataParallel(Model(layers).to(DEVICE), device_ids=[RANK])
    return trainer(model, batches(**shape))


def ddp_compiled():
    model = nn.parallel.DistributedDataParallel(Model(4).to(DEVICE), device_ids=[RANK])
    return trainer(torch.compile(model), batches())


def ddp_clipped():
    """Reads the norm of the gradients in each step, so the host never runs far ahead."""
    model = nn.parallel.DistributedDataParallel(Model().to(DEVICE), device_ids=[RANK])
    optimizer, data = torch.optim.AdamW(model.parameters(), lr=1e-4), batches()

    def step():
        batch = next(data).to(DEVICE)
        with autocast():
            loss = loss_of(model(batch[:, :-1]), batch)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return norm.item()

    return step


def ddp_uneven():
    """Batches of random length, other ones on each rank."""
    model = nn.parallel.DistributedDataParallel(Model().to(DEVICE), device_ids=[RANK])
    optimizer, data, lengths = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True), batches(), random.Random(RANK)

    def step():
        batch = next(data)[:, : lengths.randint(300, 513)].to(DEVICE)
        with autocast():
            loss_of(model(batch[:, :-1]), batch).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def ddp_checkpoint():
    """Rank 0 saves the parameters every 60 steps while the others wait."""
    model, count = Model(4).to(DEVICE), 0
    train = trainer(nn.parallel.DistributedDataParallel(model, device_ids=[RANK]), batches())

    def step():
        nonlocal count
        train()
        count += 1
        if count % 60 == 0:
            if RANK == 0:
                torch.save(model.state_dict(), f"{FAULTS}/checkpoint")
            dist.barrier()

    return step


def accumulation():
    model = nn.parallel.DistributedDataParallel(Model().to(DEVICE), device_ids=[RANK])
    return trainer(model, batches(batch=4), 4, model.no_sync)


def fsdp():
    from torch.distributed.fsdp import fully_shard

    model = Model(12).to(DEVICE)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return trainer(model, batches())


def tensor_and_data():
    """Tensor parallel pairs (0, 1), (2, 3); data parallel between them."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cuda", (SIZE // 2, 2), mesh_dim_names=("dp", "tp"))
    model = Model(8).to(DEVICE)
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], plan)
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    return trainer(model, batches(), foreach=False)


def pipeline(width=1):
    """1F1B over SIZE / width stages; with width 2, gradients are averaged between the two pipelines."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    mesh = init_device_mesh("cuda", (width, SIZE // width), mesh_dim_names=("dp", "pp"))
    stages, index = SIZE // width, mesh["pp"].get_local_rank()
    part = nn.Sequential(*(Block(1024) for _ in range(12 // stages))).to(DEVICE)
    stage = PipelineStage(part, index, stages, DEVICE, group=mesh["pp"].get_group())
    schedule = Schedule1F1B(stage, 8, loss_fn=lambda x, y: F.mse_loss(x, y))
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-4)
    example = torch.randn(16, 512, 1024, device=DEVICE)

    def step():
        read_slowly()
        if index == 0:
            schedule.step(example)
        elif index + 1 == stages:
            schedule.step(target=example, losses=[])
        else:
            schedule.step()
        if width > 1:
            for p in part.parameters():
                dist.all_reduce(p.grad, group=mesh["dp"].get_group())
        optimizer.step()
        optimizer.zero_grad()

    return step


def experts():
    """Two all-to-alls per layer of experts, forward and backward, and averaged gradients."""
    import torch.distributed.nn.functional as DF

    class Experts(nn.Module):
        def __init__(self, width=1024):
            super().__init__()
            self.block, self.expert = Block(width), nn.Linear(width, width)

        def forward(self, x):
            x = self.block(x)
            flat = x.flatten(0, 1).contiguous()
            sent = DF.all_to_all_single(torch.empty_like(flat), flat)
            done = F.gelu(self.expert(sent)).contiguous()
            back = DF.all_to_all_single(torch.empty_like(done), done)
            return x + back.view_as(x)

    model = Model(1)
    model.blocks = nn.ModuleList(Experts() for _ in range(6))
    model = nn.parallel.DistributedDataParallel(model.to(DEVICE), device_ids=[RANK])
    return trainer(model, batches())


def zero():
    """Optimizer states are sharded; each rank broadcasts the parameters that it updated."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(Model().to(DEVICE), device_ids=[RANK])
    optimizer, data = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-4), batches()

    def step():
        batch = next(data).to(DEVICE)
        with autocast():
            loss_of(model(batch[:, :-1]), batch).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def local_sgd():
    """Parameters are averaged every 20 steps."""
    model = Model(4).to(DEVICE)
    local, count = trainer(model, batches()), 0

    def step():
        nonlocal count
        local()
        count += 1
        if count % 20 == 0:
            with torch.no_grad():
                flat = nn.utils.parameters_to_vector(model.parameters())
                dist.all_reduce(flat, op=dist.ReduceOp.AVG)
                nn.utils.vector_to_parameters(flat, model.parameters())

    return step


def graphs():
    """One CUDA graph per step, with eight all-reduces in it."""
    x = torch.randn(4096, 4096, device=DEVICE, dtype=torch.bfloat16)
    parts = [torch.randn(1 << 22, device=DEVICE) for _ in range(8)]

    def work():
        y = x
        for part in parts:
            for _ in range(6):
                y = (y @ x) * 0.01
            dist.all_reduce(part, op=dist.ReduceOp.AVG)
        return y

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()

    def step():
        read_slowly()
        graph.replay()
        torch.cuda.synchronize()

    return step


def reinforcement():
    """Generation of random length on each rank, the same for all in a step, then one training step."""
    model = nn.parallel.DistributedDataParallel(Model(6).to(DEVICE), device_ids=[RANK])
    train, data, lengths = trainer(model, batches()), batches(batch=4, length=64), random.Random(5)

    def step():
        length = lengths.randint(8, 40)
        tokens = next(data)[:, :64].to(DEVICE)
        with torch.no_grad(), autocast():
            for _ in range(length):
                tokens = torch.cat([tokens[:, 1:], model.module(tokens)[:, -1:].argmax(-1)], 1)
        train()
        return length

    return step


def decode():
    """Tensor parallel inference: two small all-reduces per layer and token, random lengths."""
    width, layers, lengths = 2048, 16, random.Random(7)
    up = [torch.randn(width, width // SIZE, device=DEVICE, dtype=torch.bfloat16) * 0.02 for _ in range(layers)]
    down = [w.t().contiguous() for w in up]

    def step():
        read_slowly()
        length, x = lengths.randint(20, 60), torch.randn(8, width, device=DEVICE, dtype=torch.bfloat16)
        for _ in range(length):
            for a, b in zip(up, down):
                for _ in range(2):
                    part = F.gelu(x @ a) @ b
                    dist.all_reduce(part)
                    x = x + part
            x = F.normalize(x)
        x.sum().item()
        return length

    return step


def engine(workers=0):
    """Inference by one process that asks nobody."""
    model, data = Model(6).to(DEVICE).eval(), batches(workers)

    def step():
        batch = next(data)[:, :-1].to(DEVICE)
        with torch.no_grad(), autocast():
            model(batch)[:, -1].argmax(-1).tolist()

    return step


KINDS = {
    "ddp-workers": lambda: ddp(4, workers=2), "engine": engine, "engine-workers": lambda: engine(2),
    "ddp": ddp, "ddp-compiled": ddp_compiled, "ddp-clipped": ddp_clipped, "ddp-uneven": ddp_uneven,
    "ddp-checkpoint": ddp_checkpoint, "accumulation": accumulation,
    "fsdp": fsdp, "tp-dp": tensor_and_data, "pp": pipeline, "pp-dp": lambda: pipeline(2), "experts": experts,
    "zero": zero, "local-sgd": local_sgd, "graphs": graphs, "rl": reinforcement, "decode": decode,
}


def run_hf(log):
    """The Trainer of transformers with its defaults, under DDP."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    class Clock(TrainerCallback):
        def on_step_end(self, *_, **__):
            log(None)

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 400_000

        def __getitem__(self, i):
            if i % 8 == 0:
                read_slowly()
            tokens = torch.randint(8192, (256,))
            return {"input_ids": tokens, "labels": tokens}

    config = GPT2Config(n_layer=8, n_embd=768, n_head=12, vocab_size=8192)
    args = TrainingArguments(
        output_dir=f"{FAULTS}/out", per_device_train_batch_size=8, max_steps=1_000_000, logging_steps=20, save_strategy="no",
        report_to=[], disable_tqdm=True, bf16=True, ddp_find_unused_parameters=False)
    Trainer(GPT2LMHeadModel(config), args, train_dataset=Data(), callbacks=[Clock()]).train()


def main(kind):
    torch.zeros(1, device=DEVICE)
    while not os.path.exists(f"{FAULTS}/go"):
        time.sleep(0.02)
    torch.cuda.set_device(DEVICE)
    torch.manual_seed(RANK)
    steps = open(f"{FAULTS}/steps-{RANK}", "w", buffering=1)

    def log(units):
        steps.write(f"{time.monotonic_ns()} {units if isinstance(units, int) else 1}\n")

    if kind == "hf":
        return run_hf(log)
    if "RANK" in os.environ:
        dist.init_process_group("nccl", device_id=DEVICE)
    step = KINDS[kind]()
    while True:
        log(step())


if __name__ == "__main__":
    main(sys.argv[1])
