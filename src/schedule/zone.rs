//! Zones by their names.

use jiff::tz::{TimeZone, TimeZoneDatabase};

/// The zone of that name, by the system's zone data or, where those do not know it, by the copy that comes along.
/// What is read is kept for some minutes, after which a change of the system's data is heeded.
pub(crate) fn zone_of(name: &str) -> Result<TimeZone, String> {
    if name.eq_ignore_ascii_case("Etc/Unknown") {
        return Err("it stands for a zone that is not known".to_owned());
    }
    let of_system = TimeZone::get(name);
    of_system.or_else(|error| TimeZoneDatabase::bundled().get(name).map_err(|_| error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_known_by_its_name_and_no_other_is() {
        for name in ["UTC", "Europe/Zurich", "america/new_york", "Etc/GMT+3"] {
            assert!(zone_of(name).is_ok(), "{name}");
        }
        for name in
            ["", "Etc/Unknown", "Mars/Olympus", "../../etc/passwd", "/etc/localtime", "CET-1CEST"]
        {
            assert!(zone_of(name).is_err(), "{name}");
        }
    }
}
