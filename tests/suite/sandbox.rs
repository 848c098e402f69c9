//! The sandbox against hostile guests: each failure is an error that says what happened and what to
//! do, the host continues, and the next call of a correct module succeeds.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bbs::testing::modules::sandbox::{CacheFolders, CompileLimits, Limits, Sandbox};
use bbs::testing::modules::translate::{NextAnswer, Translate, TranslateError};
use bbs::testing::modules::{MigrationModule, Module};
use bbs_lens::layout::columns::{Batch, ColumnData, Outcome, TableData};
use bbs_lens::layout::manifest::Direction;
use bbs_lens::transform::{RunArguments, Transform};

use crate::attacks::compilation::many_values;
use crate::harness::log_lines::LogLines;
use crate::harness::modules::{
    cache, call, chain, guest, migration, sandbox, sandbox_with, translator,
};
use crate::harness::{bbs, block_until};

fn run_arguments() -> RunArguments {
    RunArguments {
        started_at_ns: 1,
        namespace: uuid::Uuid::nil(),
    }
}

/// A batch with one unit of one row per text.
fn batch(texts: &[&str]) -> Batch {
    let mut text = ColumnData {
        validity: vec![],
        offsets: vec![0],
        values: vec![],
    };
    for value in texts {
        text.values.extend(value.as_bytes());
        text.offsets.push(u32::try_from(text.values.len()).unwrap());
    }
    let unit_offsets = (0..=u32::try_from(texts.len()).unwrap()).collect();
    Batch {
        tables: vec![TableData {
            unit_offsets,
            columns: vec![text],
        }],
        residue: vec![],
    }
}

fn sizes(outcome: &Outcome) -> Vec<u64> {
    let (values, rest) = outcome.tables[0].columns[0].values.as_chunks::<8>();
    assert!(rest.is_empty());
    values
        .iter()
        .map(|bytes| u64::from_le_bytes(*bytes))
        .collect()
}

fn up(module: &MigrationModule, texts: &[&str]) -> Result<Outcome, String> {
    module
        .apply(Direction::Up, &run_arguments(), &batch(texts))
        .map_err(|error| error.to_string())
}

#[track_caller]
fn assert_works(sandbox: &Arc<Sandbox>) {
    let correct = migration("well-behaved", sandbox);
    assert_eq!(
        sizes(&up(&correct, &["", "abc", "äöü"]).unwrap()),
        [0, 3, 6]
    );
}

/// Call time limit: no correct call exceeds it, however slow the machine. [`overrun`] skips it.
const CALL_TIME: Duration = Duration::from_secs(600);

fn limited_call_time() -> Limits {
    Limits {
        call_time: CALL_TIME,
        ..Limits::default()
    }
}

/// Makes a call that does not end, and skips its time until it is stopped. Each time less than the
/// limit, so that a call whose time began anew with each answer of `next` would not be stopped.
fn overrun<T: Send>(sandbox: &Sandbox, call: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let running = scope.spawn(call);
        block_until(|| {
            sandbox.skip(CALL_TIME * 2 / 3);
            running.is_finished()
        });
        running.join().unwrap()
    })
}

/// Asserts that a behaviour of the hostile guest fails with an error of these words, that the
/// instance is discarded, and that a new instance works.
#[track_caller]
fn assert_stopped(limits: Limits, behaviour: &str, words: &[&str]) {
    let sandbox = sandbox_with(limits);
    let hostile = migration("hostile", &sandbox);
    assert_eq!(
        hostile.idle_instances(),
        1,
        "the instance that ran `describe` is idle"
    );
    assert_discarded(
        &sandbox,
        &hostile,
        &up(&hostile, &[behaviour, "b"]).unwrap_err(),
        words,
    );
}

#[track_caller]
fn assert_discarded(
    sandbox: &Arc<Sandbox>,
    hostile: &MigrationModule,
    error: &str,
    words: &[&str],
) {
    for word in words {
        assert!(error.contains(word), "{word:?} is not in {error:?}");
    }
    assert_eq!(
        hostile.idle_instances(),
        0,
        "an instance that failed is discarded"
    );
    assert_eq!(
        sizes(&up(hostile, &["fine", "b"]).unwrap()),
        [0, 0],
        "a new instance works"
    );
    assert_works(sandbox);
}

