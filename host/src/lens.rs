//! The lens: the migrations between two data versions, applied to units in memory.
//! Owns composition and the bisection of failing batches; reads and writes no database.

pub mod transform;
