//! Reports of jobs at their end: the epilog of Slurm, and the annotation of a Kubernetes Job.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::testbed::{ECHO, Echo, recording, replay_command, repository, summary};

/// An instance with a job that lost time, and stand-ins for the programs of a cluster.
struct Site {
    folder: TempDir,
    echo: Echo,
}

impl Site {
    /// A site with a job of this name.
    fn with_job(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
        // All agents run before the first is waited for.
        let ranks = [0, 1, 2, 3].map(|rank| {
            let file = recording("host-sleep-rank2");
            let mut command = replay_command(&file, rank, &echo.otlp, "lab");
            command
                .args(["--job", name, "--speed", "max"])
                .spawn()
                .unwrap()
        });
        for agent in ranks {
            summary(&agent.wait_with_output().unwrap());
        }
        echo.caught_up();
        let site = Self { folder, echo };
        fs::create_dir(site.path("bin")).unwrap();
        std::os::unix::fs::symlink(ECHO, site.path("bin/fleet-echo")).unwrap();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Installs a program that records its arguments, one per line, and then runs the script.
    fn install(&self, program: &str, script: &str) {
        let file = self.path("bin").join(program);
        let record = self.path(program);
        let text = format!(
            "#!/bin/bash\nprintf '%s\\n' \"$@\" >>{}\n{script}\n",
            record.display()
        );
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// Arguments with which a program was run.
    fn arguments(&self, program: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(program)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn server(&self) -> String {
        format!("http://{}", self.echo.http)
    }

    /// Runs the epilog with variables of Slurm.
    fn epilog(&self, variables: &[(&str, &str)]) -> Output {
        let settings = self.path("epilog.env");
        let text = format!(
            "PATH={}:/usr/bin:/bin\nFLEET_ECHO_SERVER={}\nFLEET_ECHO_JOB_REPORTS={}\n",
            self.path("bin").display(),
            self.server(),
            self.path("reports").display()
        );
        fs::write(&settings, text).unwrap();
        let mut command = Command::new(repository("deploy/slurm/epilog"));
        command.arg(settings).env_remove("SLURMD_NODENAME");
        command.envs(variables.iter().copied()).output().unwrap()
    }

    fn report(&self, job: &str) -> Option<String> {
        fs::read_to_string(self.path("reports").join(format!("{job}.txt"))).ok()
    }
}

#[test]
fn the_epilog_of_slurm_writes_what_a_job_lost_and_comments_the_job() {
    let site = Site::with_job("4711");
    site.install("sacctmgr", "");
    site.install("logger", "");
    let output = site.epilog(&[("SLURM_JOB_ID", "4711")]);
    assert!(output.status.success(), "{output:?}");
    let report = site.report("4711").unwrap();
    assert!(report.starts_with("job 4711, lab, "), "{report}");
    let lost = report
        .lines()
        .find_map(|line| line.strip_prefix("GPU-hours lost   "));
    let comment = format!("AdminComment=GPU-hours lost: {}", lost.unwrap());
    let expected = [
        "-i",
        "modify",
        "job",
        "where",
        "jobid=4711",
        "set",
        &comment,
    ];
    assert_eq!(site.arguments("sacctmgr"), expected);
    assert!(site.arguments("logger").is_empty());
    assert_eq!(site.echo.terminate(), 0);
}

#[test]
fn of_the_nodes_of_a_job_the_first_one_writes_the_report() {
    let site = Site::with_job("4711");
    site.install("scontrol", "printf 'gpu-7\\ngpu-8\\n'");
    site.install("logger", "");
    let of_node = |node| {
        let variables = [
            ("SLURM_JOB_ID", "4711"),
            ("SLURM_JOB_NODELIST", "gpu-[7-8]"),
            ("SLURMD_NODENAME", node),
        ];
        let output = site.epilog(&variables);
        assert!(output.status.success(), "{output:?}");
        site.report("4711")
    };
    assert_eq!(of_node("gpu-8"), None);
    assert!(of_node("gpu-7").is_some());
    assert_eq!(
        site.arguments("scontrol")[..3],
        ["show", "hostnames", "gpu-[7-8]"]
    );
    assert_eq!(site.echo.terminate(), 0);
}

#[test]
fn an_epilog_without_a_report_is_logged_and_does_not_fail() {
    let site = Site::with_job("4711");
    site.install("logger", "");
    for (job, reason) in [("4712", "no report of job 4712: "), ("../4711", "")] {
        let output = site.epilog(&[("SLURM_JOB_ID", job)]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(site.report(job), None);
        let logged = site.arguments("logger").join(" ");
        assert!(logged.contains(reason), "{logged}");
    }
    assert_eq!(site.echo.terminate(), 0);
}

#[test]
fn the_documented_command_annotates_a_kubernetes_job_with_what_it_lost() {
    let site = Site::with_job("train");
    site.install("kubectl", "");
    let document = fs::read_to_string(repository("deploy/statefulset/README.md")).unwrap();
    let blocks = document.split("```console\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    let block = blocks
        .filter(|block| block.contains("kubectl annotate"))
        .collect::<String>();
    let output = Command::new("bash")
        .args(["-euc", &block])
        .env("PATH", path_with(&site.path("bin")))
        .env("FLEET_ECHO_SERVER", site.server())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let arguments = site.arguments("kubectl");
    assert_eq!(arguments[..4], ["annotate", "--overwrite", "job", "train"]);
    let lost = arguments[4].strip_prefix("echo/lost-gpu-hours=").unwrap();
    assert!(lost.parse::<f64>().unwrap() > 0.0, "{lost}");
    assert_eq!(site.echo.terminate(), 0);
}

/// The search path, with a folder before all others.
fn path_with(folder: &Path) -> String {
    format!("{}:/usr/local/bin:/usr/bin:/bin", folder.display())
}
