//! Lines of Python programs.

use fleet_agent_core::event::StackSample;

use crate::STACKS;
use crate::program::{Program, is_at};

const DATA_SET: &str = "\
import time

class Images:
    def __getitem__(self, index):
        time.sleep(60)
        return index

def main():
    print('ready', flush=True)
    images = Images()
    return images[1]

main()
";

#[test]
#[needs(STACKS)]
fn a_data_set_that_sleeps_is_found_at_its_line() {
    let program = Program::python(DATA_SET);
    let lines = program.until(|sample| {
        is_at(sample, "train.py:5 in __getitem__()")
            || is_at(sample, "train.py:5 in Images.__getitem__()")
    });
    assert!(
        lines
            .iter()
            .any(|line| line == "[Python] train.py:11 in main()"),
        "{lines:?}"
    );
}

const LOCK: &str = "\
import threading
import time

lock = threading.Lock()
is_held = threading.Event()

def hold():
    with lock:
        is_held.set()
        time.sleep(60)

threading.Thread(target=hold, daemon=True).start()
is_held.wait()
print('ready', flush=True)
with lock:
    print('never')
";

#[test]
#[needs(STACKS)]
fn a_lock_held_by_another_thread_is_found_at_its_line() {
    let program = Program::python(LOCK);
    let lines = program.until(|sample| is_at(sample, "train.py:15 in <module>()"));
    let takes_lock = |line: &String| line.contains("acquire_lock");
    assert!(lines.iter().any(takes_lock), "{lines:?}");
}

const COLLECTION: &str = "\
import gc

gc.disable()
garbage = [[] for _ in range(1_000_000)]
print('ready', flush=True)

def step():
    gc.collect()

while True:
    step()
";

#[test]
#[needs(STACKS)]
fn a_garbage_collection_is_found_at_its_line() {
    let program = Program::python(COLLECTION);
    let lines = program.until(|sample| is_at(sample, "train.py:8 in step()"));
    assert!(!lines.is_empty());
}

const HEALTHY: &str = "\
print('ready', flush=True)

def forward(x):
    for n in range(1000):
        x = (x * 31 + n) % 1000003
    return x

def main():
    x = 1
    while True:
        x = forward(x)

main()
";

#[test]
#[needs(STACKS)]
fn a_program_that_computes_is_found_at_its_line() {
    let program = Program::python(HEALTHY);
    let lines = program.until(|sample| is_at(sample, "train.py:5 in forward()"));
    assert!(
        lines
            .iter()
            .any(|line| line.ends_with("train.py:11 in main()")),
        "{lines:?}"
    );
}

const THREADS: &str = "\
import threading

done = threading.Event()

def first():
    done.wait()

def second():
    done.wait()

for target in (first, second):
    threading.Thread(target=target, daemon=True).start()
print('ready', flush=True)
done.wait()
";

#[test]
#[needs(STACKS)]
fn each_thread_of_a_program_is_found_at_its_own_line() {
    let program = Program::python(THREADS);
    let expected = [
        "train.py:14 in <module>()",
        "train.py:6 in first()",
        "train.py:9 in second()",
    ];
    for (tid, line) in program.tids().into_iter().zip(expected) {
        let is_in_it = |text: &String| text.ends_with(line);
        program.until_in_thread(tid, |sample| sample.stack.lines().iter().any(is_in_it));
    }
}

/// Ends with the program (`PR_SET_PDEATHSIG`, `SIGKILL`).
const WORKERS: &str = "\
import ctypes
import multiprocessing
import time

def decode():
    time.sleep(0.03)

def load(queue):
    ctypes.CDLL(None).prctl(1, 9)
    while True:
        decode()
        queue.put(0)

processes = multiprocessing.get_context('fork')
queue = processes.Queue(maxsize=2)
processes.Process(target=load, args=(queue,), daemon=True).start()
print('ready', flush=True)
while True:
    queue.get()
";

#[test]
#[needs(STACKS)]
fn the_line_of_a_worker_process_is_found_with_the_program_that_waits_for_it() {
    let program = Program::python(WORKERS);
    let is_of_worker = |sample: &StackSample| sample.is_worker && sample.tid != sample.pid;
    program.until(|sample| is_of_worker(sample) && is_at(sample, "train.py:6 in decode()"));
    let waits = |line: &String| line.ends_with("train.py:19 in <module>()");
    program.until(|sample| !sample.is_worker && sample.stack.lines().iter().any(waits));
}
