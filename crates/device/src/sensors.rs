//! Serves a device's newest reading to clients of CoAP: `/sensors` with all columns, and
//! `/sensors/NAME` with one (spec/sensors.md).
//!
//! [`Sensors`] answers requests and does no I/O. Each representation is signed when it is first
//! requested and then kept until the next reading, so requests, however many, cost at most one
//! signature for each reading, resource and form.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use moteseal_core::cbor::Writer;
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, SealIndex, Sequence};
use moteseal_core::schema::Schema;
use moteseal_core::signature::{SignError, Signer};
use moteseal_net::coap::links::Link;
use moteseal_net::coap::{Code, Format, Request, Response};
use moteseal_seal::{READING_OVERHEAD, ReadingFormat, SignedReading};
use moteseal_verify::Roster;
use moteseal_verify::reading::{OPAQUE, Pack, column_name, join, multipart};

use crate::key_ring::KeyRing;
use crate::seal::{Profile, SealRefused};

/// The path of the resource with all columns. A column's path is below it.
pub const SENSORS: &str = "/sensors";
/// The answer to a request for an encrypted column.
const ENCRYPTED: &str =
    "ColumnEncrypted: the column is encrypted; get it from the cloud, and read it with a grant";
/// How long a reading is fresh if the interval between readings is not known yet.
const UNKNOWN_CADENCE: Duration = Duration::from_secs(60);

/// A reading that was sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sensed {
    /// The digest of the roster that the device's seals name.
    pub roster: Digest,
    /// The seal that covers the reading.
    pub index: SealIndex,
    /// The epoch.
    pub epoch: EpochNumber,
    /// The sequence number of the reading under that seal.
    pub seq: Sequence,
    /// When the reading was taken, in milliseconds since 1970; 0 if that is not known.
    pub unix_ms: u64,
    /// The record.
    pub record: Bytes,
}

/// The form of a representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    /// SenML without a signature.
    Unsigned(ReadingFormat),
    /// SenML and its signature as a multipart message.
    Multipart(ReadingFormat),
    /// A JSON object with its signature as the last member.
    Object,
}

impl Form {
    /// Returns the form that a request asks for.
    fn of(request: &Request) -> Result<Self, Response> {
        let accepts = |format: Format| request.accept.is_none_or(|accept| accept == format);
        let not_acceptable = |text: &str| Err(Response::error(Code::NOT_ACCEPTABLE, text));
        match request.argument("sig").unwrap_or("cose") {
            "none" if accepts(Format::SENML_JSON) => Ok(Self::Unsigned(ReadingFormat::SenmlJson)),
            "none" if accepts(Format::SENML_CBOR) => Ok(Self::Unsigned(ReadingFormat::SenmlCbor)),
            "none" => not_acceptable("with ?sig=none the formats are 110 and 112"),
            "cose" if accepts(Format::MULTIPART) => match request.argument("ct") {
                None | Some("110") => Ok(Self::Multipart(ReadingFormat::SenmlJson)),
                Some("112") => Ok(Self::Multipart(ReadingFormat::SenmlCbor)),
                Some(_) => Err(Response::error(Code::BAD_REQUEST, "ct is 110 or 112")),
            },
            "cose" => not_acceptable(
                "a signed reading has the format 62; request ?sig=none for 110 or 112, or ?sig=json for 50",
            ),
            "json" if accepts(Format::JSON) => Ok(Self::Object),
            "json" => not_acceptable("with ?sig=json the format is 50"),
            _ => Err(Response::error(Code::BAD_REQUEST, "sig is cose, json or none")),
        }
    }

    /// Returns the content format of the response.
    const fn format(self) -> Format {
        match self {
            Self::Unsigned(format) => Format(format.number()),
            Self::Multipart(_) => Format::MULTIPART,
            Self::Object => Format::JSON,
        }
    }
}

/// The newest reading, and what was made of it.
#[derive(Debug)]
struct Newest {
    sensed: Sensed,
    at: Instant,
    /// The time since the reading before.
    interval: Option<Duration>,
    /// The representations that were requested, by column and form. There are at most five for each
    /// resource.
    made: BTreeMap<(Option<usize>, Form), Bytes>,
}