#[test]
fn endless_loop_is_interrupted() {
    let sandbox = sandbox_with(limited_call_time());
    let hostile = migration("hostile", &sandbox);
    let error = overrun(&sandbox, || up(&hostile, &["endless-loop", "b"])).unwrap_err();
    assert_discarded(
        &sandbox,
        &hostile,
        &error,
        &["computed for longer than 600s", "loop that does not end"],
    );
}

#[test]
fn memory_is_limited() {
    assert_stopped(
        Limits::default(),
        "memory-growth",
        &["bytes of memory", "at most 67108864"],
    );
}

#[test]
fn memory_limit_is_configurable() {
    let limits = Limits {
        memory_bytes: 8 << 20,
        ..Limits::default()
    };
    assert_stopped(
        limits,
        "memory-grown",
        &["bytes of memory", "at most 8388608"],
    );
}

#[test]
fn stack_is_limited() {
    assert_stopped(
        Limits::default(),
        "stack-overflow",
        &["used up its stack of 524288 bytes", "recursion"],
    );
}

#[test]
fn a_trap_is_an_error() {
    assert_stopped(
        Limits::default(),
        "trap",
        &["trapped", "unreachable", "run the SDK's tests"],
    );
}

#[test]
fn size_of_a_result_is_limited() {
    assert_stopped(
        Limits::default(),
        "oversized-result",
        &["returned more than 33554432 bytes"],
    );
}

#[test]
fn outcome_that_does_not_match_its_batch_is_refused() {
    for (behaviour, flaw) in [
        (
            "wrong-row-count",
            "table `things`: column `size`: 24 bytes for 2 rows",
        ),
        (
            "offsets-out-of-range",
            "offsets end at 1073741824, the values at 4",
        ),
        ("offsets-go-back", "offsets go back from 4 to 2"),
        ("short-validity", "2 bytes of validity for 2 rows"),
        ("too-many-tables", "0 tables for 1 declared"),
        ("too-many-columns", "2 columns for 1 declared"),
        (
            "undeclared-shape",
            "a new shape, which the manifest does not declare",
        ),
        (
            "undeclared-residue",
            "residue, which the manifest does not declare",
        ),
        ("refuses-unknown-unit", "refuses unit 2 of 2"),
    ] {
        assert_stopped(Limits::default(), behaviour, &[flaw, "correct the module"]);
    }
}

#[test]
fn instance_is_reused_after_a_fault() {
    let sandbox = sandbox();
    let hostile = migration("hostile", &sandbox);
    let error = up(&hostile, &["fault"]).unwrap_err();
    assert!(error.contains("it refused: fault on request"), "{error}");
    assert_eq!(hostile.idle_instances(), 1);
}

#[test]
fn instance_with_large_memory_is_not_reused() {
    let hostile = migration("hostile", &sandbox());
    up(&hostile, &["memory-grown"]).unwrap();
    assert_eq!(hostile.idle_instances(), 0);
    up(&hostile, &["fine"]).unwrap();
    assert_eq!(hostile.idle_instances(), 1);
}

#[test]
fn log_lines_per_call_are_limited() {
    let hostile = migration("hostile", &sandbox());
    let lines = LogLines::default();
    let _capturing = lines.capture();
    up(&hostile, &["log-flood"]).unwrap();
    let text = lines.text();
    assert_eq!(text.matches("flood ").count(), 100);
    assert!(text.contains("has logged 100 lines in one call"), "{text}");
    assert!(text.contains("hostile.wasm"), "a log line names its module");
    assert!(
        text.lines().all(|line| line.len() < 2_200),
        "long lines are truncated"
    );
}

#[test]
fn reason_is_one_line_of_limited_length() {
    let hostile = migration("hostile", &sandbox());
    let fault = up(&hostile, &["long-fault"]).unwrap_err();
    let refusal = up(&hostile, &["refuses-at-length"])
        .unwrap()
        .refused
        .remove(0)
        .reason;
    for reason in [fault, refusal] {
        assert!(
            reason.contains("forged\\n\\u{1b}[31mforged"),
            "{:.300}",
            reason
        );
        assert!(
            reason.len() < 1_500 && reason.lines().count() == 1,
            "{} bytes",
            reason.len()
        );
    }
}

