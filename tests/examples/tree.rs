//! Trees of files, and what the system's own tools say of them.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// Some three hundred files with all that can be odd about a name, a size or a place.
pub fn grow(root: &Path) {
    grow_plain(root, 290);
    for (place, &name) in ODD_NAMES.iter().enumerate() {
        write(&root.join(OsStr::from_bytes(name)), format!("odd {place}").as_bytes());
    }
    write(&root.join("empty"), b"");
    write(&root.join("also empty"), b"");
    let large: Vec<u8> =
        (0..5_000_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    write(&root.join("large"), &large);
    // In the order of names a folder `sort` comes before `sort.txt`; its files come after it.
    write(&root.join("sort/b"), b"b");
    write(&root.join("sort.txt"), b"txt");
    let deep = (0..40).fold(root.to_owned(), |path, depth| path.join(format!("level {depth}")));
    write(&deep.join("deep"), b"deep");
    // What is no regular file, and is not followed.
    symlink(root, root.join("link to the root")).expect("a link can be made");
    symlink(root.join("large"), root.join("link to a file")).expect("a link can be made");
    symlink("/nowhere at all", root.join("link to nowhere")).expect("a link can be made");
    // Two names of one file are two files to `find`.
    fs::hard_link(root.join("large"), root.join("second name")).expect("a link can be made");
}

/// So many small files in folders of a hundred.
pub fn grow_plain(root: &Path, count: usize) {
    for number in 0..count {
        let path = root.join(format!("folder {}", number / 100)).join(format!("file {number}"));
        write(&path, format!("content of {number}").as_bytes());
    }
}

/// Takes every permission from a file.
pub fn lock(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o000)).expect("it is ours");
}

pub fn is_owned_by_root(path: &Path) -> bool {
    fs::metadata(path).expect("it is there").uid() == 0
}

/// How many regular files `find` finds.
pub fn count(root: &Path) -> usize {
    shell("find \"$1\" -type f -print0 | tr -d -c '\\000' | wc -c", root)
        .trim_ascii()
        .utf8_chunks()
        .map(|chunk| chunk.valid())
        .collect::<String>()
        .parse()
        .expect("wc prints a number")
}

/// The digests by `sha256sum`, in the byte order of the paths.
pub fn sha256sum(root: &Path) -> Vec<u8> {
    shell("find \"$1\" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum", root)
}

fn shell(script: &str, root: &Path) -> Vec<u8> {
    let output = Command::new("sh").args(["-c", script, "sh"]).arg(root).output();
    let output = output.expect("there is a shell");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn write(path: &Path, content: &[u8]) {
    let folder = path.parent().expect("a file lies in a folder");
    fs::create_dir_all(folder).expect("a folder can be made");
    fs::write(path, content).expect("a file can be written");
}

const ODD_NAMES: [&[u8]; 14] = [
    "Grüße, Zürich".as_bytes(),
    "日本語".as_bytes(),
    "🦀 e\u{301}".as_bytes(),
    b"a 'single' quote",
    b"a \"double\" quote",
    b"a\nline break",
    b"a\\backslash",
    b"a\\\nboth",
    b"a\ttab and \x1b[31m colour",
    b" spaces around ",
    b"-starts like an option",
    b"$HOME `id` %s *?",
    // Not UTF-8.
    b"latin \xe9t\xe9",
    b"\xff\xfe",
];