/// Why a representation was not made.
#[derive(Debug, thiserror::Error)]
enum NotMade {
    #[error("the reading does not fit the columns")]
    Schema,
    #[error("the value is null")]
    Null,
    #[error(transparent)]
    Key(#[from] SealRefused),
    #[error(transparent)]
    Sign(#[from] SignError),
    #[error("the representation is too long")]
    TooLong,
}

/// A column, which has a resource of its own.
#[derive(Clone, Debug)]
struct Column {
    name: String,
    unit: String,
    /// Whether the column is encrypted. It is then in no representation, because these are read in
    /// plaintext by any client that requests them.
    is_encrypted: bool,
}

/// The resources of a device's readings.
#[derive(Debug)]
pub struct Sensors<K> {
    keys: KeyRing<K>,
    group: GroupId,
    device: DeviceId,
    schema: Vec<u8>,
    columns: Vec<Column>,
    newest: Option<Newest>,
    signatures: u64,
}

impl<K: Signer> Sensors<K> {
    /// Creates the resources of the device with this profile. `keys` sign the readings.
    #[must_use]
    pub fn new(profile: &Profile, keys: impl Into<KeyRing<K>>) -> Self {
        let mut columns: Vec<Column> = Vec::new();
        if let Ok(schema) = Schema::decode(&profile.schema) {
            columns.extend(schema.fields().enumerate().map(|(at, field)| Column {
                name: column_name(&field, at),
                unit: field.unit.to_owned(),
                is_encrypted: field.suite.is_some(),
            }));
        }
        if columns.is_empty() {
            let (name, unit) = (OPAQUE.to_owned(), String::new());
            columns.push(Column { name, unit, is_encrypted: false });
        }
        Self {
            keys: keys.into(),
            group: profile.group,
            device: profile.device,
            schema: profile.schema.clone(),
            columns,
            newest: None,
            signatures: 0,
        }
    }

    /// Returns the device.
    #[must_use]
    pub const fn device(&self) -> DeviceId {
        self.device
    }

    /// Returns the schema of the records.
    pub(crate) fn schema(&self) -> &[u8] {
        &self.schema
    }

    /// Continues under a later version of the roster.
    pub fn load(&mut self, roster: &Roster) {
        if let Some(device) = roster.device(self.device) {
            self.keys.load(device);
        }
    }

    /// Takes a reading that was just sealed. It replaces the one before.
    pub fn take(&mut self, now: Instant, sensed: Sensed) {
        let interval = self.newest.as_ref().map(|newest| now.saturating_duration_since(newest.at));
        self.newest = Some(Newest { sensed, at: now, interval, made: BTreeMap::new() });
    }

    /// Returns the paths whose representation changes with each reading.
    pub fn paths(&self) -> impl Iterator<Item = String> {
        let columns = self.readable().map(|column| format!("{SENSORS}/{}", column.name));
        std::iter::once(SENSORS.to_owned()).chain(columns)
    }

    /// Returns the columns that have representations.
    fn readable(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| !column.is_encrypted)
    }

    /// Returns the number of signatures made so far.
    #[must_use]
    pub const fn signatures(&self) -> u64 {
        self.signatures
    }

    /// Answers a request. Returns `None` if the path is not one of a reading.
    pub fn respond(&mut self, now: Instant, request: &Request) -> Option<Response> {
        let column = match request.path.strip_prefix(SENSORS) {
            Some("") => None,
            Some(rest) => {
                let name = rest.strip_prefix('/')?;
                Some(self.columns.iter().position(|column| column.name == name)?)
            }
            None => return None,
        };
        if request.code != Code::GET {
            return Some(Response::error(Code::METHOD_NOT_ALLOWED, "readings can only be read"));
        }
        let is_encrypted = match column.and_then(|at| self.columns.get(at)) {
            Some(column) => column.is_encrypted,
            None => self.readable().next().is_none(),
        };
        if is_encrypted {
            return Some(Response::error(Code::FORBIDDEN, ENCRYPTED));
        }
        let form = match Form::of(request) {
            Ok(form) => form,
            Err(refusal) => return Some(refusal),
        };
        Some(self.content(now, column, form).map_or_else(
            |not_made| Response::error(Code::SERVICE_UNAVAILABLE, not_made),
            |content| Response { accepts_observer: request.observes, ..content },
        ))
    }

    /// Returns the links to the resources.
    pub(crate) fn links(&self) -> impl Iterator<Item = Link> {
        let link =
            |path: String, unit: &str| Link::new(path, "moteseal.reading", "62 50 110 112", unit);
        let each = self.readable();
        let each = each.map(move |column| link(format!("{SENSORS}/{}", column.name), &column.unit));
        std::iter::once(link(SENSORS.to_owned(), "")).chain(each)
    }

    fn content(
        &mut self,
        now: Instant,
        column: Option<usize>,
        form: Form,
    ) -> Result<Response, String> {
        let mut newest = self.newest.take().ok_or("there is no reading yet")?;
        let body = match newest.made.get(&(column, form)) {
            Some(body) => Ok(body.clone()),
            None => self.make(&newest.sensed, column, form),
        };
        if let Ok(body) = &body {
            newest.made.entry((column, form)).or_insert_with(|| body.clone());
        }
        let age = now.saturating_duration_since(newest.at);
        let fresh = newest.interval.unwrap_or(UNKNOWN_CADENCE).saturating_sub(age);
        // A seal has fewer than 2^32 readings.
        #[allow(clippy::cast_possible_truncation)]
        let seq = newest.sensed.seq.0 as u32;
        let etag = [newest.sensed.index.0.to_be_bytes(), seq.to_be_bytes()].concat();
        self.newest = Some(newest);
        Ok(Response {
            etag: Some(etag.into()),
            max_age: Some(u32::try_from(fresh.as_millis().div_ceil(1000)).unwrap_or(u32::MAX)),
            ..Response::content(form.format(), body.map_err(|error| error.to_string())?)
        })
    }

    fn make(
        &mut self,
        sensed: &Sensed,
        column: Option<usize>,
        form: Form,
    ) -> Result<Bytes, NotMade> {
        let schema = Schema::decode(&self.schema).map_err(|_| NotMade::Schema)?;
        let column = column.and_then(|at| self.columns.get(at)).map(|column| column.name.as_str());
        schema.check_record(&sensed.record).map_err(|_| NotMade::Schema)?;
        let pack = Pack::new(self.device, sensed.unix_ms, (&schema, &sensed.record), column)
            .ok_or(NotMade::Null)?;
        Ok(match form {
            Form::Unsigned(format) => pack.encode(format),
            Form::Multipart(format) => {
                let senml = pack.encode(format);
                multipart(format, &senml, &self.sign(sensed, format, &senml)?)
            }
            Form::Object => {
                let text = pack.encode(ReadingFormat::Json);
                let object = self.sign(sensed, ReadingFormat::Json, &text)?;
                join(&text, &object).ok_or(NotMade::TooLong)?
            }
        }
        .into())
    }

    /// Returns the signed object of a representation.
    fn sign(
        &mut self,
        sensed: &Sensed,
        format: ReadingFormat,
        representation: &[u8],
    ) -> Result<Vec<u8>, NotMade> {
        let key = self.keys.signer(sensed.index, sensed.epoch)?;
        let reading = SignedReading {
            group: self.group,
            roster: sensed.roster,
            device: self.device,
            index: sensed.index,
            epoch: sensed.epoch,
            seq: sensed.seq,
            format,
            representation,
        };
        let mut message = vec![0; representation.len() + READING_OVERHEAD + 64];
        let message =
            reading.message(key.algorithm(), &mut message).map_err(|_| NotMade::TooLong)?;
        let signature = key.signature(message)?;
        self.signatures += 1;
        let mut object = vec![0; signature.len() + READING_OVERHEAD];
        let mut out = Writer::new(&mut object);
        reading.encode(&mut out, key.algorithm(), &signature).map_err(|_| NotMade::TooLong)?;
        Ok(out.finish().to_vec())
    }
}
