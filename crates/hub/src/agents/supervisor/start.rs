//! Starts the program of an agent: its folders, its user, and the launcher's plan.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use super::super::configuration::{AgentSettings, Confinement, Settings};
use super::super::data_folder;
use super::super::error::AgentError;
use super::super::launcher::Plan;
use super::super::output::{Forwarder, Output};
use super::super::process::Process;
use super::super::status::Status;
use super::super::store::Active;
use super::super::usage::end_survivors;
use super::{Supervisor, blocking};

impl Supervisor {
    /// Kills what still runs of an agent that an earlier hub has started. Call it before the status of
    /// that hub is replaced.
    pub(super) async fn end_earlier(&self) {
        let (shared, name) = (Arc::clone(&self.shared), self.name().to_owned());
        blocking(move || {
            let last = Status::read(&shared.store.agent(&name).join("status"));
            let last = last.and_then(|status| status.process.zip(status.process_started));
            if let (Some((process, began)), Ok(Some(record))) = (last, shared.store.record(&name)) {
                let own = || rustix::process::getuid().as_raw();
                let user = own_user(&shared.settings, record.number).unwrap_or_else(own);
                end_survivors(user, process, &began);
            }
        })
        .await;
    }

    /// Starts the program of a version.
    pub(super) async fn start(&self, active: &Active) -> Result<Process, AgentError> {
        let (shared, prepared) = (Arc::clone(&self.shared), active.clone());
        let user = blocking(move || {
            let user = own_user(&shared.settings, prepared.record.number);
            if let Some(user) = user {
                give(shared.store.folder(), &prepared, user)?;
            }
            Ok::<_, AgentError>(user)
        });
        let user = user.await.unwrap_or(Ok(None))?;
        let settings = &self.shared.settings;
        let failed = |error| AgentError::StartFailed(self.name().to_owned(), error);
        let plan = plan(active, settings, user).map_err(failed)?;
        let [program, arguments @ ..] = settings.launcher.as_slice() else {
            return Err(failed(io::Error::other("the hub has no launcher")));
        };
        let mut command = Command::new(program);
        command.args(arguments).arg(plan).current_dir("/");
        let forwarder = Forwarder {
            lines: self.lines.clone(),
            counts: Arc::clone(&self.counts),
            output: Arc::new(Output::default()),
        };
        Process::start(self.name(), command, forwarder).await.map_err(failed)
    }
}

/// Returns the user id of an agent, if the hub may choose one.
fn own_user(settings: &Settings, number: u32) -> Option<u32> {
    rustix::process::geteuid().is_root().then(|| settings.first_uid.saturating_add(number))
}

/// Returns the launcher's plan, as JSON.
fn plan(active: &Active, settings: &Settings, user: Option<u32>) -> io::Result<String> {
    let Active { manifest, files, data, .. } = active;
    let (program, arguments) =
        manifest.arguments.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let none = AgentSettings::default();
    let own = settings.agents.get(&manifest.name).unwrap_or(&none);
    let absolute = |path: &Path| path.canonicalize();
    let (files, data) = (absolute(files)?, absolute(data)?);
    let plan = Plan {
        name: manifest.name.clone(),
        parent: std::process::id(),
        // An absolute path replaces the folder.
        program: files.join(program),
        arguments: arguments.to_vec(),
        files,
        data,
        readable: own.read.clone(),
        writable: own.paths.clone(),
        memory: manifest.limits.memory,
        storage: manifest.limits.storage,
        processes: manifest.limits.processes,
        network: manifest.limits.network,
        user,
        is_required: settings.confinement == Confinement::Required,
        landlock: settings.landlock,
        hub: std::process::id(),
        is_guard: manifest.limits.processes > 1 && cfg!(target_os = "linux"),
    };
    Ok(serde_json::to_string(&plan)?)
}

/// Lets a user read the files of a version, and write the data folder. Only root can do this.
fn give(store: &Path, active: &Active, user: u32) -> Result<(), AgentError> {
    // The store and the hub's state folder may be passed through. What they contain has its own
    // permissions.
    for folder in [Some(store), store.parent()].into_iter().flatten() {
        let mode = fs::metadata(folder).map_err(AgentError::at(folder))?.mode();
        if mode & 0o011 != 0o011 {
            set(folder, (mode & 0o7777) | 0o011)?;
        }
    }
    let path = store.canonicalize().map_err(AgentError::at(store))?;
    for folder in path.ancestors() {
        let mode = fs::metadata(folder).map_err(AgentError::at(folder))?.mode();
        if mode & 0o001 == 0 {
            return Err(AgentError::FolderNotReachable(folder.to_owned()));
        }
    }
    // The agent's folder, `versions`, and the folder of the version.
    for folder in active.files.ancestors().skip(1).take(3) {
        group(folder, user, 0o750)?;
    }
    share(&active.files, user)?;
    let owner = fs::metadata(&active.data).map_err(AgentError::at(&active.data))?.uid();
    if owner != user {
        data_folder::give(&active.data, user).map_err(AgentError::at(&active.data))?;
    }
    Ok(())
}

fn set(path: &Path, mode: u32) -> Result<(), AgentError> {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(AgentError::at(path))
}

/// Gives a file or folder of root to a group.
fn group(path: &Path, group: u32, mode: u32) -> Result<(), AgentError> {
    chown(path, Some(0), Some(group)).map_err(AgentError::at(path))?;
    set(path, mode)
}

/// Lets a group read everything below a folder of the store, which contains no symbolic links.
fn share(folder: &Path, to: u32) -> Result<(), AgentError> {
    group(folder, to, 0o750)?;
    for entry in fs::read_dir(folder).map_err(AgentError::at(folder))? {
        let path = entry.map_err(AgentError::at(folder))?.path();
        let found = fs::symlink_metadata(&path).map_err(AgentError::at(&path))?;
        if found.is_dir() {
            share(&path, to)?;
        } else {
            group(&path, to, if found.mode() & 0o100 == 0 { 0o640 } else { 0o750 })?;
        }
    }
    Ok(())
}
