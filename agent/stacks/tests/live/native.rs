//! Functions of libraries, with the Python lines that call them.

use std::path::{Path, PathBuf};
use std::process::Command;

use fleet_agent_core::event::StackSample;

use crate::STACKS;
use crate::program::{Program, is_at};

/// Waits for a GPU that never ends.
const TRAIN: &str = "\
import ctypes

cuda = ctypes.CDLL('./libcudart.so.13')

def forward():
    cuda.cudaStreamSynchronize(None)

print('ready', flush=True)
cuda.fake_cuda_gpu(ctypes.CDLL(None).pause)
forward()
";

fn source(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/fake-gpu");
    folder.join(name)
}

/// Compiles a file without frame pointers, as libraries are.
fn compile(flags: &[&str], source: &Path, output: &Path) {
    let mut command = Command::new("cc");
    command.args(["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"]);
    command.arg("-o").arg(output).arg(source).args(flags);
    assert!(command.status().unwrap().success());
}

fn library(folder: &Path) {
    let output = folder.join("libcudart.so.13");
    compile(&["-fPIC", "-shared"], &source("cudart.c"), &output);
}

#[test]
#[needs(STACKS)]
fn a_call_of_a_gpu_library_is_named_above_the_line_that_calls_it() {
    let program = Program::python_with(TRAIN, library);
    let lines = program.until(|sample| sample.call.is_some());
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("cudaStreamSynchronize")),
        "{lines:?}"
    );
    let lines = program.until(|sample| {
        sample.call.as_deref() == Some("cudaStreamSynchronize")
            && is_at(sample, "train.py:6 in forward()")
    });
    let last = lines.last().map(String::as_str);
    assert_eq!(
        last,
        Some("[Python] train.py:10 in <module>()"),
        "{lines:?}"
    );
}

