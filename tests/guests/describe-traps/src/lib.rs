//! Breaks off when asked what it is.

wit_bindgen::generate!({ path: "../../../sdk/wit/migration-0.1.0", world: "migration" });

struct DescribeTraps;

impl Guest for DescribeTraps {
    fn describe() -> Manifest {
        panic!("it will not say")
    }

    fn up(_run: Run, _batch: Batch) -> Result<Outcome, Fault> {
        panic!("it will not do")
    }

    fn down(_run: Run, _batch: Batch) -> Result<Outcome, Fault> {
        panic!("it will not undo")
    }
}

export!(DescribeTraps);
