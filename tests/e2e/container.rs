//! A control group that is named as a runtime names that of a container.

use std::fs;
use std::path::{Path, PathBuf};

use crate::service::until;

/// It exists as long as this does.
pub(crate) struct Container {
    /// 64 hexadecimal digits.
    pub(crate) id: String,
    folder: PathBuf,
    parent: PathBuf,
}

impl Container {
    /// Makes one, in the hierarchy that charges memory.
    ///
    /// # Errors
    /// Why this host lets nobody.
    pub(crate) fn make() -> Result<Self, String> {
        let hierarchies = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].map(Path::new);
        let root = hierarchies.into_iter().find(|path| path.join("cgroup.procs").is_file());
        let root = root.ok_or("no cgroup hierarchy of memory is mounted")?;
        let id = format!("{:064x}", std::process::id());
        let parent = root.join("memprov-e2e");
        let folder = parent.join(&id);
        fs::create_dir_all(&folder).map_err(|e| format!("make {}: {e}", folder.display()))?;
        Ok(Self { id, folder, parent })
    }

    /// Moves a process into it.
    pub(crate) fn take(&self, pid: u32) {
        let procs = self.folder.join("cgroup.procs");
        fs::write(&procs, pid.to_string()).unwrap_or_else(|e| panic!("{}: {e}", procs.display()));
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Its processes have ended; the kernel may take a moment to see it.
        until("the control group goes", || {
            fs::remove_dir(&self.folder).map_err(|e| format!("{}: {e}", self.folder.display()))
        });
        // Another run may have one beside it.
        let gone = fs::remove_dir(&self.parent);
        drop(gone);
    }
}
