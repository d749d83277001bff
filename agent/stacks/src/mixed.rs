//! Python lines among native functions. Pure.

use std::collections::VecDeque;

use fleet_agent_core::event::{Frame, Stack};

/// Beginning of the names of the functions that run Python code.
const EVALUATION: &str = "_PyEval_EvalFrame";

/// Beginnings of the names of libraries of the GPU stack.
const GPU_LIBRARIES: [&str; 6] = [
    "libcuda.so",
    "libcudart",
    "libnccl",
    "librccl",
    "libamdhip64",
    "libhsa-runtime64",
];

/// Frame of a Python thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PythonFrame {
    pub(crate) frame: Frame,
    /// Whether native code called it: the interpreter runs it, and those that it calls, in a native
    /// frame of their own.
    pub(crate) is_entry: bool,
}

/// Returns one stack: where the interpreter runs Python code, the native frame is replaced by the
/// Python lines that it runs, and its other frames are left out.
pub(crate) fn mix(native: Vec<Frame>, python: Vec<PythonFrame>) -> Stack {
    let mut python = VecDeque::from(python);
    if python.is_empty() {
        return Stack { frames: native };
    }
    let interpreter = interpreter(&native);
    let mut frames = Vec::new();
    let mut has_python = false;
    for frame in native {
        if python.is_empty() {
            // What started the interpreter.
            break;
        }
        let is_interpreter = interpreter.is_some() && module(&frame) == interpreter.as_deref();
        if is_evaluation(&frame) {
            has_python = true;
            while let Some(next) = python.pop_front() {
                frames.push(next.frame);
                if next.is_entry {
                    break;
                }
            }
        } else if !(is_interpreter && has_python) {
            frames.push(frame);
        }
    }
    frames.extend(python.into_iter().map(|next| next.frame));
    Stack { frames }
}

/// Returns the function of a GPU library that a thread is in: the one that the program called.
pub(crate) fn gpu_call(stack: &Stack) -> Option<String> {
    let innermost = stack.frames.iter().take_while(|frame| !frame.is_python());
    let names = innermost.filter_map(|frame| match frame {
        Frame::Native {
            symbol: Some(symbol),
            module: Some(module),
            ..
        } if is_gpu_library(module) => Some(symbol),
        _ => None,
    });
    names.last().cloned()
}

fn is_gpu_library(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    GPU_LIBRARIES
        .iter()
        .any(|beginning| name.starts_with(beginning))
}

fn is_evaluation(frame: &Frame) -> bool {
    matches!(frame, Frame::Native { symbol: Some(symbol), .. } if symbol.starts_with(EVALUATION))
}

fn module(frame: &Frame) -> Option<&str> {
    match frame {
        Frame::Native { module, .. } => module.as_deref(),
        Frame::Python { .. } => None,
    }
}

/// Returns the path of the interpreter.
fn interpreter(native: &[Frame]) -> Option<String> {
    let runs = native.iter().find(|frame| is_evaluation(frame))?;
    module(runs).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(symbol: &str, module: &str) -> Frame {
        Frame::Native {
            symbol: Some(symbol.to_owned()),
            module: Some(module.to_owned()),
            offset: 0,
        }
    }

    fn python(line: u32, is_entry: bool) -> PythonFrame {
        let frame = Frame::Python {
            file: "/app/train.py".to_owned(),
            line,
            function: "f".to_owned(),
        };
        PythonFrame { frame, is_entry }
    }

    const CUDART: &str = "/opt/libcudart.so.13";
    const TORCH: &str = "/opt/libtorch_python.so";
    const PYTHON: &str = "/usr/bin/python3.12";

    #[test]
    fn python_lines_stand_where_the_interpreter_runs_them() {
        let stack = mix(
            vec![
                native("ioctl", "/lib/libc.so.6"),
                native("cudaStreamSynchronize", CUDART),
                native("THPStream_synchronize", TORCH),
                native("cfunction_vectorcall", PYTHON),
                native("_PyEval_EvalFrameDefault", PYTHON),
                native("PyObject_Call", PYTHON),
                native("THPFunction_apply", TORCH),
                native("_PyEval_EvalFrameDefault", PYTHON),
                native("Py_RunMain", PYTHON),
                native("__libc_start_main", "/lib/libc.so.6"),
            ],
            vec![python(1, false), python(2, true), python(3, true)],
        );
        assert_eq!(
            stack.lines(),
            [
                "ioctl+0x0 (libc.so.6)",
                "cudaStreamSynchronize+0x0 (libcudart.so.13)",
                "THPStream_synchronize+0x0 (libtorch_python.so)",
                "cfunction_vectorcall+0x0 (python3.12)",
                "[Python] train.py:1 in f()",
                "[Python] train.py:2 in f()",
                "THPFunction_apply+0x0 (libtorch_python.so)",
                "[Python] train.py:3 in f()",
            ]
        );
        assert_eq!(gpu_call(&stack).as_deref(), Some("cudaStreamSynchronize"));
    }

    #[test]
    fn a_library_that_calls_another_one_is_the_call_of_the_program() {
        let frames = vec![
            native("cudaEventQuery", CUDART),
            native("ncclAllReduce", "/opt/libnccl.so.2"),
            native("main", "/app/train"),
        ];
        let stack = Stack { frames };
        assert_eq!(gpu_call(&stack).as_deref(), Some("ncclAllReduce"));
    }

    #[test]
    fn a_call_below_a_python_line_is_over() {
        let stack = mix(
            vec![
                native("_PyEval_EvalFrameDefault", PYTHON),
                native("cudaLaunchHostFunc", CUDART),
            ],
            vec![python(1, true), python(2, true)],
        );
        assert_eq!(stack.frames.len(), 3);
        assert_eq!(gpu_call(&stack), None);
    }

    #[test]
    fn all_python_lines_are_kept_where_native_frames_end_early() {
        let lines = |native| mix(native, vec![python(1, true), python(2, true)]).lines();
        let expected = ["train.py:1 in f()", "train.py:2 in f()"];
        assert_eq!(lines(Vec::new()), expected);
        assert_eq!(lines(vec![native("poll", "/lib/libc.so.6")]).len(), 3);
    }
}
