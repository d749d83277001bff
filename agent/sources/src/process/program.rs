//! Name by which people know a program, from its command line. Pure.

/// Longest name, characters.
const MAX_CHARS: usize = 32;

/// Names of programs that run a script, without a version.
const INTERPRETERS: [&str; 7] = ["python", "pypy", "bash", "sh", "node", "perl", "ruby"];

/// Returns the name of the program: that of its executable, or of the script or module that an
/// interpreter runs, for a command line whose words end with zeros. Control characters become
/// question marks. None without words.
pub(super) fn name(command_line: &str) -> Option<String> {
    let mut words = command_line.split('\0').filter(|word| !word.is_empty());
    let executable = file_name(words.next()?);
    let unversioned = executable.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let is_interpreter = INTERPRETERS.contains(&unversioned);
    let script = if is_interpreter { script(words) } else { None };
    let name = script.unwrap_or(executable).chars().take(MAX_CHARS);
    let name: String = name.map(|c| if c.is_control() { '?' } else { c }).collect();
    (!name.is_empty()).then_some(name)
}

/// Script or module among the arguments of an interpreter; none if it runs text or its input. Text is the
/// argument of a flag that ends with `c` or `e`, alone or with others before it.
fn script<'w>(mut words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    loop {
        match words.next()? {
            "-m" => return words.next(),
            "-" | "-E" | "-p" | "--eval" | "--print" => return None,
            "-W" | "-X" => _ = words.next(),
            flag if flag.starts_with("--") => {}
            flag if flag.starts_with('-') && flag.ends_with(['c', 'e']) => return None,
            flag if flag.starts_with('-') => {}
            path => return Some(file_name(path)),
        }
    }
}

/// Last part of a path, up to a space: a process that names itself may write its arguments after it.
fn file_name(path: &str) -> &str {
    let path = path.split_whitespace().next().unwrap_or("");
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_named(line: &str, expected: &str) {
        let named = name(&line.replace(' ', "\0"));
        assert_eq!(named.as_deref().unwrap_or("none"), expected);
    }

    #[test]
    fn a_program_is_known_by_its_executable_or_its_script() {
        assert_named("/usr/local/bin/gpu_burn -d 60", "gpu_burn");
        assert_named(
            "/opt/venv/bin/python3.12 -u -X dev /home/a/train.py --token s3cret",
            "train.py",
        );
        assert_named(
            "python -m torch.distributed.run job.py",
            "torch.distributed.run",
        );
        assert_named("python3 -c print(1)", "python3");
        assert_named("python3 -uc print(1)", "python3");
        assert_named("bash -lc secret", "bash");
        assert_named("node --eval secret", "node");
        assert_named("perl -E secret", "perl");
        assert_named("bash", "bash");
        assert_named("ray::train", "ray::train");
        assert_named("evil\u{1b}[2J", "evil?[2J");
        assert_named("", "none");
        let titled = name("/a/worker --url=http://host/s3cret\0");
        assert_eq!(titled.as_deref(), Some("worker"));
    }
}
