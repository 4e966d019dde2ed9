//! How jobs are found.

use super::Fixture;
use super::desk::{Desk, SECOND, TICK, outcome, row, rows};
use crate::store::{Body, JobFilter, JobRow, Outcome, OutcomeRow, PAGE_MAX, Page};
use crate::{JobId, JobState, WorkerId};

fn all() -> JobFilter {
    JobFilter::new()
}

fn ids_of(rows: &[JobRow]) -> Vec<JobId> {
    rows.iter().map(|row| row.id).collect()
}

pub(super) fn an_empty_filter_finds_every_job(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    assert!(desk.matching(&all()).is_empty());
    let ended = desk.end(Outcome::Succeeded).id;
    let held = desk.hold(WorkerId::new()).id;
    let (waiting, awaiting) = (desk.lone(), desk.child(&[held]));
    assert_eq!(desk.matching(&all()), [ended, held, waiting, awaiting]);
}

pub(super) fn a_job_found_is_the_whole_job(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let given = JobRow {
        tags: vec!["b".to_owned(), "a".to_owned()],
        timeout: Some(SECOND),
        payload: Body::new(b"[1, 2]".to_vec()),
        ..row()
    };
    desk.add(&given);
    let job = desk.take_one(WorkerId::new());
    let output = Some(Body::new(b"3".to_vec()));
    let ended = outcome(&job, Outcome::Succeeded);
    desk.settle(&OutcomeRow { output, ..ended });
    let found = desk.page(&all(), &Page::new(9)).jobs;
    assert_eq!(found, [desk.job(given.id)]);
}

pub(super) fn jobs_are_found_by_each_state(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let ends =
        [Outcome::Succeeded, Outcome::Cancelled, Outcome::DeadLettered, Outcome::Quarantined];
    let ended = ends.map(|how| (how.state(false), desk.end(how).id));
    let held = desk.hold(WorkerId::new()).id;
    let (waiting, awaiting) = (desk.lone(), desk.child(&[held]));
    let mut expected = ended.to_vec();
    expected.extend([
        (JobState::Leased, held),
        (JobState::Scheduled, waiting),
        (JobState::AwaitingParent, awaiting),
    ]);
    for (state, id) in &expected {
        assert_eq!(desk.matching(&all().state(*state)), [*id], "{state}");
    }
    let either = all().state(JobState::DeadLettered).state(JobState::Succeeded);
    assert_eq!(desk.matching(&either), [ended[0].1, ended[2].1]);
}

pub(super) fn jobs_are_found_by_queue_and_wire_name(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let one = desk.add(&JobRow { queue: "mail".to_owned(), ..row() });
    let two = desk.add(&JobRow { wire_name: "mail".to_owned(), ..row() });
    let both = JobRow { queue: "mail".to_owned(), wire_name: "mail".to_owned(), ..row() };
    let both = desk.add(&both);
    assert_eq!(desk.matching(&all().queue("mail")), [one, both]);
    assert_eq!(desk.matching(&all().wire_name("mail")), [two, both]);
    assert_eq!(desk.matching(&all().wire_name("mail").queue("mail")), [both]);
    assert!(desk.matching(&all().queue("Mail")).is_empty());
    assert!(desk.matching(&all().queue("mai")).is_empty());
    assert!(desk.matching(&all().wire_name("mail ")).is_empty());
}

pub(super) fn tags_are_found_exactly(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let tagged =
        |tags: &[&str]| JobRow { tags: tags.iter().map(|&tag| tag.to_owned()).collect(), ..row() };
    let ab = desk.add(&tagged(&["a", "b"]));
    let upper = desk.add(&tagged(&["A"]));
    let long = desk.add(&tagged(&["ab", "b"]));
    desk.add(&tagged(&[]));
    assert_eq!(desk.matching(&all().tag("a")), [ab]);
    assert_eq!(desk.matching(&all().tag("A")), [upper]);
    assert_eq!(desk.matching(&all().tag("b")), [ab, long]);
    assert!(desk.matching(&all().tag("a,b")).is_empty());
    assert!(desk.matching(&all().tag("%")).is_empty());
}

pub(super) fn odd_tags_queues_and_names_are_found_byte_by_byte(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let odd = super::enqueue::ODD_NAMES;
    let rows: Vec<_> = odd
        .iter()
        .map(|&name| JobRow {
            queue: name.to_owned(),
            wire_name: name.to_owned(),
            tags: vec!["plain".to_owned(), name.to_owned()],
            ..row()
        })
        .collect();
    desk.accept(&rows);
    for (name, row) in odd.iter().zip(&rows) {
        assert_eq!(desk.matching(&all().tag(*name)), [row.id], "{name}");
        assert_eq!(desk.matching(&all().queue(*name)), [row.id], "{name}");
        assert_eq!(desk.matching(&all().wire_name(*name)), [row.id], "{name}");
    }
    assert_eq!(desk.matching(&all().tag("plain")), ids_of(&rows));
}

pub(super) fn a_tag_given_twice_finds_its_job_once(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let id = desk.add(&JobRow { tags: vec!["x".to_owned(), "x".to_owned()], ..row() });
    assert_eq!(desk.matching(&all().tag("x")), [id]);
    assert_eq!(desk.job(id).tags, ["x", "x"]);
}

