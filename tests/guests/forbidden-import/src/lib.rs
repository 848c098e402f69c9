//! Imports randomness, which would make its output non-deterministic.

wit_bindgen::generate!({
    path: ["../../../sdk/wit/migration-0.1.0", "wit"],
    world: "guests:forbidden/with-random",
    generate_all,
});

struct ForbiddenImport;

impl Guest for ForbiddenImport {
    fn describe() -> Manifest {
        Manifest {
            version: wasi::random::random::get_random_u64(),
            name: "forbidden-import".into(),
            summary: "Is never called.".into(),
            changes: vec![],
            up: vec![],
            down: vec![],
            reversible: true,
            leaves_residue: false,
            removes_rows: false,
        }
    }

    fn up(_run: Run, _batch: Batch) -> Result<Outcome, Fault> {
        unreachable!("it is refused from its type alone")
    }

    fn down(_run: Run, _batch: Batch) -> Result<Outcome, Fault> {
        unreachable!("it is refused from its type alone")
    }
}

export!(ForbiddenImport);
