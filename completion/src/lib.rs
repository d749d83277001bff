//! Commands of both programs that print completion scripts and write man pages, from the definition
//! of the command line.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

/// Exit code of an I/O error, as in `sysexits.h`.
const INPUT_OUTPUT: u8 = 74;

/// Examples for the help of the command `completion` of a program.
#[macro_export]
macro_rules! examples {
    ($program:literal) => {
        concat!(
            "  bash  ",
            $program,
            " completion bash > /etc/bash_completion.d/",
            $program,
            "\n  zsh   ",
            $program,
            " completion zsh > \"${fpath[1]}/_",
            $program,
            "\"\n  fish  ",
            $program,
            " completion fish > ~/.config/fish/completions/",
            $program,
            ".fish"
        )
    };
}

/// Completion script of a shell.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct CompletionArgs {
    /// Shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// Man pages of all commands.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ManArgs {
    /// Directory to write to; created if missing
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

impl CompletionArgs {
    /// Prints the completion script of a program to standard output, and returns its exit code.
    #[must_use]
    pub fn run(&self, program: Command) -> ExitCode {
        let name = program.get_name().to_owned();
        exit_code(&name, self.print(program, &mut io::stdout()))
    }

    /// Prints the completion script of a program.
    pub fn print(&self, mut program: Command, out: &mut dyn Write) -> io::Result<()> {
        let name = program.get_name().to_owned();
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program, &name, &mut script);
        if self.shell == Shell::Bash {
            script = with_one_label(&name, &String::from_utf8_lossy(&script)).into_bytes();
        }
        out.write_all(&script)?;
        out.flush()
    }
}

/// Gives the commands of a program with a hyphen in its name the labels under which the script for bash
/// looks for them. `clap_complete` 4.6 writes two: `a__b__subcmd__c` and `a__subcmd__b__subcmd__c`.
fn with_one_label(name: &str, script: &str) -> String {
    let [sought, written] = ["__", "__subcmd__"].map(|hyphen| name.replace('-', hyphen));
    script.replace(
        &format!(" {written}__subcmd__"),
        &format!(" {sought}__subcmd__"),
    )
}

impl ManArgs {
    /// Writes the man pages of a program, and returns its exit code.
    #[must_use]
    pub fn run(&self, program: Command) -> ExitCode {
        let name = program.get_name().to_owned();
        exit_code(&name, self.write(program))
    }

    /// Writes the man pages of a program. An error names the directory.
    pub fn write(&self, program: Command) -> io::Result<()> {
        let directory = &self.directory;
        let created = fs::create_dir_all(directory);
        let written = created.and_then(|()| clap_mangen::generate_to(program, directory));
        written.map_err(|error| {
            let message = format!("cannot write to {}: {error}", directory.display());
            io::Error::new(error.kind(), message)
        })
    }
}

/// Maps the result to the exit code of a program, and prints an error.
fn exit_code(program: &str, result: io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader wants no more, as after `| head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error may be closed, which cannot be reported anywhere.
            let _closed = writeln!(io::stderr(), "{program}: {error}");
            ExitCode::from(INPUT_OUTPUT)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    fn program() -> Command {
        let completion = CompletionArgs::augment_args(Command::new("completion"));
        Command::new("sample")
            .subcommand(Command::new("watch"))
            .subcommand(completion)
    }

    #[test]
    fn a_script_of_each_shell_names_the_commands() {
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            let args = CompletionArgs { shell: *shell };
            args.print(program(), &mut script).unwrap();
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("watch"), "{shell}: {script}");
        }
    }

    #[test]
    fn bash_completes_commands_and_flags_of_a_program_with_a_hyphen_in_its_name() {
        let flag = clap::Arg::new("window").long("window");
        let check = Command::new("dry-run").arg(flag.clone());
        let rates = Command::new("rates").subcommand(check);
        let program = Command::new("one-two")
            .subcommand(Command::new("watch").arg(flag))
            .subcommand(rates);
        let mut script = Vec::new();
        let args = CompletionArgs { shell: Shell::Bash };
        args.print(program, &mut script).unwrap();
        let completed = |typed: &[&str]| {
            let complete = r#"
                source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
                _one__two "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
                echo "${COMPREPLY[@]}""#;
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("one-two.bash");
            fs::write(&file, &script).unwrap();
            let mut bash = std::process::Command::new("bash");
            let output = bash
                .args(["-c", complete])
                .arg(file)
                .args(typed)
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        assert_eq!(completed(&["one-two", "wa"]), "watch");
        assert_eq!(completed(&["one-two", "watch", "--w"]), "--window");
        assert_eq!(completed(&["one-two", "rates", "dr"]), "dry-run");
        assert_eq!(
            completed(&["one-two", "rates", "dry-run", "--w"]),
            "--window"
        );
    }

    #[test]
    fn every_command_has_a_man_page() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("man");
        let args = ManArgs { directory };
        args.write(program()).unwrap();
        for page in ["sample.1", "sample-watch.1", "sample-completion.1"] {
            assert!(args.directory.join(page).is_file(), "{page}");
        }
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("file");
        fs::write(&directory, "").unwrap();
        let error = ManArgs { directory }.write(program()).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("cannot write to "), "{error}");
        assert!(error.contains("/file: "), "{error}");
    }

    #[test]
    fn the_examples_name_the_program() {
        let examples = crate::examples!("sample");
        assert_eq!(examples.lines().count(), 3);
        assert!(
            examples.contains("sample completion zsh > \"${fpath[1]}/_sample\""),
            "{examples}"
        );
    }
}
