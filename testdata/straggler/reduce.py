#!/usr/bin/env python3
"""Reduces a recording of `fleet-agent record` to sums per block of 2^k operations: reduce.py IN.jsonl.gz OUT.gz K [SCALE | hosts]

With `hosts`, from the calls of hosts that never wait for their GPUs instead of GPU times: only leads, up to the end of the block."""
import collections, gzip, json, sys

WAITS = {'AllReduce', 'AllGather', 'ReduceScatter', 'AlltoAll', 'AllToAll', 'Send', 'Recv'}  # everybody waits in these

def hosts(source, target, k):
    """As `main`, of the instants at which the hosts enqueued collectives."""
    members, seqs, blocks, last, t0 = {}, collections.Counter(), {}, {}, None
    for line in gzip.open(source, 'rt'):
        if '"kind":"call"' not in line or '"fn":"nccl' not in line: continue
        r = json.loads(line); key = (r['pid'], r.get('comm'))
        if r['fn'].startswith('ncclCommInitRank') or r['fn'] == 'ncclCommSplit': members[key] = (r['unique_id_splitmix64'], r['rank'], r['nranks'])
        elif r['fn'][4:] in WAITS and r['fn'][4:] not in ('Send', 'Recv') and key in members:
            t0 = t0 or r['ts']; blocks.setdefault((key, seqs[key] >> k), []).append(r['ts']); seqs[key] += 1
    pids = sorted({pid for pid, _ in members}); comms = sorted({comm for comm, _, _ in members.values()})
    index = {key: (comms.index(comm), pids.index(key[0])) for key, (comm, _, _) in members.items()}
    out = [f'K {k}'] + [f'M {index[key][0]} {comm} {index[key][1]} {rank} {n}' for key, (comm, rank, n) in sorted(members.items())]
    us = lambda ns: round(ns / 1000)
    for (key, block), at in sorted(blocks.items(), key=lambda x: x[1][-1]):
        before, ended = last.get(key, (0, 0)); end = us(at[-1] - t0); lead = sum(at[-1] - one for one in at)
        out.append(f'B {index[key][0]} {index[key][1]} h {block - before} {len(at)} 0 0 {us(lead)} 0 {end - ended}'); last[key] = (block, end)
    gzip.GzipFile(target, 'wb', 9, mtime=0).write(('\n'.join(out) + '\n').encode())

def main(source, target, k, scale=1):
    blocks, calls, queued, end = {}, collections.defaultdict(list), collections.defaultdict(list), 0
    base, members, roots, t0 = {}, {}, collections.defaultdict(set), None
    rows = []
    for line in gzip.open(source, 'rt'):
        if '"kind":"coll"' in line:
            r = json.loads(line)
            if 'root' in r: roots[r['comm']].add(r['root'])
            if not r['gpu_stop_ns'] or r['func'] not in WAITS and 'root' not in r or (r['func'] in ('Send', 'Recv') and r['nranks'] > 2): continue
            pid = r['pid'] if 'pid' in r else r['rank'] if r['nranks'] > 2 else f"{r['comm'][:4]}{r['rank']}"
            rows.append((r.get('ts', r['host_ns']), pid, r))
        elif '"kind":"call"' in line and '"fn":"nccl' in line:
            r = json.loads(line); calls[r['pid']].append(r['ts']); end = max(end, r['ts'])
        elif '"kind":"delays"' in line: end = max(end, json.loads(line)['ts'])
    rows = [row for row in rows if 'root' not in row[2] or len(roots[row[2]['comm']]) == row[2]['nranks']]  # they take turns
    if not rows: sys.exit('no operation of the recording can be compared')
    rows.sort(key=lambda x: x[0]); t0 = rows[0][0]; end = max(end, rows[-1][0])
    for done, pid, r in rows:
        lead = r['gpu_start_ns'] - r['host_ns']; lead -= base.setdefault(pid, lead)
        members[r['comm'], pid] = (r['rank'], r['nranks']); queued[pid].append(r['host_ns'])
        dur = r['gpu_stop_ns'] - r['gpu_start_ns']; p2p = r['func'] in ('Send', 'Recv')
        b = blocks.setdefault((r['comm'], pid, r.get('comm_seq', r['seq']) >> k), [0, 0, 1 << 62, 0, 1 << 62, 0, False])
        b[0] += 1; b[1] += dur; b[2] = min(b[2], dur); b[3] += lead; b[4] = min(b[4], lead); b[5] = max(b[5], done); b[6] |= p2p
    pids = sorted({p for _, p in members}, key=str); comms = sorted({c for c, _ in members})
    out = [f'K {k}']
    for (comm, pid), (rank, n) in sorted(members.items(), key=str): out.append(f'M {comms.index(comm)} {comm} {pids.index(pid)} {rank} {n}')
    us = lambda ns: round(ns * scale / 1000)
    last = {}
    lines = []
    for (comm, pid, block), b in sorted(blocks.items(), key=lambda x: x[1][5]):
        key = (comm, pid); seq0, end0 = last.get(key, (0, 0)); at = us(b[5] - t0)
        out.append(f"B {comms.index(comm)} {pids.index(pid)} {'t' if b[6] else 'c'} {block - seq0} {b[0]} {us(b[1])} {us(b[2])} {us(b[3])} {us(b[4])} {at - end0}")
        last[key] = (block, at)
    second = 0
    import bisect
    for pid in pids: calls[pid].sort(); queued[pid].sort()
    while t0 + second * 10**9 <= min(end, rows[-1][0] + 60 * 10**9):
        now = t0 + second * 10**9
        for pid in pids:
            n = bisect.bisect_right(queued[pid], now); at = queued[pid][n - 1] if n else 0
            n += bisect.bisect_right(calls[pid], now) - bisect.bisect_right(calls[pid], at)       # entered, not completed
            if at: out.append(f'H {pids.index(pid)} {n} {us(now - t0)}')
        second += 1
    gzip.GzipFile(target, 'wb', 9, mtime=0).write(('\n'.join(out) + '\n').encode())

if sys.argv[4:] == ['hosts']: hosts(sys.argv[1], sys.argv[2], int(sys.argv[3]))
else: main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *map(float, sys.argv[4:]))