pub(super) fn jobs_are_found_by_when_they_were_accepted(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let early = desk.add(&row());
    let middle_at = desk.wait(SECOND);
    let middle = desk.add(&row());
    desk.wait(SECOND);
    let late = desk.add(&row());
    assert_eq!(desk.matching(&all().created_from(middle_at)), [middle, late]);
    assert_eq!(desk.matching(&all().created_from(middle_at + TICK)), [late]);
    assert_eq!(desk.matching(&all().created_before(middle_at)), [early]);
    assert_eq!(desk.matching(&all().created_before(middle_at + TICK)), [early, middle]);
    let exactly = all().created_from(middle_at).created_before(middle_at + TICK);
    assert_eq!(desk.matching(&exactly), [middle]);
}

pub(super) fn jobs_are_found_by_when_they_ended(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let early = desk.end(Outcome::Succeeded).id;
    let at = desk.wait(SECOND);
    let late = desk.end(Outcome::DeadLettered).id;
    let living = desk.add(&row());
    assert_eq!(desk.matching(&all().finished_from(at)), [late]);
    assert_eq!(desk.matching(&all().finished_before(at)), [early]);
    assert_eq!(desk.matching(&all().finished_before(at + TICK)), [early, late]);
    let mixed = all().finished_from(at).state(JobState::Succeeded);
    assert!(desk.matching(&mixed).is_empty());
    assert_eq!(desk.state(living), JobState::Scheduled, "what lives has not ended at any time");
}

pub(super) fn every_condition_must_hold(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let start = desk.now();
    let whole = JobRow {
        queue: "q".to_owned(),
        wire_name: "w".to_owned(),
        tags: vec!["t".to_owned()],
        ..row()
    };
    desk.add(&JobRow { id: JobId::new(), queue: "other".to_owned(), ..whole.clone() });
    desk.add(&JobRow { id: JobId::new(), wire_name: "other".to_owned(), ..whole.clone() });
    desk.add(&JobRow { id: JobId::new(), tags: vec![], ..whole.clone() });
    let id = desk.add(&JobRow { id: JobId::new(), ..whole.clone() });
    let filter = all()
        .state(JobState::Scheduled)
        .queue("q")
        .wire_name("w")
        .tag("t")
        .created_from(start)
        .created_before(start + TICK);
    assert_eq!(desk.matching(&filter), [id]);
    assert!(desk.matching(&filter.clone().finished_from(start)).is_empty());
    assert!(desk.matching(&filter.created_from(start + TICK)).is_empty());
}

/// Walks page by page, and tells the ids in the order in which they came.
fn walk(desk: &mut Desk, filter: &JobFilter, first: Page) -> Vec<JobId> {
    let (mut told, mut page) = (Vec::new(), first);
    loop {
        let found = desk.page(filter, &page);
        assert!(found.jobs.len() <= first.limit as usize, "more than asked for");
        told.extend(found.jobs.iter().map(|job| job.id));
        assert!(found.next.is_none() || found.jobs.len() == first.limit as usize);
        page = page.after(found.next);
        if found.next.is_none() {
            return told;
        }
    }
}

pub(super) fn pages_go_up_by_id_and_down_again(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut jobs = rows(11);
    jobs.reverse();
    desk.accept(&jobs);
    let mut expected = ids_of(&jobs);
    expected.sort_unstable();
    for limit in [1, 3, 11, 50] {
        assert_eq!(walk(&mut desk, &all(), Page::new(limit)), expected, "{limit}");
    }
    expected.reverse();
    for limit in [1, 3, 11, 50] {
        let page = Page::new(limit).newest_first();
        assert_eq!(walk(&mut desk, &all(), page), expected, "{limit}");
    }
}

pub(super) fn a_page_that_is_not_full_is_the_last(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let jobs = rows(3);
    desk.accept(&jobs);
    assert_eq!(desk.page(&all(), &Page::new(4)).next, None);
    assert_eq!(desk.page(&all(), &Page::new(3)).next, Some(jobs[2].id));
    assert_eq!(desk.page(&all(), &Page::new(2)).next, Some(jobs[1].id));
    let beyond = Page::new(2).after(Some(jobs[2].id));
    assert!(desk.page(&all(), &beyond).jobs.is_empty());
}

pub(super) fn pages_of_a_filter_pass_over_what_does_not_match(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let mut expected = Vec::new();
    for index in 0..30 {
        let tags = if index % 7 == 0 { vec!["x".to_owned()] } else { vec![] };
        let id = desk.add(&JobRow { tags, ..row() });
        if index % 7 == 0 {
            expected.push(id);
        }
    }
    assert_eq!(walk(&mut desk, &all().tag("x"), Page::new(2)), expected);
    expected.reverse();
    let down = Page::new(2).newest_first();
    assert_eq!(walk(&mut desk, &all().tag("x").state(JobState::Scheduled), down), expected);
}

pub(super) fn a_limit_outside_of_its_bounds_is_the_nearer_of_them(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    desk.accept(&rows(PAGE_MAX as usize + 5));
    assert_eq!(desk.page(&all(), &Page::new(0)).jobs.len(), 1);
    let most = desk.page(&all(), &Page::new(u32::MAX));
    assert_eq!(most.jobs.len(), PAGE_MAX as usize);
    assert_eq!(most.next, most.jobs.last().map(|job| job.id));
}

pub(super) fn a_job_behind_the_cursor_is_not_found_again(fixture: &Fixture) {
    let mut desk = Desk::open(fixture);
    let jobs = rows(4);
    desk.accept(&[jobs[1].clone(), jobs[3].clone()]);
    let first = desk.page(&all(), &Page::new(1));
    desk.accept(&[jobs[0].clone(), jobs[2].clone()]);
    let rest = desk.page(&all(), &Page::new(9).after(first.next));
    let told: Vec<_> = rest.jobs.iter().map(|job| job.id).collect();
    assert_eq!(told, [jobs[2].id, jobs[3].id]);
}
