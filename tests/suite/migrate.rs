//! TODO(migrate)
