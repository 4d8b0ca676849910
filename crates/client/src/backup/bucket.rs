//! A bucket of S3, or of a server with the same interface.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use moteseal_net::innermost;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{Error, ObjectStore as _, ObjectStoreExt as _, RetryConfig};

use super::BackupError;

/// How long a request is repeated while the server cannot be reached.
const RETRY: Duration = Duration::from_secs(30);
/// The maximum number of repetitions of one request.
const RETRIES: usize = 6;

/// The objects below a prefix of a bucket.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    store: Arc<AmazonS3>,
    bucket: String,
    prefix: Path,
}

impl Bucket {
    /// Opens `BUCKET[/PREFIX]`. Nothing is sent.
    pub(super) fn open(address: &str) -> Result<Self, BackupError> {
        let (bucket, prefix) = address.split_once('/').unwrap_or((address, ""));
        let refused =
            |what: String| BackupError::Bucket { address: format!("s3://{address}"), what };
        if bucket.is_empty() {
            return Err(refused("the name of the bucket is missing".to_owned()));
        }
        let prefix = Path::parse(prefix).map_err(|error| refused(innermost(&error)))?;
        let retry =
            RetryConfig { max_retries: RETRIES, retry_timeout: RETRY, ..RetryConfig::default() };
        let store = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry);
        let store = store.build().map_err(|error| refused(innermost(&error)))?;
        Ok(Self { store: Arc::new(store), bucket: bucket.to_owned(), prefix })
    }

    pub(super) fn name(&self) -> String {
        let slash = if self.prefix.is_root() { "" } else { "/" };
        format!("s3://{}{slash}{}", self.bucket, self.prefix)
    }

    fn path(&self, name: &str) -> Path {
        name.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    fn failed(&self, action: &'static str, name: &str, error: &Error) -> BackupError {
        let object = format!("{}/{name}", self.name());
        let text = innermost(error);
        // For some requests, the library reports only the document with which the server refused them.
        let code = element(&text, "Code").unwrap_or_default();
        let cause = match (error, code) {
            (Error::Unauthenticated { .. }, _)
            | (_, "InvalidAccessKeyId" | "SignatureDoesNotMatch") => {
                "the server does not accept the credentials; check AWS_ACCESS_KEY_ID and \
                    AWS_SECRET_ACCESS_KEY"
                    .to_owned()
            }
            (Error::PermissionDenied { .. }, _) | (_, "AccessDenied") => {
                "the server refuses it to these credentials; check AWS_ACCESS_KEY_ID, \
                    AWS_SECRET_ACCESS_KEY and the policy of the bucket"
                    .to_owned()
            }
            (Error::NotFound { .. }, _) | (_, "NoSuchBucket") => {
                format!("there is no bucket {}; create it first", self.bucket)
            }
            _ => {
                let cause = element(&text, "Message").map_or_else(|| text.clone(), str::to_owned);
                return BackupError::BucketUnreachable { action, object, cause };
            }
        };
        BackupError::BucketRefused { action, object, cause }
    }

    pub(super) async fn read(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, BackupError> {
        let failed = |error| self.failed("read", name, &error);
        let found = match self.store.get(&self.path(name)).await {
            Ok(found) => found,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let too_long = || BackupError::Io {
            action: "read",
            object: format!("{}/{name}", self.name()),
            cause: format!("it is longer than {most} bytes"),
        };
        if found.meta.size > most {
            return Err(too_long());
        }
        // The server states the size, but is not trusted.
        let mut stream = found.into_stream();
        let mut bytes = Vec::new();
        while let Some(chunk) = stream.try_next().await.map_err(failed)? {
            if (bytes.len() + chunk.len()) as u64 > most {
                return Err(too_long());
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Some(bytes))
    }

    /// Writes an object. S3 replaces an object as a whole, after it has stored the new one durably.
    pub(super) async fn write(&self, name: &str, bytes: Vec<u8>) -> Result<(), BackupError> {
        let written = self.store.put(&self.path(name), bytes.into()).await;
        written.map(drop).map_err(|error| self.failed("write", name, &error))
    }

    /// Returns the names of all objects of a folder.
    pub(super) async fn list(&self, folder: &str) -> Result<Vec<String>, BackupError> {
        let within = self.path(folder);
        let objects = self.store.list(Some(&within)).try_filter_map(|object| {
            let parts = object.location.prefix_match(&within).map(Iterator::collect::<Vec<_>>);
            let name = match parts.as_deref() {
                Some([name]) => Some(format!("{folder}/{}", name.as_ref())),
                _ => None,
            };
            std::future::ready(Ok(name))
        });
        objects.try_collect().await.map_err(|error| self.failed("list", folder, &error))
    }

    /// Removes an object. Does nothing if there is none.
    pub(super) async fn remove(&self, name: &str) -> Result<(), BackupError> {
        match self.store.delete(&self.path(name)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed("remove", name, &error)),
        }
    }
}

/// Returns the content of an element of the document with which a server of S3 refuses a request.
fn element<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}
