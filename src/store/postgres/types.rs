//! How our plain types travel: identities as `uuid`, instants as `timestamptz`, both in binary, so that
//! no setting of the session (time zone, date style) has a say.

use crate::{JobId, Timestamp, WorkerId};
use ::postgres::types::private::BytesMut;
use ::postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};
use std::error::Error;
use std::fmt;

type BoxError = Box<dyn Error + Sync + Send>;

/// 2000-01-01T00:00:00Z, from which Postgres counts, in microseconds since the Unix epoch.
const EPOCH_2000: i64 = 946_684_800_000_000;

macro_rules! as_uuid {
    ($name:ident) => {
        impl ToSql for $name {
            fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
                self.as_bytes().as_slice().to_sql(ty, out)
            }

            accepts!(UUID);
            to_sql_checked!();
        }

        impl<'a> FromSql<'a> for $name {
            fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
                Ok(Self::from_bytes(raw.try_into()?))
            }

            accepts!(UUID);
        }
    };
}

as_uuid!(JobId);
as_uuid!(WorkerId);

/// Bytes of the user's. The client logs the parameters of a statement at debug level by their `Debug`,
/// which for these tells the length only.
#[derive(Clone, Copy)]
pub(super) struct Private<'a>(pub(super) &'a [u8]);

impl fmt::Debug for Private<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl ToSql for Private<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        self.0.to_sql(ty, out)
    }

    accepts!(BYTEA);
    to_sql_checked!();
}

impl ToSql for Timestamp {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        (self.as_micros() - EPOCH_2000).to_sql(ty, out)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Timestamp {
    /// The infinities, which no version of this crate writes, are read as the bounds.
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        Ok(Self::from_micros(i64::from_sql(ty, raw)?.saturating_add(EPOCH_2000)))
    }

    accepts!(TIMESTAMPTZ);
}
