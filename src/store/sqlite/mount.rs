//! Which kind of file system a file lies on: WAL shares memory and locks among its users, which those of several
//! machines cannot.
//!
//! On Linux the kernel's list of mounts says it. Elsewhere, and where the list cannot be read, nothing is known
//! and nothing is refused: an engine that finds no shared memory fails by itself.

use super::fault::SqliteFault;
use std::path::{Path, PathBuf};

/// File systems that machines share, as the kernel names them. Others are taken for local: a name that is missing
/// here refuses nobody, and one too many would refuse a file that is sound.
const NETWORK: [&str; 28] = [
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "coda",
    "davfs",
    "fuse.ceph",
    "fuse.ceph-fuse",
    "fuse.cephfs",
    "fuse.davfs",
    "fuse.gcsfuse",
    "fuse.glusterfs",
    "fuse.goofys",
    "fuse.juicefs",
    "fuse.rclone",
    "fuse.s3fs",
    "fuse.smbnetfs",
    "fuse.sshfs",
    "gfs2",
    "gpfs",
    "lustre",
    "ncpfs",
    "nfs",
    "nfs4",
    "ocfs2",
    "pvfs2",
    "smb3",
    "smbfs",
];

/// Refuses a file on one of them. The file need not be there yet.
///
/// # Errors
/// [`SqliteFault::NetworkFileSystem`].
pub(super) fn refuse_network(path: &Path) -> Result<(), SqliteFault> {
    let Ok(mounts) = std::fs::read("/proc/self/mountinfo") else { return Ok(()) };
    let Some(real) = resolved(path) else { return Ok(()) };
    match kind_of(&mounts, &real) {
        Some(kind) if NETWORK.contains(&kind.as_str()) => {
            Err(SqliteFault::NetworkFileSystem { path: path.to_owned(), kind })
        }
        _ => Ok(()),
    }
}

/// Where the path leads, or its folder for a file that is still to be made. None for a folder that is not there,
/// of which the engine tells.
fn resolved(path: &Path) -> Option<PathBuf> {
    let folder = || match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => path,
    };
    std::fs::canonicalize(path).or_else(|_| std::fs::canonicalize(folder())).ok()
}

/// The kind of file system that a path without links lies on: that of the longest mount point above it, and of
/// two at one place the later, which covers the other.
fn kind_of(mounts: &[u8], path: &Path) -> Option<String> {
    let mut found: Option<(PathBuf, String)> = None;
    for (point, kind) in mounts.split(|byte| *byte == b'\n').filter_map(mount) {
        let is_deeper = found.as_ref().is_none_or(|(deepest, _)| point.starts_with(deepest));
        if path.starts_with(&point) && is_deeper {
            found = Some((point, kind));
        }
    }
    found.map(|(_, kind)| kind)
}

/// One line: the mount point is its fifth word, the kind the first after a lone dash.
fn mount(line: &[u8]) -> Option<(PathBuf, String)> {
    let mut words = line.split(|byte| *byte == b' ');
    let point = unescaped(words.nth(4)?);
    let kind = words.skip_while(|word| *word != b"-").nth(1)?;
    Some((path_of(point), String::from_utf8_lossy(kind).into_owned()))
}

/// Blanks, line ends and backslashes are written as a backslash and three octal digits.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        match (first, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                bytes.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(unix)]
fn path_of(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(not(unix))]
fn path_of(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in the kernel's list, a line each.
    const MOUNTS: [&str; 8] = [
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw",
        "23 22 0:21 / /srv rw,relatime shared:2 master:1 - nfs4 store:/export rw,vers=4.2",
        r"24 23 8:2 / /srv/local\040disk rw - xfs /dev/sdb1 rw",
        "25 22 0:30 / /mnt/share rw - ext4 /dev/sdc1 rw",
        "26 25 0:31 / /mnt/share rw - cifs //host/share rw",
        "27 22 0:32 / /mnt/odd rw - fuse.sshfs me@host:/ rw",
        "not a line of it",
        r"28 22 0:33 / /mnt/odd/\134x rw - tmpfs tmpfs rw",
    ];

    #[test]
    fn a_path_lies_on_the_deepest_mount_above_it_and_on_the_latest_at_one_place() {
        let mounts = MOUNTS.join("\n");
        for (path, kind) in [
            ("/var/lib/jobs.db", "ext4"),
            ("/srv", "nfs4"),
            ("/srv/app/jobs.db", "nfs4"),
            ("/srv/local disk/jobs.db", "xfs"),
            ("/srv/local", "nfs4"),
            ("/srvs/jobs.db", "ext4"),
            ("/mnt/share/jobs.db", "cifs"),
            ("/mnt/odd/jobs.db", "fuse.sshfs"),
            (r"/mnt/odd/\x/jobs.db", "tmpfs"),
        ] {
            assert_eq!(
                kind_of(mounts.as_bytes(), Path::new(path)).as_deref(),
                Some(kind),
                "{path}"
            );
        }
        assert_eq!(kind_of(b"", Path::new("/srv")), None);
    }

    #[test]
    fn a_file_that_is_still_to_be_made_lies_where_its_folder_does() {
        let folder = tempfile::tempdir().expect("a folder");
        let real = std::fs::canonicalize(folder.path()).expect("it is there");
        assert_eq!(resolved(&folder.path().join("jobs.db")), Some(real));
        assert_eq!(resolved(Path::new("jobs.db")), std::env::current_dir().ok());
        assert_eq!(resolved(&folder.path().join("no/jobs.db")), None);
        refuse_network(&folder.path().join("jobs.db")).expect("the tests run on a local disk");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_followed_to_where_the_file_lies() {
        let (folder, elsewhere) = (tempfile::tempdir(), tempfile::tempdir());
        let (folder, elsewhere) = (folder.expect("a folder"), elsewhere.expect("a folder"));
        let file = elsewhere.path().join("jobs.db");
        std::fs::write(&file, b"").expect("made");
        let link = folder.path().join("jobs.db");
        std::os::unix::fs::symlink(&file, &link).expect("linked");
        assert_eq!(resolved(&link), std::fs::canonicalize(&file).ok());
    }

    #[test]
    fn a_network_file_system_is_told_with_its_kind_and_a_way_out() {
        assert!(NETWORK.is_sorted(), "in order");
        let fault =
            SqliteFault::NetworkFileSystem { path: "/srv/jobs.db".into(), kind: "nfs4".into() };
        let text = fault.to_string();
        assert!(text.contains("nfs4") && text.contains("allow_network_file_system"), "{text}");
    }
}
