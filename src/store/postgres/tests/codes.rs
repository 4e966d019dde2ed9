//! The closed list of transient faults, held to the letter: a walk over every code that the server has and
//! every kind of I/O error that there is. Whoever changes the list changes it here, and in the table of the
//! module's documentation.

use super::*;
use crate::store::postgres::fault::{connect_fault, fault};
use crate::store::{FaultClass, StoreError, classify};
use ::postgres::Socket;
use ::postgres::tls::{MakeTlsConnect, NoTlsStream, TlsConnect};
use std::collections::BTreeSet;
use std::io;

const KEEP_SESSION: &str = "40001 40P01 55P03 57014";
const REOPEN: &str = "08000 08001 08003 08004 08006 08007 40003 57P01 57P02 57P03 57P05 25P03 25P04 25006 \
    53000 53100 53200 53300 53400 BW003";
/// What is easily taken for transient. All of classes 22 and 23 are held apart from this.
const LOOK_TRANSIENT: &str = "58000 58030 55000 55006 57P04 3D000 28000 28P01 42501 25P01 25P02 0A000 26000 \
    42P05 08P01 XX000 XX001 XX002";

/// Every code of the server's appendix of error codes, a class to a paragraph.
const CODES: &str = "
    00000
    01000 01003 01004 01006 01007 01008 0100C 01P01
    02000 02001
    03000
    08000 08001 08003 08004 08006 08007 08P01
    09000
    0A000
    0B000
    0F000 0F001
    0L000 0LP01
    0P000
    0Z000 0Z002
    20000
    21000
    22000 22001 22002 22003 22004 22005 22007 22008 22009 2200B 2200C 2200D 2200F 2200G 2200H
    2200L 2200M 2200N 2200S 2200T 22010 22011 22012 22013 22014 22015 22016 22018 22019 2201B
    2201E 2201F 2201G 2201W 2201X 22021 22022 22023 22024 22025 22026 22027 2202E 2202G 2202H
    22030 22031 22032 22033 22034 22035 22036 22037 22038 22039 2203A 2203B 2203C 2203D 2203E
    2203F 2203G 22P01 22P02 22P03 22P04 22P05 22P06
    23000 23001 23502 23503 23505 23514 23P01
    24000
    25000 25001 25002 25003 25004 25005 25006 25007 25008 25P01 25P02 25P03
    26000
    27000
    28000 28P01
    2B000 2BP01
    2D000
    2F000 2F002 2F003 2F004 2F005
    34000
    38000 38001 38002 38003 38004
    39000 39001 39004 39P01 39P02 39P03
    3B000 3B001
    3D000
    3F000
    40000 40001 40002 40003 40P01
    42000 42501 42601 42602 42611 42622 42701 42702 42703 42704 42710 42712 42723 42725 42803
    42804 42809 42830 42846 42883 428C9 42939 42P01 42P02 42P03 42P04 42P05 42P06 42P07 42P08
    42P09 42P10 42P11 42P12 42P13 42P14 42P15 42P16 42P17 42P18 42P19 42P20 42P21 42P22
    44000
    53000 53100 53200 53300 53400
    54000 54001 54011 54023
    55000 55006 55P02 55P03 55P04
    57000 57014 57P01 57P02 57P03 57P04 57P05
    58000 58030 58P01 58P02
    72000
    F0000 F0001
    HV000 HV001 HV002 HV004 HV005 HV006 HV007 HV008 HV009 HV00A HV00B HV00C HV00D HV00J HV00K
    HV00L HV00M HV00N HV00P HV00Q HV00R HV010 HV014 HV021 HV024 HV090 HV091
    P0000 P0001 P0002 P0003 P0004
    XX000 XX001 XX002
";

/// Codes that this list does not hold: one of a later server, ours, and such as may yet come to each class that
/// holds a transient one.
const UNLISTED: &str = "25P04 \
    BW001 BW002 BW003 08002 08005 08P02 25007 25P05 40P02 53500 55P05 57P06 57015 58P03 ZZ999";

