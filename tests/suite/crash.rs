//! TODO(crash)
