//! Traps in `describe`.

wit_bindgen::generate!({ path: "../../../sdk/wit/migration-0.1.0", world: "migration" });

struct DescribeTraps;

impl Guest for DescribeTraps {
    fn describe() -> Manifest {
        panic!("describe traps")
    }

    fn up(_run: Run, _batch: Batch) -> Result<Outcome, Fault> {
        unreachable!("it is refused at load")
    }

    fn down(_run: Run, _batch: Batch) -> Result<Outcome, Fault> {
        unreachable!("it is refused at load")
    }
}

export!(DescribeTraps);
