//! TODO(takeover)
