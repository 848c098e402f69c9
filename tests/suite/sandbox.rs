//! The sandbox against guests that mean it harm: each gets an error that says what happened and what to do, the host
//! goes on, and the next call of a good module works.

use std::sync::Arc;
use std::time::Duration;

use bbs::layout::columns::{Batch, ColumnData, Outcome, RunArguments, TableData};
use bbs::layout::manifest::Direction;
use bbs::lens::transform::Transform;
use bbs::modules::sandbox::{Limits, Sandbox};
use bbs::modules::translate::{Translate, TranslateError};
use bbs::modules::{MigrationModule, Module};

use crate::harness::modules::{chain, guest, migration, sandbox, sandbox_with, translator};

fn run_arguments() -> RunArguments {
    RunArguments { started_at_ns: 1, namespace: uuid::Uuid::nil() }
}

/// One unit a text, each of one row.
fn batch(texts: &[&str]) -> Batch {
    let mut text = ColumnData { validity: vec![], offsets: vec![0], values: vec![] };
    for value in texts {
        text.values.extend(value.as_bytes());
        text.offsets.push(u32::try_from(text.values.len()).unwrap());
    }
    let unit_offsets = (0..=u32::try_from(texts.len()).unwrap()).collect();
    Batch { tables: vec![TableData { unit_offsets, columns: vec![text] }], residue: vec![] }
}

fn sizes(outcome: &Outcome) -> Vec<u64> {
    let (values, rest) = outcome.tables[0].columns[0].values.as_chunks::<8>();
    assert!(rest.is_empty());
    values.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
}

fn up(module: &MigrationModule, texts: &[&str]) -> Result<Outcome, String> {
    module.apply(Direction::Up, &run_arguments(), &batch(texts)).map_err(|error| error.to_string())
}

#[track_caller]
fn assert_works(sandbox: &Arc<Sandbox>) {
    let good = migration("well-behaved", sandbox);
    assert_eq!(sizes(&up(&good, &["", "abc", "äöü"]).unwrap()), [0, 3, 6]);
}

/// Short, so that what never ends is over soon, and long enough for what does on a machine that is busy.
const IMPATIENT: Duration = Duration::from_millis(600);

fn impatient() -> Limits {
    Limits { call_time: IMPATIENT, ..Limits::default() }
}

/// Lets the hostile guest do one thing; it must fail with an error of these words, be thrown away, and work again.
#[track_caller]
fn assert_stopped(limits: Limits, deed: &str, words: &[&str]) {
    let sandbox = sandbox_with(limits);
    let hostile = migration("hostile", &sandbox);
    assert_eq!(hostile.idle_instances(), 1, "the instance that described itself waits");
    let error = up(&hostile, &[deed, "b"]).unwrap_err();
    for word in words.iter().chain(&["hostile.wasm", "migration 100", hostile.digest(), "up of"]) {
        assert!(error.contains(word), "{word:?} is not in {error:?}");
    }
    assert_eq!(hostile.idle_instances(), 0, "an instance that failed is thrown away");
    assert_eq!(sizes(&up(&hostile, &["fine", "b"]).unwrap()), [0, 0], "a fresh instance works");
    assert_works(&sandbox);
}

#[test]
fn an_endless_loop_is_ended() {
    assert_stopped(impatient(), "endless-loop", &["ran longer than 600ms", "loop that does not end"]);
}

#[test]
fn memory_is_bounded() {
    assert_stopped(Limits::default(), "memory-growth", &["bytes of memory", "at most 67108864"]);
}

#[test]
fn memory_can_be_bounded_more() {
    let limits = Limits { memory_bytes: 8 << 20, ..Limits::default() };
    assert_stopped(limits, "memory-grown", &["bytes of memory", "at most 8388608"]);
}

#[test]
fn the_stack_is_bounded() {
    assert_stopped(Limits::default(), "stack-overflow", &["used up its stack of 524288 bytes", "recursion"]);
}

#[test]
fn a_trap_is_an_error() {
    assert_stopped(Limits::default(), "trap", &["broke off", "unreachable", "run the SDK's tests"]);
}

#[test]
fn a_result_is_bounded() {
    assert_stopped(Limits::default(), "oversized-result", &["gave back more than 33554432 bytes"]);
}

#[test]
fn what_comes_back_must_fit_what_was_given() {
    for (deed, flaw) in [
        ("wrong-row-count", "table `things`: column `size`: 24 bytes for 2 rows"),
        ("offsets-out-of-range", "offsets end at 1073741824, the values at 4"),
        ("offsets-go-back", "offsets go back from 4 to 2"),
        ("short-validity", "2 bytes of validity for 2 rows"),
        ("too-many-tables", "0 tables for 1 declared"),
        ("too-many-columns", "2 columns for 1 declared"),
        ("undeclared-shape", "a new shape, which the manifest does not declare"),
        ("undeclared-residue", "residue, which the manifest does not declare"),
        ("refuses-unknown-unit", "refuses unit 2 of 2"),
    ] {
        assert_stopped(Limits::default(), deed, &[flaw, "correct the module"]);
    }
}

