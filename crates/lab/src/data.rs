//! Reads the recorded events of seven sources. Each source is one device, and each day is one
//! epoch. They replace the data of section VIII.A of Li et al.
//!
//! The paper took its seven sources from three homes of the Smart* data set over 92 days. Only home
//! C's environmental data can be obtained. Recordings of five other homes, by van Kasteren and MIT,
//! and of eight TelosB motes replace homes A and B. These recordings have fewer days and are from
//! other years. Their days replace the 92 days in order. After the last recorded day, a recording
//! starts again from its first day. A day's load is therefore real, hour by hour, but its date is
//! correct only for home C.
//!
//! The files have the format in which their authors published them. A malformed line is an error
//! that states its file and line number; no line is skipped.

mod home_c;
mod houses;
pub mod intel_lab;
mod motes;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Number of days in an experiment: 1 May to 31 July 2012.
pub const DAYS: usize = 92;
/// The first day of an experiment, 2012-05-01, in days since 1970-01-01.
pub const FIRST_DAY: u64 = 15_461;
/// Number of seconds per day.
pub const DAY_SECONDS: u32 = 86_400;
/// Maximum size of a file, in bytes. The files of all sources are smaller.
const LARGEST_FILE: u64 = 64 << 20;

/// One recorded event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// Seconds since midnight, in the local time of the recording.
    pub second: u32,
    /// The recorded value. For home C it is the outdoor temperature in degrees Fahrenheit. For a
    /// house it is the time for which a sensor was on, in seconds. For a mote it is the temperature
    /// in degrees Celsius.
    pub reading: f64,
}

/// One of the seven sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// Smart* home C: outdoor weather every minute, 1 May to 31 July 2012.
    HomeC,
    /// Van Kasteren's house A: 14 switches, 28 days of 2008.
    HouseA,
    /// Van Kasteren's house B: 23 switches and motion sensors, 28 days of 2009.
    HouseB,
    /// Van Kasteren's house C: 21 switches and motion sensors, 20 days of 2008.
    HouseC,
    /// MIT's house D (Tapia's subject 1): 72 switches, 16 days of 2003.
    HouseD,
    /// MIT's house E (Tapia's subject 2): 68 switches, 16 days of 2003.
    HouseE,
    /// Eight TelosB motes of 2010, with a reading every 5 seconds for about six hours. Each mote
    /// counts as one day.
    TelosB,
}

impl Source {
    /// All seven sources, in the order of their device numbers.
    pub const ALL: [Self; 7] = [
        Self::HomeC,
        Self::HouseA,
        Self::HouseB,
        Self::HouseC,
        Self::HouseD,
        Self::HouseE,
        Self::TelosB,
    ];

    /// Returns the source's name on the command line and in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HomeC => "home-c",
            Self::HouseA => "house-a",
            Self::HouseB => "house-b",
            Self::HouseC => "house-c",
            Self::HouseD => "house-d",
            Self::HouseE => "house-e",
            Self::TelosB => "telosb",
        }
    }

    /// Returns a description of the recorded data, and of the paper's source that it replaces.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::HomeC => {
                "Smart* home C, outdoor weather every minute, 92 days of 2012; as in the paper"
            }
            Self::HouseA => {
                "van Kasteren's house A, switches, 2008; in place of a source of home A or B"
            }
            Self::HouseB => {
                "van Kasteren's house B, switches and motion, 2009; in place of a source of home A or B"
            }
            Self::HouseC => {
                "van Kasteren's house C, switches and motion, 2008; in place of a source of home A or B"
            }
            Self::HouseD => "MIT's house D, switches, 2003; in place of a source of home A or B",
            Self::HouseE => "MIT's house E, switches, 2003; in place of a source of home A or B",
            Self::TelosB => {
                "eight TelosB motes, every 5 s for some 6 hours, 2010, each mote as one day; in place of a source of home A or B"
            }
        }
    }

    /// Reads the days of the source.
    ///
    /// # Errors
    /// [`DataError`]: a data set is absent, or a line is malformed.
    pub fn load(self, folder: &Folder) -> Result<Recording, DataError> {
        let days = match self {
            Self::HomeC => home_c::load(folder),
            Self::HouseA => houses::load(folder, 'A'),
            Self::HouseB => houses::load(folder, 'B'),
            Self::HouseC => houses::load(folder, 'C'),
            Self::HouseD => houses::load(folder, 'D'),
            Self::HouseE => houses::load(folder, 'E'),
            Self::TelosB => motes::load(folder),
        }?;
        Ok(Recording { name: self.name().to_owned(), days })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a name that no source has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownSource;

impl fmt::Display for UnknownSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown source; valid sources: all")?;
        Source::ALL.iter().try_for_each(|source| write!(f, ", {source}"))
    }
}

impl std::error::Error for UnknownSource {}

impl FromStr for Source {
    type Err = UnknownSource;

    fn from_str(name: &str) -> Result<Self, UnknownSource> {
        Self::ALL.into_iter().find(|source| source.name() == name).ok_or(UnknownSource)
    }
}

/// The events of one device: a list for each day, ordered by time.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    name: String,
    days: Vec<Vec<Event>>,
}

