//! A serializer that writes nothing and refuses floating-point numbers that JSON does not have.

use serde::Serialize;
use serde::ser::{self, Serializer};
use std::fmt::{self, Display};

/// Why a value is refused.
#[derive(Debug)]
pub(super) enum Refused {
    NotFinite,
    /// The value's own `Serialize` says so.
    Custom(String),
}

/// Walks through `value`.
pub(super) fn check<T: Serialize + ?Sized>(value: &T) -> Result<(), Refused> {
    value.serialize(Finite)
}

impl Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFinite => f.write_str("a NaN or an infinity cannot be written as JSON"),
            Self::Custom(message) => write!(f, "it cannot be written as JSON: {message}"),
        }
    }
}

impl std::error::Error for Refused {}

impl ser::Error for Refused {
    fn custom<T: Display>(message: T) -> Self {
        Self::Custom(message.to_string())
    }
}

type Checked = Result<(), Refused>;

#[derive(Clone, Copy)]
struct Finite;

macro_rules! pass {
    ($($method:ident($type:ty),)+) => {
        $(fn $method(self, _: $type) -> Checked {
            Ok(())
        })+
    };
}

macro_rules! open {
    ($($method:ident($($type:ty),*) -> $compound:ident,)+) => {
        $(fn $method(self, $(_: $type),*) -> Result<Self::$compound, Refused> {
            Ok(self)
        })+
    };
}

impl Serializer for Finite {
    type Ok = ();
    type Error = Refused;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    fn serialize_f32(self, value: f32) -> Checked {
        if value.is_finite() { Ok(()) } else { Err(Refused::NotFinite) }
    }

    fn serialize_f64(self, value: f64) -> Checked {
        if value.is_finite() { Ok(()) } else { Err(Refused::NotFinite) }
    }

    pass! {
        serialize_bool(bool),
        serialize_i8(i8),
        serialize_i16(i16),
        serialize_i32(i32),
        serialize_i64(i64),
        serialize_i128(i128),
        serialize_u8(u8),
        serialize_u16(u16),
        serialize_u32(u32),
        serialize_u64(u64),
        serialize_u128(u128),
        serialize_char(char),
        serialize_str(&str),
        serialize_bytes(&[u8]),
        serialize_unit_struct(&'static str),
    }

    open! {
        serialize_seq(Option<usize>) -> SerializeSeq,
        serialize_tuple(usize) -> SerializeTuple,
        serialize_tuple_struct(&'static str, usize) -> SerializeTupleStruct,
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> SerializeTupleVariant,
        serialize_map(Option<usize>) -> SerializeMap,
        serialize_struct(&'static str, usize) -> SerializeStruct,
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> SerializeStructVariant,
    }

    fn serialize_none(self) -> Checked {
        Ok(())
    }

    fn serialize_unit(self) -> Checked {
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Checked {
        value.serialize(self)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Checked {
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Checked {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Checked {
        value.serialize(self)
    }

    fn collect_str<T: Display + ?Sized>(self, _: &T) -> Checked {
        Ok(())
    }
}

macro_rules! elements {
    ($($topic:ident::$method:ident,)+) => {
        $(impl ser::$topic for Finite {
            type Ok = ();
            type Error = Refused;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Checked {
                value.serialize(*self)
            }

            fn end(self) -> Checked {
                Ok(())
            }
        })+
    };
}

macro_rules! fields {
    ($($topic:ident,)+) => {
        $(impl ser::$topic for Finite {
            type Ok = ();
            type Error = Refused;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, _: &'static str, value: &T) -> Checked {
                value.serialize(*self)
            }

            fn end(self) -> Checked {
                Ok(())
            }
        })+
    };
}

elements! {
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field,
}

fields! {
    SerializeStruct,
    SerializeStructVariant,
}

impl ser::SerializeMap for Finite {
    type Ok = ();
    type Error = Refused;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, _: &T) -> Checked {
        // What may be a key is the encoder's own rule; it refuses the same floats.
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Checked {
        value.serialize(*self)
    }

    fn end(self) -> Checked {
        Ok(())
    }
}
