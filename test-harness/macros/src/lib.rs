//! The attribute `#[test]` of `fleet-test-harness`, which documents it.

use proc_macro::{Delimiter, TokenStream, TokenTree};

/// Registers a function as a test, with what `#[needs(...)]` below it names.
///
/// A function may be `async`. Attributes that only the standard runner understands are errors,
/// because they would be without effect.
#[proc_macro_attribute]
pub fn test(_arguments: TokenStream, function: TokenStream) -> TokenStream {
    match Parts::read(function) {
        Ok(parts) => parts.registered(),
        Err(message) => parsed(&format!("::core::compile_error!({message:?});")),
    }
}

/// Parts of a test function.
#[derive(Default)]
struct Parts {
    /// The function without `#[needs(...)]`.
    function: TokenStream,
    name: String,
    needs: String,
    is_async: bool,
}

impl Parts {
    fn read(function: TokenStream) -> Result<Self, String> {
        let mut parts = Self::default();
        let mut tokens = function.into_iter().peekable();
        while let Some(token) = tokens.next() {
            let attribute = match tokens.peek() {
                Some(TokenTree::Group(group)) if is_hash(&token) => attribute(group.stream()),
                _ => None,
            };
            match attribute {
                Some((name, needs)) if name == "needs" => {
                    parts.needs = needs;
                    tokens.next();
                    continue;
                }
                Some((name, _)) if name == "should_panic" || name == "ignore" => {
                    return Err(format!("#[{name}] has no effect in this test binary"));
                }
                _ => {}
            }
            if parts.name.is_empty()
                && let TokenTree::Ident(word) = &token
            {
                parts.is_async |= word.to_string() == "async";
                if word.to_string() == "fn" {
                    parts.name = tokens.peek().map(ToString::to_string).unwrap_or_default();
                }
            }
            parts.function.extend([token]);
        }
        if parts.name.is_empty() {
            return Err("#[test] is for functions".to_owned());
        }
        Ok(parts)
    }

    /// Returns the function and its registration.
    fn registered(self) -> TokenStream {
        let Self { name, needs, .. } = &self;
        let run = if self.is_async {
            format!("|| ::fleet_test_harness::block_on({name}())")
        } else {
            name.clone()
        };
        let registration = format!(
            "::fleet_test_harness::inventory::submit! {{
                ::fleet_test_harness::Test::new(
                    ::core::module_path!(), ::core::stringify!({name}), &[{needs}], {run},
                )
            }}"
        );
        let mut tokens = self.function;
        tokens.extend(parsed(&registration));
        tokens
    }
}

fn is_hash(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(mark) if mark.as_char() == '#')
}

/// Returns the name of an attribute and the text in its parentheses; each need becomes a reference.
fn attribute(content: TokenStream) -> Option<(String, String)> {
    let mut tokens = content.into_iter();
    let name = tokens.next()?.to_string();
    let needs = match tokens.next() {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
            let text = group.stream().to_string();
            let needs = text.split(',').filter(|need| !need.trim().is_empty());
            needs.fold(String::new(), |all, need| all + "&" + need + ",")
        }
        _ => String::new(),
    };
    Some((name, needs))
}

#[expect(clippy::expect_used, reason = "the text is written above")]
fn parsed(text: &str) -> TokenStream {
    text.parse().expect("the text is Rust")
}
