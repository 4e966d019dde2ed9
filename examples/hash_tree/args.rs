//! The command line, parsed by hand.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub const USAGE: &str = "\
Usage: hash_tree <folder> [options]

Computes the SHA-256 digest of every regular file below <folder>. Started again, it goes on where it
stopped. Symbolic links are not followed.

Options:
  --db <file>        keep the jobs in this SQLite file (default: hash_tree.db)
  --postgres <url>   keep the jobs in this Postgres database
  --workers <n>      files hashed at the same time, 1 to 1000 (default: one per processor)
  --lease <seconds>  how soon another run inherits the files of one that was killed, at least 5
                     (default: 60)
  --list             print the digests to standard output in the format of sha256sum, sorted by path
  --help             print this

Exit code: 0 all files have their digest, 1 some could not be read, 2 it could not be run,
130 stopped by Ctrl-C.
";

/// What is to be done.
#[derive(Debug)]
pub struct Options {
    pub folder: PathBuf,
    pub database: Database,
    pub workers: u32,
    pub lease: Duration,
    pub list: bool,
}

/// Where the jobs are kept.
#[derive(Debug)]
pub enum Database {
    Sqlite(PathBuf),
    #[cfg(feature = "postgres")]
    Postgres(String),
}

pub enum Parsed {
    Run(Options),
    Help,
}

/// What is wrong with the command line.
#[derive(Debug)]
pub struct ArgsError(String);

impl fmt::Display for ArgsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Paths need not be text, so the arguments are taken as the system gives them.
pub fn parse(args: impl Iterator<Item = OsString>) -> Result<Parsed, ArgsError> {
    let mut args = args;
    let mut folder = None;
    let mut database = None;
    let mut workers = None;
    let mut lease = Duration::from_secs(60);
    let mut list = false;
    let mut only_folders = false;
    while let Some(arg) = args.next() {
        let is_option = !only_folders && arg.as_encoded_bytes().starts_with(b"-");
        if !is_option {
            set_once(&mut folder, PathBuf::from(arg), "more than one folder is given")?;
            continue;
        }
        let name = arg.to_string_lossy();
        let mut value = || args.next().ok_or_else(|| error(format!("{name} needs a value")));
        match &*name {
            "--" => only_folders = true,
            "--help" | "-h" => return Ok(Parsed::Help),
            "--list" => list = true,
            "--db" => set_once(&mut database, Database::Sqlite(value()?.into()), TWO_DATABASES)?,
            "--postgres" => {
                set_once(&mut database, postgres(text(&name, value()?)?)?, TWO_DATABASES)?;
            }
            "--workers" => workers = Some(number(&name, value()?, 1..=1000)?),
            "--lease" => {
                lease = Duration::from_secs(number(&name, value()?, 5..=86_400)?.into());
            }
            _ => return Err(error(format!("there is no option {name}"))),
        }
    }
    Ok(Parsed::Run(Options {
        folder: folder.ok_or_else(|| error("no folder is given"))?,
        database: database.unwrap_or_else(|| Database::Sqlite("hash_tree.db".into())),
        workers: workers.unwrap_or_else(processors),
        lease,
        list,
    }))
}

fn set_once<T>(place: &mut Option<T>, value: T, otherwise: &str) -> Result<(), ArgsError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(error(otherwise)),
    }
}

#[cfg(feature = "postgres")]
fn postgres(url: String) -> Result<Database, ArgsError> {
    Ok(Database::Postgres(url))
}

#[cfg(not(feature = "postgres"))]
fn postgres(_url: String) -> Result<Database, ArgsError> {
    Err(error("--postgres: built without the feature `postgres` of the crate"))
}

fn text(name: &str, value: OsString) -> Result<String, ArgsError> {
    value.into_string().map_err(|value| error(format!("{name}: {value:?} is no text")))
}

fn number(
    name: &str,
    value: OsString,
    range: std::ops::RangeInclusive<u32>,
) -> Result<u32, ArgsError> {
    let text = text(name, value)?;
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        let (first, last) = range.into_inner();
        error(format!("{name}: {text:?} is no number from {first} to {last}"))
    })
}

fn processors() -> u32 {
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(count).unwrap_or(1000).min(1000)
}

fn error(message: impl Into<String>) -> ArgsError {
    ArgsError(message.into())
}

const TWO_DATABASES: &str = "more than one database is given";
