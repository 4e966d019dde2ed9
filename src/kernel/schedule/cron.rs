//! Cron expressions: which civil times one names. Nothing here knows of zones.
//!
//! The fields are read by the crate `croner`; what it is lenient about (names in fields that have none, empty
//! items of a list) is refused here first, so that nothing that was written is ignored.

use croner::CronPattern;
use croner::parser::{CronParser, Seconds, Year};
use croner::time::Weekday;
use jiff::civil::{Date, DateTime, Time};

/// An expression.
#[derive(Debug, Clone)]
pub(crate) struct Cron {
    days: Box<CronPattern>,
    months: u64,
    hours: u64,
    minutes: u64,
    seconds: u64,
    keeps_rhythm: bool,
}

/// What is wrong with an expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CronFault {
    /// It has neither five nor six fields.
    #[error("it has {count} fields, and there must be five, or six with seconds first")]
    Fields {
        /// How many it has.
        count: usize,
    },
    /// It is longer than any that makes sense, or not in ASCII.
    #[error("it is longer than {EXPRESSION_BYTES_MAX} bytes or not ASCII")]
    Text,
    /// It begins with `@` and is none of the names that there are.
    #[error("the names are @hourly, @daily, @weekly, @monthly and @yearly")]
    Nickname,
    /// A field does not read.
    #[error("the field {field:?} does not read: {why}")]
    Field {
        /// The field, or the whole expression where it is about more than one.
        field: String,
        /// Why.
        why: String,
    },
    /// No date of the calendar is in it.
    #[error("it never comes: no date of the calendar is in it")]
    Never,
}

/// The longest expression.
const EXPRESSION_BYTES_MAX: usize = 256;
/// A date of the Gregorian calendar that comes at all, 29 February on a given weekday included, comes within 40
/// years.
const YEARS_MAX: i16 = 50;

impl Cron {
    /// Reads an expression.
    ///
    /// # Errors
    /// The first fault found.
    pub(crate) fn parse(expression: &str) -> Result<Self, CronFault> {
        if expression.len() > EXPRESSION_BYTES_MAX || !expression.is_ascii() {
            return Err(CronFault::Text);
        }
        let written = expression.trim().to_ascii_uppercase();
        let plain = if written.starts_with('@') { spelled_out(&written)? } else { &written };
        let fields: Vec<&str> = plain.split_ascii_whitespace().collect();
        if !matches!(fields.len(), 5 | 6) {
            return Err(CronFault::Fields { count: fields.len() });
        }
        for (place, field) in fields.iter().rev().enumerate() {
            check_field(place, field)?;
        }
        let parser = CronParser::builder();
        let parser = parser.seconds(Seconds::Optional).year(Year::Disallowed).build();
        let read = parser.parse(plain).map_err(|error| CronFault::Field {
            field: plain.to_owned(),
            why: error.to_string(),
        })?;
        let pattern = read.pattern;
        let star = |from_end: usize| {
            fields.len().checked_sub(from_end).is_some_and(|at| fields[at].starts_with('*'))
        };
        let cron = Self {
            months: mask(&pattern.months.values()),
            hours: mask(&pattern.hours.values()),
            minutes: mask(&pattern.minutes.values()),
            seconds: mask(&pattern.seconds.values()),
            days: Box::new(pattern),
            keeps_rhythm: star(5) || star(4),
        };
        cron.next(SOME_DAY.at(0, 0, 0, 0)).ok_or(CronFault::Never)?;
        Ok(cron)
    }

    /// Whether the minute or the hour field begins with `*`: such an expression keeps its rhythm in real time when
    /// clocks change; any other names times of the day.
    pub(crate) const fn keeps_rhythm(&self) -> bool {
        self.keeps_rhythm
    }

