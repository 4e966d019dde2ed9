//! What is known of parents and ancestors.

use super::Fixture;
use super::desk::{Desk, SECOND, outcome};
use super::family::child;
use crate::store::{Body, JobRow, Outcome, OutcomeRow, RequeueAnswer};
use crate::{JobId, JobState};

pub(super) fn parents_are_told_in_their_order(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (one, two, three) = (desk.lone(), desk.lone(), desk.lone());
    let id = desk.child(&[three, one, two, one]);
    let told: Vec<_> = desk.parents(id).iter().map(|parent| parent.id).collect();
    assert_eq!(told, [three, one, two]);
    desk.succeed(one);
    let told: Vec<_> = desk.parents(id).iter().map(|parent| parent.id).collect();
    assert_eq!(told, [three, one, two], "those that have ended stay among them");
}

pub(super) fn a_parent_is_told_as_it_stands(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let row = JobRow { wire_name: "first".to_owned(), ..child(&[]) };
    let parent = desk.add(&row);
    let id = desk.follower(&[parent]);
    let told = desk.parents(id).remove(0);
    assert_eq!(
        (told.id, told.wire_name.as_str(), told.state),
        (parent, "first", JobState::Scheduled)
    );
    assert_eq!((told.is_gating, told.finished_at), (true, None));
    assert_eq!((told.output, told.failure_detail), (None, None));
    let job = desk.grab(parent);
    assert_eq!(desk.parents(id)[0].state, JobState::Leased);
    desk.wait(SECOND);
    let detail = Some("why".to_owned());
    desk.settle(&OutcomeRow { detail, ..outcome(&job, Outcome::DeadLettered) });
    let told = desk.parents(id).remove(0);
    assert_eq!((told.state, told.is_gating), (JobState::DeadLettered, false));
    assert_eq!((told.finished_at, told.failure_detail.as_deref()), (Some(desk.now()), Some("why")));
}

pub(super) fn a_parents_output_is_told(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let parent = desk.lone();
    let id = desk.child(&[parent]);
    let job = desk.grab(parent);
    let output = Some(Body::new(br#"{"pages":12}"#.to_vec()));
    let row = OutcomeRow { output: output.clone(), ..outcome(&job, Outcome::Succeeded) };
    desk.settle(&row);
    assert_eq!(desk.parents(id)[0].output, output);
    assert_eq!(desk.ancestor(id, parent).expect("it is a parent").output, output);
}

pub(super) fn a_parent_gates_until_it_ends_and_never_again(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (one, two) = (desk.lone(), desk.lone());
    let id = desk.follower(&[one, two]);
    desk.fail(one);
    assert_eq!(desk.gates(id), [two]);
    assert_eq!(desk.requeue(one), RequeueAnswer::Requeued);
    assert_eq!(desk.gates(id), [two], "a gate that was opened stays open");
    desk.succeed(two);
    assert_eq!(desk.state(id), JobState::Scheduled);
}

pub(super) fn a_job_without_parents_and_one_that_is_not_there_have_none(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let id = desk.lone();
    assert!(desk.parents(id).is_empty());
    assert!(desk.parents(JobId::new()).is_empty());
}

pub(super) fn an_ancestor_is_told_from_any_distance(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut line = vec![desk.lone()];
    for _ in 0..20 {
        let last = line[line.len() - 1];
        line.push(desk.child(&[last]));
    }
    for above in &line[..20] {
        let told = desk.ancestor(line[20], *above).expect("it stands above");
        assert_eq!((told.id, told.state), (*above, desk.state(*above)));
    }
}

pub(super) fn an_ancestor_is_found_over_every_path(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (top, aside) = (desk.lone(), desk.lone());
    let (left, right) = (desk.child(&[top]), desk.child(&[top, aside]));
    let bottom = desk.child(&[left, right]);
    for above in [top, aside, left, right] {
        assert_eq!(desk.ancestor(bottom, above).map(|told| told.id), Some(above));
    }
}

pub(super) fn strangers_dependents_and_the_job_itself_are_no_ancestors(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (top, stranger) = (desk.lone(), desk.lone());
    let middle = desk.child(&[top]);
    let (bottom, sibling) = (desk.child(&[middle]), desk.child(&[top]));
    for other in [stranger, bottom, middle, sibling, JobId::new()] {
        assert!(desk.ancestor(middle, other).is_none());
    }
    assert!(desk.ancestor(JobId::new(), top).is_none());
}

pub(super) fn lineage_outlives_every_end(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let (one, two) = (desk.lone(), desk.lone());
    let id = desk.child(&[two, one]);
    let below = desk.child(&[id]);
    desk.fail(one);
    for (job, parents) in [(id, vec![two, one]), (below, vec![id])] {
        let told: Vec<_> = desk.parents(job).iter().map(|parent| parent.id).collect();
        assert_eq!((desk.state(job), told), (JobState::Cancelled, parents));
    }
    assert!(desk.ancestor(below, two).is_some());
}
