//! What no compiler and no lint looks for, held over every text of the repository. Each finding names its file
//! and line, and what to write instead.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A file of `src` that grows past this holds a second concern.
const LINES_MAX: usize = 800;

#[test]
fn the_repository_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let texts = Text::all_below(root);
    assert!(texts.len() > 50, "only {} files were looked at", texts.len());
    let findings = findings(&texts, env!("CARGO_MANIFEST_DIR"));
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

#[test]
fn each_rule_finds_what_it_is_for() {
    let cases = [
        ("src/a.rs", "debug_assert!(true);", "src/a.rs:1: assertions stay on: "),
        ("tests/a.rs", "std::thread::sleep(pause);", "tests/a.rs:1: a sleep "),
        ("src/a.rs", "#[cfg(test)]\nmod tests {\n    thread::sleep(p);\n}", "src/a.rs:3: a sleep "),
        ("src/a.rs", "// TODO: later", "src/a.rs:1: unfinished: "),
        ("tests/a.sh", "# FIXME", "tests/a.sh:1: unfinished: "),
        ("examples/a.rs", "\ntodo!()", "examples/a.rs:2: unfinished: "),
        ("src/a.rs", "unimplemented!()", "src/a.rs:1: unfinished: "),
        ("src/a.rs", "a.unwrap();", "src/a.rs:1: a panic "),
        ("src/a.rs", "a\n    .expect(\"b\");", "src/a.rs:2: a panic "),
        ("src/a.rs", "#[cfg(test)]\nfn a() {}\nb.unwrap();", "src/a.rs:3: a panic "),
        ("src/a.rs", "#[cfg(test)]\nmod b {\n}\nc.unwrap();", "src/a.rs:4: a panic "),
        ("README.md", "see /home/me", "README.md:1: a path of one machine: "),
        ("src/a.rs", "// as in /the/checkout/src", "src/a.rs:1: a path of one machine: "),
        ("src/a.sql", "SELECT * FROM a", "src/a.sql:1: columns by name: "),
        ("src/a.rs", "\"INSERT .. RETURNING *\"", "src/a.rs:1: columns by name: "),
        ("src/a.rs", &"\n".repeat(801), "src/a.rs:801: longer than 800 lines: "),
    ];
    for (path, content, expected) in cases {
        let found = findings(&[Text::new(path, content)], "/the/checkout");
        assert_eq!(found.len(), 1, "{path}, {content:?}: {found:?}");
        assert!(found[0].starts_with(expected), "{path}, {content:?}: {found:?}");
    }
}

#[test]
fn what_is_in_its_place_is_not_found() {
    let texts = [
        ("src/a.rs", "/// a.unwrap()\n//! b.expect(\"c\")\n    // d.unwrap()"),
        ("src/a.rs", "thread::sleep(pause);\na.unwrap_or(b);\nc.expect_err(d);"),
        ("src/a.rs", "#[cfg(test)]\nmod tests {\n    fn a() {\n        b.unwrap();\n    }\n}"),
        ("src/a.rs", "#[cfg(test)]\nfn a() {\n    b.unwrap();\n}"),
        ("src/b.rs", "#[cfg(test)]\n#[path = \"b_tests.rs\"]\nmod tests;"),
        ("src/b_tests.rs", "a.unwrap();"),
        ("src/c/mod.rs", "#[cfg(test)]\nmod tests;"),
        ("src/c/tests/d.rs", "a.unwrap();"),
        ("src/e.rs", "#[cfg(test)]\nmod tests;"),
        ("src/e/tests.rs", "a.unwrap();"),
        ("src/testing/a.rs", "a.expect(\"b\");"),
        (
            "tests/a.rs",
            "a.unwrap();\n// Sleeps, since a process says nothing.\nthread::sleep(pause);",
        ),
        ("src/a.rs", &"\n".repeat(800)),
        ("src/a.sql", "SELECT count(*) FROM a"),
    ];
    let texts = texts.map(|(path, content)| Text::new(path, content));
    assert_eq!(findings(&texts, "/the/checkout"), Vec::<String>::new());
}

