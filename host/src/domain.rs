//! What the service can do. Owns the rules and the order of the steps; knows neither HTTP nor SQL.

pub mod validation;