#[test]
fn a_fault_is_an_answer_and_the_instance_lives_on() {
    let sandbox = sandbox();
    let hostile = migration("hostile", &sandbox);
    let error = up(&hostile, &["fault"]).unwrap_err();
    assert!(error.contains("it refused: as told"), "{error}");
    assert_eq!(hostile.idle_instances(), 1);
}

#[test]
fn an_instance_that_grew_large_does_not_wait_for_the_next_call() {
    let hostile = migration("hostile", &sandbox());
    up(&hostile, &["memory-grown"]).unwrap();
    assert_eq!(hostile.idle_instances(), 0);
    up(&hostile, &["fine"]).unwrap();
    assert_eq!(hostile.idle_instances(), 1);
}

#[test]
fn a_flood_of_log_lines_is_cut_off() {
    let lines = Lines::default();
    let written = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || written.clone()).with_ansi(false).finish();
    let hostile = migration("hostile", &sandbox());
    tracing::subscriber::with_default(subscriber, || up(&hostile, &["log-flood"]).unwrap());
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert_eq!(text.matches("flood ").count(), 100);
    assert!(text.contains("said 100 lines in one call"), "{text}");
    assert!(text.contains("hostile.wasm"), "a line says who wrote it");
    assert!(text.lines().all(|line| line.len() < 2_200), "lines are cut");
}

#[derive(Clone, Default)]
struct Lines(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_marked_unit_breaks_only_the_batch_it_is_in() {
    let module = migration("traps-on-marked-unit", &sandbox());
    assert!(up(&module, &["a", "trap", "b"]).is_err());
    assert!(up(&module, &["trap"]).is_err());
    assert_eq!(sizes(&up(&module, &["a"]).unwrap()), [1]);
    assert_eq!(sizes(&up(&module, &["b", "cc"]).unwrap()), [1, 2]);
}

#[test]
fn a_direction_without_rows_runs_nothing() {
    let module = migration("well-behaved", &sandbox());
    // Its way down breaks off when called.
    let outcome = module.apply(Direction::Down, &run_arguments(), &Batch::default()).unwrap();
    assert_eq!(outcome, Outcome::default());
}

#[test]
fn a_foreign_import_is_refused_before_anything_runs() {
    let error = chain(&Module::open(&guest("forbidden-import"), &sandbox()).unwrap_err());
    for word in ["forbidden-import.wasm", "before anything of it runs", "`wasi:random/random@0.2.0#get-random-u64`"] {
        assert!(error.contains(word), "{word:?} is not in {error:?}");
    }
}

#[test]
fn a_module_that_does_not_say_what_it_is_is_refused() {
    let error = chain(&Module::open(&guest("describe-traps"), &sandbox()).unwrap_err());
    assert!(error.contains("does not say what it is: it broke off"), "{error}");
}

#[test]
fn what_is_no_component_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("1-text.wasm");
    let cases: [(&[u8], &str); 5] = [
        (b"not wasm", "is not a WebAssembly file"),
        (b"", "is not a WebAssembly file"),
        (b"\0asm\x01\0\0\0", "is a core WebAssembly module"),
        (b"\0asm\x07\0\0\0", "its format is 07000000"),
        (b"\0asm\x0d\0\x01\0rest", "is not a WebAssembly component this host can run"),
    ];
    for (bytes, words) in cases {
        std::fs::write(&path, bytes).unwrap();
        let error = chain(&Module::open(&path, &sandbox()).unwrap_err());
        assert!(error.contains(words), "{words:?} is not in {error:?}");
    }
}

#[test]
fn a_component_that_is_too_large_is_not_even_read() {
    let sandbox = sandbox_with(Limits { component_bytes: 10_000, ..Limits::default() });
    let error = chain(&Module::open(&guest("well-behaved"), &sandbox).unwrap_err());
    assert!(error.contains("is larger than 10000 bytes"), "{error}");
}

#[test]
fn compiling_has_an_end() {
    // Without a cache, so that there is something to compile.
    let limits = Limits { compile_time: Duration::ZERO, ..Limits::default() };
    let sandbox = Arc::new(Sandbox::new(limits, None).unwrap());
    let error = chain(&Module::open(&guest("well-behaved"), &sandbox).unwrap_err());
    assert!(error.contains("took longer than 0ns to compile"), "{error}");
}

#[test]
fn a_call_waits_for_an_instance_only_so_long() {
    let limits = Limits { instances: 1, instance_wait: Duration::from_millis(20), ..Limits::default() };
    let chatty = translator("chatty-translator", &sandbox_with(limits));
    let outer = chatty.call("Once", b"", &mut |_, _| chatty.call("Never", b"", &mut never));
    let error = outer.unwrap_err().reason;
    assert!(error.contains("all its 1 instances were busy for 20ms"), "{error}");
    chatty.call("Never", b"", &mut never).expect("the places are free again");
}

fn never(_: &str, _: &[u8]) -> Result<Vec<u8>, TranslateError> {
    panic!("next is not called here")
}

