//! Python lines among native functions. Pure.

use std::collections::VecDeque;

use fleet_agent_core::event::{Frame, Stack};

/// Beginning of the names of the functions that run Python code.
const EVALUATION: &str = "_PyEval_EvalFrame";

/// Frame of a Python thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PythonFrame {
    pub(crate) frame: Frame,
    /// Whether native code called it: the interpreter runs it, and those that it calls, in a native
    /// frame of their own.
    pub(crate) is_entry: bool,
}

/// Beginnings of the names of libraries that call functions through pointers for the interpreter.
const DISPATCHERS: [&str; 2] = ["libffi", "_ctypes"];

/// Returns the frames that a thread is in if the return addresses of its `unchanged` outermost ones
/// are still on its stack. The next one is called from the same place and so is the same function,
/// except where the interpreter calls any function from one place. None without the interpreter: it
/// overwrites the return address with each call, while deeper ones stay after a return.
pub(crate) fn remaining(mut frames: Vec<Frame>, unchanged: usize) -> Vec<Frame> {
    let first = frames.len().saturating_sub(unchanged);
    let Some(called) = first.checked_sub(1) else {
        return frames;
    };
    let calls_one_function = frames
        .get(first)
        .is_some_and(|caller| !calls_any(caller, &frames));
    let is_interpreter = frames.get(called).is_some_and(is_evaluation);
    let is_known = is_interpreter || calls_one_function;
    frames.drain(..if is_known { called } else { first });
    if interpreter(&frames).is_none() {
        frames.clear();
    }
    frames
}

fn calls_any(caller: &Frame, frames: &[Frame]) -> bool {
    let Some(path) = module(caller) else {
        return true;
    };
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_dispatcher = DISPATCHERS
        .iter()
        .any(|beginning| name.starts_with(beginning));
    is_dispatcher || interpreter(frames).as_deref() == Some(path)
}

/// Returns one stack: where the interpreter runs Python code, the native frame is replaced by the
/// Python lines that it runs, and its other frames are left out. The innermost one remains if the
/// thread is in no function that the interpreter called.
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
            if frames.is_empty() {
                frames.push(at_its_start(&frame));
            }
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
    let functions = innermost.filter(|frame| frame.is_of_gpu_library());
    let names = functions.filter_map(|frame| match frame {
        Frame::Native { symbol, .. } => symbol.as_ref(),
        Frame::Python { .. } => None,
    });
    names.last().cloned()
}

/// Returns the interpreter without its place, which changes all the time.
fn at_its_start(frame: &Frame) -> Frame {
    let mut frame = frame.clone();
    if let Frame::Native { offset, .. } = &mut frame {
        *offset = 0;
    }
    frame
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
        assert_eq!(
            stack.lines(),
            [
                "_PyEval_EvalFrameDefault+0x0 (python3.12)",
                "[Python] train.py:1 in f()",
                "cudaLaunchHostFunc+0x0 (libcudart.so.13)",
                "[Python] train.py:2 in f()",
            ]
        );
        assert_eq!(gpu_call(&stack), None);
    }

    /// Names of the frames that remain of a call of PyTorch.
    fn remaining_of(unchanged: usize) -> Vec<String> {
        let frames = vec![
            native("ioctl", "/lib/libc.so.6"),
            native("cudaStreamSynchronize", CUDART),
            native("THPStream_synchronize", TORCH),
            native("cfunction_vectorcall", PYTHON),
            native("_PyEval_EvalFrameDefault", PYTHON),
            native("PyEval_EvalCode", PYTHON),
        ];
        let frames = remaining(frames, unchanged).into_iter();
        let names = frames.filter_map(|frame| match frame {
            Frame::Native { symbol, .. } => symbol,
            Frame::Python { .. } => None,
        });
        names.collect()
    }

    #[test]
    fn a_thread_that_polls_in_a_call_is_still_in_it() {
        assert_eq!(remaining_of(5)[0], "ioctl");
        assert_eq!(remaining_of(4)[0], "cudaStreamSynchronize");
    }

    #[test]
    fn a_call_that_has_returned_is_left_out() {
        // Every function of C is called from one place, so the return address says nothing.
        assert_eq!(remaining_of(3)[0], "cfunction_vectorcall");
        assert_eq!(remaining_of(2)[0], "_PyEval_EvalFrameDefault");
        assert_eq!(remaining_of(1)[0], "_PyEval_EvalFrameDefault");
        assert_eq!(remaining_of(0), [""; 0]);
        // The callers are not known down to the interpreter.
        let frames = vec![
            native("usleep", "/lib/libc.so.6"),
            native("cudaStreamSynchronize", CUDART),
            native("ffi_call", "/lib/libffi.so.8"),
        ];
        assert_eq!(remaining(frames, 2), []);
    }

    #[test]
    fn all_python_lines_are_kept_where_native_frames_end_early() {
        let lines = |native| mix(native, vec![python(1, true), python(2, true)]).lines();
        let expected = ["train.py:1 in f()", "train.py:2 in f()"];
        assert_eq!(lines(Vec::new()), expected);
        assert_eq!(lines(vec![native("poll", "/lib/libc.so.6")]).len(), 3);
    }
}
