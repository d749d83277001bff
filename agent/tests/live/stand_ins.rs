//! Compiled stand-ins of `testdata/fake-gpu`.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

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
const PARTS: [&str; 11] = [
    "libnccl.so.2",
    "libcudart.so.13",
    "libcuda.so.1",
    "alone",
    "librccl.so.1",
    "libamdhip64.so.6",
    "libibverbs.so.1",
    "libnvidia-ml.so.1",
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

/// Copies the stand-ins to a directory. Tests run one at a time here, in many processes.
pub(crate) fn install(folder: &Path) {
    let compiled = compiled();
    for name in PARTS {
        fs::copy(compiled.join(name), folder.join(name)).unwrap();
    }
}

/// Compiles them once for all test processes, until a source changes.
fn compiled() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stand-ins");
    let (mark, fingerprint) = (dir.join("fingerprint"), fingerprint());
    if fs::read_to_string(&mark).ok().as_ref() != Some(&fingerprint) {
        // Without a mark while it compiles, so that what a killed process leaves is not used.
        let _was_marked = fs::remove_file(&mark);
        fs::create_dir_all(&dir).unwrap();
        compile(&dir);
        fs::write(mark, fingerprint).unwrap();
    }
    dir
}

/// Hash of the sources and of how they are compiled.
fn fingerprint() -> String {
    let mut hasher = DefaultHasher::new();
    include_str!("stand_ins.rs").hash(&mut hasher);
    let files = fs::read_dir(sources()).unwrap();
    let mut files: Vec<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files {
        (&file, fs::read(&file).unwrap()).hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/fake-gpu")
}

/// Compiles them unoptimized, so that functions begin with a push.
fn compile(dir: &Path) {
    let sources = sources();
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
    library("libnvidia-ml.so.1", &[], "nvml.c");
    cc("rank", &[], &["rank.c"]);
    cc("alone", &[], &["alone.c"]);
    cc("rank-hip", &HIP, &["rank.c"]);
    cc(
        "rank-static",
        &["-DLINKED", "-static-pie"],
        &["rank.c", "nccl.c", "cudart.c"],
    );
}