/// Program that prints a line and then waits in a library.
const WAITS: &str = "\
#include <stdio.h>
#include <unistd.h>
int cudaDeviceSynchronize(void);
void fake_cuda_gpu(void (*does)(void));
static void never(void) { for (;;) pause(); }
int main(void) { fake_cuda_gpu(never); puts(\"ready\"); fflush(stdout); return cudaDeviceSynchronize(); }
";

/// Compiles a program that is linked statically except for its GPU library.
fn waiting_program(folder: &Path) {
    library(folder);
    let text = folder.join("waits.c");
    std::fs::write(&text, WAITS).unwrap();
    let library = folder.join("libcudart.so.13");
    let library = library.to_str().unwrap();
    compile(&[library], &text, &folder.join("waits"));
}

#[test]
#[needs(STACKS)]
fn a_program_without_python_has_native_functions() {
    let folder = tempfile::tempdir().unwrap();
    waiting_program(folder.path());
    let mut command = Command::new(folder.path().join("waits"));
    command.env("LD_LIBRARY_PATH", folder.path());
    let program = Program::start(command, folder);
    let lines = program.until(|sample| sample.call.as_deref() == Some("cudaDeviceSynchronize"));
    assert!(
        lines.iter().any(|line| line.starts_with("main")),
        "{lines:?}"
    );
}

/// Sleeps in a function whose caller is found by its frame pointer alone.
const NAPS: &str = "\
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
__attribute__((noinline)) void nap(void) {
    struct timespec time = {0, 5000000};
    syscall(SYS_nanosleep, &time, 0);
}
int main(void) { puts(\"ready\"); fflush(stdout); for (;;) nap(); }
";

#[test]
#[needs(STACKS)]
fn the_callers_of_a_sleeping_function_with_a_frame_pointer_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("naps.c");
    std::fs::write(&text, NAPS).unwrap();
    let output = folder.path().join("naps");
    compile(&["-fno-omit-frame-pointer"], &text, &output);
    let program = Program::start(Command::new(output), folder);
    let samples = program.samples(200);
    let sleeping = samples.iter().filter(|sample| has_function(sample, "nap"));
    let (with_caller, without): (Vec<_>, Vec<_>) =
        sleeping.partition(|sample| has_function(sample, "main"));
    let count = |samples: Vec<&StackSample>| samples.iter().map(|one| one.samples).sum::<u64>();
    let (with_caller, without) = (count(with_caller), count(without));
    // The registers of a thread are known once it sleeps anew.
    assert!(
        with_caller > 2 * without,
        "{with_caller} of {} stacks have the caller",
        with_caller + without
    );
}

/// Waits as for a file of a server that does not answer: until its child lets go of its memory.
const HANGS: &str = "\
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>
__attribute__((noinline)) void read_batch(void) {
    if (vfork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) pause();
    }
}
int main(void) { puts(\"ready\"); fflush(stdout); read_batch(); return 0; }
";

#[test]
#[needs(STACKS)]
fn the_function_of_the_kernel_is_named_above_a_thread_that_no_signal_can_interrupt() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("hangs.c");
    std::fs::write(&text, HANGS).unwrap();
    let output = folder.path().join("hangs");
    compile(&[], &text, &output);
    let program = Program::start(Command::new(output), folder);
    let lines = program.until(|sample| has_function(sample, "read_batch"));
    let (first, others) = lines.split_first().unwrap();
    assert!(first.ends_with("(kernel, uninterruptible)"), "{lines:?}");
    assert!(
        first.contains("fork") || first.contains("clone"),
        "{lines:?}"
    );
    let are_of_program = others.iter().all(|line| !line.contains("kernel"));
    assert!(are_of_program, "{lines:?}");
}

/// Sleeps and waits for its GPU by turns, with other threads, which make a sample take longer.
const ALTERNATES: &str = "\
import ctypes
import threading
import time

cuda = ctypes.CDLL('./libcudart.so.13')
gpu = ctypes.CDLL('./gpu.so')
cuda.fake_cuda_gpu(gpu.works)
done = threading.Event()
for _ in range(40):
    threading.Thread(target=done.wait, daemon=True).start()

def load():
    time.sleep(0.005)

def forward():
    cuda.cudaStreamSynchronize(None)

print('ready', flush=True)
while True:
    load()
    forward()
";

/// GPU that works for 5 ms.
const GPU: &str = "\
#include <unistd.h>
void works(void) { usleep(5000); }
";

#[test]
#[needs(STACKS)]
fn a_line_is_not_paired_with_a_call_that_has_returned() {
    let program = Program::python_with(ALTERNATES, |folder| {
        library(folder);
        let text = folder.join("gpu.c");
        std::fs::write(&text, GPU).unwrap();
        compile(&["-fPIC", "-shared"], &text, &folder.join("gpu.so"));
    });
    let samples = program.samples(300);
    let count = |is_one: &dyn Fn(&StackSample) -> bool| -> u64 {
        let ones = samples.iter().filter(|sample| is_one(sample));
        ones.map(|sample| sample.samples).sum()
    };
    let is_loading = |sample: &StackSample| is_at(sample, "train.py:13 in load()");
    let is_computing = |sample: &StackSample| is_at(sample, "train.py:16 in forward()");
    let sleeps = |sample: &StackSample| has_function(sample, "time_sleep");
    let in_call = |sample: &StackSample| sample.call.is_some();
    let wrong = count(&|sample| is_loading(sample) && in_call(sample))
        + count(&|sample| is_computing(sample) && sleeps(sample));
    let right = count(&|sample| is_loading(sample) && sleeps(sample))
        + count(&|sample| is_computing(sample) && in_call(sample));
    // The thread can come back to the same call during a single read, if that takes 10 ms.
    assert!(wrong <= 3, "{wrong} wrong, {right} right");
    assert!(right > 30, "{wrong} wrong, {right} right");
}

fn has_function(sample: &StackSample, function: &str) -> bool {
    let mut lines = sample.stack.lines().into_iter();
    lines.any(|line| line.starts_with(function))
}

#[test]
#[needs(STACKS)]
fn the_library_of_another_root_and_user_names_its_functions() {
    let folder = tempfile::tempdir().unwrap();
    let on_host = folder.path().join("gpu");
    let root = folder.path().join("root");
    let in_root = root.join(on_host.strip_prefix("/").unwrap());
    for folder in [&on_host, &in_root] {
        std::fs::create_dir_all(folder).unwrap();
        waiting_program(folder);
    }
    // Another build lies at the same path on the host.
    let renamed = ["-fPIC", "-shared", "-DcudaDeviceSynchronize=cudaOfTheHost"];
    compile(
        &renamed,
        &source("cudart.c"),
        &on_host.join("libcudart.so.13"),
    );
    furnish(&root, &in_root.join("waits"));
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--pid",
        "--fork",
        "chroot",
        "--userspec=65534:65534",
    ]);
    command.arg(&root).arg(on_host.join("waits"));
    command.env("LD_LIBRARY_PATH", &on_host);
    let program = Program::start(command, folder);
    let lines =
        program.until_in_child(|sample| sample.call.as_deref() == Some("cudaDeviceSynchronize"));
    assert!(
        lines.iter().any(|line| line.starts_with("main")),
        "{lines:?}"
    );
}

/// Copies a program's libraries, as in a container image.
fn furnish(root: &Path, program: &Path) {
    let listed = Command::new("ldd").arg(program).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let is_path = |word: &&str| word.starts_with('/');
    for path in listed.split_whitespace().filter(is_path) {
        let target = root.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        // Its own library is there already.
        if !target.exists() {
            std::fs::copy(path, target).unwrap();
        }
    }
}
