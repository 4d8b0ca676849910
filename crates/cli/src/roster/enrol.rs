//! Reads the devices that a roster is to list, from the command line or from a file, and makes the
//! keys of devices that have none.

use std::collections::HashMap;
use std::path::PathBuf;

use clap::Args;
use moteseal_core::signature::{Algorithm, PublicKey};

use crate::devices_file;
use crate::failure::Failure;
use crate::files;
use crate::key::KeyFiles;
use crate::progress::{bar, count};

/// The devices to list.
#[derive(Args, Debug)]
#[group(required = true, multiple = true)]
pub(crate) struct Enrolment {
    /// A device and the file with its public key or certificate request (PEM); repeat it for every
    /// device
    #[arg(long = "device", value_name = "NAME=PUBLIC_KEY", value_parser = super::device)]
    devices: Vec<(String, PathBuf)>,
    /// A file with a device on each line: NAME=PUBLIC_KEY, NAME=CERTIFICATE_REQUEST, or only NAME to
    /// make its keys in --keys. Paths are relative to the file's folder; lines that begin with # are
    /// ignored
    #[arg(long, value_name = "FILE")]
    devices_file: Option<PathBuf>,
    /// The folder for the keys of the devices of --devices-file that have none
    #[arg(long, value_name = "FOLDER", requires = "devices_file")]
    keys: Option<PathBuf>,
    /// The signature suite of these keys: ed25519, esp256 or ml-dsa-44
    #[arg(long, value_name = "SUITE", default_value = "ed25519", value_parser = ["ed25519", "esp256", "ml-dsa-44"])]
    alg: String,
}

/// Devices with their public keys.
pub(crate) struct Enrolled {
    devices: Vec<(String, PublicKey)>,
    /// Keys that were made and are not written yet.
    made: Vec<KeyFiles>,
    folder: Option<PathBuf>,
}

impl Enrolment {
    /// Reads the keys of all devices, and makes those that are missing. Nothing is written yet.
    ///
    /// # Errors
    /// A failure that names the device or the line.
    pub(crate) fn enrol(&self) -> Result<Enrolled, Failure> {
        let mut entries: Vec<(String, Option<PathBuf>)> = Vec::new();
        for (name, path) in &self.devices {
            entries.push((name.clone(), Some(path.clone())));
        }
        if let Some(file) = &self.devices_file {
            entries.extend(devices_file::read(file)?);
        }
        let algorithm = Algorithm::from_name(&self.alg).ok_or_else(|| {
            Failure::usage(format_args!("--alg {}: use ed25519, esp256 or ml-dsa-44", self.alg))
        })?;
        let progress = bar(entries.len() as u64, "enrolling");
        let (mut devices, mut made) = (Vec::with_capacity(entries.len()), Vec::new());
        let mut names = HashMap::with_capacity(entries.len());
        let mut owners: HashMap<Vec<u8>, String> = HashMap::with_capacity(entries.len());
        for (name, path) in entries {
            if names.insert(name.clone(), ()).is_some() {
                return Err(Failure::usage(format_args!("the device {name} is named twice")));
            }
            let public = match (&path, &self.keys) {
                (Some(path), _) => files::device_public_key(&name, path)?,
                (None, Some(folder)) => {
                    let files = KeyFiles::make(&folder.join(&name), algorithm)?;
                    let public = files.public();
                    made.push(files);
                    public
                }
                (None, None) => {
                    return Err(Failure::usage(format_args!(
                        "{name} has no public key: write {name}=PUBLIC_KEY, or give --keys FOLDER to make its keys"
                    )));
                }
            };
            // If two devices shared a key, either could seal readings in the name of the other.
            if let Some(other) = owners.insert(public.to_bytes().to_vec(), name.clone()) {
                return Err(Failure::usage(format_args!(
                    "the public key of {name} is also the key of {other}; make a separate key for every device with `moteseal key new`"
                )));
            }
            devices.push((name, public));
            progress.inc(1);
        }
        progress.finish_and_clear();
        if devices.is_empty() {
            return Err(Failure::usage("there is no device in --devices-file"));
        }
        Ok(Enrolled { devices, made, folder: self.keys.clone() })
    }
}

impl Enrolled {
    pub(crate) fn devices(&self) -> &[(String, PublicKey)] {
        &self.devices
    }

    /// Writes the keys that were made.
    ///
    /// # Errors
    /// A failure if a file cannot be written. Files that exist are never replaced.
    pub(crate) fn write(&self) -> Result<(), Failure> {
        let Some(folder) = &self.folder else { return Ok(()) };
        moteseal_files::create_folder(folder)
            .map_err(|error| Failure::file("create", folder, &error))?;
        let mut contents = Vec::with_capacity(3 * self.made.len());
        for keys in &self.made {
            contents.extend(keys.contents()?);
        }
        let files: Vec<_> =
            contents.iter().map(|(path, bytes, mode)| (*path, &bytes[..], *mode)).collect();
        moteseal_files::create_many(&files)
            .map_err(|(path, error)| Failure::file("write", &path, &error))
    }

    /// Returns the number of devices whose keys were made.
    pub(crate) fn made(&self) -> usize {
        self.made.len()
    }

    /// Returns a further line that states where the keys are that were made, or nothing.
    pub(crate) fn note(&self) -> Option<String> {
        let folder = self.folder.as_ref().filter(|_| !self.made.is_empty())?;
        Some(format!(
            "keys of {}: {}; give each device its own files and delete them here",
            count(self.made.len() as u64, "device"),
            folder.display()
        ))
    }
}