#[test]
fn a_translator_calls_next_once_twice_or_not_at_all() {
    let chatty = translator("chatty-translator", &sandbox());
    let mut called = Vec::new();
    let mut next = |method: &str, request: &[u8]| {
        called.push((method.to_owned(), request.to_vec()));
        Ok([request, b"!"].concat())
    };
    assert_eq!(chatty.call("Once", b"a", &mut next).unwrap(), b"a!");
    assert_eq!(chatty.call("Twice", b"b", &mut next).unwrap(), b"b!!");
    assert_eq!(chatty.call("Never", b"c", &mut next).unwrap(), b"c");
    let newer = |request: &[u8]| ("Newer".to_owned(), request.to_vec());
    assert_eq!(called, [newer(b"a"), newer(b"b"), newer(b"b!")]);
}

#[test]
fn translators_call_each_other_through_next() {
    let chatty = translator("chatty-translator", &sandbox());
    let mut native = |_: &str, request: &[u8]| Ok([request, b"native"].concat());
    let mut inner = |_: &str, request: &[u8]| chatty.call("Twice", request, &mut native);
    assert_eq!(chatty.call("Twice", b"", &mut inner).unwrap(), b"nativenativenativenative");
}

#[test]
fn an_error_of_next_reaches_the_caller() {
    let chatty = translator("chatty-translator", &sandbox());
    let mut failing = |_: &str, _: &[u8]| Err(TranslateError { reason: "the database is gone".into() });
    let error = chatty.call("Once", b"", &mut failing).unwrap_err().reason;
    assert!(error.contains("the database is gone"), "{error}");
}

#[test]
fn the_time_in_next_does_not_count() {
    let chatty = translator("chatty-translator", &sandbox_with(impatient()));
    let mut slow = |_: &str, request: &[u8]| {
        let end = std::time::Instant::now() + IMPATIENT * 2 / 3;
        while std::time::Instant::now() < end {
            std::thread::yield_now();
        }
        Ok(request.to_vec())
    };
    assert_eq!(chatty.call("Twice", b"a", &mut slow).unwrap(), b"a");
    let error = chatty.call("Loop", b"a", &mut slow).unwrap_err().reason;
    assert!(error.contains("ran longer than 600ms"), "what it spends itself does: {error}");
}

#[test]
fn next_is_no_way_around_the_deadline() {
    let chatty = translator("chatty-translator", &sandbox());
    let mut calls = 0;
    let error = chatty
        .call("Forever", b"a", &mut |_, _| {
            calls += 1;
            Ok(vec![])
        })
        .unwrap_err()
        .reason;
    assert!(error.contains("called the next version more than 1000 times"), "{error}");
    assert_eq!(calls, 1000);
    let limits = Limits { next_calls: u32::MAX, ..impatient() };
    let chatty = translator("chatty-translator", &sandbox_with(limits));
    let error = chatty.call("Forever", b"a", &mut |_, _| Ok(vec![])).unwrap_err().reason;
    assert!(error.contains("ran longer than 600ms"), "{error}");
}

#[test]
fn a_translator_that_fails_is_named_and_thrown_away() {
    let sandbox = sandbox();
    let chatty = translator("chatty-translator", &sandbox);
    for (method, words) in
        [("Trap", "broke off"), ("Grow", "bytes of memory"), ("Unknown", "it refused: no method Unknown")]
    {
        let error = chatty.call(method, b"", &mut never).unwrap_err().reason;
        for word in [words, method, "0.9 to 0.10", "chatty-translator.wasm", chatty.digest()] {
            assert!(error.contains(word), "{word:?} is not in {error:?}");
        }
        assert_eq!(chatty.call("Never", b"fine", &mut never).unwrap(), b"fine");
    }
    assert_works(&sandbox);
}

/// The threads of this process by name.
fn threads_named(name: &str) -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok())
        .filter(|comm| comm.trim() == name)
        .count()
}

#[test]
fn the_thread_that_ends_overruns_ends_with_its_sandbox() {
    // In a process of its own, since the threads of other tests look the same.
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "sandbox::threads_end_with_their_sandbox"])
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(report.contains("1 passed"), "{report}");
}

#[test]
#[ignore = "counts the threads of the whole process; run by the test above"]
fn threads_end_with_their_sandbox() {
    let sandbox = sandbox();
    let module = migration("well-behaved", &sandbox);
    drop(sandbox);
    // A thread takes its name only once it runs.
    assert!(within_seconds(10, || threads_named("bbs-epoch") == 1), "a module keeps its sandbox");
    up(&module, &["fine"]).expect("and works");
    assert_eq!(threads_named("bbs-epoch"), 1);
    drop(module);
    assert!(within_seconds(10, || threads_named("bbs-epoch") == 0), "nothing keeps it any more");
}

/// Whether a condition comes true in time.
fn within_seconds(seconds: u64, condition: impl Fn() -> bool) -> bool {
    let end = std::time::Instant::now() + Duration::from_secs(seconds);
    while std::time::Instant::now() < end {
        if condition() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}