#[test]
fn log_lines_of_a_module_are_limited_over_all_instances() {
    let hostile = migration("hostile", &sandbox());
    let lines = LogLines::default();
    let _capturing = lines.capture();
    for _ in 0..20 {
        let error = up(&hostile, &["log-and-trap"]).unwrap_err();
        assert!(error.contains("after this warning: flood 89"), "{error}");
    }
    drop(hostile);
    let text = lines.text();
    assert!(
        (1_000..1_200).contains(&text.matches("flood ").count()),
        "{}",
        text.matches("flood ").count()
    );
    assert!(
        text.contains("lines of this module were left out"),
        "{:.1000}",
        text
    );
}

#[test]
fn trap_fails_only_its_own_batch() {
    let module = migration("traps-on-marked-unit", &sandbox());
    assert!(up(&module, &["a", "trap", "b"]).is_err());
    assert!(up(&module, &["trap"]).is_err());
    assert_eq!(sizes(&up(&module, &["a"]).unwrap()), [1]);
    assert_eq!(sizes(&up(&module, &["b", "cc"]).unwrap()), [1, 2]);
}

#[test]
fn direction_without_access_does_not_call_the_module() {
    let module = migration("well-behaved", &sandbox());
    // `down` of this guest traps when called.
    let outcome = module
        .apply(Direction::Down, &run_arguments(), &Batch::default())
        .unwrap();
    assert_eq!(outcome, Outcome::default());
}

#[test]
fn a_foreign_import_is_refused_before_anything_runs() {
    let error = chain(&Module::open(&guest("forbidden-import"), &sandbox()).unwrap_err());
    for word in [
        "forbidden-import.wasm",
        "before any of its code runs",
        "`wasi:random/random@0.2.0#get-random-u64`",
    ] {
        assert!(error.contains(word), "{word:?} is not in {error:?}");
    }
}

#[test]
fn module_that_traps_in_describe_is_refused() {
    let error = chain(&Module::open(&guest("describe-traps"), &sandbox()).unwrap_err());
    for words in [
        "did not return a manifest: it trapped",
        "after this warning: panicked at",
        "describe traps",
    ] {
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[test]
fn invalid_component_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("1-text.wasm");
    let cases: [(&[u8], &str); 5] = [
        (b"not wasm", "is not a WebAssembly file"),
        (b"", "is not a WebAssembly file"),
        (b"\0asm\x01\0\0\0", "is a core WebAssembly module"),
        (b"\0asm\x07\0\0\0", "its format is 07000000"),
        (
            b"\0asm\x0d\0\x01\0rest",
            "is not a WebAssembly component this host can run",
        ),
    ];
    for (bytes, words) in cases {
        std::fs::write(&path, bytes).unwrap();
        let error = chain(&Module::open(&path, &sandbox()).unwrap_err());
        assert!(error.contains(words), "{words:?} is not in {error:?}");
    }
}

#[test]
fn component_over_the_size_limit_is_not_read() {
    let sandbox = sandbox_with(Limits {
        component_bytes: 10_000,
        ..Limits::default()
    });
    let error = chain(&Module::open(&guest("well-behaved"), &sandbox).unwrap_err());
    assert!(error.contains("is larger than 10000 bytes"), "{error}");
}

#[test]
fn size_of_a_manifest_is_limited() {
    let sandbox = sandbox_with(Limits {
        manifest_bytes: 100,
        ..Limits::default()
    });
    let error = chain(&Module::open(&guest("well-behaved"), &sandbox).unwrap_err());
    assert!(
        error.contains("its manifest has more than 100 bytes"),
        "{error}"
    );
}

/// The error of a file that is compiled within these limits, as no cache has it.
fn compiled(file: &Path, compile: CompileLimits) -> String {
    let limits = Limits {
        compile,
        ..Limits::default()
    };
    let sandbox = Arc::new(Sandbox::compiled_at(bbs(), limits, None).unwrap());
    chain(&Module::open(file, &sandbox).unwrap_err())
}

#[test]
fn processor_time_and_memory_of_the_compiler_are_limited() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slow.wasm");
    let limits = CompileLimits::default();
    std::fs::write(&file, many_values()).unwrap();
    let error = compiled(
        &file,
        CompileLimits {
            processor_time: Duration::from_secs(1),
            ..limits.clone()
        },
    );
    assert!(
        error.contains("slow.wasm took more than 1s of processor time to compile"),
        "{error}"
    );
    let error = compiled(
        &file,
        CompileLimits {
            memory_bytes: 30 << 20,
            ..limits
        },
    );
    assert!(
        error.contains("slow.wasm took more than 31457280 bytes of memory to compile"),
        "{error}"
    );
}

