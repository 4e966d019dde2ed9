//! Values to JSON text, without loss.
//!
//! `serde_json` writes `null` for a NaN or an infinity, and a handler would later read something else
//! than was enqueued, or nothing. So a value first passes through [`finite`], which refuses them.

mod finite;

use crate::DecodeError;
use serde::Serialize;
use std::io;

/// A value as JSON text.
#[derive(Debug)]
pub(crate) enum Encoded {
    /// It is within the bound.
    Text(Vec<u8>),
    /// It has that many bytes, more than the bound; none was kept.
    TooLarge(usize),
}

/// Encodes `value`, keeping at most `bytes_max` bytes.
pub(crate) fn to_json<T: Serialize + ?Sized>(
    value: &T,
    bytes_max: usize,
) -> Result<Encoded, DecodeError> {
    finite::check(value).map_err(|refused| DecodeError::new(refused.to_string()))?;
    let mut sink = Sink { text: Vec::new(), size: 0, bytes_max };
    serde_json::to_writer(&mut sink, value)
        .map_err(|error| DecodeError::new(format!("it cannot be written as JSON: {error}")))?;
    if sink.size > bytes_max {
        return Ok(Encoded::TooLarge(sink.size));
    }
    Ok(Encoded::Text(sink.text))
}

/// Counts everything and keeps what fits, so that a value far over its bound costs no memory and the
/// refusal can still name its size.
struct Sink {
    text: Vec<u8>,
    size: usize,
    bytes_max: usize,
}

impl io::Write for Sink {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.size = self.size.saturating_add(part.len());
        if self.size <= self.bytes_max {
            self.text.extend_from_slice(part);
        } else {
            self.text = Vec::new();
        }
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, de::DeserializeOwned};
    use std::collections::BTreeMap;

    fn text<T: Serialize>(value: &T) -> Result<String, String> {
        match to_json(value, usize::MAX) {
            Ok(Encoded::Text(text)) => Ok(String::from_utf8(text).expect("JSON is UTF-8")),
            Ok(Encoded::TooLarge(size)) => panic!("{size} bytes are too many"),
            Err(error) => Err(error.to_string()),
        }
    }

    fn round<T: Serialize + DeserializeOwned>(value: &T) -> T {
        serde_json::from_str(&text(value).expect("encodes")).expect("decodes")
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Extremes {
        unsigned: u64,
        signed: i64,
        wide: u128,
        deep: i128,
        noncharacter: char,
        by_number: BTreeMap<i32, ()>,
        by_text: BTreeMap<String, Vec<u8>>,
        #[serde(flatten)]
        rest: BTreeMap<String, Option<bool>>,
    }

    #[test]
    fn extreme_values_come_back_exactly() {
        let value = Extremes {
            unsigned: u64::MAX,
            signed: i64::MIN,
            wide: u128::MAX,
            deep: i128::MIN,
            noncharacter: '\u{ffff}',
            by_number: [(-1, ()), (7, ())].into(),
            by_text: [(String::new(), vec![0, 255])].into(),
            rest: [("a\0".to_owned(), None), ("b".to_owned(), Some(true))].into(),
        };
        assert_eq!(round(&value), value);
    }

    #[test]
    fn floats_come_back_bit_for_bit() {
        let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
        let fixed = [-0.0, 1e308, 5e-324, f64::MIN_POSITIVE, 0.1, 8.988_465_674_311_579e307];
        let drawn = (0..20_000).map(|_| {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            f64::from_bits(bits)
        });
        for value in fixed.into_iter().chain(drawn).filter(|value| value.is_finite()) {
            assert_eq!(round(&value).to_bits(), value.to_bits(), "{value:e}");
        }
    }

    #[test]
    fn a_number_that_json_does_not_have_is_refused_wherever_it_stands() {
        #[derive(Serialize)]
        enum Shape {
            Newtype(f64),
            Tuple(u8, f32),
            Struct { inside: Option<f64> },
        }
        let refused = Err("a NaN or an infinity cannot be written as JSON".to_owned());
        assert_eq!(text(&f64::NAN), refused);
        assert_eq!(text(&f32::NEG_INFINITY), refused);
        assert_eq!(text(&vec![(1, Some(f64::INFINITY))]), refused);
        assert_eq!(text(&BTreeMap::from([("a", f64::NAN)])), refused);
        assert_eq!(text(&Shape::Newtype(f64::NAN)), refused);
        assert_eq!(text(&Shape::Tuple(1, f32::NAN)), refused);
        assert_eq!(text(&Shape::Struct { inside: Some(f64::NAN) }), refused);
        assert_eq!(text(&Shape::Tuple(1, 0.5)).as_deref(), Ok(r#"{"Tuple":[1,0.5]}"#));
        assert_eq!(
            text(&Shape::Struct { inside: None }).as_deref(),
            Ok(r#"{"Struct":{"inside":null}}"#)
        );
    }

    #[test]
    fn a_value_over_its_bound_is_measured_and_not_kept() {
        let value = "x".repeat(1_000_000);
        assert!(matches!(to_json(&value, 100), Ok(Encoded::TooLarge(1_000_002))));
        assert!(matches!(to_json("x", 3), Ok(Encoded::Text(text)) if text == b"\"x\""));
    }

    #[test]
    fn a_key_that_json_cannot_have_is_an_error() {
        let error = text(&BTreeMap::from([((1, 2), 3)])).expect_err("a tuple is no key");
        assert!(error.starts_with("it cannot be written as JSON: "), "{error}");
    }
}