impl Recording {
    /// Creates a recording from the events of its days. Orders the events of each day by time.
    #[must_use]
    pub fn new(name: &str, mut days: Vec<Vec<Event>>) -> Self {
        days.iter_mut().for_each(|day| day.sort_by_key(|event| event.second));
        Self { name: name.to_owned(), days }
    }

    /// Returns the device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of recorded days.
    #[must_use]
    pub const fn days(&self) -> usize {
        self.days.len()
    }

    /// Returns the events of day `day` of the experiment, from 0. After the last recorded day the
    /// recording starts again from its first day.
    #[must_use]
    pub fn day(&self, day: usize) -> &[Event] {
        if self.days.is_empty() { &[] } else { &self.days[day % self.days.len()] }
    }
}

/// The folder of the recorded data, with one folder for each data set (`docs/lab.md`).
#[derive(Clone, Debug)]
pub struct Folder {
    root: PathBuf,
    motes: Option<PathBuf>,
}

impl Folder {
    /// Returns the folder at `root`. The folder need not exist.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), motes: None }
    }

    /// Sets a separate folder for the motes' files. In a checkout they are in `data/telosb`.
    #[must_use]
    pub fn with_motes(self, motes: impl Into<PathBuf>) -> Self {
        Self { motes: Some(motes.into()), ..self }
    }

    /// Returns the path of the folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn motes(&self) -> PathBuf {
        self.motes.clone().unwrap_or_else(|| self.root.join("telosb_labelled_suthaharan"))
    }
}

/// Why recorded data cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum DataError {
    /// A data set is absent.
    Absent {
        /// The path where the data set was expected.
        path: PathBuf,
        /// A message that states where to get the data set and where to put it.
        remedy: &'static str,
    },
    /// A file exists but cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: io::Error,
    },
    /// A line does not have its data set's format.
    Malformed {
        /// The file. For a file within an archive: the name of the archive, a colon, and the name
        /// of the file.
        file: String,
        /// The line number, from 1.
        line: usize,
        /// The problem.
        what: String,
    },
}

impl DataError {
    /// Returns the error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Absent { .. } => "DataAbsent",
            Self::Unreadable { .. } => "DataUnreadable",
            Self::Malformed { .. } => "DataMalformed",
        }
    }
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name())?;
        match self {
            Self::Absent { path, remedy } => write!(f, "{} is absent; {remedy}", path.display()),
            Self::Unreadable { path, cause } => {
                write!(f, "cannot read {}: {cause}", path.display())
            }
            Self::Malformed { file, line, what } => write!(f, "{file}, line {line}: {what}"),
        }
    }
}

impl std::error::Error for DataError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

/// Reads a text file. If it does not exist, the error contains `remedy`, which states how to get
/// the data set.
fn read(path: &Path, remedy: &'static str) -> Result<String, DataError> {
    let unreadable = |cause| DataError::Unreadable { path: path.to_owned(), cause };
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(DataError::Absent { path: path.to_owned(), remedy });
        }
        Err(error) => return Err(unreadable(error)),
        Ok(data) if data.len() > LARGEST_FILE => {
            return Err(unreadable(io::Error::other("too large; is it the right file?")));
        }
        Ok(_) => {}
    }
    std::fs::read_to_string(path).map_err(unreadable)
}

/// A line of a file, with its file and number for error messages.
struct Line<'a> {
    file: &'a str,
    number: usize,
    text: &'a str,
}

impl<'a> Line<'a> {
    /// Returns the lines of a text, without their line endings.
    fn all(file: &'a str, text: &'a str) -> impl Iterator<Item = Self> {
        text.lines().zip(1..).map(move |(text, number)| Self { file, number, text })
    }

    fn wrong(&self, what: impl fmt::Display) -> DataError {
        DataError::Malformed {
            file: self.file.to_owned(),
            line: self.number,
            what: what.to_string(),
        }
    }

    /// Splits the line into columns. Fails unless there are exactly `N`.
    fn columns<const N: usize>(&self, separators: &[char]) -> Result<[&'a str; N], DataError> {
        let mut columns = [""; N];
        let mut found = 0;
        for column in self.text.split(separators) {
            if let Some(place) = columns.get_mut(found) {
                *place = column.trim();
            }
            found += 1;
        }
        if found == N {
            Ok(columns)
        } else {
            Err(self.wrong(format_args!("{found} columns instead of {N}")))
        }
    }

    fn number<T: FromStr>(&self, name: &str, text: &str) -> Result<T, DataError> {
        text.parse().map_err(|_| self.wrong(format_args!("the {name} is {text:?}")))
    }

    /// Parses a measured value, which must be finite.
    fn measure(&self, name: &str, text: &str) -> Result<f64, DataError> {
        let value: f64 = self.number(name, text)?;
        if value.is_finite() {
            Ok(value)
        } else {
            Err(self.wrong(format_args!("the {name} is {text:?}")))
        }
    }

    /// Splits Unix time in seconds into the day since 1970-01-01 and the second of that day.
    fn time(&self, text: &str) -> Result<(u64, u32), DataError> {
        let time: u64 = self.number("time", text)?;
        let day_seconds = u64::from(DAY_SECONDS);
        #[allow(clippy::cast_possible_truncation)]
        let second = (time % day_seconds) as u32;
        Ok((time / day_seconds, second))
    }
}
