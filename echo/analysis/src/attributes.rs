//! Numbers in the attributes of a point, which are a JSON object. Reading them as text is enough,
//! because names of attributes occur in no value that a sender of such a point chooses.

/// Value of a numeric attribute; `None` if it is missing or not finite.
pub(crate) fn number(attrs: &str, name: &str) -> Option<f64> {
    let (_, rest) = attrs.split_once(name)?;
    let number = rest.strip_prefix('"')?.trim_start_matches([':', ' ']);
    let end = number.find([',', '}'])?;
    let number: f64 = number.get(..end)?.trim().parse().ok()?;
    number.is_finite().then_some(number)
}

/// A number as a count; `None` if it is none.
pub(crate) fn whole(number: f64) -> Option<u32> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be whole and within the range"
    )]
    let whole = number as u32;
    (f64::from(whole).total_cmp(&number).is_eq()).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::{number, whole};

    #[test]
    fn a_number_is_read_by_its_name() {
        let attrs = r#"{"a.b":1,"fleet.waiting_ms": 5000.5,"c":-2}"#;
        assert_eq!(number(attrs, "fleet.waiting_ms"), Some(5000.5));
        assert_eq!(number(attrs, "c"), Some(-2.0));
        assert_eq!(number(attrs, "a.b"), Some(1.0));
        assert_eq!(number(attrs, "d"), None);
    }

    #[test]
    fn what_is_no_number_gives_none() {
        for attrs in [r#"{"a":"#, r#"{"a":"x"}"#, r#"{"a":1e999}"#, r#"{"a""#, ""] {
            assert_eq!(number(attrs, "a"), None, "{attrs}");
        }
    }

    #[test]
    fn only_counts_are_whole() {
        assert_eq!(whole(8.0), Some(8));
        for no in [-1.0, 0.5, 5e9, f64::NAN] {
            assert_eq!(whole(no), None);
        }
    }
}