#[test]
fn wait_for_the_compiler_is_limited() {
    let error = compiled(
        &guest("well-behaved"),
        CompileLimits {
            wait: Duration::ZERO,
            ..CompileLimits::default()
        },
    );
    assert!(error.contains("was not compiled within 0ns"), "{error}");
}

/// Method: an executable that cannot be started.
#[test]
fn module_in_the_cache_is_loaded_without_a_process() {
    migration("well-behaved", &sandbox());
    let opened = |cache: Option<&CacheFolders>| {
        let sandbox = Arc::new(
            Sandbox::compiled_at(Path::new("/dev/null"), Limits::default(), cache).unwrap(),
        );
        Module::open(&guest("well-behaved"), &sandbox)
            .map(drop)
            .map_err(|error| chain(&error))
    };
    assert_eq!(opened(Some(&CacheFolders::at(cache()))), Ok(()));
    let error = opened(None).unwrap_err();
    assert!(
        error.contains("a process for it cannot be started"),
        "{error}"
    );
}

#[test]
fn wait_for_an_instance_is_limited() {
    let limits = Limits {
        instances: 1,
        instance_wait: Duration::ZERO,
        ..limited_call_time()
    };
    let sandbox = sandbox_with(limits);
    let hostile = migration("hostile", &sandbox);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| up(&hostile, &["endless-loop"]));
        // Until the loop has the only instance.
        block_until(|| hostile.idle_instances() == 0);
        let error = up(&hostile, &["fine"]).unwrap_err();
        assert!(error.contains("all its 1 instances are busy"), "{error}");
        assert!(
            overrun(&sandbox, || running.join().unwrap())
                .unwrap_err()
                .contains("computed for longer than 600s")
        );
    });
    assert_eq!(
        sizes(&up(&hostile, &["fine"]).unwrap()),
        [0],
        "the instance is free again"
    );
}

#[test]
fn call_of_a_translator_does_not_wait_for_an_instance() {
    let chatty = translator(
        "chatty-translator",
        &sandbox_with(Limits {
            instances: 1,
            ..Limits::default()
        }),
    );
    let outer = call(&*chatty, "Once", b"", &mut |_, _| {
        call(&*chatty, "Never", b"", &mut never)
    });
    let error = outer.unwrap_err().reason;
    assert!(error.contains("all its 1 instances are busy"), "{error}");
    call(&*chatty, "Never", b"", &mut never).expect("the instance is free again");
}

#[test]
fn memory_of_translators_together_is_limited() {
    let limits = Limits {
        translator_memory_bytes: 10 << 20,
        ..Limits::default()
    };
    let chatty = translator("chatty-translator", &sandbox_with(limits));
    let error = call(&*chatty, "Grow", b"", &mut never).unwrap_err().reason;
    assert!(error.contains("bytes of memory"), "{error}");
    call(&*chatty, "Never", b"", &mut never).expect("the memory is free again");
    // Each of the running calls has an instance.
    let mut deepest = 0;
    nested(&*chatty, &mut || deepest += 1).expect_err("the last one has no memory");
    assert!(
        (2..10).contains(&deepest),
        "{deepest} instances of at least 1 MiB"
    );
    call(&*chatty, "Never", b"", &mut never).expect("the memory is free again");
}

#[test]
fn translator_leaves_memory_to_another_one() {
    let sandbox = sandbox_with(Limits {
        translator_memory_bytes: 16 << 20,
        ..Limits::default()
    });
    let [greedy, other] = [(); 2].map(|()| translator("chatty-translator", &sandbox));
    let refused = nested(&*greedy, &mut || {
        // One more instance than that of the manifest.
        let mut inner = |_: &str, _: &[u8]| call(&*other, "Never", b"", &mut never);
        call(&*other, "Once", b"", &mut inner).expect("memory is kept for it");
    });
    refused.expect_err("the last one has no memory");
}

