//! Help, completion scripts and man pages of both programs, from the definition of the command line.

pub mod help;
#[cfg(feature = "testing")]
pub mod testing;

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_complete::env::{CompleteEnv, Shells};
pub use clap_complete::{ArgValueCompleter, CompletionCandidate};

/// Exit code of an I/O error, as in `sysexits.h`.
const INPUT_OUTPUT: u8 = 74;

/// Variable that names the shell in which a script of `completion` runs the program.
const SHELL_VARIABLE: &str = "FLEET_COMPLETE";

/// Examples for the help of the command `completion` of a program.
#[macro_export]
macro_rules! examples {
    ($program:literal) => {
        concat!(
            "Examples:\n  ",
            $program,
            " completion bash > /etc/bash_completion.d/",
            $program,
            "\n  ",
            $program,
            " completion zsh > \"${fpath[1]}/_",
            $program,
            "\"\n  ",
            $program,
            " completion fish > ~/.config/fish/completions/",
            $program,
            ".fish"
        )
    };
}

/// Completes a command line and ends the process, if a script of `completion` runs it; otherwise
/// returns. Has to be called before threads are started.
pub fn complete(program: impl Fn() -> Command) {
    CompleteEnv::with_factory(program)
        .var(SHELL_VARIABLE)
        .complete();
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
    pub fn run(&self, program: &Command) -> ExitCode {
        exit_code(program.get_name(), self.print(program, &mut io::stdout()))
    }

    /// Prints the completion script of a program, which runs the program to complete a command line.
    pub fn print(&self, program: &Command, out: &mut dyn Write) -> io::Result<()> {
        let name = program.get_name();
        let shells = Shells::builtins();
        let shell = shells.completer(&self.shell.to_string());
        let shell = shell.ok_or_else(|| io::Error::other("unknown shell"))?;
        shell.write_registration(SHELL_VARIABLE, name, name, name, out)?;
        if self.shell == Shell::Zsh {
            // In a folder of functions, zsh runs the script when the first line is completed.
            let function = format!("_clap_dynamic_completer_{}", name.replace('-', "_"));
            writeln!(out, "[[ $funcstack[1] != _{name} ]] || {function} \"$@\"")?;
        }
        out.flush()
    }
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
    fn a_script_of_each_shell_runs_the_program() {
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            let args = CompletionArgs { shell: *shell };
            args.print(&program(), &mut script).unwrap();
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("sample"), "{shell}: {script}");
            assert!(script.contains(SHELL_VARIABLE), "{shell}: {script}");
        }
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
        assert_eq!(examples.lines().count(), 4);
        assert!(
            examples.contains("sample completion zsh > \"${fpath[1]}/_sample\""),
            "{examples}"
        );
    }
}
