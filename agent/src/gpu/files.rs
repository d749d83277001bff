//! GPUs from the driver's files in `/proc`, for hosts where NVML cannot be loaded. The files do not
//! show which processes use a GPU.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::gpu::{Driver, Gpu, GpuProcess, Throttling};

/// Maximum size of a file of about 15 lines.
const MAX_BYTES: u64 = 8 << 10;

/// Directory of the driver's files.
#[derive(Debug)]
pub(super) struct ProcFiles {
    gpus: PathBuf,
}

impl ProcFiles {
    /// Uses the files below `proc`, the mount point of `/proc`.
    pub(super) fn new(proc: &Path) -> Self {
        Self {
            gpus: proc.join("driver/nvidia/gpus"),
        }
    }
}

impl Driver for ProcFiles {
    fn gpus(&mut self) -> Vec<Gpu> {
        let entries = fs::read_dir(&self.gpus).into_iter().flatten().flatten();
        // Directories are named by PCI address, the order in which NVML counts as well.
        let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        folders.sort();
        let gpus = (0..).zip(folders);
        gpus.map(|(index, folder)| gpu(index, &information(&folder)))
            .collect()
    }

    fn processes(&mut self, _index: u32) -> Vec<GpuProcess> {
        Vec::new()
    }

    fn throttling(&mut self, _index: u32) -> Option<Throttling> {
        None
    }
}

fn information(folder: &Path) -> String {
    let mut bytes = Vec::new();
    let read = File::open(folder.join("information"))
        .and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    if let Err(error) = read {
        tracing::debug!("{}: {error}", folder.display());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn gpu(index: u32, information: &str) -> Gpu {
    let value = |name: &str| {
        let mut lines = information.lines();
        let (_, value) = lines.find_map(|line| {
            let pair = line.split_once(':')?;
            (pair.0.trim() == name).then_some(pair)
        })?;
        let value = value.trim();
        (!value.is_empty()).then(|| value.to_owned())
    };
    Gpu {
        index,
        // The driver writes question marks until the GPU has been used.
        uuid: value("GPU UUID").filter(|uuid| !uuid.contains('?')),
        model: value("Model"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFORMATION: &str = "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 41\n\
        GPU UUID: \t GPU-fb2b8df3-c184-e11f-1617-d9244cc80481\nBus Location: \t 0000:00:06.0\n";

    #[test]
    fn gpus_are_indexed_by_pci_address() {
        let proc = tempfile::tempdir().unwrap();
        let unused = "Model: \t NVIDIA H100 80GB HBM3\nGPU UUID: \t GPU-????????-????-????\n";
        for (address, text) in [("0000:84:00.0", unused), ("0000:00:06.0", INFORMATION)] {
            let folder = proc.path().join("driver/nvidia/gpus").join(address);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("information"), text).unwrap();
        }
        let model = Some("NVIDIA H100 80GB HBM3".to_owned());
        let uuid = Some("GPU-fb2b8df3-c184-e11f-1617-d9244cc80481".to_owned());
        let expected = [(0, uuid, model.clone()), (1, None, model)];
        let expected = expected.map(|(index, uuid, model)| Gpu { index, uuid, model });
        assert_eq!(ProcFiles::new(proc.path()).gpus(), expected);
    }

    #[test]
    fn a_host_without_the_driver_has_no_gpus() {
        let proc = tempfile::tempdir().unwrap();
        assert_eq!(ProcFiles::new(proc.path()).gpus(), []);
    }
}
