use std::path::PathBuf;

use flate2::read::GzDecoder;
use fleet_import::kineto;
use fleet_import::trace_set::{Imported, TraceSet};

use super::*;

/// Tables of an export, with the columns that are read, as Nsight Systems 2026.2 declares them.
const SCHEMA: &str = "
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
    start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, globalPid INTEGER,
    demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, text TEXT, globalTid INTEGER,
    textId INTEGER);
CREATE TABLE TARGET_INFO_GPU (id INTEGER NOT NULL, name TEXT);
INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H200');
INSERT INTO StringIds VALUES (1, 'ampere_sgemm_128x64_nn'),
                             (2, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL'),
                             (3, 'step 0'), (4, 'forward');";

fn testdata(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../testdata")
        .join(path)
}

/// Writes the real all-reduces of four ranks, which the PyTorch profiler traced on one host, as an
/// export of that host.
fn export(traces: &str, path: &Path) {
    let mut connection = Connection::open(path).unwrap();
    let database = connection.transaction().unwrap();
    database.execute_batch(SCHEMA).unwrap();
    for rank in 0_i64..4 {
        let folder = testdata(traces).read_dir().unwrap();
        let mut names = folder.map(|entry| entry.unwrap().path());
        let own = names
            .find(|path| {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                name.contains(&format!("rank{rank}")) || name.contains(&format!("rank_{rank}"))
            })
            .unwrap();
        let reader = GzDecoder::new(std::fs::File::open(own).unwrap());
        let text = std::io::read_to_string(reader).unwrap();
        let trace = kineto::read(text.as_bytes(), "").unwrap();
        let process = (500 + rank) << 24;
        for step in 1..trace.n_steps {
            let range = "INSERT INTO NVTX_EVENTS VALUES (0, 0, ?1, ?2, NULL)";
            let row = (format!("step {step}"), process + 1);
            database.execute(range, row).unwrap();
        }
        let ranges = "INSERT INTO NVTX_EVENTS VALUES (0, 0, NULL, ?1, 3), (0, 0, NULL, ?1, 4)";
        database.execute(ranges, [process + 2]).unwrap();
        for op in &trace.collectives {
            let start_ns = i64::try_from(op.start_ns.unwrap()).unwrap();
            let end_ns = start_ns + i64::try_from(op.duration_ns).unwrap();
            let row = [start_ns, end_ns, 0, 1, 7 + 8 * rank, process, 2, 2];
            let insert = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?,?)";
            database.execute(insert, row).unwrap();
        }
    }
    database.commit().unwrap();
}

fn import(path: &Path) -> Imported {
    let mut set = TraceSet::default();
    set.add_gpus("report.sqlite", read(path).unwrap()).unwrap();
    set.finish().unwrap()
}

#[test]
fn the_rank_with_a_slow_loader_arrives_last_and_none_does_in_the_healthy_job() {
    let folder = tempfile::tempdir().unwrap();
    for (traces, expected) in [
        ("torch/ddp4-loader2", vec![2]),
        ("torch/ddp4-healthy", vec![]),
    ] {
        let path = folder.path().join(traces.replace('/', "-"));
        export(traces, &path);
        let imported = import(&path);
        let late: Vec<u32> = imported.report.late.iter().map(|one| one.rank).collect();
        assert_eq!(late, expected, "{}", imported.report);
        assert_eq!(imported.report.iterations, Some(20));
        assert_eq!(
            (imported.report.files, imported.report.refusal.as_ref()),
            (4, None)
        );
        assert_eq!(
            imported.traces[&3].gpu_model.as_deref(),
            Some("NVIDIA H200")
        );
    }
}

#[test]
fn collectives_of_other_libraries_than_nccl_are_compared_by_their_whole_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vllm");
    export("torch/ddp4-loader2", &path);
    let rename = "UPDATE StringIds SET value = 'cross_device_reduce_1stage' WHERE id = 2;
         INSERT INTO StringIds VALUES (9, 'void vllm::cross_device_reduce_1stage<__half, 8>(x)');
         UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 9";
    Connection::open(&path)
        .unwrap()
        .execute_batch(rename)
        .unwrap();
    let report = import(&path).report;
    let late: Vec<u32> = report.late.iter().map(|one| one.rank).collect();
    assert_eq!(late, [2], "{report}");
}

#[test]
fn a_real_export_of_two_gpus_with_transfers_only_names_no_gpu() {
    let imported = import(&testdata("thirdparty/nsys-ai/mfu_2gpu_before.sqlite"));
    let report = &imported.report;
    assert_eq!(
        (report.files, report.transfers, report.collectives),
        (2, 66, 0)
    );
    assert!(report.late.is_empty() && imported.points.is_empty());
    let refusal = report.refusal.as_deref().unwrap();
    assert!(
        refusal.starts_with("no collective operation was found"),
        "{refusal}"
    );
    assert!(
        imported
            .traces
            .values()
            .all(|trace| trace.busy_ns > Some(0))
    );
}

#[test]
fn views_and_databases_without_kernels_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let view = "CREATE TABLE StringIds (id INTEGER, value TEXT);
                CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(i) AS
                (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n;";
    for (name, schema) in [("view", view), ("other", "CREATE TABLE a (b)")] {
        let path = folder.path().join(name);
        let database = Connection::open(&path).unwrap();
        database.execute_batch(schema).unwrap();
        drop(database);
        let error = read(&path).unwrap_err().to_string();
        assert!(
            error.starts_with("no table CUPTI_ACTIVITY_KIND_KERNEL"),
            "{error}"
        );
    }
    let path = folder.path().join("damaged");
    std::fs::write(&path, b"SQLite format 3\0 and no more").unwrap();
    assert!(matches!(read(&path), Err(NsysError::Database(_))));
}