const REOPEN_KINDS: [io::ErrorKind; 11] = [
    io::ErrorKind::ConnectionRefused,
    io::ErrorKind::ConnectionReset,
    io::ErrorKind::ConnectionAborted,
    io::ErrorKind::BrokenPipe,
    io::ErrorKind::NotConnected,
    io::ErrorKind::UnexpectedEof,
    io::ErrorKind::TimedOut,
    io::ErrorKind::HostUnreachable,
    io::ErrorKind::NetworkUnreachable,
    io::ErrorKind::NetworkDown,
    io::ErrorKind::AddrNotAvailable,
];

/// Every other kind that has a name.
const HALT_KINDS: [io::ErrorKind; 28] = [
    io::ErrorKind::NotFound,
    io::ErrorKind::PermissionDenied,
    io::ErrorKind::AddrInUse,
    io::ErrorKind::AlreadyExists,
    io::ErrorKind::WouldBlock,
    io::ErrorKind::NotADirectory,
    io::ErrorKind::IsADirectory,
    io::ErrorKind::DirectoryNotEmpty,
    io::ErrorKind::ReadOnlyFilesystem,
    io::ErrorKind::StaleNetworkFileHandle,
    io::ErrorKind::InvalidInput,
    io::ErrorKind::InvalidData,
    io::ErrorKind::WriteZero,
    io::ErrorKind::StorageFull,
    io::ErrorKind::NotSeekable,
    io::ErrorKind::QuotaExceeded,
    io::ErrorKind::FileTooLarge,
    io::ErrorKind::ResourceBusy,
    io::ErrorKind::ExecutableFileBusy,
    io::ErrorKind::Deadlock,
    io::ErrorKind::CrossesDevices,
    io::ErrorKind::TooManyLinks,
    io::ErrorKind::InvalidFilename,
    io::ErrorKind::ArgumentListTooLong,
    io::ErrorKind::Interrupted,
    io::ErrorKind::Unsupported,
    io::ErrorKind::OutOfMemory,
    io::ErrorKind::Other,
];

/// What becomes of a fault, in the words of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    KeepSession,
    Reopen,
    Halts,
}

impl Class {
    fn of(error: &StoreError) -> Self {
        match (classify(error, None), error.session_lost()) {
            (FaultClass::Transient, false) => Self::KeepSession,
            (FaultClass::Transient, true) => Self::Reopen,
            (_, false) => Self::Halts,
            (_, true) => panic!("it halts, and says that a new session would do: {error:?}"),
        }
    }

    fn expected_of_code(code: &str) -> Self {
        match () {
            () if words(KEEP_SESSION).any(|word| word == code) => Self::KeepSession,
            () if words(REOPEN).any(|word| word == code) => Self::Reopen,
            () => Self::Halts,
        }
    }
}

/// What was found to be of another class than the list says, as a table.
#[derive(Default)]
struct Wrong(String);

impl Wrong {
    fn compare(&mut self, what: &str, expected: Class, found: Class) {
        if expected != found {
            self.0.push_str(&format!("\n{what:24}{expected:<14?}{found:?}"));
        }
    }

    fn expect_none(self) {
        assert!(self.0.is_empty(), "\n{:24}{:14}found{}", "fault", "expected", self.0);
    }
}

fn words(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.split_ascii_whitespace()
}

/// An error with this code, as the server raises it.
fn raised(client: &mut ::postgres::Client, code: &str) -> StoreError {
    let text = format!("DO $$ BEGIN RAISE EXCEPTION 'made' USING ERRCODE = '{code}'; END $$");
    fault(client.batch_execute(&text).unwrap_err())
}

#[test]
fn every_code_of_the_server_is_of_the_class_that_the_closed_list_gives_it() {
    let mut client = raw();
    let mut wrong = Wrong::default();
    // Nothing can be raised under the code of success.
    for code in words(CODES).filter(|code| *code != "00000").chain(words(UNLISTED)) {
        let error = raised(&mut client, code);
        assert_eq!(error.code(), Some(code));
        wrong.compare(code, Class::expected_of_code(code), Class::of(&error));
    }
    wrong.expect_none();
}

