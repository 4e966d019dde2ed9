//! The private cluster that other tests stop under what runs on it.

mod support;

use ::postgres::{Client, NoTls};
use support::cluster::{Cluster, Stop};

#[test]
fn a_cluster_keeps_its_port_and_what_was_committed_over_an_immediate_stop() {
    let cluster = Cluster::start();
    let mut client = Client::connect(&cluster.url(), NoTls).expect("it answers");
    client
        .batch_execute("CREATE TABLE kept (id int); INSERT INTO kept VALUES (1)")
        .expect("written");
    cluster.stop(Stop::Immediate);
    assert!(client.batch_execute("SELECT 1").is_err(), "its connections are cut");
    assert!(Client::connect(&cluster.url(), NoTls).is_err(), "nobody answers");
    cluster.launch();
    let mut client = Client::connect(&cluster.url(), NoTls).expect("it answers again");
    let row = client.query_one("SELECT count(*) FROM kept", &[]).expect("read");
    assert_eq!(row.get::<_, i64>(0), 1);
}

#[test]
fn a_cluster_is_gone_with_its_owner() {
    let cluster = Cluster::start();
    let (url, folder) = (cluster.url(), cluster.as_ref().to_owned());
    cluster.restart(Stop::Fast);
    drop(cluster);
    assert!(Client::connect(&url, NoTls).is_err(), "nobody answers");
    assert!(!folder.exists());
}