/// Calls a translator within its own call, until no instance is left; then `at_end` in each call.
fn nested(chatty: &dyn Translate, at_end: &mut dyn FnMut()) -> NextAnswer {
    call(chatty, "Once", b"", &mut |_, _| {
        let answer = nested(chatty, at_end);
        at_end();
        answer
    })
}

fn never(_: &str, _: &[u8]) -> NextAnswer {
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
    assert_eq!(call(&*chatty, "Once", b"a", &mut next).unwrap(), b"a!");
    assert_eq!(call(&*chatty, "Twice", b"b", &mut next).unwrap(), b"b!!");
    assert_eq!(call(&*chatty, "Never", b"c", &mut next).unwrap(), b"c");
    let newer = |request: &[u8]| ("Newer".to_owned(), request.to_vec());
    assert_eq!(called, [newer(b"a"), newer(b"b"), newer(b"b!")]);
}

#[test]
fn translators_call_each_other_through_next() {
    let chatty = translator("chatty-translator", &sandbox());
    let mut native = |_: &str, request: &[u8]| Ok([request, b"native"].concat());
    let mut inner = |_: &str, request: &[u8]| call(&*chatty, "Twice", request, &mut native);
    assert_eq!(
        call(&*chatty, "Twice", b"", &mut inner).unwrap(),
        b"nativenativenativenative"
    );
}

#[test]
fn an_error_of_next_reaches_the_caller() {
    let chatty = translator("chatty-translator", &sandbox());
    let mut failing = |_: &str, _: &[u8]| Err(TranslateError::new("the database is gone"));
    let error = call(&*chatty, "Once", b"", &mut failing)
        .unwrap_err()
        .reason;
    assert!(error.contains("the database is gone"), "{error}");
}

#[test]
fn time_in_next_does_not_count_towards_the_deadline() {
    let sandbox = sandbox_with(limited_call_time());
    let chatty = translator("chatty-translator", &sandbox);
    let mut slow = |_: &str, request: &[u8]| {
        sandbox.skip(CALL_TIME * 2 / 3);
        Ok(request.to_vec())
    };
    assert_eq!(call(&*chatty, "Twice", b"a", &mut slow).unwrap(), b"a");
    let error = overrun(&sandbox, || call(&*chatty, "Loop", b"a", &mut slow))
        .unwrap_err()
        .reason;
    assert!(
        error.contains("computed for longer than 600s"),
        "the guest's own time counts: {error}"
    );
}

#[test]
fn calls_of_next_do_not_extend_the_deadline() {
    let sandbox = sandbox_with(limited_call_time());
    let chatty = translator("chatty-translator", &sandbox);
    let error = overrun(&sandbox, || {
        call(&*chatty, "Forever", b"a", &mut |_, _| Ok(vec![]))
    })
    .unwrap_err()
    .reason;
    assert!(error.contains("computed for longer than 600s"), "{error}");
}

#[test]
fn failed_translator_is_named_and_its_instance_discarded() {
    let sandbox = sandbox();
    let chatty = translator("chatty-translator", &sandbox);
    for (method, words) in [
        ("Trap", "trapped"),
        ("Grow", "bytes of memory"),
        ("Unknown", "it refused: no method Unknown"),
    ] {
        let error = call(&*chatty, method, b"", &mut never).unwrap_err().reason;
        for word in [
            words,
            method,
            "0.9 to 0.10",
            "chatty-translator.wasm",
            chatty.digest(),
        ] {
            assert!(error.contains(word), "{word:?} is not in {error:?}");
        }
        assert_eq!(
            call(&*chatty, "Never", b"fine", &mut never).unwrap(),
            b"fine"
        );
    }
    assert_works(&sandbox);
}

/// The thread of a sandbox ends with it, as `thread_ends_when_the_ticker_is_dropped` shows.
#[test]
fn sandbox_lives_as_long_as_its_modules() {
    let sandbox = sandbox();
    let module = migration("well-behaved", &sandbox);
    let alive = Arc::downgrade(&sandbox);
    drop(sandbox);
    up(&module, &["fine"]).expect("the module works");
    assert_ne!(
        alive.strong_count(),
        0,
        "the module keeps its sandbox alive"
    );
    drop(module);
    assert_eq!(alive.strong_count(), 0, "the last module is dropped");
}
