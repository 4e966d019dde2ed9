//! An operator's command line over a SQLite file: what runs, what is stuck and why, and what to do about it.
//!
//! ```text
//! cargo run --example operator -- jobs.db counts
//! cargo run --example operator -- jobs.db why 01890a5d-ac96-774b-bcce-b302099a8057
//! cargo run --example operator -- jobs.db --as ada requeue-dead mail
//! ```

use backwave::monitor::{AuditFilter, JobFilter};
use backwave::{Client, JobState, SqliteStore};
use std::error::Error;
use std::process::ExitCode;

const USAGE: &str = "\
Usage: operator <file> [--as <name>] <command>

Looking:
  counts                  jobs per queue and state
  dead [queue]            Dead-Lettered jobs, newest first
  show <job>              one job, with its parents and its history
  why <job>               why it is not running
  pumps                   who works on this file, and who has halted
  queues                  queues that are paused or limited
  audit                   what operators did, newest first
  observers               who is told of changes, and how far behind they are
  parked <observer>       what could not be told
Acting (in the name given by --as):
  cancel <job>            calls a job off
  requeue <job>           runs a Dead-Lettered or Quarantined job again
  requeue-dead <queue>    .. all of a queue
  cancel-tag <tag>        calls off every job with that tag
  pause <queue> | resume <queue> | limit <queue> <n | none>
  revoke <worker>         takes a stuck worker's leases away
  redeliver <observer>    tells what was parked again
  forget <observer>       one that is not in the code any more
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    let actor = take_actor(&mut args);
    let [file, command @ ..] = args.as_slice() else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    match open(file).and_then(|client| run(&client, &actor, command)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("operator: {error}");
            ExitCode::FAILURE
        }
    }
}

fn take_actor(args: &mut Vec<&str>) -> String {
    let named = args.iter().position(|arg| *arg == "--as").filter(|at| at + 1 < args.len());
    match named {
        Some(at) => args.drain(at..at + 2).nth(1).unwrap_or_default().to_owned(),
        None => std::env::var("USER").unwrap_or_else(|_| "operator".to_owned()),
    }
}

/// A file that is not there is a typing error, not a new store.
fn open(file: &str) -> Result<Client, Box<dyn Error>> {
    if !std::path::Path::new(file).exists() {
        return Err(format!("there is no file {file:?}").into());
    }
    Ok(Client::new(SqliteStore::open(file)?))
}

/// Whether the command makes sense.
fn run(client: &Client, actor: &str, command: &[&str]) -> Result<bool, Box<dyn Error>> {
    Ok(look(client, command)? || act(client, actor, command)?)
}

fn look(client: &Client, command: &[&str]) -> Result<bool, Box<dyn Error>> {
    let monitor = client.monitor();
    match *command {
        ["counts"] => {
            for count in monitor.counts()? {
                println!("{:20} {:14} {}", count.queue, count.state.to_string(), count.count);
            }
        }
        ["dead"] => dead(client, JobFilter::new())?,
        ["dead", queue] => dead(client, JobFilter::new().queue(queue))?,
        ["show", id] => show(client, id)?,
        ["why", id] => println!("{}", monitor.explain(id.parse()?)?),
        ["pumps"] => {
            for pump in monitor.pumps()? {
                let note = &pump.announcement;
                print!("{} {} on {}:{}", note.worker, note.group, note.host, note.pid);
                match &note.halt {
                    Some(halt) => println!(", halted: {}: {}", halt.type_name, halt.message),
                    None => println!(", last seen {}", pump.last_seen),
                }
            }
        }
        ["queues"] => {
            for queue in monitor.queues()? {
                let limit = queue.concurrency_limit;
                let limit = limit.map_or_else(|| "none".to_owned(), |n| n.to_string());
                println!("{:20} paused: {:5} limit: {limit}", queue.queue, queue.is_paused);
            }
        }
        ["audit"] => {
            for record in monitor.audit(&AuditFilter::default())? {
                let job = record.job.map(|job| job.to_string()).unwrap_or_default();
                let about = record.subject.unwrap_or(record.queue);
                println!("{} {}: {:?} {about} {job}", record.at, record.actor, record.action);
            }
        }
        ["observers"] => {
            for observer in monitor.observers()? {
                let since = observer.behind_since;
                let since = since.map_or_else(|| "none".to_owned(), |since| since.to_string());
                println!("{:20} parked: {} behind: {since}", observer.observer, observer.parked);
            }
        }
        ["parked", observer] => {
            for parked in monitor.parked(observer) {
                let parking = parked?.parking;
                let told = &parking.observation;
                println!("{} {} {}: {}", told.position(), told.job, told.to(), parking.detail);
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn dead(client: &Client, filter: JobFilter) -> Result<(), Box<dyn Error>> {
    for job in client.monitor().find_newest(filter.state(JobState::DeadLettered)) {
        let job = job?;
        println!("{} {}: {}", job.id, job.wire_name, job.failure_detail.unwrap_or_default());
    }
    Ok(())
}

fn show(client: &Client, id: &str) -> Result<(), Box<dyn Error>> {
    let monitor = client.monitor();
    let job = monitor.job(id.parse()?)?;
    println!("{} {} in {}: {}", job.id, job.wire_name, job.queue, job.state);
    println!("attempt {}, {} failure(s), due {}", job.attempt, job.failures, job.due_at);
    if let Some(detail) = &job.failure_detail {
        println!("{detail}");
    }
    for parent in monitor.parents(job.id)? {
        println!("after {} {}: {}", parent.id(), parent.wire_name(), parent.state());
    }
    for change in monitor.history(job.id)? {
        println!("{} {:?} by {:?}, attempt {}", change.at, change.to, change.by, change.attempt);
    }
    Ok(())
}

fn act(client: &Client, actor: &str, command: &[&str]) -> Result<bool, Box<dyn Error>> {
    let operator = client.operator(actor);
    match *command {
        ["cancel", id] => println!("{:?}", operator.cancel(id.parse()?)?),
        ["requeue", id] => operator.requeue(id.parse()?)?,
        ["requeue-dead", queue] => {
            let dead = JobFilter::new().queue(queue).state(JobState::DeadLettered);
            println!("{} requeued", operator.requeue_matching(&dead)?);
        }
        ["cancel-tag", tag] => {
            println!("{} called off", operator.cancel_matching(&JobFilter::new().tag(tag))?);
        }
        ["pause", queue] => println!("{:?}", operator.pause(queue)?),
        ["resume", queue] => println!("{:?}", operator.resume(queue)?),
        ["limit", queue, "none"] => println!("{:?}", operator.set_concurrency_limit(queue, None)?),
        ["limit", queue, n] => {
            println!("{:?}", operator.set_concurrency_limit(queue, Some(n.parse()?))?);
        }
        ["redeliver", observer] => println!("{} again", operator.redeliver(observer, None)?),
        ["forget", observer] => println!("forgotten: {}", operator.remove_observer(observer)?),
        ["revoke", worker] => println!("{} job(s)", operator.revoke_leases(worker.parse()?)?.len()),
        _ => return Ok(false),
    }
    Ok(true)
}
