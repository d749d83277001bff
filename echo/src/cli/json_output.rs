//! JSON output: documents, which are indented on a terminal, and objects on lines.

use std::fmt::Display;
use std::io::{self, Write};

use serde_json::Value;

use crate::cli::screen::Screen;

/// Prints a document: unchanged in a pipe, indented on a terminal.
pub(super) fn print(document: &[u8], screen: &mut Screen<'_>) -> io::Result<()> {
    if screen.is_terminal() {
        screen.write_all(&indented(document))
    } else {
        screen.write_all(document)
    }
}

/// Prints objects, one per line. Each line is flushed, so that a reader gets it at once.
pub(super) fn lines(
    objects: impl IntoIterator<Item = impl Display>,
    out: &mut dyn Write,
) -> io::Result<()> {
    for object in objects {
        writeln!(out, "{object}")?;
        out.flush()?;
    }
    Ok(())
}

/// Returns an object as JSON with its fields in this order, which a map of fields does not keep.
pub(super) fn object(names: &[String], values: &[Value]) -> String {
    let fields = names.iter().zip(values);
    let fields = fields.map(|(name, value)| format!("{}:{value}", Value::from(name.as_str())));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

/// Puts every field and item of a document on a line of its own. Order and numbers stay as they are.
fn indented(document: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(document.len().saturating_mul(2));
    let (mut depth, mut previous) = (0_usize, b' ');
    let (mut in_string, mut is_escaped) = (false, false);
    for byte in document.iter().copied() {
        if in_string {
            in_string = is_escaped || byte != b'"';
            is_escaped = !is_escaped && byte == b'\\';
            text.push(byte);
            continue;
        }
        if byte.is_ascii_whitespace() {
            continue;
        }
        let (opens, closes) = (matches!(byte, b'{' | b'['), matches!(byte, b'}' | b']'));
        let is_first = matches!(previous, b'{' | b'[');
        depth = depth.saturating_sub(usize::from(closes));
        if previous == b',' || is_first != closes {
            text.push(b'\n');
            text.resize(text.len().saturating_add(2 * depth), b' ');
        }
        text.push(byte);
        if byte == b':' {
            text.push(b' ');
        }
        depth = depth.saturating_add(usize::from(opens));
        in_string = byte == b'"';
        previous = byte;
    }
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{indented, lines, object, print};
    use crate::cli::screen::Screen;

    #[test]
    fn a_document_is_indented_without_a_change_of_order_or_numbers() {
        let document =
            r#"{"b":[1.50,-2e3,{}],"a":{"\"}":"x, [y]: {","e":[],"\\":null},"c":[[true]]}"#;
        let printed = String::from_utf8(indented(document.as_bytes())).unwrap();
        let expected = "\
{
  \"b\": [
    1.50,
    -2e3,
    {}
  ],
  \"a\": {
    \"\\\"}\": \"x, [y]: {\",
    \"e\": [],
    \"\\\\\": null
  },
  \"c\": [
    [
      true
    ]
  ]
}
";
        assert_eq!(printed, expected);
        let value: Value = serde_json::from_str(document).unwrap();
        let pretty = serde_json::to_string_pretty(&value).unwrap() + "\n";
        let compact = value.to_string();
        assert_eq!(indented(compact.as_bytes()), pretty.as_bytes());
    }

    #[test]
    fn a_document_is_unchanged_in_a_pipe() {
        let mut printed = Vec::new();
        print(b"{\"a\":1}\n", &mut Screen::plain(&mut printed)).unwrap();
        print(b"{\"a\":1}\n", &mut Screen::with_width(&mut printed, 80)).unwrap();
        let printed = String::from_utf8(printed).unwrap();
        assert_eq!(printed, "{\"a\":1}\n{\n  \"a\": 1\n}\n");
    }

    #[test]
    fn an_object_keeps_the_order_of_its_fields() {
        let names = ["b".to_owned(), "a\"".to_owned()];
        let object = object(&names, &[json!(1), json!(null)]);
        let mut printed = Vec::new();
        lines([object], &mut printed).unwrap();
        assert_eq!(printed, b"{\"b\":1,\"a\\\"\":null}\n");
    }
}
