//! The schema's name, quoted wherever it enters SQL.

use super::error::PostgresOpenError;

/// The name of a schema: any name of 1 to 63 bytes without NUL.
#[derive(Debug, Clone)]
pub(super) struct Schema {
    name: String,
}

impl Schema {
    pub(super) const DEFAULT: &'static str = "backwave";
    /// A longer identifier is cut by the server without an error, and so might meet another's.
    const BYTES_MAX: usize = 63;

    pub(super) fn new(name: &str) -> Result<Self, PostgresOpenError> {
        if name.is_empty() || name.len() > Self::BYTES_MAX || name.contains('\0') {
            let name = name.chars().take(64).collect();
            return Err(PostgresOpenError::SchemaName { name });
        }
        Ok(Self { name: name.to_owned() })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn quoted(&self) -> String {
        quote(&self.name)
    }

    /// Fills in a text of SQL: `{schema}` becomes the quoted identifier, `{schema_text}` the same for use
    /// inside a string literal, `{tag}` a dollar quote that the name cannot close.
    pub(super) fn fill(&self, sql: &str) -> String {
        let quoted = self.quoted();
        let in_literal = quoted.replace('\'', "''");
        let tag = self.dollar_quote();
        let mut filled = String::with_capacity(sql.len() + sql.len() / 4);
        let mut rest = sql;
        // One pass: what was filled in is not looked at again.
        while let Some(at) = rest.find('{') {
            let (before, from) = rest.split_at(at);
            filled.push_str(before);
            let (value, length) = if from.starts_with("{schema}") {
                (quoted.as_str(), "{schema}".len())
            } else if from.starts_with("{schema_text}") {
                (in_literal.as_str(), "{schema_text}".len())
            } else if from.starts_with("{tag}") {
                (tag.as_str(), "{tag}".len())
            } else {
                ("{", 1)
            };
            filled.push_str(value);
            rest = &from[length..];
        }
        filled.push_str(rest);
        filled
    }

    fn dollar_quote(&self) -> String {
        let mut tag = "$body".to_owned();
        while self.name.contains(&tag) {
            tag.push('_');
        }
        tag.push('$');
        tag
    }
}

/// An identifier, quoted.
pub(super) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
