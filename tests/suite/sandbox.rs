//! TODO(sandbox)
