//! The unit names of SenML: the registry of RFC 8428 with its additions, and the secondary units of
//! RFC 8798.

/// Units of RFC 8428, section 12.1.
const PRIMARY: &[&str] = &[
    "m", "kg", "g", "s", "A", "K", "cd", "mol", "Hz", "rad", "sr", "N", "Pa", "J", "W", "C", "V",
    "F", "Ohm", "S", "Wb", "T", "H", "Cel", "lm", "lx", "Bq", "Gy", "Sv", "kat", "m2", "m3", "l",
    "m/s", "m/s2", "m3/s", "l/s", "W/m2", "cd/m2", "bit", "bit/s", "lat", "lon", "pH", "dB", "dBW",
    "Bspl", "count", "/", "%", "%RH", "%EL", "EL", "1/s", "1/min", "beat/min", "beats", "S/m",
];

/// Primary units that RFC 8798, section 2, added.
const ADDED: &[&str] = &["B", "VA", "VAs", "var", "vars", "J/m", "kg/m3", "deg"];

/// Secondary units of RFC 8798, section 3.
const SECONDARY: &[&str] = &[
    "ms", "min", "h", "MHz", "kW", "kVA", "kvar", "Ah", "Wh", "kWh", "varh", "kvarh", "kVAh",
    "Wh/km", "KiB", "GB", "Mbit/s", "B/s", "MB/s", "mV", "mA", "dBm", "ug/m3", "mm/h", "m/h",
    "ppm", "/100", "/1000", "hPa", "mm", "cm", "km", "km/h",
];

/// Returns whether a field may have this unit: a name in the registries, or the empty string for no
/// unit.
#[must_use]
pub fn is_unit(unit: &str) -> bool {
    unit.is_empty() || [PRIMARY, ADDED, SECONDARY].iter().any(|units| units.contains(&unit))
}

/// Returns whether a unit is a secondary unit (RFC 8798): a SenML pack that has one must state the
/// feature of RFC 9193 in its version.
#[must_use]
pub fn is_secondary_unit(unit: &str) -> bool {
    SECONDARY.contains(&unit)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_units_equal_those_in_the_specification() {
        let page = include_str!("../../../../spec/objects.md");
        let (_, list) = page.split_once("its secondary units):").unwrap_or_default();
        let (list, _) = list.split_once(".\n").unwrap_or_default();
        let listed: BTreeSet<&str> = list.split_whitespace().collect();
        let known: BTreeSet<&str> = [PRIMARY, ADDED, SECONDARY].concat().into_iter().collect();
        assert_eq!(known, listed);
        assert_eq!(
            known.len(),
            PRIMARY.len() + ADDED.len() + SECONDARY.len(),
            "each unit is listed once"
        );
    }
}
