//! Tests on real servers are in `tests/suite`.
