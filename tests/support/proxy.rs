//! A way between a client and a Postgres server that loses answers, requests or everything.
//!
//! It reads just enough of the wire protocol to know which statement a `Bind` is for: a statement is
//! parsed once per session under a name, and a `Bind` says only the name. Texts without parameters come whole, in
//! a message of their own; these cannot be swallowed by their answer. The client must not ask for TLS.

use super::drill::PATIENCE;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What is done to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mischief {
    /// It is carried out, and its answer is lost with the connection.
    LoseAnswer,
    /// It is lost with the connection, and not carried out.
    LoseRequest,
    /// It is not passed on, nor is anything else from then on, on any connection, until
    /// [`Proxy::heal`]; nothing is closed.
    Swallow,
    /// It is carried out, and from then on nothing is passed on, its answer first.
    SwallowAnswer,
}

/// See the module's documentation. Ends with its connections when dropped.
pub struct Proxy {
    shared: Arc<Shared>,
    port: u16,
}

struct Shared {
    upstream: u16,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    armed: Option<(Vec<String>, Mischief)>,
    fired: usize,
    /// Nothing is passed on.
    swallowing: bool,
    streams: Vec<TcpStream>,
    closed: bool,
}

impl Proxy {
    /// In front of the server on that loopback port.
    pub fn to(upstream: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let shared =
            Arc::new(Shared { upstream, state: Mutex::default(), changed: Condvar::new() });
        let acceptor = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if acceptor.state().closed {
                    return;
                }
                acceptor.connect(client);
            }
        });
        Self { shared, port }
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The next call of a statement that has one of these texts in it meets this.
    pub fn arm(&self, statements: &[&str], mischief: Mischief) {
        let statements = statements.iter().map(|&text| text.to_owned()).collect();
        self.shared.state().armed = Some((statements, mischief));
    }

    /// Takes it back; whether it was still armed.
    pub fn disarm(&self) -> bool {
        self.shared.state().armed.take().is_some()
    }

    /// How often it has fired.
    pub fn fired(&self) -> usize {
        self.shared.state().fired
    }

    /// Waits until it has fired so often.
    ///
    /// # Panics
    /// When it does not.
    pub fn wait_fired(&self, times: usize) {
        let state = self.shared.state();
        let waited = self.shared.changed.wait_timeout_while(state, PATIENCE, |s| s.fired < times);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(state.fired >= times, "the call that is waited for never came");
    }

    /// Passes nothing on from now on, and closes nothing.
    pub fn swallow(&self) {
        self.shared.state().swallowing = true;
    }

    /// Passes on again, what was held back first.
    pub fn heal(&self) {
        self.shared.state().swallowing = false;
        self.shared.changed.notify_all();
    }

    /// Closes every connection.
    pub fn cut(&self) {
        self.shared.cut();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.heal();
        self.shared.cut();
        // The acceptor looks when somebody comes.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cut(&self) {
        let streams = std::mem::take(&mut self.state().streams);
        streams.iter().for_each(close);
    }

    fn connect(self: &Arc<Self>, client: TcpStream) {
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.upstream)) else {
            close(&client);
            return;
        };
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        let twin = |stream: &TcpStream| stream.try_clone().expect("a socket has two handles");
        self.state().streams.extend([twin(&client), twin(&server)]);
        let way = Arc::new(Way {
            shared: Arc::clone(self),
            client: twin(&client),
            server: twin(&server),
            losing: Mutex::new(false),
        });
        let back = Arc::clone(&way);
        std::thread::spawn(move || way.carry_requests(client, server));
        std::thread::spawn(move || back.carry_answers());
    }

    fn wait_while_swallowing(&self) {
        let state = self.state();
        let waited = self.changed.wait_while(state, |state| state.swallowing);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// What is to happen to a call of that statement, if it is the one that is armed.
    fn take_mischief(&self, statement: &str) -> Option<Mischief> {
        let mut state = self.state();
        let (texts, _) = state.armed.as_ref()?;
        if !texts.iter().any(|text| statement.contains(text.as_str())) {
            return None;
        }
        let (_, mischief) = state.armed.take()?;
        state.fired += 1;
        state.swallowing |= matches!(mischief, Mischief::Swallow | Mischief::SwallowAnswer);
        self.changed.notify_all();
        Some(mischief)
    }
}

/// One client's connection.
struct Way {
    shared: Arc<Shared>,
    client: TcpStream,
    server: TcpStream,
    /// The next answer is not passed on; when it is complete, the connection ends.
    losing: Mutex<bool>,
}

impl Way {
    fn carry_requests(&self, mut client: TcpStream, mut server: TcpStream) {
        let mut statements = HashMap::new();
        let mut first = true;
        while let Ok(message) = read_message(&mut client, first) {
            let mischief = if first { None } else { self.look(&message, &mut statements) };
            first = false;
            match mischief {
                Some(Mischief::LoseRequest) => break,
                Some(Mischief::LoseAnswer) => *self.losing() = true,
                Some(Mischief::SwallowAnswer) => {
                    // The call and what ends it go through, nothing that follows.
                    if server.write_all(&message).is_ok() && pass_sync(&mut client, &mut server) {
                        continue;
                    }
                    break;
                }
                Some(Mischief::Swallow) | None => {}
            }
            self.shared.wait_while_swallowing();
            if server.write_all(&message).is_err() {
                break;
            }
        }
        self.end();
    }

    /// Learns the names of statements, and sees which of them is called.
    fn look(&self, message: &[u8], statements: &mut HashMap<Vec<u8>, String>) -> Option<Mischief> {
        let mut words = message.get(5..)?.split(|byte| *byte == 0);
        match message.first()? {
            b'P' => {
                let name = words.next()?.to_vec();
                let text = String::from_utf8_lossy(words.next()?).into_owned();
                statements.insert(name, text);
                None
            }
            b'B' => {
                let _portal = words.next()?;
                self.shared.take_mischief(statements.get(words.next()?)?)
            }
            b'Q' => self.shared.take_mischief(&String::from_utf8_lossy(words.next()?)),
            _ => None,
        }
    }

    fn carry_answers(&self) {
        let (mut server, mut client) = (&self.server, &self.client);
        while let Ok(message) = read_message(&mut server, false) {
            if *self.losing() {
                if message.first() == Some(&READY) {
                    break;
                }
                continue;
            }
            self.shared.wait_while_swallowing();
            if client.write_all(&message).is_err() {
                break;
            }
        }
        self.end();
    }

    fn losing(&self) -> MutexGuard<'_, bool> {
        self.losing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        close(&self.client);
        close(&self.server);
    }
}

const READY: u8 = b'Z';
const SYNC: u8 = b'S';

/// One message, its head included: a type (which the first of a connection has not), a length, a body.
fn read_message(stream: &mut impl Read, first: bool) -> std::io::Result<Vec<u8>> {
    let head = if first { 4 } else { 5 };
    let mut message = vec![0; head];
    stream.read_exact(&mut message)?;
    let length = message.last_chunk().copied().map_or(4, u32::from_be_bytes);
    message.resize(head + (length as usize).saturating_sub(4), 0);
    stream.read_exact(&mut message[head..])?;
    Ok(message)
}

fn pass_sync(client: &mut TcpStream, server: &mut TcpStream) -> bool {
    while let Ok(message) = read_message(client, false) {
        if server.write_all(&message).is_err() {
            return false;
        }
        if message.first() == Some(&SYNC) {
            return true;
        }
    }
    false
}

fn close(stream: &TcpStream) {
    // One that is closed already stays so.
    let _ = stream.shutdown(Shutdown::Both);
}
