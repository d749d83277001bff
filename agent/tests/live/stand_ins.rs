//! Compiled stand-ins of `testdata/fake-gpu`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

/// Linkage of a program to its libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Linking {
    /// Opened at run time.
    Dynamic,
    /// Linked statically.
    Static,
    /// Opened at run time, those for AMD GPUs.
    Hip,
}

impl Linking {
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Dynamic => "rank",
            Self::Static => "rank-static",
            Self::Hip => "rank-hip",
        }
    }
}

/// Compiled files.
const PARTS: [&str; 10] = [
    "libnccl.so.2",
    "libcudart.so.13",
    "libcuda.so.1",
    "alone",
    "librccl.so.1",
    "libamdhip64.so.6",
    "libibverbs.so.1",
    "rank",
    "rank-static",
    "rank-hip",
];

/// Names of HIP for those of CUDA, and of its libraries.
const HIP: [&str; 14] = [
    "-DcudaStreamSynchronize=hipStreamSynchronize",
    "-DcudaEventSynchronize=hipEventSynchronize",
    "-DcudaDeviceSynchronize=hipDeviceSynchronize",
    "-DcudaMemcpyAsync=hipMemcpyAsync",
    "-DcudaLaunchKernel=hipLaunchKernel",
    "-DcudaMalloc=hipMalloc",
    "-DcudaFree=hipFree",
    "-DcudaStreamBeginCapture=hipStreamBeginCapture",
    "-DcudaStreamEndCapture=hipStreamEndCapture",
    "-DcudaGraphInstantiate=hipGraphInstantiate",
    "-DcudaGraphLaunch=hipGraphLaunch",
    "-DcudaGraphExecDestroy=hipGraphExecDestroy",
    "-DCOLLECTIVES=\"librccl.so.1\"",
    "-DRUNTIME=\"libamdhip64.so.6\"",
];

/// Copies the stand-ins to a directory.
pub(crate) fn install(folder: &Path) {
    for name in PARTS {
        fs::copy(compiled().join(name), folder.join(name)).unwrap();
    }
}

/// Compiles them once for all tests. Unoptimized, so that functions begin with a push.
fn compiled() -> &'static Path {
    static COMPILED: OnceLock<TempDir> = OnceLock::new();
    let dir = COMPILED.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        compile(dir.path());
        dir
    });
    dir.path()
}

fn compile(dir: &Path) {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/fake-gpu");
    let cc = |output: &str, flags: &[&str], files: &[&str]| {
        let mut command = Command::new("cc");
        command
            .args(["-O0", "-Wall", "-Werror"])
            .args(flags)
            .arg("-o")
            .arg(dir.join(output));
        command.args(files.iter().map(|file| sources.join(file)));
        assert!(command.status().unwrap().success(), "{output}");
    };
    let library = |name: &str, flags: &[&str], file: &str| {
        let soname = format!("-Wl,-soname,{name}");
        cc(
            name,
            &[&["-fPIC", "-shared", &soname], flags].concat(),
            &[file],
        );
    };
    let versions = format!(
        "-Wl,--version-script={}",
        sources.join("ibverbs.map").display()
    );
    library("libnccl.so.2", &[], "nccl.c");
    library("libcudart.so.13", &[], "cudart.c");
    library("libcuda.so.1", &[], "cuda.c");
    library("librccl.so.1", &HIP, "nccl.c");
    library("libamdhip64.so.6", &HIP, "cudart.c");
    library("libibverbs.so.1", &[&versions], "ibverbs.c");
    cc("rank", &[], &["rank.c"]);
    cc("alone", &[], &["alone.c"]);
    cc("rank-hip", &HIP, &["rank.c"]);
    cc(
        "rank-static",
        &["-DLINKED", "-static-pie"],
        &["rank.c", "nccl.c", "cudart.c"],
    );
}