#[test]
fn the_walk_over_the_codes_is_whole() {
    let codes: BTreeSet<_> = words(CODES).collect();
    assert_eq!((codes.len(), words(CODES).count()), (260, 260));
    for code in [KEEP_SESSION, REOPEN, LOOK_TRANSIENT].into_iter().flat_map(words) {
        assert!(
            codes.contains(code) || ["25P04", "BW003"].contains(&code),
            "{code} is not in the server's list"
        );
    }
    for code in words(LOOK_TRANSIENT).chain(words(CODES)) {
        let class = &code[..2];
        if class == "22" || class == "23" || words(LOOK_TRANSIENT).any(|word| word == code) {
            assert_eq!(Class::expected_of_code(code), Class::Halts, "{code}");
        }
    }
}

/// The client's error over an I/O error, which it met while it connected.
fn over_io(kind: io::ErrorKind) -> ::postgres::Error {
    // The client asks for TLS once somebody has taken its connection.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = ::postgres::Config::new();
    config.host("127.0.0.1").port(listener.local_addr().unwrap().port()).user("nobody");
    let error = config.connect(Failing(kind)).map(drop).unwrap_err();
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref());
    assert_eq!(source.map(io::Error::kind), Some(kind), "{error:?}");
    error
}

/// A TLS stack that fails before anything is sent.
#[derive(Clone)]
struct Failing(io::ErrorKind);

impl MakeTlsConnect<Socket> for Failing {
    type Stream = NoTlsStream;
    type TlsConnect = Self;
    type Error = io::Error;

    fn make_tls_connect(&mut self, _: &str) -> io::Result<Self> {
        Err(self.0.into())
    }
}

impl TlsConnect<Socket> for Failing {
    type Stream = NoTlsStream;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<NoTlsStream>>;

    fn connect(self, _: Socket) -> Self::Future {
        std::future::ready(Err(self.0.into()))
    }
}

#[test]
fn every_kind_of_io_error_is_of_the_class_that_the_closed_list_gives_it() {
    // Those without a name that can be written are met by the numbers of the operating system.
    let unnamed = (1..=255).map(|raw| io::Error::from_raw_os_error(raw).kind());
    let kinds: BTreeSet<_> = REOPEN_KINDS.into_iter().chain(HALT_KINDS).chain(unnamed).collect();
    let mut wrong = Wrong::default();
    for kind in kinds {
        let listed = if REOPEN_KINDS.contains(&kind) { Class::Reopen } else { Class::Halts };
        wrong.compare(&format!("{kind:?}"), listed, Class::of(&fault(over_io(kind))));
        // A socket that is missing is a server that is not up yet.
        let connecting = if kind == io::ErrorKind::NotFound { Class::Reopen } else { listed };
        let found = Class::of(&connect_fault(over_io(kind)));
        wrong.compare(&format!("{kind:?}, connecting"), connecting, found);
    }
    wrong.expect_none();
}

#[test]
fn the_table_of_the_documentation_holds_the_closed_list() {
    let row = |begins: &str| {
        let mut lines = include_str!("../mod.rs").lines();
        let row = lines.find(|line| line.starts_with(begins)).expect("the table has this row");
        let quoted = row.split('`').skip(1).step_by(2);
        quoted.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let listed = |codes| words(codes).map(str::to_owned).collect::<BTreeSet<_>>();
    let mut reopened = listed(REOPEN);
    reopened.extend(REOPEN_KINDS.map(|kind| format!("{kind:?}")));
    assert_eq!(row("//! | Transient, the session goes on"), listed(KEEP_SESSION));
    assert_eq!(row("//! | Transient, a new session is opened"), reopened);
    assert!(row("//! | Halts").is_superset(&listed(LOOK_TRANSIENT)));
}
