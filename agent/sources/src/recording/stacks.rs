//! Stacks in a recording: each is on a line of its own once, and the lines of samples name its id.

use fleet_agent_core::event::{Frame, Stack};
use serde::{Deserialize, Serialize};

/// Maximum number of frames of a stack; the outermost ones beyond are left out.
const MAX_FRAMES: usize = 256;
/// Maximum number of bytes of a text.
const MAX_TEXT: usize = 500;

/// Frame of a stack: of Python with a file, else native.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FrameFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(default, rename = "fn", skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    module: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
}

/// Returns a stack that fits on a line.
pub(crate) fn shortened(stack: &Stack) -> Stack {
    let text = |text: &Option<String>| text.as_deref().map(beginning);
    let frame = |frame: &Frame| match frame {
        Frame::Python {
            file,
            line,
            function,
        } => Frame::Python {
            file: beginning(file),
            line: *line,
            function: beginning(function),
        },
        Frame::Native {
            symbol,
            module,
            offset,
        } => Frame::Native {
            symbol: text(symbol),
            module: text(module),
            offset: *offset,
        },
    };
    let frames = stack.frames.iter().take(MAX_FRAMES);
    Stack {
        frames: frames.map(frame).collect(),
    }
}

fn beginning(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_TEXT);
    text.get(..end).unwrap_or_default().to_owned()
}

/// Converts a stack to fields.
pub(crate) fn to_fields(stack: &Stack) -> Vec<FrameFields> {
    let fields = |frame: &Frame| match frame {
        Frame::Python {
            file,
            line,
            function,
        } => FrameFields {
            file: Some(file.clone()),
            line: Some(*line),
            function: Some(function.clone()),
            ..FrameFields::default()
        },
        Frame::Native {
            symbol,
            module,
            offset,
        } => FrameFields {
            function: symbol.clone(),
            module: module.clone(),
            offset: Some(*offset),
            ..FrameFields::default()
        },
    };
    stack.frames.iter().map(fields).collect()
}

/// Converts fields to a stack.
pub(super) fn from_fields(fields: &[FrameFields]) -> Stack {
    let frame = |own: &FrameFields| match &own.file {
        Some(file) => Frame::Python {
            file: file.clone(),
            line: own.line.unwrap_or(0),
            function: own.function.clone().unwrap_or_default(),
        },
        None => Frame::Native {
            symbol: own.function.clone(),
            module: own.module.clone(),
            offset: own.offset.unwrap_or(0),
        },
    };
    Stack {
        frames: fields.iter().map(frame).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(function: &str) -> Stack {
        let frames = vec![
            Frame::Native {
                symbol: Some("clock_nanosleep".to_owned()),
                module: Some("/lib/libc.so.6".to_owned()),
                offset: 35,
            },
            Frame::Native {
                symbol: None,
                module: None,
                offset: 4096,
            },
            Frame::Python {
                file: "/app/\"train\".py".to_owned(),
                line: 142,
                function: function.to_owned(),
            },
        ];
        Stack { frames }
    }

    #[test]
    fn a_stack_is_read_back_unchanged() {
        let stack = stack("forward");
        assert_eq!(shortened(&stack), stack);
        let text = serde_json::to_string(&to_fields(&stack)).unwrap();
        let read: Vec<FrameFields> = serde_json::from_str(&text).unwrap();
        assert_eq!(from_fields(&read), stack);
    }

    #[test]
    fn a_stack_of_any_size_fits_on_a_line() {
        let mut long = stack(&"\u{e9}".repeat(9999));
        let frame = long.frames[2].clone();
        long.frames.resize(4096, frame);
        let shortened = shortened(&long);
        assert_eq!(shortened.frames.len(), MAX_FRAMES);
        let text = serde_json::to_string(&to_fields(&shortened)).unwrap();
        assert!(text.len() < 1 << 19, "{}", text.len());
    }
}