    /// The first civil time of it that is not before `from`, which is in whole seconds.
    pub(crate) fn next(&self, from: DateTime) -> Option<DateTime> {
        let last = from.date().year().saturating_add(YEARS_MAX);
        let mut date = from.date();
        let mut time = from.time();
        while date.year() <= last {
            if !has(self.months, date.month()) {
                date = date.last_of_month().tomorrow().ok()?;
                time = Time::midnight();
                continue;
            }
            if self.has_day(date)
                && let Some(time) = self.next_time(time)
            {
                return Some(date.to_datetime(time));
            }
            date = date.tomorrow().ok()?;
            time = Time::midnight();
        }
        None
    }

    fn has_day(&self, date: Date) -> bool {
        let weekday = date.weekday().to_sunday_zero_offset().unsigned_abs();
        let weekday = Weekday::from_days_from_sunday(u32::from(weekday));
        let month = u32::from(date.month().unsigned_abs());
        let day = u32::from(date.day().unsigned_abs());
        // It fails for dates that do not exist only, and this one does.
        self.days.day_match(i32::from(date.year()), month, day, weekday).unwrap_or(false)
    }

    /// The first time of a day that is not before `from`.
    fn next_time(&self, from: Time) -> Option<Time> {
        let (hour, minute, second) = (from.hour(), from.minute(), from.second());
        let (first_minute, first_second) =
            (at_or_after(self.minutes, 0)?, at_or_after(self.seconds, 0)?);
        if has(self.hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = at_or_after(self.seconds, second)
            {
                return Time::new(hour, minute, second, 0).ok();
            }
            if let Some(minute) = at_or_after(self.minutes, minute + 1) {
                return Time::new(hour, minute, first_second, 0).ok();
            }
        }
        let hour = at_or_after(self.hours, hour + 1)?;
        Time::new(hour, first_minute, first_second, 0).ok()
    }
}

/// Where the search for a date begins that shows that an expression has one.
const SOME_DAY: Date = Date::constant(2000, 1, 1);

fn spelled_out(name: &str) -> Result<&'static str, CronFault> {
    Ok(match name {
        "@YEARLY" => "0 0 1 1 *",
        "@MONTHLY" => "0 0 1 * *",
        "@WEEKLY" => "0 0 * * 0",
        "@DAILY" => "0 0 * * *",
        "@HOURLY" => "0 * * * *",
        _ => return Err(CronFault::Nickname),
    })
}

/// Checks what the parser is lenient about. Places are counted from the end: 0 is the day of the week.
fn check_field(place: usize, field: &str) -> Result<(), CronFault> {
    let refuse = |why: &str| Err(CronFault::Field { field: field.to_owned(), why: why.to_owned() });
    let items = field.strip_prefix('+').filter(|_| place == 0).unwrap_or(field);
    if items.split(',').any(str::is_empty) {
        return refuse("an item of its list is empty");
    }
    let words = items.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    for word in words {
        let is_known = match place {
            0 => word == "L" || WEEKDAYS.contains(&word.strip_suffix('L').unwrap_or(word)),
            1 => MONTHS.contains(&word),
            2 => matches!(word, "L" | "W" | "LW"),
            _ => false,
        };
        if !is_known {
            return refuse("it has a word that this field does not know");
        }
    }
    if items.contains('?') && items != "?" {
        return refuse("a question mark stands alone");
    }
    Ok(())
}

const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];

/// Bit n stands for n; no field goes beyond 59.
fn mask(values: &[u16]) -> u64 {
    values.iter().fold(0, |mask, value| mask | 1_u64.checked_shl(u32::from(*value)).unwrap_or(0))
}

fn has(mask: u64, value: i8) -> bool {
    at_or_after(mask, value) == Some(value)
}

/// The first number of the set that is not below `value`.
fn at_or_after(mask: u64, value: i8) -> Option<i8> {
    let below = u32::try_from(value).ok().and_then(|shift| u64::MAX.checked_shl(shift))?;
    let first = (mask & below).trailing_zeros();
    i8::try_from(first).ok().filter(|first| *first < 64)
}
