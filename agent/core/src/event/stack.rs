//! Stacks of threads.

use std::fmt;

use xxhash_rust::xxh3::Xxh3;

/// Stack that a thread had in one or more samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackSample {
    /// Time of the last of the samples, nanoseconds.
    pub ts_ns: u64,
    /// Sampled process.
    pub pid: u32,
    /// Sampled thread.
    pub tid: u32,
    /// Whether the thread is the first one of a worker process of the sampled one.
    pub is_worker: bool,
    /// Function of a GPU library that the thread was in; `None` outside of them.
    pub call: Option<String>,
    /// Frames of the thread.
    pub stack: Stack,
    /// Number of samples with this stack since the previous event with it; 0 if it was only read in a
    /// call that was waited for, which says where the call was made and nothing of its time.
    pub samples: u64,
    /// Those of them in which the thread was certainly in no GPU library.
    pub outside: u64,
}

/// Frames of a thread, innermost first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Stack {
    /// The frames, innermost first.
    pub frames: Vec<Frame>,
}

/// Frame of a stack. Paths are as the process sees them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Frame {
    /// Function of a Python program.
    Python {
        /// Path of the source file.
        file: String,
        /// Line that is executed; 0 if the function has no line there.
        line: u32,
        /// Name of the function, with its class where the interpreter knows it.
        function: String,
    },
    /// Function of a program or library.
    Native {
        /// Name of the function; `None` if the module has no symbol there.
        symbol: Option<String>,
        /// Path of the module; `None` if no file is mapped there.
        module: Option<String>,
        /// Offset from the symbol, else from the start of the module, else the address.
        offset: u64,
    },
}

/// Beginnings of the names of libraries of the GPU stack.
const GPU_LIBRARIES: [&str; 6] = [
    "libcuda",
    "libnccl",
    "librccl",
    "libamdhip",
    "libhsa-runtime",
    "libnvidia",
];

impl Stack {
    /// Returns a hash that is equal for equal stacks on every host, in every version.
    pub fn id(&self) -> u64 {
        let mut hasher = Xxh3::new();
        for frame in &self.frames {
            let (kind, texts, number) = match frame {
                Frame::Python {
                    file,
                    line,
                    function,
                } => ("python", [file.as_str(), function], u64::from(*line)),
                Frame::Native {
                    symbol,
                    module,
                    offset,
                } => {
                    let known = [symbol, module].map(|text| text.as_deref().unwrap_or_default());
                    ("native", known, *offset)
                }
            };
            for text in [kind, texts[0], texts[1]] {
                // The length separates a text from the next one.
                hasher.update(&(text.len() as u64).to_le_bytes());
                hasher.update(text.as_bytes());
            }
            hasher.update(&number.to_le_bytes());
        }
        hasher.digest()
    }

    /// Returns the innermost Python frame: the line of the user's program that is executed.
    pub fn python_line(&self) -> Option<&Frame> {
        self.frames.iter().find(|frame| frame.is_python())
    }

    /// Returns a text for each line of the program, innermost first; without such lines for each
    /// function that has a name, and without those for each frame.
    pub fn outline(&self) -> Vec<String> {
        let is_named = |frame: &&Frame| {
            matches!(
                frame,
                Frame::Native {
                    symbol: Some(_),
                    ..
                }
            )
        };
        let python = self.frames.iter().filter(|frame| frame.is_python());
        let named = self.frames.iter().filter(is_named);
        let mut lines: Vec<String> = python.map(Frame::to_string).collect();
        if lines.is_empty() {
            lines = named.map(Frame::to_string).collect();
        }
        if lines.is_empty() {
            lines = self.lines();
        }
        lines
    }

    /// Returns a text for each frame, innermost first. Python frames are marked if there are native
    /// ones.
    pub fn lines(&self) -> Vec<String> {
        let is_mixed = !self.frames.iter().all(Frame::is_python);
        let line = |frame: &Frame| {
            let mark = if is_mixed && frame.is_python() {
                "[Python] "
            } else {
                ""
            };
            format!("{mark}{frame}")
        };
        self.frames.iter().map(line).collect()
    }
}

impl Frame {
    /// Returns whether it is a function of a Python program.
    pub fn is_python(&self) -> bool {
        matches!(self, Self::Python { .. })
    }

