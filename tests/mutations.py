#!/usr/bin/env python3
"""Applies one mutation of the host's source at a time and checks that a test fails.

For mutations that `cargo mutants` has no operator for: each case of the start-up decision, each refusal of the catalog, each
limit of the sandbox, each condition for resuming interrupted work. Works in a copy of the tree, which it restores after each
mutation:

    git worktree add ../mutated && tests/mutations.py ../mutated [NUMBER ...]

Prints one line per mutation; exits with failure if one survives, does not apply or does not compile."""

import pathlib
import subprocess
import sys

MIGRATE = ["--lib", "migrate::"]
DECIDE = ["--lib", "decide"]
INSTANCE = ["--lib", "instance"]
CATALOG = ["--test", "suite", "catalog::"]
SANDBOX = ["--test", "suite", "sandbox::"]

# File below host/src, original text, replacement, tests of which one must fail.
MUTATIONS = [
    (
        "migrate/decide.rs",
        "Decision::Begin { from: 0, to: wanted }",
        "{ let _ = wanted; Decision::Serve }",
        DECIDE,
    ),
    (
        "migrate/decide.rs",
        "came_down && current == back_to",
        "current == back_to",
        DECIDE,
    ),
    (
        "migrate/decide.rs",
        " && current < wanted && target == current",
        " && current < wanted",
        DECIDE,
    ),
    (
        "migrate/state.rs",
        "is_down && version.unsigned_abs() > current",
        "is_down",
        MIGRATE,
    ),
    (
        "migrate/look.rs",
        "        check_record_versions(&mut reader, layouts, from).await?;",
        "",
        MIGRATE,
    ),
    (
        "migrate/prepare.rs",
        "        fresh::forget(&mut tx).await?;",
        "",
        MIGRATE,
    ),
    (
        "migrate/decide.rs",
        "(Found::Fresh, Intent::Down { .. }) => Decision::ShutDown(Reason::NothingThere)",
        "(Found::Fresh, Intent::Down { .. }) => Decision::Serve",
        DECIDE,
    ),
    (
        "migrate/decide.rs",
        "(Found::Unversioned { tables }, _) => Decision::ShutDown(Reason::Unversioned { tables: tables.clone() })",
        "(Found::Unversioned { .. }, _) => Decision::Serve",
        DECIDE,
    ),
    (
        "migrate/decide.rs",
        "        return Decision::ShutDown(Reason::GoingDown { to });",
        "        let _ = to;",
        DECIDE,
    ),
    (
        "migrate/decide.rs",
        "(Less, Less) => Decision::Begin { from: current, to: wanted }",
        "(Less, Less) => Decision::Continue { from: current, to: wanted }",
        DECIDE,
    ),
    (
        "migrate/decide.rs",
        "(Less, Equal | Greater) => Decision::Continue { from: current, to: wanted }",
        "(Less, Equal | Greater) => Decision::Begin { from: current, to: wanted }",
        DECIDE,
    ),
    (
        "migrate/decide.rs",
        "(Equal, Less) => Decision::ShutDown(Reason::Botched { current, target }),\n        (Equal, Equal | Greater) => Decision::Serve,\n        (Greater",
        "(Equal, Less) => Decision::Serve,\n        (Equal, Equal | Greater) => Decision::Serve,\n        (Greater",
        DECIDE,
    ),
    (
        "migrate/decide.rs",
        "(Equal, Equal | Greater) => Decision::Serve,\n        (Greater, Less",
        "(Equal, Equal | Greater) => Decision::Continue { from: current, to: wanted },\n        (Greater, Less",
        DECIDE,
    ),
    (
        "migrate/decide.rs",
        "(Greater, Less | Equal | Greater) => Decision::ShutDown(Reason::Newer { current, wanted })",
        "(Greater, Less | Equal | Greater) => Decision::Serve",
        DECIDE,
    ),
    (
        "migrate/decide.rs",
        "(false, _) => Decision::ShutDown(Reason::GoingDown { to: began })",
        "(false, _) => Decision::Continue { from: current, to }",
        DECIDE,
    ),
    (
        "migrate/decide.rs",
        "(true, Less) => Decision::ShutDown(Reason::NothingBelow { current, to })",
        "(true, Less) => Decision::Serve",
        DECIDE,
    ),
    (
        "migrate/decide.rs",
        "(true, Equal | Greater) => Decision::Continue { from: current, to }",
        "(true, Equal | Greater) => Decision::Begin { from: current, to }",
        DECIDE,
    ),
    (
        "migrate/decide.rs",
        "(Less, _) => Decision::ShutDown(Reason::NothingBelow { current, to })",
        "(Less, _) => Decision::Serve",
        DECIDE,
    ),
    (
        "migrate/decide.rs",
        "(Equal | Greater, Less) => Decision::ShutDown(Reason::Botched { current, target })",
        "(Equal | Greater, Less) => Decision::Serve",
        DECIDE,
    ),
    (
        "migrate/decide.rs",
        "(Equal, Equal | Greater) => Decision::Serve,\n        // An",
        "(Equal, Equal | Greater) => Decision::Begin { from: current, to },\n        // An",
        DECIDE,
    ),
    (
        "migrate/decide.rs",
        "(Greater, Equal | Greater) => Decision::Begin { from: current, to }",
        "(Greater, Equal | Greater) => Decision::Serve",
        DECIDE,
    ),
    (
        "migrate/prepare.rs",
        "found.phase == Phase::Copying\n            && ",
        "",
        MIGRATE,
    ),
    (
        "migrate/prepare.rs",
        "            && found.fingerprint == work.fingerprint()\n",
        "",
        MIGRATE,
    ),
    (
        "migrate/prepare.rs",
        "            && (found.token == work.token || found.token + 1 == work.token)",
        "",
        MIGRATE,
    ),
    (
        "migrate/prepare.rs",
        "        residue::remove(&mut tx, work.lens.direction, work.versions()).await?;\n    }\n    let phase",
        "    }\n    let phase",
        MIGRATE,
    ),
    (
        "migrate.rs",
        "if underway.is_some() { cut_over::clean_up(context, fence).await } else { Ok(()) }",
        "{ let _ = underway; Ok(()) }",
        MIGRATE,
    ),
    (
        "migrate.rs",
        "            start_over(context, fence, work, going_down).await?;\n",
        "",
        MIGRATE,
    ),
    (
        "migrate/look.rs",
        "        check_history(context, &state::applied(&mut reader).await?)?;",
        "",
        MIGRATE,
    ),
    (
        "migrate/cut_over.rs",
        "        super::same_schema(dialect, name, found, &plan.table)?;",
        "        let _ = found;",
        MIGRATE,
    ),
    (
        "migrate/cut_over.rs",
        "    state::write_version(tx, work.to, work.to).await?;",
        "",
        MIGRATE,
    ),
    (
        "migrate/copy.rs",
        "batch.last.to_text().into()",
        "None::<String>.into()",
        MIGRATE,
    ),
    (
        "modules/catalog.rs",
        "        refuse_unlisted(folder, &entries)?;\n        sequence::check(&entries)?;\n        let (mut",
        "        sequence::check(&entries)?;\n        let (mut",
        CATALOG,
    ),
    (
        "modules/catalog.rs",
        "    if source.digest != entry.sha256 {",
        "    if false {",
        CATALOG,
    ),
    (
        "modules/catalog.rs",
        "    if !matches {",
        "    let _ = (matches, &found); if false {",
        CATALOG,
    ),
    (
        "modules/catalog.rs",
        "Some(last) if last.manifest().onto != native =>",
        "Some(last) if false && last.manifest().onto != native =>",
        CATALOG,
    ),
    (
        "modules/catalog/sequence.rs",
        "Some(before) if version == before =>",
        "Some(before) if false && version == before =>",
        CATALOG,
    ),
    (
        "modules/catalog/sequence.rs",
        "Some(before) if version < before =>",
        "Some(before) if false && version < before =>",
        CATALOG,
    ),
    (
        "modules/catalog/sequence.rs",
        "Some(_) | None if follows == before => {}",
        "Some(_) | None if true || follows == before => {}",
        CATALOG,
    ),
    (
        "modules/catalog/sequence.rs",
        "Some((_, wanted)) if serves != wanted =>",
        "Some((_, wanted)) if false && serves != wanted =>",
        CATALOG,
    ),
    (
        "modules/catalog/sequence.rs",
        "        if served.contains(&serves) {",
        "        if false {",
        CATALOG,
    ),
    (
        "modules/catalog/entries.rs",
        "    if !is_file_name(&written.file) {",
        "    if false {",
        CATALOG,
    ),
    (
        "modules/catalog/entries.rs",
        "entries.iter().find(|entry| !files.insert(&entry.file))",
        "entries.iter().find(|entry| !files.insert(&entry.file) && false)",
        CATALOG,
    ),
    (
        "modules/instance.rs",
        "        if wanted > self.limits.memory_bytes {",
        "        if false {",
        SANDBOX,
    ),
    (
        "modules/instance.rs",
        "Ok(wanted <= self.limits.table_elements)",
        "Ok(true)",
        INSTANCE,
    ),
    (
        "modules/instance.rs",
        "    store.set_hostcall_fuel(fuel);",
        "    let _ = fuel;",
        SANDBOX,
    ),
    (
        "modules/instance.rs",
        "    if tenant.next_calls == limits.next_calls {",
        "    if false {",
        SANDBOX,
    ),
    (
        "modules/instance.rs",
        "        if instance.store.data().memory_bytes <= limits.idle_memory_bytes {",
        "        if true {",
        SANDBOX,
    ),
    (
        "modules/instance.rs",
        "        if wait.timed_out() {",
        "        if false {",
        SANDBOX,
    ),
    (
        "modules/sandbox.rs",
        "        if std::fs::metadata(path).map_err(failed)?.len() > limit {",
        "        if false {",
        SANDBOX,
    ),
    (
        "modules/sandbox.rs",
        "compiled.recv_timeout(limit)",
        "compiled.recv_timeout(limit + Duration::from_secs(3600))",
        SANDBOX,
    ),
]


def outcome(root, name, old, new, tests):
    path = root / "host/src" / name
    text = path.read_text()
    if text.count(old) == 0:
        return "NOT FOUND"
    path.write_text(text.replace(old, new, 1))
    try:
        command = ["cargo", "test", "--quiet", "-p", "bbs", *tests]
        run = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=600)
        if "could not compile" in run.stdout + run.stderr:
            return "NOT BUILT"
        return "caught" if run.returncode else "SURVIVED"
    except subprocess.TimeoutExpired:
        return "caught, by a timeout"
    finally:
        path.write_text(text)


def main():
    root = pathlib.Path(sys.argv[1])
    chosen = [int(number) for number in sys.argv[2:]] or range(len(MUTATIONS))
    all_caught = True
    for number in chosen:
        name, old, new, tests = MUTATIONS[number]
        found = outcome(root, name, old, new, tests)
        all_caught &= found.startswith("caught")
        print(number, found, name, old.strip().splitlines()[0][:80], sep="\t", flush=True)
    sys.exit(not all_caught)


if __name__ == "__main__":
    main()
