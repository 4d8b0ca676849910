//! Reads the temperatures of the Intel Berkeley Research Lab, 2004: 50 motes with a reading every
//! half hour for five days. A third party (littlepretty/SensorPGM) selected the readings and filled
//! the gaps. A row contains the readings of one mote in degrees Celsius, with three decimals.
//! Papadopoulos et al. (2011) use the 2.3 million raw readings with four decimals, which cannot be
//! obtained.

use super::{DataError, Folder, Line};

const REMEDY: &str = "get intelTemperatureTrain.csv and intelTemperatureTest.csv (github.com/littlepretty/SensorPGM has both), and put them \
    into intel_lab of the folder that MOTESEAL_DATA or --data names";
/// The files: the first three days, and the two days after them.
const FILES: [&str; 2] = ["intelTemperatureTrain.csv", "intelTemperatureTest.csv"];

/// Reads all temperatures, in degrees Celsius, mote by mote.
///
/// # Errors
/// [`DataError`].
pub fn temperatures(folder: &Folder) -> Result<Vec<f64>, DataError> {
    let mut all = Vec::new();
    for name in FILES {
        let path = folder.root().join("intel_lab").join(name);
        all.extend(readings(&path.display().to_string(), &super::read(&path, REMEDY)?)?);
    }
    Ok(all)
}

fn readings(file: &str, text: &str) -> Result<Vec<f64>, DataError> {
    let mut all = Vec::new();
    for line in Line::all(file, text) {
        for reading in line.text.split(',') {
            all.push(line.measure("temperature", reading.trim())?);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_row_has_the_readings_of_one_mote() {
        assert_eq!(
            readings("t", "1.83E+01,1.82E+01\n2.00E+01,-1.0E+00\n").unwrap(),
            [18.3, 18.2, 20.0, -1.0]
        );
    }

    #[test]
    fn an_error_names_the_file_and_the_line() {
        for row in ["1.8E+01,", "1.8E+01,warm", "NaN", ""] {
            let error = readings("t", &format!("1.8E+01\n{row}\n")).unwrap_err().to_string();
            assert!(error.starts_with("DataMalformed: t, line 2: the temperature is"), "{error}");
        }
    }
}
