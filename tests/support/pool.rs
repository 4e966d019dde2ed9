//! A pooler in front of a Postgres server that lends one session of it to whoever has a transaction to run.
//!
//! Just enough of one: every client gets the server's own greeting, holds the session from its first message until
//! the server says that it is idle, and then leaves it as it is to the next.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// See the module's documentation. Ends with its session when dropped.
pub struct Pool {
    shared: Arc<Shared>,
    port: u16,
}

struct Shared {
    session: Mutex<TcpStream>,
    /// What the server has said up to its first word of being ready.
    greeting: Vec<u8>,
    is_closed: AtomicBool,
}

impl Pool {
    /// In front of the server on that loopback port, with a session of that user in that database.
    pub fn to(upstream: u16, user: &str, database: &str) -> Self {
        let mut session =
            TcpStream::connect((Ipv4Addr::LOCALHOST, upstream)).expect("the server answers");
        let words = format!("user\0{user}\0database\0{database}\0\0");
        let mut startup = (words.len() as u32 + 8).to_be_bytes().to_vec();
        startup.extend(196_608_u32.to_be_bytes());
        startup.extend(words.as_bytes());
        session.write_all(&startup).expect("it listens");
        let (greeting, _) = answer(&mut session).expect("it greets");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let (session, is_closed) = (Mutex::new(session), AtomicBool::new(false));
        let shared = Arc::new(Shared { session, greeting, is_closed });
        let acceptor = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if acceptor.is_closed.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&acceptor);
                std::thread::spawn(move || shared.serve(client));
            }
        });
        Self { shared, port }
    }

    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        let session = self.shared.session.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is closed already stays so.
        let _ = session.shutdown(Shutdown::Both);
        // The acceptor looks when somebody comes.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl Shared {
    /// Until the client goes away or says that it does.
    fn serve(&self, mut client: TcpStream) {
        let _ = client.set_nodelay(true);
        if message(&mut client, false).is_err() || client.write_all(&self.greeting).is_err() {
            return;
        }
        while let Ok(first) = message(&mut client, true) {
            if first.first() == Some(&b'X') || self.transaction(&mut client, first).is_err() {
                return;
            }
        }
    }

    /// One transaction, by the session that all share.
    fn transaction(&self, client: &mut TcpStream, first: Vec<u8>) -> std::io::Result<()> {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = first;
        loop {
            session.write_all(&next)?;
            if matches!(next.first(), Some(b'S' | b'Q')) {
                let (answer, is_idle) = answer(&mut session)?;
                client.write_all(&answer)?;
                if is_idle {
                    return Ok(());
                }
            }
            next = message(client, true)?;
        }
    }
}

/// Everything up to the word of being ready, and whether no transaction is open then.
fn answer(session: &mut TcpStream) -> std::io::Result<(Vec<u8>, bool)> {
    let mut whole = Vec::new();
    loop {
        let message = message(session, true)?;
        whole.extend_from_slice(&message);
        if message.first() == Some(&b'Z') {
            return Ok((whole, message.last() == Some(&b'I')));
        }
    }
}

/// One message, its head included: a type (which the first of a connection has not), a length, a body.
fn message(stream: &mut TcpStream, has_type: bool) -> std::io::Result<Vec<u8>> {
    let head = if has_type { 5 } else { 4 };
    let mut message = vec![0; head];
    stream.read_exact(&mut message)?;
    let length = message.last_chunk().copied().map_or(4, u32::from_be_bytes);
    message.resize(head + (length as usize).saturating_sub(4), 0);
    stream.read_exact(&mut message[head..])?;
    Ok(message)
}
