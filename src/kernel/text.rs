//! Text that every store can hold.
//!
//! A NUL or a lone control character in a panic message must not fail the write that records the
//! attempt: Postgres refuses NUL in `text` (SQLSTATE 22021). So every text that did not pass a
//! typed check is cleaned here before any store sees it.

/// `text` with each control character but tab and newline replaced by U+FFFD, and cut on a character
/// boundary so that the result has at most `bytes_max` bytes.
#[must_use]
pub(crate) fn clean(text: &str, bytes_max: usize) -> String {
    let mut cleaned = String::with_capacity(text.len().min(bytes_max));
    for character in text.chars() {
        let kept = match character {
            '\t' | '\n' => character,
            other if other.is_control() => char::REPLACEMENT_CHARACTER,
            other => other,
        };
        if cleaned.len() + kept.len_utf8() > bytes_max {
            break;
        }
        cleaned.push(kept);
    }
    cleaned
}

/// What a name (wire name, queue, group, tag) must not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameFault {
    /// It has no character.
    #[error("it is empty")]
    Empty,
    /// It has more bytes than the bound allows.
    #[error("it has {bytes} bytes and the limit is {limit}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// It holds an ASCII control character, NUL among them.
    #[error("it holds a control character")]
    ControlCharacter,
    /// It begins or ends with a blank.
    #[error("it begins or ends with a blank")]
    Blank,
}

/// Checks a name: 1 to `bytes_max` bytes, no ASCII control character, no blank at either end.
/// Names are compared byte by byte; nothing is normalised. Callable in a `const`.
///
/// # Errors
/// The first fault found.
pub(crate) const fn check_name(name: &str, bytes_max: usize) -> Result<(), NameFault> {
    let bytes = name.as_bytes();
    if bytes.is_empty() {
        return Err(NameFault::Empty);
    }
    if bytes.len() > bytes_max {
        return Err(NameFault::TooLong { bytes: bytes.len(), limit: bytes_max });
    }
    let mut index = 0;
    while index < bytes.len() {
        if bytes[index].is_ascii_control() {
            return Err(NameFault::ControlCharacter);
        }
        index += 1;
    }
    if bytes[0] == b' ' || bytes[bytes.len() - 1] == b' ' {
        return Err(NameFault::Blank);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced_and_the_rest_is_kept() {
        assert_eq!(clean("a\0b\u{7f}\n\té\u{1f921}", 100), "a\u{fffd}b\u{fffd}\n\té\u{1f921}");
    }

    #[test]
    fn a_long_text_is_cut_on_a_character_boundary() {
        assert_eq!(clean("aéé", 4), "aé");
        assert_eq!(clean("aéé", 3), "aé");
        assert_eq!(clean("\0\0", 5), "\u{fffd}");
    }

    #[test]
    fn names_are_refused_for_one_reason_at_a_time() {
        assert_eq!(check_name("", 8), Err(NameFault::Empty));
        assert_eq!(check_name("123456789", 8), Err(NameFault::TooLong { bytes: 9, limit: 8 }));
        assert_eq!(check_name("a\0", 8), Err(NameFault::ControlCharacter));
        assert_eq!(check_name(" a", 8), Err(NameFault::Blank));
        assert_eq!(check_name("q\"; DROP", 8), Ok(()));
        assert_eq!(check_name("été", 8), Ok(()));
    }
}