// -- the rules

fn findings(texts: &[Text], checkout: &str) -> Vec<String> {
    let tests = TestFiles::named_in(texts);
    let mut findings = Vec::new();
    // This very file names what it looks for.
    for text in texts.iter().filter(|text| text.path != Path::new(file!())) {
        for (index, line) in text.content.lines().enumerate() {
            let place = Place { text, index, line, is_test: false };
            let place = Place { is_test: tests.hold(&place), ..place };
            let complaints = RULES.iter().filter_map(|rule| rule(&place));
            let complaints = complaints.chain(names_the_checkout(&place, checkout));
            findings
                .extend(complaints.map(|complaint| {
                    format!("{}:{}: {complaint}", text.path.display(), index + 1)
                }));
        }
    }
    findings
}

/// One line, and where it stands.
struct Place<'a> {
    text: &'a Text,
    index: usize,
    line: &'a str,
    /// Whether only tests are built with it.
    is_test: bool,
}

type Rule = fn(&Place<'_>) -> Option<&'static str>;

const RULES: &[Rule] = &[
    assertions_stay_on,
    tests_do_not_sleep,
    nothing_is_unfinished,
    nothing_panics_by_the_way,
    names_no_home,
    columns_are_named,
    files_are_small,
];

fn assertions_stay_on(place: &Place<'_>) -> Option<&'static str> {
    (place.is_in("src") && place.has(&["debug_assert"])).then_some(
        "assertions stay on: make it an invariant that halts, or `assert!` in a constant",
    )
}

fn tests_do_not_sleep(place: &Place<'_>) -> Option<&'static str> {
    (place.is_rust() && place.is_test && place.has(&["thread::sleep"]) && !place.tells_of("sleeps"))
        .then_some(
            "a sleep in a test: wait for a gate, a channel or a virtual clock. Where the world gives no sign, \
             a comment above says why it sleeps",
        )
}

fn nothing_is_unfinished(place: &Place<'_>) -> Option<&'static str> {
    place
        .has(&["todo!", "unimplemented!", "TODO", "FIXME"])
        .then_some("unfinished: finish it, or leave it out")
}

fn nothing_panics_by_the_way(place: &Place<'_>) -> Option<&'static str> {
    let may_panic = place.is_test || place.is_in("src/testing") || place.is_comment();
    (place.is_in("src") && place.is_rust() && !may_panic && place.has(&[".unwrap()", ".expect("]))
        .then_some("a panic on what a row, a lock or a thread can bring: return an error")
}

fn names_no_home(place: &Place<'_>) -> Option<&'static str> {
    place.has(&["/home/", "/root/", "/Users/"]).then_some(
        "a path of one machine: name it from the repository's root, or make a temporary folder",
    )
}

fn names_the_checkout(place: &Place<'_>, checkout: &str) -> Option<&'static str> {
    place.has(&[checkout]).then_some("a path of one machine: name it from the repository's root")
}

fn columns_are_named(place: &Place<'_>) -> Option<&'static str> {
    (place.has_extension(&["rs", "sql"]) && place.has(&["SELECT *", "RETURNING *"])).then_some(
        "columns by name: what a later migration adds must not change what a statement returns",
    )
}

fn files_are_small(place: &Place<'_>) -> Option<&'static str> {
    // Told once, at the first line too many.
    (place.is_in("src") && place.index == LINES_MAX)
        .then_some("longer than 800 lines: look for the second concern in it")
}

impl Place<'_> {
    fn is_in(&self, folder: &str) -> bool {
        self.text.path.starts_with(folder)
    }

    fn is_rust(&self) -> bool {
        self.has_extension(&["rs"])
    }

    fn has_extension(&self, any: &[&str]) -> bool {
        any.contains(&self.text.extension())
    }

    fn has(&self, any: &[&str]) -> bool {
        any.iter().any(|pattern| self.line.contains(pattern))
    }

    fn is_comment(&self) -> bool {
        is_comment(self.line)
    }

    /// Whether the comment above the line holds a word.
    fn tells_of(&self, word: &str) -> bool {
        let above: Vec<&str> = self.text.content.lines().take(self.index).collect();
        let comment = above.iter().rev().take_while(|line| is_comment(line));
        comment.into_iter().any(|line| line.to_lowercase().contains(word))
    }
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

// -- what only tests are built with

/// The files and folders below `src` that a `#[cfg(test)] mod name;` brings in.
struct TestFiles(BTreeSet<PathBuf>);

impl TestFiles {
    fn named_in(texts: &[Text]) -> Self {
        Self(texts.iter().flat_map(Self::named_by).collect())
    }

    fn named_by(text: &Text) -> Vec<PathBuf> {
        let folder = text.path.parent().unwrap_or_else(|| Path::new(""));
        let own_folder = text.path.with_extension("");
        let mut found = Vec::new();
        let mut lines = text.content.lines();
        while let Some(line) = lines.next() {
            if line.trim() != "#[cfg(test)]" {
                continue;
            }
            let mut item = lines.next().unwrap_or_default().trim();
            if let Some(path) = item.strip_prefix("#[path = \"") {
                found.push(folder.join(path.trim_end_matches("\"]")));
                item = "";
            }
            if let Some(name) = item.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) {
                for place in [folder, &own_folder] {
                    found.push(place.join(name));
                    found.push(place.join(name).with_extension("rs"));
                }
            }
        }
        found
    }

    fn hold(&self, place: &Place<'_>) -> bool {
        let path = &place.text.path;
        path.starts_with("tests")
            || path.ancestors().any(|ancestor| self.0.contains(ancestor))
            || is_in_test_item(place)
    }
}

/// Whether a `#[cfg(test)]` above holds the line: its item ends with the first line that closes at its own
/// indentation, as the formatter sets it.
fn is_in_test_item(place: &Place<'_>) -> bool {
    let mut open: Option<usize> = None;
    for line in place.text.content.lines().take(place.index + 1) {
        let indentation = line.len() - line.trim_start().len();
        match open {
            None if line.trim() == "#[cfg(test)]" => open = Some(indentation),
            Some(outer) if indentation == outer && ends_an_item(line) => open = None,
            _ => {}
        }
    }
    open.is_some()
}

fn ends_an_item(line: &str) -> bool {
    !line.trim_start().starts_with("#[") && line.ends_with([';', '}'])
}

// -- the texts

struct Text {
    /// From the root of the repository.
    path: PathBuf,
    content: String,
}

impl Text {
    fn new(path: &str, content: &str) -> Self {
        Self { path: path.into(), content: content.into() }
    }

    fn all_below(root: &Path) -> Vec<Self> {
        let mut texts = Vec::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("the folder can be read") {
                let path = entry.expect("the folder can be read").path();
                if path.is_dir() {
                    folders.extend(is_kept(&path).then_some(path));
                } else {
                    texts.extend(Self::read(root, &path));
                }
            }
        }
        texts
    }

    fn read(root: &Path, path: &Path) -> Option<Self> {
        let inner = path.strip_prefix(root).expect("the walk began at the root").to_owned();
        let mut text = Self { path: inner, content: String::new() };
        if !["rs", "sql", "sh", "md", "toml"].contains(&text.extension()) {
            return None;
        }
        text.content = fs::read_to_string(path).expect("a source file is text");
        Some(text)
    }

    fn extension(&self) -> &str {
        self.path.extension().and_then(|extension| extension.to_str()).unwrap_or_default()
    }
}

/// Whether the folder belongs to the repository: not what is built, and nothing hidden but `.ci`.
fn is_kept(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name != "target" && (!name.starts_with('.') || name == ".ci")
}