    /// Returns whether it is a function of a library of the GPU stack, even one without a symbol.
    pub fn is_of_gpu_library(&self) -> bool {
        let Self::Native {
            module: Some(path), ..
        } = self
        else {
            return false;
        };
        let name = file_name(path);
        GPU_LIBRARIES
            .iter()
            .any(|beginning| name.starts_with(beginning))
    }
}

impl fmt::Display for Frame {
    /// Writes `train.py:142 in forward()`, or `cudaStreamSynchronize+0x1a (libcudart.so.13)`. Files
    /// are named without their folders.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Python {
                file,
                line: 0,
                function,
            } => write!(f, "{} in {function}()", file_name(file)),
            Self::Python {
                file,
                line,
                function,
            } => write!(f, "{}:{line} in {function}()", file_name(file)),
            Self::Native {
                symbol,
                module,
                offset,
            } => match (symbol, module.as_deref().map(file_name)) {
                (Some(symbol), Some(module)) => write!(f, "{symbol}+{offset:#x} ({module})"),
                (Some(symbol), None) => write!(f, "{symbol}+{offset:#x}"),
                (None, Some(module)) => write!(f, "{module}+{offset:#x}"),
                (None, None) => write!(f, "{offset:#x}"),
            },
        }
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python(line: u32, function: &str) -> Frame {
        Frame::Python {
            file: "/app/train.py".to_owned(),
            line,
            function: function.to_owned(),
        }
    }

    fn native(symbol: Option<&str>, module: Option<&str>, offset: u64) -> Frame {
        Frame::Native {
            symbol: symbol.map(str::to_owned),
            module: module.map(str::to_owned),
            offset,
        }
    }

    #[test]
    fn a_python_line_is_marked_among_native_frames_only() {
        let mut stack = Stack {
            frames: vec![python(142, "forward"), python(0, "main")],
        };
        assert_eq!(
            stack.lines(),
            ["train.py:142 in forward()", "train.py in main()"]
        );
        let library = Some("/usr/lib/libcudart.so.13");
        stack
            .frames
            .insert(0, native(Some("cudaMalloc"), library, 0x1a));
        assert_eq!(
            stack.lines()[..2],
            [
                "cudaMalloc+0x1a (libcudart.so.13)",
                "[Python] train.py:142 in forward()"
            ]
        );
        assert_eq!(stack.python_line(), Some(&python(142, "forward")));
    }

    #[test]
    fn the_outline_of_a_stack_is_its_python_lines_or_else_its_named_functions() {
        let (named, unnamed) = (
            native(Some("f"), None, 1),
            native(None, Some("/lib/a.so"), 2),
        );
        let outline = |frames: &[Frame]| {
            Stack {
                frames: frames.to_vec(),
            }
            .outline()
        };
        let all = [unnamed.clone(), named.clone(), python(142, "forward")];
        assert_eq!(outline(&all), ["train.py:142 in forward()"]);
        assert_eq!(outline(&[unnamed.clone(), named]), ["f+0x1"]);
        assert_eq!(outline(&[unnamed]), ["a.so+0x2"]);
    }

    #[test]
    fn a_native_frame_without_a_symbol_names_what_is_known() {
        let texts = [
            native(None, Some("/lib/libc.so.6"), 0x10),
            native(Some("f"), None, 1),
            native(None, None, 0x7f00),
        ]
        .map(|frame| frame.to_string());
        assert_eq!(texts, ["libc.so.6+0x10", "f+0x1", "0x7f00"]);
    }

    #[test]
    fn the_id_of_a_stack_depends_on_each_of_its_parts() {
        let id = |frames: &[Frame]| {
            Stack {
                frames: frames.to_vec(),
            }
            .id()
        };
        let known = id(&[python(142, "forward")]);
        // Stored recordings refer to it.
        assert_eq!(known, id(&[python(142, "forward")]));
        for other in [
            vec![python(143, "forward")],
            vec![python(142, "forwar")],
            vec![python(142, "forward"), python(142, "forward")],
            vec![native(Some("/app/train.py"), Some("forward"), 142)],
            vec![],
        ] {
            assert_ne!(id(&other), known, "{other:?}");
        }
    }
}
