//! TODO(validation)
